"""Classifiers of one row a class, compared by cosine, that start from class means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from fscil_bench.method import Method, MethodContext
from fscil_bench.protocol import LabelledSamples, Queries, Session

from .statistics import Space, in_space, settled_space, space_notes

Mean = Literal["raw", "unit"]
"""`raw` averages features as they are, `unit` features of length 1."""


@dataclass(frozen=True)
class PrototypeParams:
    """Which features are averaged, and how.

    Attributes:
        space: `raw` is the feature as it is, `tukey` its power x^β, for non-negative features,
            `auto` that where base features allow it.
        beta: β; unused in space `raw`.
        mean: `raw` averages features as they are, `unit` features brought to length 1 first.
    """

    space: Space = "raw"
    beta: Annotated[float, Field(gt=0, le=1)] = 0.5
    mean: Mean = "raw"


class PrototypeMethod(Method):
    """What methods share that score a class by the cosine between a query and the class's row.

    Base rows are the base classes' means. A subclass that does more with a new class than take its
    mean overrides `_new_rows`. Features that are NaN, infinite, or negative in Tukey space are
    refused (`DataError`).
    """

    params: PrototypeParams

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.prototypes = torch.empty(0, context.feature_dim)

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as rows."""
        self.prototypes = self._means(base)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' rows; those of earlier classes stay."""
        self.prototypes = torch.cat([self.prototypes, self._new_rows(session, self.prototypes)])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the cosine similarity (n, classes seen) to every class's row."""
        return self._cosines(queries, self.prototypes)

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return the cosine similarity (n, way) to the rows of an episode's classes."""
        return self._cosines(queries, self._new_rows(shots, self.prototypes[:0]))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the rows (classes seen, D)."""
        return {"prototypes": self.prototypes}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the rows."""
        self.prototypes = state["prototypes"].clone()

    def notes(self) -> dict[str, int | float | str]:
        """Return the space where it was not asked for."""
        return space_notes(self.params.space, self.context)

    def _new_rows(self, session: Session, rivals: torch.Tensor) -> torch.Tensor:
        """Return the rows (way, D) of a session's classes.

        `rivals` (r, D) are the rows that the new ones will be compared with: those of all earlier
        classes in a session, none in an episode.
        """
        del rivals
        return self._means(session)

    def _cosines(self, queries: LabelledSamples | Queries, rows: torch.Tensor) -> torch.Tensor:
        return F.normalize(self._embed(queries), dim=1) @ F.normalize(rows).T

    def _means(self, session: Session) -> torch.Tensor:
        """Return the means (way, D) of a session's classes, in `class_ids` order."""
        features = self._features(session)
        return torch.stack([features[session.labels == c].mean(dim=0) for c in session.class_ids])

    def _features(self, session: Session) -> torch.Tensor:
        """Return the features (n, D) that means are taken of."""
        features = self._embed(session)
        return F.normalize(features, dim=1) if self.params.mean == "unit" else features

    @property
    def _space(self) -> Literal["tukey", "raw"]:
        return settled_space(self.params.space, self.context)

    def _embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        return in_space(samples, self._space, self.params.beta)


def base_similarities(
    new_means: torch.Tensor, base_means: torch.Tensor, kappa: float
) -> torch.Tensor:
    """Return how much each new class is like each base class, rows summing to 1 (way, C0).

    softmax_j(κ·cos(c, b_j)) over the base classes, as TEEN (Wang et al., NeurIPS 2023) weighs them.

    Args:
        new_means: means c of new classes (way, D).
        base_means: means b_j of base classes (C0, D).
        kappa: κ; 0 weighs all base classes alike, a large one takes the nearest alone.
    """
    cosines = F.normalize(new_means, dim=1) @ F.normalize(base_means, dim=1).T
    return torch.softmax(kappa * cosines, dim=1)
