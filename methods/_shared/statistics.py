"""Features in the space that a method works in, and statistics of classes, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from fscil_bench.errors import DataError
from fscil_bench.method import MethodContext, batches
from fscil_bench.protocol import LabelledSamples, Queries, Session

Space = Literal["auto", "tukey", "raw"]
"""Where a method on frozen features works: `raw` is the feature as it is, `tukey` its power x^β,
`auto` Tukey's where no feature of a base sample is negative, else raw.
"""

EIGENVALUE_FLOOR = 1e-6
"""Smallest eigenvalue that a covariance is given, as a fraction of its mean eigenvalue."""

CHUNK_BYTES = 64 * 2**20
"""Memory that whitened queries may take, of the classes that are compared with at once."""


def settled_space(space: Space, context: MethodContext) -> Literal["tukey", "raw"]:
    """Return which space `auto` is; any other is itself."""
    if space == "auto":
        return "tukey" if context.nonnegative else "raw"
    return space


def space_notes(space: Space, context: MethodContext) -> dict[str, int | float | str]:
    """Return the remark on a run that says which space was taken, where it was not asked for."""
    return {"space": settled_space(space, context)} if space == "auto" else {}


def in_space(
    samples: LabelledSamples | Queries,
    space: Literal["tukey", "raw"] = "raw",
    beta: float = 1.0,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Return the plain features (n, D) of samples in a space, float32, checked; always a copy.

    Tukey's ladder of powers, as in Free-Lunch (Yang, Liu and Xu, 2021), equation 3: x^β, β > 0,
    makes non-negative skewed features more Gaussian.

    Raises:
        DataError: a feature is NaN, infinite, or negative where the space is `tukey`.
    """
    features, labels = samples.features, getattr(samples, "labels", None)
    require_finite(features, labels)
    if space == "tukey":
        advice = "space=tukey needs features that end in a ReLU; use space=raw, or auto, for these"
        _reject(features < 0, "a negative entry", labels, advice)
    features = features.to(device or features.device, torch.float32)
    return features.clone() if space == "raw" else features.pow(beta)


def require_finite(features: torch.Tensor, labels: torch.Tensor | None = None) -> None:
    """Check that features (n, D) are finite numbers.

    Raises:
        DataError: a row holds NaN or infinity; the message names its class, where labels (n,)
            are given, and the row.
    """
    _reject(~torch.isfinite(features), "NaN or infinity", labels, "check the backbone's training")


def _reject(bad: torch.Tensor, what: str, labels: torch.Tensor | None, advice: str) -> None:
    rows = bad.any(dim=1)
    if not bool(rows.any()):
        return
    row = int(rows.nonzero()[0])
    owner = "query features" if labels is None else f"features of class {int(labels[row])}"
    more = int(rows.sum()) - 1
    others = f" (and {more} more rows)" if more else ""
    raise DataError(f"{owner}: row {row}{others} holds {what}; {advice}")


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


def classifier_rows(session: Session, first: int, device: torch.device) -> torch.Tensor:
    """Return the classifier row (n,) of each of a session's samples, on a device.

    Rows are numbered in the order of `class_ids`, from `first` on.
    """
    row_of = {c: first + i for i, c in enumerate(session.class_ids)}
    return torch.tensor([row_of[int(c)] for c in session.labels], device=device)


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


def whitening(covariance: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return W (D, D) with W·Wᵀ = Σ⁻¹, and how many eigenvalues of Σ were raised to have one.

    ‖(x − μ)·W‖² is the squared Mahalanobis distance. A matrix that is not positive definite has
    its eigenvalues raised to `EIGENVALUE_FLOOR` of the mean of the positive ones.
    """
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if not int(failed):
        eye = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        return torch.linalg.solve_triangular(factor, eye, upper=False).T, 0
    values, vectors = torch.linalg.eigh(covariance)
    floor = EIGENVALUE_FLOOR * values[values > 0].mean()
    return vectors * values.clamp(min=floor).rsqrt(), int((values < floor).sum())


def squared_distances(
    queries: torch.Tensor, means: torch.Tensor, factors: torch.Tensor
) -> torch.Tensor:
    """Return squared Mahalanobis distances (n, C).

    Args:
        queries: samples (n, D).
        means: class means (C, D).
        factors: the W of each class (C, D, D), or one (1, D, D) that all classes share.
    """
    # Differences are taken after the whitening: less is rounded off where the origin is near.
    queries, means = queries - means[0], means - means[0]
    if len(factors) == 1:
        white, centres = queries @ factors[0], means @ factors[0]
        lengths = white.square().sum(dim=1, keepdim=True) + centres.square().sum(dim=1)
        return (lengths - 2 * white @ centres.T).clamp(min=0)
    found = []
    for part in batches(len(means), max(1, CHUNK_BYTES // (4 * queries.numel() + 1))):
        centres = means[part, None] @ factors[part]
        found.append((queries @ factors[part] - centres).square().sum(dim=2).T)
    return torch.cat(found, dim=1)


def _of_class(features: torch.Tensor, labels: torch.Tensor, class_id: int) -> torch.Tensor:
    rows = features[labels == class_id].double()
    if len(rows) == 0:
        raise DataError(f"class {class_id} has no sample in its session")
    return rows
