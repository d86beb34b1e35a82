"""Covariances of many classes as a method stores them: all, a few, or low-rank factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from fscil_bench.errors import UsageError
from fscil_bench.method import batches

BudgetMode = Literal["full", "low_rank"]

CHUNK_BYTES = 64 * 2**20
"""Memory that the factors gathered for one draw may take."""

ROUNDING = 1e-13
"""Error of an eigenvalue in float64, as a fraction of the largest."""


@dataclass(frozen=True)
class Repair:
    """Negative eigenvalues that were set to zero, so that covariances could be sampled from.

    Attributes:
        eigenvalues: how many, over all stored covariances.
        classes: in how many covariances.
        largest: the largest raise, as a fraction of the mean eigenvalue.
    """

    eigenvalues: int = 0
    classes: int = 0
    largest: float = 0.0


class StoredCovariances(ABC):
    """One covariance for each of C0 classes, from less memory than that where there is a budget."""

    repair = Repair()

    @abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what is stored, float32."""

    @abstractmethod
    def spent_on(self) -> dict[str, int]:
        """Return what a budget left room for, by name; nothing where there was none."""

    @abstractmethod
    def covariance(self, index: int) -> torch.Tensor:
        """Return the covariance (D, D), float64, that class `index` (0 … C0−1) has."""

    @abstractmethod
    def _noise(
        self, classes: torch.Tensor, count: int, generator: torch.Generator
    ) -> torch.Tensor: ...

    @abstractmethod
    def _gathered(self) -> int:
        """Return the float32 values gathered for one class of a draw."""

    def noise(self, classes: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
        """Return `count` draws of N(0, Σ_c) for each of the classes (n,): float32 (n, count, D)."""
        size = max(1, CHUNK_BYTES // (4 * max(1, self._gathered())))
        parts = [
            self._noise(classes[part], count, generator) for part in batches(len(classes), size)
        ]
        return torch.cat(parts)


class FullCovariances(StoredCovariances):
    """Whole covariances of all classes, or of some, from which the others borrow the nearest.

    Which classes keep theirs follows from the means alone, and so takes no memory: see `spread`.
    """

    def __init__(self, matrices: torch.Tensor, means: torch.Tensor) -> None:
        """Take matrices (m, D, D) of the classes `spread(means, m)`, and all means (C0, D)."""
        self.matrices = matrices
        kept = spread(means, len(matrices)).to(means.device)
        self.slots = torch.cdist(means.double(), means[kept].double()).argmin(dim=1)
        self.slots[kept] = torch.arange(len(kept), device=means.device)
        self.roots, self.repair = _roots(matrices)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return `covariances` (m, D, D)."""
        return {"covariances": self.matrices}

    def spent_on(self) -> dict[str, int]:
        """Return how many classes keep their covariance, if not all do."""
        kept, classes = len(self.matrices), len(self.slots)
        return {"covariances_kept": kept} if kept < classes else {}

    def covariance(self, index: int) -> torch.Tensor:
        """Return the covariance of the class, or of the nearest class that keeps one."""
        return self.matrices[self.slots[index]].double()

    def _noise(self, classes: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
        roots = self.roots[self.slots[classes]]
        shape = len(classes), count, roots.shape[1]
        return torch.randn(shape, generator=generator, device=roots.device) @ roots

    def _gathered(self) -> int:
        return self.roots[0].numel()


class LowRankCovariances(StoredCovariances):
    """Σ ≈ FᵀF + diag(d) for every class: r leading eigenvectors, and what they leave of variances.

    F (r, D) are the leading eigenvectors times the roots of their eigenvalues, d >= 0 the diagonal
    of the remainder, so that the variance of every dimension is exact. Rank 0 is the diagonal.
    """

    def __init__(self, factors: torch.Tensor, residuals: torch.Tensor) -> None:
        """Take F (C0, r, D) and d (C0, D) of all classes."""
        self.factors, self.residuals = factors, residuals

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return `factors` (C0, r, D) and `residuals` (C0, D)."""
        return {"factors": self.factors, "residuals": self.residuals}

    def spent_on(self) -> dict[str, int]:
        """Return the rank r."""
        return {"covariance_rank": self.factors.shape[1]}

    def covariance(self, index: int) -> torch.Tensor:
        """Return FᵀF + diag(d)."""
        factor = self.factors[index].double()
        return factor.T @ factor + self.residuals[index].double().diag()

    def _noise(self, classes: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
        factors, spreads = self.factors[classes], self.residuals[classes].sqrt()[:, None]
        rank, dim = factors.shape[1:]
        size = len(classes), count, rank + dim
        drawn = torch.randn(size, generator=generator, device=factors.device)
        return drawn[:, :, :rank] @ factors + drawn[:, :, rank:] * spreads

    def _gathered(self) -> int:
        return self.factors[0].numel() + self.residuals[0].numel()


def check_budget(budget: int, mode: BudgetMode, classes: int, dim: int) -> None:
    """Refuse a budget below one covariance, or below the factors of rank 0 of all classes.

    Raises:
        UsageError: it is; the message says how many bytes it takes.
    """
    least = 4 * classes * dim if mode == "low_rank" else 4 * dim**2
    if 0 < budget < least:
        what = "the diagonals" if mode == "low_rank" else "one covariance"
        raise UsageError(
            f"free_lunch: byte_budget = {budget} is too small: {what} of {classes} base classes in "
            f"{dim} dimensions take{'s' * (mode == 'full')} {least} bytes; raise it, or set "
            "byte_budget=0 for no limit"
        )


def store(
    covariances: list[torch.Tensor], means: torch.Tensor, budget: int, mode: BudgetMode
) -> StoredCovariances:
    """Store class covariances within a budget.

    Args:
        covariances: C0 matrices (D, D), float64.
        means: class means (C0, D), float32, as they are stored.
        budget: most bytes that `tensors()` may take; 0 for no limit, which stores all in full.
        mode: `full` keeps as many whole covariances as fit, `low_rank` factors of all classes.
    """
    classes, dim = means.shape
    if mode == "low_rank" and budget > 0:
        rank = min(budget // (4 * classes * dim) - 1, dim)
        parts = [_low_rank(matrix, rank) for matrix in covariances]
        factors, residuals = (torch.stack(part).float() for part in zip(*parts, strict=True))
        return LowRankCovariances(factors, residuals)
    fit = budget // (4 * dim**2) if budget > 0 else classes
    kept = spread(means, min(fit, classes)).tolist()
    return FullCovariances(torch.stack([covariances[i] for i in kept]).float(), means)


def restore(tensors: Mapping[str, torch.Tensor], means: torch.Tensor) -> StoredCovariances:
    """Return the covariances whose `tensors()` are given (among others), with their means."""
    if "covariances" in tensors:
        return FullCovariances(tensors["covariances"], means)
    return LowRankCovariances(tensors["factors"], tensors["residuals"])


def spread(means: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices (count,) of means (C0, D) that lie far apart: farthest-point selection.

    The first is nearest to the mean of all; each further one is farthest from those selected. The
    lower index wins a tie.
    """
    if count == len(means):
        return torch.arange(count)
    points = means.cpu().double()
    first = int((points - points.mean(dim=0)).norm(dim=1).argmin())
    chosen = [first]
    distances = (points - points[first]).norm(dim=1)
    while len(chosen) < count:
        distances[chosen] = -1.0
        chosen.append(int(distances.argmax()))
        distances = torch.minimum(distances, (points - points[chosen[-1]]).norm(dim=1))
    return torch.tensor(chosen)


def _low_rank(matrix: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, vectors = torch.linalg.eigh(matrix)
    first = len(values) - rank
    leading = (vectors[:, first:] * values[first:].clamp(min=0).sqrt()).T
    residual = matrix.diagonal() - leading.square().sum(dim=0)
    return leading, residual.clamp(min=0)


def _roots(matrices: torch.Tensor) -> tuple[torch.Tensor, Repair]:
    """Return A (m, D, D), float32, with Σ = AᵀA, and what had to be repaired.

    A is Cholesky's factor, transposed, where there is one; otherwise from eigenvalues, negative
    ones (of a covariance from fewer samples than dimensions, rounded) set to zero.
    """
    roots = torch.empty_like(matrices)
    eigenvalues, classes, largest = 0, 0, 0.0
    for i, matrix in enumerate(matrices):
        lower, failed = torch.linalg.cholesky_ex(matrix.double())
        if not int(failed):
            roots[i] = lower.T
            continue
        values, vectors = torch.linalg.eigh(matrix.double())
        # A zero eigenvalue comes out as negative as the solver rounds; that is no repair.
        negative = values < -ROUNDING * values.max()
        if bool(negative.any()):
            classes += 1
            eigenvalues += int(negative.sum())
            largest = max(largest, -float(values.min() / values.mean()))
        roots[i] = (vectors * values.clamp(min=0).sqrt()).T
    return roots, Repair(eigenvalues, classes, largest)
