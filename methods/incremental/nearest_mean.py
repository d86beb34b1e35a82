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
from .._shared.statistics import class_means, classifier_rows

BACKBONE = "backbone."
"""How the network's tensors are prefixed in the state."""


class TrainedNearestMean(Method):
    """Keeps a network and a mean a class; a subclass says how a session trains the network.

    The base classes' means are not renewed, though the network moves. Of each new class up to
    `exemplars` shots are kept: later sessions train on them too, and renew their means. Without
    any, these means stay as well. Its parameters have `exemplars`, `lr`, and `cosine`: whether
    queries and means are brought to length 1 before they are compared.
    """

    needs = Needs(features=(), images=True)

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError(f"{self.name} needs a network")
        self.network: Network = context.network
        self.network.backbone.eval()
        self.means = torch.empty(0, context.feature_dim, device=context.device)
        self.kept = torch.empty(0, dtype=torch.uint8)
        self.kept_rows = torch.empty(0, dtype=torch.int64)

    @abstractmethod
    def train(
        self, images: torch.Tensor, rows: torch.Tensor, fixed: torch.Tensor, session: int
    ) -> None:
        """Train the network in a session.

        Args:
            images: uint8 (n, S, S, 3), of the session's classes and those of kept shots.
            rows: (n,), the place of each one's class among all classes.
            fixed: means (C, D) of all other classes.
            session: its number, from 1.
        """

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Return the base classes' means (C0, D), which all seeds share."""
        assert base.images is not None
        means = self._means(base.images, classifier_rows(base, 0, self.context.device), 0)
        progress(1.0)
        return {"means": means.cpu()}

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the base classes' means."""
        self.means = tensors["means"].to(self.context.device)

    def learn_base(self, base: Session) -> None:
        """Keep the network and the means as they are."""
        del base

    def learn_session(self, session: Session) -> None:
        """Train the network on the session's images and kept shots, then take their means.

        Raises:
            FscilError: a weight or a mean is no longer finite.
        """
        assert session.images is not None
        shots = session.images.cpu()
        rows = classifier_rows(session, len(self.means), shots.device)
        images = torch.cat([self.kept, shots]) if len(self.kept) else shots
        every = torch.cat([self.kept_rows, rows])
        fixed = self.means[: int(every.min())]
        self.train(images, every.to(self.context.device), fixed, session.index)
        means = self._means(images, every.to(self.context.device), len(fixed))
        weights = torch.stack([x.norm() for x in self.network.backbone.parameters()])
        if not bool(torch.isfinite(torch.cat([weights, means.norm()[None]])).all()):
            raise FscilError(
                f"method {self.name!r} diverges in session {session.index}: a weight or a mean is "
                f"not finite; lower lr = {self.params.lr:g}"
            )
        self.means = torch.cat([fixed, means])
        if self.params.exemplars:
            new = range(int(rows.min()), len(self.means))
            chosen = torch.cat([(rows == row).nonzero()[: self.params.exemplars, 0] for row in new])
            self.kept = torch.cat([self.kept, shots[chosen]]) if len(self.kept) else shots[chosen]
            self.kept_rows = torch.cat([self.kept_rows, rows[chosen]])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return minus the squared distance (n, classes seen) to every class's mean."""
        assert queries.images is not None
        features, means = embedded(self.network, queries.images), self.means
        if self.params.cosine:
            features, means = F.normalize(features, dim=1), F.normalize(means, dim=1)
        return (
            2 * features @ means.T - means.square().sum(dim=1) - features.square().sum(1)[:, None]
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the means (classes seen, D), the network's tensors, and kept shots if any are."""
        kept = {"kept": self.kept, "kept_rows": self.kept_rows} if self.params.exemplars else {}
        return {"means": self.means, **kept, **prefixed(BACKBONE, self.network.backbone)}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore them."""
        self.means = state["means"].clone().to(self.context.device)
        if self.params.exemplars:
            self.kept, self.kept_rows = state["kept"].clone(), state["kept_rows"].clone()
        self.network.backbone.load_state_dict(part_of(state, BACKBONE))

    def _means(self, images: torch.Tensor, rows: torch.Tensor, first: int) -> torch.Tensor:
        """Return the mean features (C, D) of classes from row `first` on, of all in `rows`."""
        features = embedded(self.network, images)
        return class_means(features, rows, range(first, int(rows.max()) + 1)).float()
