"""What LDC keeps of its classes' covariances: one for all, or every base class's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .._shared.statistics import EIGENVALUE_FLOOR, covariance, within_class_covariance
from .sampler import ClassFactors
from .unit import CalibrationUnit

TINY = 1e-12
"""Smallest variance there is, for covariances that are zero throughout."""


@dataclass(frozen=True)
class SquareRoot:
    """The symmetric square root of a covariance, and what had to be repaired for it.

    Attributes:
        matrix: S (D, D), float64.
        raised: how many eigenvalues were raised to the floor.
        largest_raise: the largest raise, as a fraction of the mean eigenvalue.
    """

    matrix: torch.Tensor
    raised: int
    largest_raise: float


def symmetric_root(matrix: torch.Tensor) -> SquareRoot:
    """Return S with S = Sᵀ and S·S = Σ for a symmetric matrix (D, D), in float64.

    Eigenvalues below `EIGENVALUE_FLOOR` of their mean, negative ones included, are raised to it:
    a covariance from fewer samples than dimensions, rounded to float32, is not quite positive
    semi-definite.
    """
    double = matrix.double()
    values, vectors = torch.linalg.eigh((double + double.T) / 2)
    mean = max(float(values.mean()), TINY / EIGENVALUE_FLOOR)
    floor = EIGENVALUE_FLOOR * mean
    raised = int((values < floor).sum())
    largest_raise = max(0.0, floor - float(values.min())) / mean
    root = (vectors * values.clamp(min=floor).sqrt()) @ vectors.T
    return SquareRoot(root, raised, largest_raise)


@dataclass
class Repairs:
    """What had to be repaired in a run, for its notes.

    Attributes:
        eigenvalues_raised: eigenvalues raised in one covariance, at most.
        largest_raise: the largest of these raises, as a fraction of the mean eigenvalue.
        classes_without_covariance: classes of one sample, which have none of their own.
    """

    eigenvalues_raised: int = 0
    largest_raise: float = 0.0
    classes_without_covariance: int = 0

    def rooted(self, root: SquareRoot) -> torch.Tensor:
        """Record what a square root needed; return the root (D, D), float32."""
        self.eigenvalues_raised = max(self.eigenvalues_raised, root.raised)
        self.largest_raise = max(self.largest_raise, root.largest_raise)
        return root.matrix.float()

    def notes(self) -> dict[str, int | float | str]:
        """Return the counts, and the size of a repair where there was one."""
        notes: dict[str, int | float | str] = {
            "eigenvalues_raised": self.eigenvalues_raised,
            "classes_without_covariance": self.classes_without_covariance,
        }
        if self.eigenvalues_raised:
            notes["largest_raise"] = float(f"{self.largest_raise:.2g}")
        return notes


class Covariances(ABC):
    """Covariances as they are stored, and the factors that a class with a given mean has."""

    def __init__(self, repairs: Repairs) -> None:
        self.repairs = repairs

    @abstractmethod
    def learn_base(
        self, features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int]
    ) -> None:
        """Learn from base classes' features (n, D) and labels (n,)."""

    @abstractmethod
    def learn_session(
        self, features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int], seen: int
    ) -> None:
        """Learn from a session's shots (n, D), labels (n,); `seen` classes came before."""

    @abstractmethod
    def factors(self, unit: CalibrationUnit, centres: torch.Tensor) -> ClassFactors:
        """Return what gives A_i to classes by mean and number; `centres` are the known means."""

    @abstractmethod
    def root(self) -> torch.Tensor:
        """Return a typical square root (D, D), which the unit takes its scale from."""

    @abstractmethod
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what is stored, float32."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned; other entries are left alone."""


