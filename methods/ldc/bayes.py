"""LDC's classifier in closed form: Bayes' rule for the calibrated Gaussians, with equal priors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch

from fscil_bench.method import batches

from .._shared.statistics import squared_distances, whitening
from .sampler import CHUNK_BYTES, ClassFactors
from .unit import dense


@dataclass(frozen=True)
class GaussianClassifier:
    """Scores classes by their log densities log N(x; w_i, Σ_i).

    With one Σ for all classes that is linear discriminant analysis, with one each the quadratic
    one (Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning", section 4.3). No
    classifier makes fewer errors on samples of these Gaussians, which training can but approach.

    Attributes:
        means: w_i (C, D).
        whiteners: W_i (C, D, D) with W_i·W_iᵀ = Σ_i⁻¹, or one (1, D, D) that all classes share.
        volumes: log |det W_i| (C,), or (1,).
    """

    means: torch.Tensor
    whiteners: torch.Tensor
    volumes: torch.Tensor

    @classmethod
    def shared(cls, means: torch.Tensor, factor: torch.Tensor, shrinkage: float) -> Self:
        """Return that of classes with one Σ = AᵀA, in float64; `factor` is A (rank, D)."""
        whitener, volume = _whitened(factor, shrinkage)
        return cls(means.double(), whitener[None], volume[None])

    @classmethod
    def separate(
        cls, means: torch.Tensor, factors: ClassFactors, numbers: torch.Tensor, shrinkage: float
    ) -> Self:
        """Return that of classes with a Σ_i = A_iᵀA_i each, which `factors` gives.

        Solved in float64, some classes at a time, and kept in float32, 4·C·D² bytes.
        """
        whiteners, volumes = means.new_empty(*means.shape, means.shape[1]), means[:, 0].clone()
        per_class = 8 * 4 * means.shape[1] ** 2
        for part in batches(len(means), max(1, CHUNK_BYTES // per_class)):
            own = dense(factors(means[part], numbers[part]))
            for row, factor in enumerate(own, start=part.start):
                whiteners[row], volumes[row] = _whitened(factor, shrinkage)
        return cls(means, whiteners, volumes)

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Return log densities (n, C) of features (n, D)."""
        distances = squared_distances(features.to(self.means.dtype), self.means, self.whiteners)
        return self.volumes - 0.5 * (distances + features.shape[1] * math.log(2 * math.pi))


def shrunk(covariance: torch.Tensor, share: float) -> torch.Tensor:
    """Return (1 − s)·Σ + s·v·I, v the mean variance, for Σ (D, D) and s = `share` in 0 … 1.

    What eigenvalues add up to stays. With s = 1 distances are Euclidean ones.
    """
    size = len(covariance)
    eye = torch.eye(size, dtype=covariance.dtype, device=covariance.device)
    return (1 - share) * covariance + share * covariance.trace() / size * eye


def _whitened(factor: torch.Tensor, shrinkage: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return W (D, D) and log |det W|, float64, of AᵀA as it is shrunk; A is (rank, D)."""
    double = factor.double()
    whitener, _ = whitening(shrunk(double.T @ double, shrinkage))
    return whitener, torch.linalg.slogdet(whitener).logabsdet
