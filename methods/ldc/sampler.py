"""Draws calibrated features of many classes from LDC's unit, in pieces that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from fscil_bench.method import batches

from .unit import CalibrationUnit, Factors, dense

ClassFactors = Callable[[torch.Tensor, torch.Tensor], Factors]
"""Gives A_i (n, rank, D), where Σ_i = A_iᵀA_i, for class means (n, D) and class numbers (n,)."""

CHUNK_BYTES = 64 * 2**20
"""Memory that one evaluation of the unit may take for its intermediate results."""

CACHE_BYTES = 1024 * 2**20
"""Memory that a sampler may take to keep the factors of all classes."""


def released_factors(factors: Factors) -> torch.Tensor:
    """Return the factors (n, 1, D) of the published fragment's noise: x̃ = w_i + z·1ᵀΣ_i.

    There the base noise has a covariance of all ones, which is one number z for all dimensions,
    and it is multiplied by Σ_i itself instead of a factor: samples of a class lie on a line.
    """
    full = dense(factors)
    return full.sum(dim=2)[:, None, :] @ full


class GaussianSampler:
    """Draws calibrated features of classes with the means w_i (classes, D).

    The mapping is evaluated once and the factors are kept, where they fit `CACHE_BYTES`;
    otherwise they are computed again for every draw.

    Args:
        unit: the calibration unit.
        means: w_i (classes, D).
        factors: gives A_i.
        numbers: the class numbers (classes,) that `factors` takes; 0, 1, … by default.
        rank: rows of A_i, and normal numbers for each sample; D by default.
        counts: how many samples (classes,) each w_i is the mean of, for a unit that sees shots.
    """

    def __init__(
        self,
        unit: CalibrationUnit,
        means: torch.Tensor,
        factors: ClassFactors,
        numbers: torch.Tensor | None = None,
        rank: int | None = None,
        counts: torch.Tensor | None = None,
    ) -> None:
        self.counts = counts
        self.unit, self.means, self.factors = unit, means, factors
        self.numbers = torch.arange(len(means), device=means.device) if numbers is None else numbers
        self.rank = means.shape[1] if rank is None else rank
        self._kept: dict[tuple[int, int], Factors] = {}

    def draw(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Return `count` fully calibrated samples of every class, (classes, count, D)."""
        return self.calibrated(self.noise(count, generator))

    def draw_steps(self, count: int, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the samples (classes, count, D) after 0, 1, …, R recurrent steps."""
        chunks = zip(*self._chunks(self.noise(count, generator)), strict=True)
        return [torch.cat(chunk) for chunk in chunks]

    def noise(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Return standard normal z (classes, count, rank)."""
        shape = len(self.means), count, self.rank
        return torch.randn(shape, generator=generator, device=generator.device)

    def calibrated(self, noise: torch.Tensor) -> torch.Tensor:
        """Return the fully calibrated samples (classes, n, D) of noise (classes, n, rank)."""
        return torch.cat([steps[-1] for steps in self._chunks(noise)])

    @torch.no_grad()
    def _chunks(self, noise: torch.Tensor) -> Iterator[list[torch.Tensor]]:
        dim, shape = self.means.shape[1], self.unit.shape
        maps = 6 + 4 * shape.sees_shots + (2 * shape.hidden if shape.kernel > 1 else 0)
        per_class = 4 * dim * max(dim, self.rank, noise.shape[1]) * maps
        for part in batches(len(self.means), max(1, CHUNK_BYTES // per_class)):
            counts = None if self.counts is None else self.counts[part]
            yield self.unit.steps(self.means[part], self._factors(part), noise[part], counts)

    def _factors(self, part: slice) -> Factors:
        key = part.start, part.stop
        if key not in self._kept:
            factors = self.factors(self.means[part], self.numbers[part])
            entries = self.means.numel() * self.rank if isinstance(factors, torch.Tensor) else 0
            if 4 * entries > CACHE_BYTES:
                return factors
            self._kept[key] = factors
        return self._kept[key]
