"""What base classes say about the mean of a new class, beside its shots: loans and a prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .covariance import TINY


def borrowed_means(
    means: torch.Tensor, base_means: torch.Tensor, share: float, neighbours: int
) -> torch.Tensor:
    """Return means (n, D) moved towards those of the nearest base classes, by cosine.

    (1 − a)·x̄_i + a·m_i, m_i the mean of the k nearest base means: Free-Lunch's calibrated mean
    (Yang, Liu and Xu, 2021, equation 6) is that of one shot with a = k/(k + 1), by Euclidean
    distance.

    Args:
        means: the shots' means x̄_i (n, D).
        base_means: (C0, D), C0 >= k.
        share: a, 0 … 1; with 0 the means stay as they are.
        neighbours: k.
    """
    cosines = F.normalize(means, dim=1) @ F.normalize(base_means, dim=1).T
    nearest = cosines.argsort(dim=1, descending=True, stable=True)[:, :neighbours]
    return (1 - share) * means + share * base_means[nearest].mean(dim=1)


@dataclass(frozen=True)
class MeanPrior:
    """Class means are taken to be N(m0, B).

    Attributes:
        mean: m0 (D,), float64.
        covariance: B (D, D), float64, positive semi-definite.
        shrinkage: the part of B that comes from the scaled identity, 0 … 1.
    """

    mean: torch.Tensor
    covariance: torch.Tensor
    shrinkage: float = 0.0


def fit_prior(means: torch.Tensor, within: torch.Tensor, sizes: torch.Tensor) -> MeanPrior:
    """Return the prior that base classes teach.

    Their means' covariance is shrunk, as they are few, and the part of it that is sampling noise,
    Σ·mean(1/n_i), taken off; negative eigenvalues that this leaves become zero.

    Args:
        means: class means (C0, D).
        within: the mean within-class covariance Σ (D, D).
        sizes: how many samples n_i (C0,) each mean was taken of.
    """
    shrunk, shrinkage = shrunk_covariance(means)
    difference = shrunk - within.double() * float(sizes.double().reciprocal().mean())
    values, vectors = torch.linalg.eigh(difference)
    covariance = (vectors * values.clamp(min=0)) @ vectors.T
    return MeanPrior(means.double().mean(dim=0), covariance, shrinkage)


def shrunk_covariance(rows: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return a shrunk covariance (D, D) of few rows (n, D), float64, and the intensity used.

    Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance matrices"
    (2004), by scikit-learn, with n−1 degrees of freedom. One row has no covariance: zero.
    """
    from sklearn.covariance import ledoit_wolf

    n, dim = rows.shape
    if n < 2:
        return rows.new_zeros(dim, dim, dtype=torch.float64), 0.0
    biased, intensity = ledoit_wolf(rows.double().cpu().numpy())
    return torch.from_numpy(biased).to(rows.device) * (n / (n - 1)), float(intensity)


def posterior_means(
    prior: MeanPrior,
    means: torch.Tensor,
    covariances: torch.Tensor,
    counts: torch.Tensor,
    weight: float,
) -> torch.Tensor:
    """Return E[μ_i | x̄_i] = m0 + B(B + w·Σ_i/K_i)⁻¹(x̄_i − m0), float64 (n, D).

    Args:
        prior: m0 and B.
        means: the shots' means x̄_i (n, D).
        covariances: Σ_i (n, D, D) of the classes' features.
        counts: K_i (n,), how many shots.
        weight: w, factor on the shots' variance.
    """
    eye = torch.eye(len(prior.mean), dtype=torch.float64, device=means.device)
    error = covariances.double() * (weight / counts.double())[:, None, None]
    gaps = (means.double() - prior.mean)[:, :, None]
    between = prior.covariance.double()
    moved: torch.Tensor = between @ torch.linalg.solve(between + error + TINY * eye, gaps)
    return prior.mean + moved.squeeze(2)
