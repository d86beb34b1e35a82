"""Shrunk covariances, and Mahalanobis distances to many classes by their whitening factors."""

from __future__ import annotations

import torch

from fscil_bench.method import batches

from ._statistics import EIGENVALUE_FLOOR

CHUNK_BYTES = 64 * 2**20
"""Memory that whitened queries may take, of the classes that are compared with at once."""


def shrunk(covariance: torch.Tensor, gamma1: float, gamma2: float) -> torch.Tensor:
    """Return Σ + γ1·V1·I + γ2·V2·(11ᵀ − I) for a covariance Σ (D, D).

    V1 is the mean of Σ's diagonal and V2 that of its other entries (FeCAM, Goswami et al., 2023).
    A covariance without any variance becomes the identity.
    """
    size = len(covariance)
    eye = torch.eye(size, dtype=covariance.dtype, device=covariance.device)
    v1 = covariance.diagonal().mean()
    if not bool(v1 > 0):
        return eye
    v2 = (covariance.sum() - size * v1) / max(size * (size - 1), 1)
    return covariance + gamma1 * v1 * eye + gamma2 * v2 * (1 - eye)


def correlation(covariance: torch.Tensor) -> torch.Tensor:
    """Return the correlation matrix (D, D) of a covariance; zeros where there is no variance."""
    deviations = covariance.diagonal().sqrt()
    inverse = torch.where(deviations > 0, 1 / deviations, 0)
    return covariance * inverse[:, None] * inverse


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
