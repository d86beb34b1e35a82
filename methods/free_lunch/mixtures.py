"""Free-Lunch's calibrated distributions: one Gaussian for each support sample of a new class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from fscil_bench.method import batches

from .covariances import StoredCovariances

AlphaMode = Literal["eye", "ones"]
"""What α multiplies: the identity, or the matrix of all ones."""

CHUNK_BYTES = 64 * 2**20
"""Memory that the samples drawn at once may take."""


@dataclass(frozen=True)
class Addition:
    """What Free-Lunch adds to the mean of its neighbours' covariances: α·I or α·11ᵀ."""

    alpha: float
    mode: AlphaMode

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Return draws of the normal distribution (..., D) that has this covariance."""
        drawn = shape if self.mode == "eye" else (*shape[:-1], 1)
        unit = torch.randn(drawn, generator=generator, device=generator.device)
        return unit.mul(math.sqrt(self.alpha)).expand(shape)

    def matrix(self, dim: int) -> torch.Tensor:
        """Return it as a matrix (dim, dim), float64."""
        unit = torch.eye(dim) if self.mode == "eye" else torch.ones(dim, dim)
        return self.alpha * unit.double()


@dataclass(frozen=True)
class Mixtures:
    """The distributions of new classes, as they are stored: one component a support sample.

    A component's covariance is the mean of its neighbours' plus α; since neighbours are base
    classes, whose covariances are stored anyway, their indices stand for it.

    Attributes:
        means: μ' (S, D), float32.
        neighbours: indices (S, k), int32, of base classes.
        owners: the classifier row (S,), int32, of the component's class.
    """

    means: torch.Tensor
    neighbours: torch.Tensor
    owners: torch.Tensor

    @classmethod
    def none(cls, base_means: torch.Tensor, k: int) -> Mixtures:
        """Return the mixtures of no class."""
        integers = torch.zeros(0, k, dtype=torch.int32, device=base_means.device)
        return cls(base_means[:0], integers, integers.new_zeros(0))

    def with_classes(self, other: Mixtures) -> Mixtures:
        """Return these and another's."""
        return Mixtures(
            torch.cat([self.means, other.means]),
            torch.cat([self.neighbours, other.neighbours]),
            torch.cat([self.owners, other.owners]),
        )

    def covariance(
        self, component: int, stored: StoredCovariances, addition: Addition
    ) -> torch.Tensor:
        """Return Σ' (D, D) of a component, float64."""
        total = addition.matrix(self.means.shape[1]).to(self.means.device)
        near = self.neighbours[component].tolist()
        for index in near:
            total += stored.covariance(index) / len(near)
        return total

    def sample(
        self,
        per_class: int,
        stored: StoredCovariances,
        addition: Addition,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw `per_class` samples of every class, shared out evenly over its components.

        The sum of one draw for each neighbour, divided by √k, has the mean of their covariances:
        no covariance Σ' is ever built or factorised.

        Returns:
            Samples (n, D), float32, and their classifier rows (n,), int64.
        """
        counts = shares(self.owners, per_class)
        most, dim = int(counts.max()) if len(counts) else 0, self.means.shape[1]
        kept, ranks = [self.means[:0]], torch.arange(most, device=counts.device)
        size = max(1, CHUNK_BYTES // (4 * dim * max(1, most)))
        for part in batches(len(counts) if most else 0, size):
            near = self.neighbours[part].long()
            drawn = self.means[part, None] + addition.noise((len(near), most, dim), generator)
            for classes in near.unbind(dim=1):
                drawn += stored.noise(classes, most, generator) / near.shape[1] ** 0.5
            kept.append(drawn[ranks < counts[part, None]])
        return torch.cat(kept), self.owners.long().repeat_interleave(counts)


def calibrated(
    supports: torch.Tensor, owners: torch.Tensor, base_means: torch.Tensor, k: int
) -> Mixtures:
    """Return the calibrated distribution of each support sample.

    Yang, Liu and Xu (2021), equations 5 and 6: N(x̃) are the k base classes whose means are nearest
    to x̃, μ' = (Σ_{j in N(x̃)} μ_j + x̃)/(k+1), Σ' = mean of Σ_j over N(x̃), plus α. With k = 0, μ' is
    x̃ itself and Σ' is α alone.

    Args:
        supports: x̃ (S, D).
        owners: their classifier rows (S,).
        base_means: (C0, D), C0 >= k.
        k: how many neighbours.
    """
    distances = torch.cdist(supports.double(), base_means.double())
    near = distances.argsort(dim=1, stable=True)[:, :k]
    total = base_means[near].double().sum(dim=1) + supports.double()
    return Mixtures((total / (k + 1)).float(), near.int(), owners.int())


def shares(owners: torch.Tensor, per_class: int) -> torch.Tensor:
    """Return how many samples each component (S,) draws, `per_class` in all for each owner."""
    counts = torch.zeros_like(owners, dtype=torch.long)
    for owner in set(owners.tolist()):
        own = (owners == owner).nonzero()[:, 0]
        rank = torch.arange(len(own), device=owners.device)
        counts[own] = per_class // len(own) + (rank < per_class % len(own)).long()
    return counts
