"""A network that sessions train, and the means of its features as classifier."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.method import Method, MethodContext, Needs, Network
from fscil_bench.protocol import Queries, Session

from .._shared.network import embedded
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means

BACKBONE = "backbone."
"""How the network's tensors are prefixed in the state."""


class TrainedNearestMean(Method):
    """Keeps a network and a mean a class; a subclass says how a session trains the network.

    Means of earlier classes are not renewed, though the network moves.
    """

    needs = Needs(features=(), images=True)

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError(f"{self.name} needs a network")
        self.network: Network = context.network
        self.network.backbone.eval()
        self.means = torch.empty(0, context.feature_dim, device=context.device)

    @abstractmethod
    def train(self, session: Session) -> None:
        """Train the network on a session's images."""

    @property
    @abstractmethod
    def cosine(self) -> bool:
        """Whether queries and means are brought to length 1 before they are compared."""

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Return the base classes' means (C0, D), which all seeds share."""
        means = self._means(base)
        progress(1.0)
        return {"means": means.cpu()}

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the base classes' means."""
        self.means = tensors["means"].to(self.context.device)

    def learn_base(self, base: Session) -> None:
        """Keep the network and the means as they are."""
        del base

    def learn_session(self, session: Session) -> None:
        """Train the network on the session's images, then append its classes' means.

        Raises:
            FscilError: a weight or a mean is no longer finite.
        """
        self.train(session)
        means = self._means(session)
        weights = torch.stack([x.norm() for x in self.network.backbone.parameters()])
        if not bool(torch.isfinite(torch.cat([weights, means.norm()[None]])).all()):
            raise FscilError(
                f"method {self.name!r} diverges in session {session.index}: a weight or a mean is "
                f"not finite; lower lr = {self.params.lr:g}"
            )
        self.means = torch.cat([self.means, means])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return minus the squared distance (n, classes seen) to every class's mean."""
        assert queries.images is not None
        features, means = embedded(self.network, queries.images), self.means
        if self.cosine:
            features, means = F.normalize(features, dim=1), F.normalize(means, dim=1)
        return (
            2 * features @ means.T - means.square().sum(dim=1) - features.square().sum(1)[:, None]
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the means (classes seen, D) and the network's tensors."""
        return {"means": self.means, **prefixed(BACKBONE, self.network.backbone)}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore both."""
        self.means = state["means"].clone().to(self.context.device)
        self.network.backbone.load_state_dict(part_of(state, BACKBONE))

    def _means(self, session: Session) -> torch.Tensor:
        assert session.images is not None
        features = embedded(self.network, session.images)
        labels = session.labels.to(features.device)
        return class_means(features, labels, session.class_ids).float()
