"""CEC: a graph adapts classifiers to one another and to each query."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from fscil_bench.method import Method, MethodContext, Needs, Network, Terms
from fscil_bench.protocol import LabelledSamples, Queries, Session

from .._shared import citations
from .._shared.augmentation import turned
from .._shared.network import embedded
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means, require_finite
from .attention import GraphAttention, adapted_cosines
from .episodes import MetaParams, base_episodes, check_episodes, train_on_episodes

GRAPH = "graph."
"""How the graph's tensors are prefixed, in the state and in what pretraining returns."""

TURNED = ("rot90", "rot180", "rot270")
"""The views of base images by quarter turns, from one to three."""

ENCODER = "encoder."
"""How the network's tensors are prefixed, in the state and in what pretraining returns."""


class EvolvedClassifier(Method):
    """Keeps class means and a trained graph; a subclass says what features are, and trains."""

    params: MetaParams

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.attention = self.new_attention()
        self.prototypes = torch.empty(0, context.feature_dim, device=context.device)

    @abstractmethod
    def embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        """Return the features (n, D) of samples, on the method's device."""

    def new_attention(self) -> GraphAttention:
        """Return the graph at its initialisation."""
        generator = self.context.base_random.torch("graph", "initialisation")
        graph = GraphAttention(self.context.feature_dim, self.params.layer_norm, generator)
        return graph.to(self.context.device)

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take what `pretrain` learnt."""
        self.attention.load_state_dict(part_of(tensors, GRAPH))

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse more shots than a base class has images for."""
        check_episodes(cls.name, params, terms)

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as prototypes."""
        self.prototypes = self._means(base)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' means."""
        self.prototypes = torch.cat([self.prototypes, self._means(session)])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return temperature × cosine (n, classes seen) of adapted queries and prototypes."""
        return self._logits(self.prototypes, queries)

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return the logits (n, way) of a graph over the prototypes of an episode alone."""
        return self._logits(self._means(shots), queries)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the prototypes (classes seen, D) and the graph's tensors."""
        state = {"prototypes": self.prototypes, **prefixed(GRAPH, self.attention)}
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore prototypes and graph."""
        self.prototypes = state["prototypes"].clone().to(self.context.device)
        self.attention.load_state_dict(part_of(state, GRAPH))

    def _logits(self, prototypes: torch.Tensor, queries: Queries) -> torch.Tensor:
        cosines = adapted_cosines(self.attention, prototypes, self.embed(queries))
        return self.params.temperature * cosines

    def _means(self, session: Session) -> torch.Tensor:
        labels = session.labels.to(self.context.device)
        return class_means(self.embed(session), labels, session.class_ids).float()


@dataclass(frozen=True)
class CecParams(MetaParams):
    """As of `cec_trained`, but for the rate, as the graph learns alone here."""

    lr: Annotated[float, Field(gt=0)] = 2e-2


class Cec(EvolvedClassifier):
    """Continually evolved classifiers (CEC), encoder frozen: a variant of the published method.

    Zhang, Song, Lin, Zheng, Pan and Xu, "Few-Shot Incremental Learning with Continually Evolved
    Classifiers", CVPR 2021.

    Classifiers made in different sessions have never been compared with one another. A graph, one
    layer of self-attention over all class means and the query, adapts each to the others and to
    the query before they are compared by cosine. It is learnt from the base classes alone, in
    pseudo-incremental episodes: 15 base classes, and 15 pseudo-new ones that are their copies, all
    images of a class turned by 90, 180 or 270 degrees. In a session nothing is trained: the new
    classes' means join the graph. `cec_trained` is the published method, whose encoder learns in
    the episodes too.

    Unlike with most methods on frozen features, **the scores of old classes change when classes
    are added**, though nothing is forgotten: each prototype attends to all the others. A query's
    scores depend on no other query.

    **Stored between sessions** (float32): prototypes 4·C·D, and the graph 16·D² + 12·D (4·D of it
    the bias, 8·D the normalisation).

    **Deviations.** The encoder is frozen, and turned images are seen by their cached features; the
    last epoch counts; few base data make fewer episodes. Few-shot episodes are a graph over the
    means of the episode's classes alone. Details and the provenance of the defaults:
    docs/methods/cec.md.
    """

    name = "cec"
    title = "CEC"
    bibtex = citations.CEC
    Params = CecParams
    needs = Needs(base_views=TURNED)
    pretrain_params = tuple(field.name for field in fields(CecParams))
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cub200": {"queries": 10}}
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (2e-3, 2e-2),
        "layer_norm": (True, False),
    }

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train the graph on pseudo-incremental episodes of base features.

        Raises:
            DataError: a feature is NaN or infinite.
        """
        views = [self._checked(base.views[view], base.labels) for view in ("plain", *TURNED)]

        def embed(samples: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
            samples, turns = samples.to(self.context.device), turns.to(self.context.device)
            features = views[0][samples]
            for number, view in enumerate(views[1:], start=1):
                features[turns == number] = view[samples[turns == number]]
            return features

        attention = self.new_attention()
        episodes = base_episodes(base.labels, base.class_ids, self.params)
        generator = self.context.base_random.torch("graph", "episodes")
        train_on_episodes(attention, embed, episodes, self.params, generator, progress)
        return {k: v.detach().cpu() for k, v in prefixed(GRAPH, attention).items()}

    def embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        """Return the frozen features (n, D) of samples."""
        return self._checked(samples.features, getattr(samples, "labels", None))

    def _checked(self, features: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
        require_finite(features, labels)
        return features.to(self.context.device, torch.float32)


@dataclass(frozen=True)
class TrainedMetaParams(MetaParams):
    """As of `cec`, and `encoder_lr`, the learning rate of the network in the meta stage."""

    encoder_lr: Annotated[float, Field(ge=0)] = 2e-3


class CecTrained(EvolvedClassifier):
    """Continually evolved classifiers (CEC) as published: the encoder learns in the meta stage.

    Zhang, Song, Lin, Zheng, Pan and Xu, "Few-Shot Incremental Learning with Continually Evolved
    Classifiers", CVPR 2021.

    As `cec`, but the backbone is trained along with the graph on the pseudo-incremental episodes:
    their images pass through it, the copies that play new classes turned by a quarter, half or
    three quarters. Batch normalisation keeps its statistics all the while. What comes out is
    frozen; the prototypes of all classes, base classes included, are means of the new features. As
    in `cec`, **the scores of old classes change when classes are added**.

    **Stored between sessions** (float32): as `cec`, and the network, which is no longer the shared
    one.

    **Deviations.** The last epoch counts; episodes show images under the test transform, as the
    released code does from its second epoch on. Details and the provenance of the defaults, all of
    the released code: docs/methods/cec.md.
    """

    name = "cec_trained"
    title = "CEC-trained"
    bibtex = citations.CEC
    Params = TrainedMetaParams
    needs = Needs(features=(), images=True)
    pretrain_params = tuple(field.name for field in fields(TrainedMetaParams))
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"encoder_lr": 2e-4, "queries": 10},
        "cifar100": {"encoder_lr": 2e-3},
        "mini_imagenet": {"encoder_lr": 2e-4},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"encoder_lr": (2e-4, 2e-3)}

    params: TrainedMetaParams

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError(f"{self.name} needs a network")
        self.network: Network = context.network

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train graph and network on pseudo-incremental episodes of base images."""
        # The method's own network stays as it is until it is given what was learnt.
        attention, encoder = self.new_attention(), copy.deepcopy(self.network.backbone).eval()
        images = _images(base)

        def embed(samples: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
            pixels = turned(self.network.test_pixels(images[samples]), turns)
            with self.network.autocast():
                features: torch.Tensor = encoder(pixels)
            return features.float()

        episodes = base_episodes(base.labels, base.class_ids, self.params)
        generator = self.context.base_random.torch("graph", "episodes")
        others = {"params": list(encoder.parameters()), "lr": self.params.encoder_lr}
        train_on_episodes(attention, embed, episodes, self.params, generator, progress, others)
        learnt = {**prefixed(GRAPH, attention), **prefixed(ENCODER, encoder)}
        return {name: value.detach().cpu() for name, value in learnt.items()}

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take graph and network as `pretrain` trained them."""
        super().load_pretrained(tensors)
        self.network.backbone.load_state_dict(part_of(tensors, ENCODER))

    def embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        """Return the trained network's features (n, D) of images, in full precision."""
        return embedded(self.network, _images(samples))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the prototypes (classes seen, D), the graph's tensors and the network's."""
        network = prefixed(ENCODER, self.network.backbone)
        return super().state_dict() | {k: v.detach().cpu().clone() for k, v in network.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore prototypes, graph and network."""
        super().load_state_dict(state)
        self.network.backbone.load_state_dict(part_of(state, ENCODER))


def _images(samples: LabelledSamples | Queries) -> torch.Tensor:
    if samples.images is None:
        raise ValueError("cec_trained needs images")
    return samples.images
