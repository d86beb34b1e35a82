"""Softmax classifiers trained to their optimum: multinomial logistic regression, cosine rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from fscil_bench.method import batches

CHUNK_ROWS = 2048
"""Samples whose logits are computed at once on a CPU, so that they stay in its cache."""

JITTER = 1e-6
"""Added to the diagonal of the curvature's bound, as a fraction of its mean."""

MEMORY = 20
"""Pairs of steps and gradient changes that L-BFGS remembers."""

Flat = np.ndarray[tuple[int], np.dtype[np.float64]]


class Objective(Protocol):
    """Returns the value and the gradient (C, P), float64, at a point (C, P).

    `precision` is that of the products of samples and rows.
    """

    def __call__(self, at: torch.Tensor, precision: torch.dtype) -> tuple[float, torch.Tensor]: ...


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

    Args:
        samples: (n, D); logits are computed in their precision (the last in float64, where that
            is too coarse), sums and steps in float64.
        labels: (n,) in 0 … C−1.
        classes: C.
        penalty: above 0.
        sample_weights: s (n,); 1 each by default.
        start: W (C', D) and b (C',) of the first C' <= C classes, from an earlier fit.
        tolerance: on the gradient, see above.
        max_steps: of L-BFGS, in all.
    """
    weights = samples.new_ones(len(samples)) if sample_weights is None else sample_weights
    total = weights.double().sum()
    shares, inputs = weights / total, torch.cat([samples, samples.new_ones(len(samples), 1)], dim=1)
    pull = samples.new_zeros(inputs.shape[1], dtype=torch.float64)
    pull[:-1] = penalty / total
    point = pull.new_zeros(classes, len(pull))
    if start is not None:
        point[: len(start[0])] = torch.cat([start[0], start[1][:, None]], dim=1).double()

    def objective(at: torch.Tensor, precision: torch.dtype) -> tuple[float, torch.Tensor]:
        value, gradient = _cross_entropy(inputs.to(precision), labels, shares, at)
        pulled = pull * at
        return value + 0.5 * float((pulled * at).sum()), gradient + pulled

    bound = _second_moment(inputs, shares) / classes + pull.diag()
    fit = minimised(objective, point, bound, inputs.dtype, tolerance, max_steps)
    intercept = fit.weights[:, -1]
    return Fit(
        fit.weights[:, :-1], intercept - intercept.mean(), fit.gradient, fit.converged, fit.steps
    )


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
    inputs = temperature * F.normalize(samples, dim=1)
    shares = inputs.new_full((len(inputs),), 1 / len(inputs))
    lengths = start.double().norm(dim=1, keepdim=True)

    def objective(at: torch.Tensor, precision: torch.dtype) -> tuple[float, torch.Tensor]:
        rows = F.normalize(at, dim=1)
        value, gradient = _cross_entropy(inputs.to(precision), labels, shares, rows)
        radial = (gradient * rows).sum(dim=1, keepdim=True)
        return value, (gradient - radial * rows) / at.norm(dim=1, keepdim=True)

    point = F.normalize(torch.where(lengths > 0, start.double(), 1.0), dim=1)
    bound = _second_moment(inputs, shares) / len(start)
    fit = minimised(objective, point, bound, inputs.dtype, tolerance, max_steps)
    rows = F.normalize(fit.weights, dim=1)
    return Fit(rows, fit.intercept, fit.gradient, fit.converged, fit.steps)


def minimised(
    objective: Objective,
    start: torch.Tensor,
    bound: torch.Tensor,
    precision: torch.dtype,
    tolerance: float,
    max_steps: int,
) -> Fit:
    """Minimise from `start` (C, P) until no entry of the gradient exceeds `tolerance`.

    SciPy's L-BFGS in coordinates in which Böhning's bound on the curvature ("Multinomial logistic
    regression algorithm", 1992), one matrix (P, P) for all classes up to a factor, is the identity:
    3 to 5 times faster than scikit-learn's, which has none, on Free-Lunch's samples
    (benchmarks/bench_softmax.py). Where values in `precision` are rounded too much for its line
    search, the last steps are made in float64. It also ends after `max_steps`, and where no step
    decreases the objective any more.
    """
    bound.diagonal().add_(JITTER * bound.diagonal().mean().clamp(min=JITTER))
    root = torch.linalg.cholesky(bound)
    point, steps, steepness = start, 0, float(objective(start, precision)[1].abs().max())
    for dtype in dict.fromkeys((precision, torch.float64)):
        if steepness > tolerance and steps < max_steps:
            exact, left = partial(objective, precision=dtype), max_steps - steps
            point, steepness, moved = _descended(exact, point, root, tolerance, left)
            steps += moved
    return Fit(point, point.new_zeros(len(point)), steepness, steepness <= tolerance, steps)


def _descended(
    objective: Callable[[torch.Tensor], tuple[float, torch.Tensor]],
    start: torch.Tensor,
    root: torch.Tensor,
    tolerance: float,
    max_steps: int,
) -> tuple[torch.Tensor, float, int]:
    """Return where L-BFGS ends, the largest entry of the gradient there, and its steps.

    `root` (P, P) is the lower Cholesky factor of what the coordinates make the identity.
    """
    last = start, objective(start)[1]
    found, steps = last, 0

    def whitened(flat: Flat) -> tuple[float, Flat]:
        nonlocal last
        moved = torch.from_numpy(flat).to(start.device).view(start.shape)
        point = start + torch.linalg.solve_triangular(root, moved, upper=False, left=False)
        value, gradient = objective(point)
        last = point, gradient
        back = torch.linalg.solve_triangular(root.T, gradient, upper=True, left=False)
        return value, back.cpu().numpy().ravel()

    def stepped(xk: Flat) -> None:
        del xk
        nonlocal found, steps
        found, steps = last, steps + 1
        if float(last[1].abs().max()) <= tolerance:
            raise StopIteration

    from scipy.optimize import minimize  # slow to load, and every command loads every method

    minimize(
        whitened,
        np.zeros(start.numel()),
        method="L-BFGS-B",
        jac=True,
        callback=stepped,
        options={
            "maxcor": MEMORY,
            "maxiter": max_steps,
            "maxfun": 20 * max_steps,
            "gtol": 0.0,
            "ftol": 0.0,
        },
    )
    return found[0], float(found[1].abs().max()), steps


def _second_moment(inputs: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return Σ_i s_i·x_i·x_iᵀ (P, P), float64."""
    total = inputs.new_zeros(inputs.shape[1], inputs.shape[1], dtype=torch.float64)
    for part in batches(len(inputs), CHUNK_ROWS):
        rows = inputs[part].double()
        total += (rows * shares[part, None]).T @ rows
    return total


def _cross_entropy(
    inputs: torch.Tensor, labels: torch.Tensor, shares: torch.Tensor, point: torch.Tensor
) -> tuple[float, torch.Tensor]:
    """Return Σ_i s_i·CE(point·x_i, y_i) and its gradient (C, P), both summed in float64."""
    rows, weights = point.to(inputs.dtype).T, shares.to(inputs.dtype)
    gradient = torch.zeros_like(point)
    value = torch.zeros((), dtype=torch.float64, device=point.device)
    size = CHUNK_ROWS if inputs.device.type == "cpu" else len(inputs)
    for part in batches(len(inputs), size):
        x, y, s = inputs[part], labels[part, None], weights[part, None]
        logits = x @ rows
        logits -= logits.amax(dim=1, keepdim=True)
        own = logits.gather(1, y)
        parts = logits.exp_()
        total = parts.sum(dim=1, keepdim=True)
        value += (s * (total.log() - own)).sum(dtype=torch.float64)
        parts /= total
        parts.scatter_add_(1, y, -torch.ones_like(s))
        gradient += (parts.mul_(s).T @ x).double()
    return float(value), gradient
