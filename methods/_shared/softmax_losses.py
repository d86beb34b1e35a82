"""Losses of softmax classifiers over all samples: values, gradients, and inverse curvatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
import torch.nn.functional as F

from fscil_bench.method import batches

from .lbfgs import Precondition

CHUNK_ROWS = 2048
"""Samples whose logits are computed at once on a CPU, so that they stay in its cache."""

BLOCK_BYTES = 512 * 2**20
"""Memory that one curvature block a class may take; beyond it, all classes share one."""

JITTER = 1e-6
"""Added to the diagonal of a curvature, as a fraction of its mean: it must have an inverse.

Curvatures in float32 are given more, in proportion to their rounding.
"""


class Softmax(ABC):
    """A loss of softmax classifiers on inputs (n, P), over points (C, P), and its curvature.

    `weights` (n,) are the samples' shares of the loss, 1 in all; `penalty` (P,) is what the
    objective adds to the curvature.
    """

    def __init__(
        self,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        classes: int,
        weights: torch.Tensor,
        penalty: torch.Tensor,
    ) -> None:
        self.inputs, self.labels, self.classes = inputs, labels, classes
        self.weights, self.penalty = weights.to(inputs.dtype), penalty

    @abstractmethod
    def __call__(self, point: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Return value and gradient at a point."""

    def rows(self, point: torch.Tensor) -> torch.Tensor:
        """Return the rows (C, P) that inputs are multiplied by at a point."""
        return point

    def bound(self) -> Precondition:
        """Return the inverse of Böhning's bound on the curvature, up to a factor."""
        return _shared_inverse(self._second_moment / self.classes + self.penalty.diag())

    def curvature(self, point: torch.Tensor) -> Precondition:
        """Return the inverse of every class's own block of the curvature at a point.

        A block is Σ_i s_i·p_ic(1−p_ic)·x_i·x_iᵀ plus the penalty. The samples that weigh most
        enter one by one, the rest as the second moment of all samples, which keeps the cost at
        that of some steps.
        """
        width = len(self.penalty)
        if self.classes * width**2 * self.inputs.element_size() > BLOCK_BYTES:
            return self.bound()
        shares = (self.inputs @ self.rows(point).to(self.inputs.dtype).T).softmax(dim=1)
        spread = shares * (1 - shares) * self.weights[:, None]
        top, chosen = spread.topk(min(len(spread), max(1024, 4 * width)), dim=0)
        rest = (spread.sum(dim=0) - top.sum(dim=0)).clamp(min=0)
        blocks = rest[:, None, None] * self._second_moment.to(self.inputs.dtype)
        for c in range(self.classes):
            rows = self.inputs[chosen[:, c]]
            blocks[c] += (rows * top[:, c, None]).T @ rows
        blocks.diagonal(dim1=1, dim2=2).add_(self.penalty.to(blocks.dtype))
        return _own_inverse(blocks) or self.bound()

    @cached_property
    def _second_moment(self) -> torch.Tensor:
        total = self.penalty.new_zeros(len(self.penalty), len(self.penalty))
        for part in batches(len(self.inputs), CHUNK_ROWS):
            rows = self.inputs[part].double()
            total += (rows * self.weights[part, None]).T @ rows
        return total


class LogisticLoss(Softmax):
    """The objective of `fit_logistic` divided by Σ s_i; points are [W b] (C, D+1)."""

    def __init__(
        self,
        samples: torch.Tensor,
        labels: torch.Tensor,
        classes: int,
        weights: torch.Tensor,
        penalty: float,
    ) -> None:
        total = weights.double().sum()
        pull = samples.new_zeros(samples.shape[1] + 1, dtype=torch.float64)
        pull[:-1] = penalty / total
        inputs = torch.cat([samples, samples.new_ones(len(samples), 1)], dim=1)
        super().__init__(inputs, labels, classes, weights / total, pull)

    def __call__(self, point: torch.Tensor) -> tuple[float, torch.Tensor]:
        value, gradient = _cross_entropy(self.inputs, self.labels, self.weights, point)
        pull = self.penalty * point
        return value + 0.5 * float((pull * point).sum()), gradient + pull

    def start(self, given: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        """Return the point to start from: zero, but for the rows that are given."""
        point = self.penalty.new_zeros(self.classes, len(self.penalty))
        if given is not None:
            weights, intercept = given
            point[: len(weights)] = torch.cat([weights, intercept[:, None]], dim=1).double()
        return point


class CosineLoss(Softmax):
    """The objective of `fit_cosine`; points are rows (C, D) of any length."""

    def __init__(
        self, samples: torch.Tensor, labels: torch.Tensor, classes: int, temperature: float
    ) -> None:
        inputs = temperature * F.normalize(samples, dim=1)
        weights = inputs.new_full((len(inputs),), 1 / len(inputs))
        none = inputs.new_zeros(inputs.shape[1], dtype=torch.float64)
        super().__init__(inputs, labels, classes, weights, none)

    def __call__(self, point: torch.Tensor) -> tuple[float, torch.Tensor]:
        rows = self.rows(point)
        value, gradient = _cross_entropy(self.inputs, self.labels, self.weights, rows)
        radial = (gradient * rows).sum(dim=1, keepdim=True)
        return value, (gradient - radial * rows) / point.norm(dim=1, keepdim=True)

    def rows(self, point: torch.Tensor) -> torch.Tensor:
        """Return the rows at length 1."""
        return F.normalize(point, dim=1)


def _cross_entropy(
    inputs: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, point: torch.Tensor
) -> tuple[float, torch.Tensor]:
    """Return Σ_i s_i·CE(point·x_i, y_i) and its gradient (C, D), both summed in float64."""
    rows = point.to(inputs.dtype).T
    gradient = torch.zeros_like(point)
    value = torch.zeros((), dtype=torch.float64, device=point.device)
    size = CHUNK_ROWS if inputs.device.type == "cpu" else len(inputs)
    for part in batches(len(inputs), size):
        x, y, s = inputs[part], labels[part, None], weights[part, None]
        logits = x @ rows
        logits -= logits.amax(dim=1, keepdim=True)
        own = logits.gather(1, y)
        shares = logits.exp_()
        total = shares.sum(dim=1, keepdim=True)
        value += (s * (total.log() - own)).sum(dtype=torch.float64)
        shares /= total
        shares.scatter_add_(1, y, -torch.ones_like(s))
        gradient += (shares.mul_(s).T @ x).double()
    return float(value), gradient


def _shared_inverse(matrix: torch.Tensor) -> Precondition:
    """Return multiplication of rows (C, P) by the inverse of one symmetric matrix (P, P)."""
    matrix.diagonal().add_(JITTER * matrix.diagonal().mean().clamp(min=JITTER))
    root = torch.linalg.cholesky(matrix)
    return lambda rows: torch.cholesky_solve(rows.T, root).T


def _own_inverse(blocks: torch.Tensor) -> Precondition | None:
    """Return multiplication of each row by the inverse of its own block, if all have one."""
    diagonals = blocks.diagonal(dim1=1, dim2=2)
    rounding = 8 * torch.finfo(blocks.dtype).eps * blocks.shape[1]
    diagonals += max(JITTER, rounding) * diagonals.mean(dim=1, keepdim=True)
    roots, failed = torch.linalg.cholesky_ex(blocks)
    if bool(failed.any()):
        return None

    def multiply(rows: torch.Tensor) -> torch.Tensor:
        return torch.cholesky_solve(rows.to(roots.dtype)[..., None], roots)[..., 0].double()

    return multiply
