"""Class means that a trained graph adapts to one another and to each query: CEC's classifier."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fscil_bench.method import Method, MethodContext, Needs, Network, Terms
from fscil_bench.protocol import LabelledSamples, Queries, Session

from .._shared.network import embedded
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means
from .attention import GraphAttention, GraphParams, adapted_cosines
from .episodes import check_episodes

GRAPH = "graph."
"""How the graph's tensors are prefixed, in the state and in what pretraining returns."""

ENCODER = "encoder."
"""How the network's tensors are prefixed, in the state and in what pretraining returns."""


class EvolvedClassifier(Method):
    """Keeps class means and a trained graph; a subclass says what features are, and trains."""

    params: GraphParams

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


class TrainedClassifier(EvolvedClassifier):
    """Keeps a network too, which a subclass trained along with the graph."""

    needs = Needs(features=(), images=True)

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError(f"{self.name} needs a network")
        self.network: Network = context.network

    @abstractmethod
    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train graph and network on base images; return both, under their prefixes."""

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take graph and network as `pretrain` trained them."""
        super().load_pretrained(tensors)
        self.network.backbone.load_state_dict(part_of(tensors, ENCODER))

    def embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        """Return the trained network's features (n, D) of images, in full precision."""
        return embedded(self.network, images_of(samples))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the prototypes (classes seen, D), the graph's tensors and the network's."""
        network = prefixed(ENCODER, self.network.backbone)
        return super().state_dict() | {k: v.detach().cpu().clone() for k, v in network.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore prototypes, graph and network."""
        super().load_state_dict(state)
        self.network.backbone.load_state_dict(part_of(state, ENCODER))


def images_of(samples: LabelledSamples | Queries) -> torch.Tensor:
    """Return the images (n, H, W, 3) of samples.

    Raises:
        ValueError: they come without.
    """
    if samples.images is None:
        raise ValueError("a network that was trained along needs images")
    return samples.images
