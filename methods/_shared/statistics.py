"""Class statistics in float64: Tukey transform, means, covariances, their square root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from fscil_bench.errors import DataError

EIGENVALUE_FLOOR = 1e-6
"""Smallest eigenvalue that a covariance is given, as a fraction of its mean eigenvalue."""

TINY = 1e-12
"""Smallest variance there is, for covariances that are zero throughout."""


def require_finite(features: torch.Tensor, labels: torch.Tensor | None = None) -> None:
    """Check that features (n, D) are finite numbers.

    Raises:
        DataError: a row holds NaN or infinity; the message names its class, where labels (n,)
            are given, and the row.
    """
    _reject(~torch.isfinite(features), "NaN or infinity", labels, "check the backbone's training")


def require_non_negative(features: torch.Tensor, labels: torch.Tensor | None = None) -> None:
    """Check that no entry of features (n, D) is negative, as a power transform needs.

    Raises:
        DataError: a row holds a negative entry; the message names its class and the row.
    """
    advice = "space=tukey needs features that end in a ReLU; use space=raw for these"
    _reject(features < 0, "a negative entry", labels, advice)


def _reject(bad: torch.Tensor, what: str, labels: torch.Tensor | None, advice: str) -> None:
    rows = bad.any(dim=1)
    if not bool(rows.any()):
        return
    row = int(rows.nonzero()[0])
    owner = "query features" if labels is None else f"features of class {int(labels[row])}"
    more = int(rows.sum()) - 1
    others = f" (and {more} more rows)" if more else ""
    raise DataError(f"{owner}: row {row}{others} holds {what}; {advice}")


def tukey(features: torch.Tensor, beta: float) -> torch.Tensor:
    """Return x^β entry by entry, which makes non-negative skewed features more Gaussian.

    Tukey's ladder of powers as in Free-Lunch (Yang, Liu and Xu, 2021), equation 3, for β > 0.
    """
    return features.pow(beta)


def class_means(
    features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int]
) -> torch.Tensor:
    """Return the mean feature of each class, float64 (classes, D), from features (n, D).

    Raises:
        DataError: a class has no sample.
    """
    return torch.stack([_of_class(features, labels, c).mean(dim=0) for c in class_ids])


def class_counts(labels: torch.Tensor, class_ids: Sequence[int]) -> torch.Tensor:
    """Return how many of the labels (n,) are of each class, float32 (classes,)."""
    return torch.stack([(labels == c).sum() for c in class_ids]).float()


def within_class_covariance(
    features: torch.Tensor, labels: torch.Tensor, class_ids: Sequence[int]
) -> tuple[torch.Tensor, int]:
    """Return the mean of the classes' own covariances (D, D), float64, and how many entered.

    Each class's covariance has K−1 degrees of freedom; a class of one sample has none and is left
    out. Where all are left out, the covariance is zero and the count 0.
    """
    total = features.new_zeros((features.shape[1],) * 2, dtype=torch.float64)
    count = 0
    for c in class_ids:
        rows = _of_class(features, labels, c)
        if len(rows) > 1:
            total += covariance(rows)
            count += 1
    return total / max(count, 1), count


def covariance(rows: torch.Tensor) -> torch.Tensor:
    """Return the sample covariance (D, D), float64, of at least two rows (n, D)."""
    centred = rows.double() - rows.double().mean(dim=0)
    return centred.T @ centred / (len(rows) - 1)


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


def _of_class(features: torch.Tensor, labels: torch.Tensor, class_id: int) -> torch.Tensor:
    rows = features[labels == class_id].double()
    if len(rows) == 0:
        raise DataError(f"class {class_id} has no sample in its session")
    return rows


Space = Literal["tukey", "raw"]
"""`raw` is the feature as it is, `tukey` its power x^β."""


def in_space(
    features: torch.Tensor,
    space: Space,
    beta: float,
    device: torch.device,
    labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return features (n, D) in a space, float32, on a device; checked before.

    Args:
        features: finite features (n, D), non-negative for `tukey`.
        space: where to take them.
        beta: the exponent β of `tukey`.
        device: where to put them.
        labels: their classes (n,), so that an error can name one.

    Raises:
        DataError: a feature is NaN, infinite, or negative where the space forbids it.
    """
    require_finite(features, labels)
    if space == "tukey":
        require_non_negative(features, labels)
    features = features.to(device, torch.float32)
    return features.clone() if space == "raw" else tukey(features, beta)
