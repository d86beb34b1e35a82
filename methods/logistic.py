"""Logistic regression on frozen features: what Free-Lunch starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from fscil_bench.method import Method, MethodContext
from fscil_bench.protocol import Queries, Session

from ._shared import citations
from ._shared.softmax import Fit, fit_logistic
from ._shared.statistics import (
    Space,
    class_means,
    classifier_rows,
    in_space,
    settled_space,
    space_notes,
)


class Logistic(Method):
    """Multinomial logistic regression on base class means and the shots: a plain baseline.

    The classifier that "Free Lunch for Few-shot Learning" (Yang, Liu and Xu, ICLR 2021) trains on
    its calibrated samples, here without any: scikit-learn's objective, penalty/2·‖W‖² beside the
    summed cross-entropy, the intercept unpenalised.

    In few-shot episodes it is fitted to the shots alone. In class-incremental sessions the base
    samples are gone, so that each base class is one sample, its mean, and every shot since the
    first session is kept. A class's samples are weighted so that every class weighs as much as
    the one that has most of them: with K shots a class, a base class's mean counts K times. So
    what sets this baseline apart from nearest class means (`ncm`) is the classifier: it sees how
    far shots lie apart, but of base classes nothing but the means.

    It stores means and shots, 4·D·(C0 + K·C_new) bytes, which classes they are of, and the
    classifier, 4·C·(D+1).
    """

    name = "logistic"
    title = "Logistic"
    bibtex = citations.FREE_LUNCH
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "penalty": (0.1, 0.3, 1.0, 3.0),
        "space": ("raw", "auto"),
    }

    @dataclass(frozen=True)
    class Params:
        """`penalty` is 1/C of scikit-learn, whose default it has; `beta` is used by `tukey`."""

        space: Space = "raw"
        beta: Annotated[float, Field(gt=0, le=1)] = 0.5
        penalty: Annotated[float, Field(gt=0)] = 1.0

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.samples = torch.empty(0, context.feature_dim, device=context.device)
        self.owners = torch.empty(0, dtype=torch.int32, device=context.device)
        self.weights = self.intercept = torch.empty(0)
        self._notes: dict[str, int | float | str] = {"fits_not_converged": 0}

    def learn_base(self, base: Session) -> None:
        """Keep the base classes' means, and fit the classifier to them."""
        labels = base.labels.to(self.context.device)
        means = class_means(self._embed(base), labels, base.class_ids).float()
        self._learn(means, torch.arange(base.way, device=means.device))

    def learn_session(self, session: Session) -> None:
        """Keep the shots, and fit the classifier to all that is kept."""
        rows = classifier_rows(session, len(self.weights), self.context.device)
        self._learn(self._embed(session), rows)

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the logits (n, classes seen)."""
        return self._embed(queries) @ self.weights.T + self.intercept

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return the logits (n, way) of logistic regression on an episode's shots alone."""
        rows = classifier_rows(shots, 0, self.context.device)
        fit = self._fit(self._embed(shots), rows)
        return self._embed(queries) @ fit.weights.float().T + fit.intercept.float()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return means and shots (n, D), their classifier rows (n,), and the classifier."""
        state = {
            "samples": self.samples,
            "owners": self.owners,
            "weights": self.weights,
            "intercept": self.intercept,
        }
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        for name in ("samples", "owners", "weights", "intercept"):
            setattr(self, name, state[name].clone().to(self.context.device))

    def notes(self) -> dict[str, int | float | str]:
        """Return how many fits stopped short of the optimum."""
        return {**self._notes, **space_notes(self.params.space, self.context)}

    def _learn(self, samples: torch.Tensor, owners: torch.Tensor) -> None:
        self.samples = torch.cat([self.samples, samples])
        self.owners = torch.cat([self.owners, owners.int()])
        fit = self._fit(self.samples, self.owners.long())
        self.weights, self.intercept = fit.weights.float(), fit.intercept.float()

    def _fit(self, samples: torch.Tensor, owners: torch.Tensor) -> Fit:
        counts = owners.bincount()
        weights = counts.max() / counts[owners].double()
        fit = fit_logistic(samples.double(), owners, len(counts), self.params.penalty, weights)
        if not fit.converged:
            self._notes["fits_not_converged"] = int(self._notes["fits_not_converged"]) + 1
        return fit

    @property
    def _space(self) -> Literal["tukey", "raw"]:
        return settled_space(self.params.space, self.context)

    def _embed(self, samples: Session | Queries) -> torch.Tensor:
        return in_space(samples, self._space, self.params.beta, self.context.device)
