"""CEC: a graph adapts classifiers to one another and to each query."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from fscil_bench.method import Needs
from fscil_bench.protocol import LabelledSamples, Queries, Session

from .._shared import citations
from .._shared.augmentation import turned
from .._shared.state import prefixed
from .._shared.statistics import require_finite
from .episodes import MetaParams, base_episodes, train_on_episodes
from .evolved import ENCODER, GRAPH, EvolvedClassifier, TrainedClassifier, images_of

TURNED = ("rot90", "rot180", "rot270")
"""The views of base images by quarter turns, from one to three."""


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

    params: CecParams

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
        kept = self.context.checkpoint
        train_on_episodes(
            attention, embed, episodes, self.params, generator, progress, checkpoint=kept
        )
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


class CecTrained(TrainedClassifier):
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
    pretrain_params = tuple(field.name for field in fields(TrainedMetaParams))
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"encoder_lr": 2e-4, "queries": 10},
        "cifar100": {"encoder_lr": 2e-3},
        "mini_imagenet": {"encoder_lr": 2e-4},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"encoder_lr": (2e-4, 2e-3)}

    params: TrainedMetaParams

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train graph and network on pseudo-incremental episodes of base images."""
        # The method's own network stays as it is until it is given what was learnt.
        attention, encoder = self.new_attention(), copy.deepcopy(self.network.backbone).eval()
        images = images_of(base)

        def embed(samples: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
            pixels = turned(self.network.test_pixels(images[samples]), turns)
            with self.network.autocast():
                features: torch.Tensor = encoder(pixels)
            return features.float()

        episodes = base_episodes(base.labels, base.class_ids, self.params)
        generator = self.context.base_random.torch("graph", "episodes")
        others = {"params": list(encoder.parameters()), "lr": self.params.encoder_lr}
        kept = self.context.checkpoint
        train_on_episodes(
            attention, embed, episodes, self.params, generator, progress, others, kept
        )
        learnt = {**prefixed(GRAPH, attention), **prefixed(ENCODER, encoder)}
        return {name: value.detach().cpu() for name, value in learnt.items()}