class SharedCovariance(Covariances):
    """One Σ (D, D) for all classes, of which the unit makes a class's own where it has a mapping.

    A class of one sample contributes nothing: it counts as having had Σ as it was.
    """

    def __init__(self, update: Literal["within", "pooled"], repairs: Repairs) -> None:
        super().__init__(repairs)
        self.update = update
        self.matrix = torch.empty(0)
        self._root: torch.Tensor | None = None

    def learn_base(
        self, features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int]
    ) -> None:
        """Set Σ⁽⁰⁾ to the mean within-class covariance."""
        matrix, count = within_class_covariance(features, labels, class_ids)
        self._set(matrix, len(class_ids) - count)

    def learn_session(
        self, features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int], seen: int
    ) -> None:
        """Bring Σ up to date."""
        way = len(class_ids)
        if self.update == "within":
            new, count = within_class_covariance(features, labels, class_ids)
        elif len(features) > 1:
            new, count = covariance(features), way
        else:
            new, count = torch.zeros_like(self.matrix), 0
        old = self.matrix.double()
        self._set(update_covariance(old, seen + way - count, new, count), way - count)

    def factors(self, unit: CalibrationUnit, centres: torch.Tensor) -> ClassFactors:
        """Return the unit's mapping of class means and Σ."""
        del centres
        root = self.root()
        return lambda means, _: unit.factors(means, root)

    def root(self) -> torch.Tensor:
        """Return the symmetric square root of Σ."""
        if self._root is None:
            self._root = self.repairs.rooted(symmetric_root(self.matrix))
        return self._root

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return Σ as `covariance` (D, D)."""
        return {"covariance": self.matrix}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore Σ."""
        self.matrix, self._root = state["covariance"], None

    def _set(self, matrix: torch.Tensor, without: int) -> None:
        self.repairs.classes_without_covariance += without
        self.matrix = matrix.float()
        self._root = self.repairs.rooted(symmetric_root(self.matrix))


class BorrowedCovariances(Covariances):
    """Every base class's own covariance; a new class has the mean over its nearest base classes.

    Free-Lunch's statistics (Yang, Liu and Xu, 2021, equation 6), here by the distance of class
    means. Nothing is stored for a new class. A base class of one sample has the mean of the others.
    """

    def __init__(self, nearest: int, repairs: Repairs) -> None:
        super().__init__(repairs)
        self.nearest = nearest
        self.matrices = torch.empty(0)
        self._roots: torch.Tensor | None = None

    def learn_base(
        self, features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int]
    ) -> None:
        """Store every base class's covariance."""
        mean, count = within_class_covariance(features, labels, class_ids)
        rows = [features[labels == c] for c in class_ids]
        own = [covariance(x) if len(x) > 1 else mean for x in rows]
        self.repairs.classes_without_covariance += len(class_ids) - count
        self.matrices, self._roots = torch.stack(own).float(), None
        self.roots()

    def learn_session(
        self, features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int], seen: int
    ) -> None:
        """Learn nothing: few shots have no covariance worth storing."""
        del features, labels, class_ids, seen

    def factors(self, unit: CalibrationUnit, centres: torch.Tensor) -> ClassFactors:
        """Return what stacks the lenders' roots: (n, nearest·D, D), AᵀA is the mean of theirs."""
        del unit
        roots, base = self.roots(), centres[: len(self.matrices)]

        def borrowed(means: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
            lenders = torch.cdist(means, base).argsort(dim=1, stable=True)[:, : self.nearest]
            known = numbers < len(base)
            lenders[known] = numbers[known, None].expand(-1, self.nearest)
            stacked: torch.Tensor = roots[lenders].flatten(1, 2) / self.nearest**0.5
            return stacked

        return borrowed

    def roots(self) -> torch.Tensor:
        """Return the symmetric square roots (C0, D, D) of the base classes' covariances."""
        if self._roots is None:
            found = [self.repairs.rooted(symmetric_root(matrix)) for matrix in self.matrices]
            self._roots = torch.stack(found)
        return self._roots

    def root(self) -> torch.Tensor:
        """Return the mean of the base classes' roots."""
        return self.roots().mean(dim=0)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return `base_covariances` (C0, D, D)."""
        return {"base_covariances": self.matrices}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the base classes' covariances."""
        self.matrices, self._roots = state["base_covariances"], None


def update_covariance(
    old: torch.Tensor, old_classes: int, new: torch.Tensor, new_classes: int
) -> torch.Tensor:
    """Return Σ⁽ᵗ⁾ (D, D), the stored covariance brought up to date with a session's.

    Σ⁽ᵗ⁾ = Σ⁽ᵗ⁻¹⁾·N⁽ᵗ⁻¹⁾/N⁽ᵗ⁾ + Cov(X⁽ᵗ⁾)·(N⁽ᵗ⁾ − N⁽ᵗ⁻¹⁾)/N⁽ᵗ⁾ (the paper's covariance recursion),
    where N⁽ᵗ⁻¹⁾ = `old_classes` have gone into Σ⁽ᵗ⁻¹⁾ and `new_classes` into Cov(X⁽ᵗ⁾).
    """
    if new_classes == 0:
        return old
    total = old_classes + new_classes
    return old * (old_classes / total) + new * (new_classes / total)
