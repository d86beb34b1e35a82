"""Softmax classifiers trained to their optimum: multinomial logistic regression, cosine rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from .lbfgs import Minimum, minimise
from .softmax_losses import CosineLoss, LogisticLoss, Softmax

if TYPE_CHECKING:
    from fscil_bench.protocol import Session

COARSE_TOLERANCE, COARSE_STEPS = 1e-3, 30
"""Where the shared bound on the curvature gives way to the curvature itself."""

BLOCK_STEPS = 40
"""Steps after which the curvature blocks are computed anew."""


@dataclass(frozen=True)
class Fit:
    """A trained classifier and how near its optimum it is.

    Attributes:
        weights: rows (C, D), float64.
        intercept: (C,), float64, of mean 0; zero where a classifier has none.
        gradient: largest absolute entry of the objective's gradient.
        converged: whether that is within the tolerance.
        steps: how many steps were made.
    """

    weights: torch.Tensor
    intercept: torch.Tensor
    gradient: float
    converged: bool
    steps: int


def fit_logistic(
    samples: torch.Tensor,
    labels: torch.Tensor,
    classes: int,
    penalty: float,
    sample_weights: torch.Tensor | None = None,
    start: tuple[torch.Tensor, torch.Tensor] | None = None,
    tolerance: float = 1e-5,
    max_steps: int = 1000,
) -> Fit:
    """Fit multinomial logistic regression with scikit-learn's objective.

    Minimises Σ_i s_i·CE(Wx_i + b, y_i) + penalty/2·‖W‖², the intercept b unpenalised; `penalty` is
    1/C of `sklearn.linear_model.LogisticRegression`. The objective is convex and has one optimum
    whatever the start; like scikit-learn, the fit ends when no entry of the gradient of the
    objective, divided by Σ s_i, exceeds the tolerance (scikit-learn's is 1e-4).

    L-BFGS with a preconditioner: a few steps with Böhning's bound on the curvature ("Multinomial
    logistic regression algorithm", 1992), shared by all classes, then one curvature block a
    class. That takes a sixth of plain L-BFGS's steps on overlapping classes, or fewer.

    Args:
        samples: (n, D); logits are computed in their precision, sums and steps in float64.
        labels: (n,) in 0 … C−1.
        classes: C.
        penalty: above 0.
        sample_weights: s (n,); 1 each by default.
        start: W (C', D) and b (C',) of the first C' <= C classes, from an earlier fit.
        tolerance: on the gradient, see above.
        max_steps: of L-BFGS, in all.
    """
    weights = samples.new_ones(len(samples)) if sample_weights is None else sample_weights
    problem = LogisticLoss(samples, labels, classes, weights, penalty)
    found = _descend(problem, problem.start(start), tolerance, max_steps)
    rows, intercept = found.point[:, :-1], found.point[:, -1]
    return _fit(rows, intercept - intercept.mean(), found, tolerance)


def fit_cosine(
    samples: torch.Tensor,
    labels: torch.Tensor,
    start: torch.Tensor,
    temperature: float,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> Fit:
    """Minimise the mean cross-entropy of temperature·cos(x_i, w_c) over rows w_c.

    The length of a row does not matter, so that no penalty is needed; the rows that are returned
    have length 1. The objective is not convex: the rows depend on where they start.

    Args:
        samples: (n, D).
        labels: (n,) in 0 … C−1.
        start: rows (C, D); one that is zero starts in the direction of all ones.
        temperature: factor on the cosines.
        tolerance: on the largest absolute entry of the gradient, which the temperature scales.
        max_steps: of L-BFGS.
    """
    problem = CosineLoss(samples, labels, len(start), temperature)
    lengths = start.double().norm(dim=1, keepdim=True)
    rows = F.normalize(torch.where(lengths > 0, start.double(), 1.0), dim=1)
    found = _descend(problem, rows, tolerance, max_steps)
    rows = F.normalize(found.point, dim=1)
    return _fit(rows, rows.new_zeros(len(rows)), found, tolerance)


def classifier_rows(session: Session, first: int, device: torch.device) -> torch.Tensor:
    """Return the classifier row (n,) of each of a session's samples, on a device.

    Rows are numbered in the order of `class_ids`, from `first` on.
    """
    row_of = {c: first + i for i, c in enumerate(session.class_ids)}
    return torch.tensor([row_of[int(c)] for c in session.labels], device=device)


def _descend(problem: Softmax, start: torch.Tensor, tolerance: float, max_steps: int) -> Minimum:
    """Minimise, first with the bound on the curvature, then with the curvature itself."""
    coarse = max(tolerance, COARSE_TOLERANCE)
    found = minimise(problem, start, problem.bound(), coarse, min(COARSE_STEPS, max_steps))
    steps = moved = found.steps
    while found.gradient > tolerance and steps < max_steps and moved > 0:
        left = min(BLOCK_STEPS, max_steps - steps)
        precondition = problem.curvature(found.point)
        found = minimise(problem, found.point, precondition, tolerance, left)
        moved = found.steps
        steps += moved
    return Minimum(found.point, found.gradient, steps)


def _fit(rows: torch.Tensor, intercept: torch.Tensor, found: Minimum, tolerance: float) -> Fit:
    return Fit(rows, intercept, found.gradient, found.gradient <= tolerance, found.steps)
