"""The Gaussian prior over class means that base classes teach, and posterior means under it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._shared.statistics import TINY


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
    shrunk, shrinkage = ledoit_wolf(means)
    difference = shrunk - within.double() * float(sizes.double().reciprocal().mean())
    values, vectors = torch.linalg.eigh(difference)
    covariance = (vectors * values.clamp(min=0)) @ vectors.T
    return MeanPrior(means.double().mean(dim=0), covariance, shrinkage)


def ledoit_wolf(rows: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return a shrunk covariance (D, D) of few rows (n, D), float64, and the intensity used.

    (1−δ)S + δ·(tr S/D)·I with the intensity δ of Ledoit and Wolf, "A well-conditioned estimator
    for large-dimensional covariance matrices" (2004), lemma 3.2 and below; S has n−1 degrees of
    freedom. One row has no covariance: zero.
    """
    n, dim = rows.shape
    eye = torch.eye(dim, dtype=torch.float64, device=rows.device)
    if n < 2:
        return 0 * eye, 0.0
    centred = rows.double() - rows.double().mean(dim=0)
    biased = centred.T @ centred / n
    level = float(biased.trace()) / dim
    distance = float((biased - level * eye).square().sum())
    scatter = float(centred.square().sum(dim=1).square().sum()) / n
    noise = (scatter - float(biased.square().sum())) / n
    intensity = min(1.0, noise / distance) if distance > TINY * level**2 else 1.0
    shrunk = (1 - intensity) * biased + intensity * level * eye
    return shrunk * (n / (n - 1)), intensity


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
