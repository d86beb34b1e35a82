"""Training of LDC's calibration unit on base classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fscil_bench.errors import FscilError

from .matching import Convergence, matching_loss, random_axes, random_directions
from .params import LdcParams
from .sampler import ClassFactors
from .unit import CalibrationUnit

MAX_REAL = 512
"""Real features of a class that a training step compares with, at most."""

CHECKED_STEPS = 10
"""Steps' draws on which a trained unit is compared with an untrained one."""


@dataclass(frozen=True)
class BaseClasses:
    """What a unit is trained on.

    Attributes:
        means: class means (C, D).
        counts: how many samples (C,) each of them was taken of.
        real: for each class, its real features (n_i, D); at least two each.
        factors: gives A_i of classes by mean and number (0 … C−1).
    """

    means: torch.Tensor
    counts: torch.Tensor
    real: list[torch.Tensor]
    factors: ClassFactors


def train_unit(
    unit: CalibrationUnit,
    params: LdcParams,
    base: BaseClasses,
    generator: torch.Generator,
    progress: Callable[[float], None],
    convergence: Convergence | None = None,
) -> torch.Tensor:
    """Train θ_m and θ_r on base classes in place; return the loss of every step (steps,).

    A step draws base classes, samples x̃ ~ N(w_i, Σ_i), calibrates R times and adds up L_m over
    the steps 0 … R, against real features of the class. In a biased step w_i is the mean of K
    random real features, as it will be for few-shot classes; the unit so learns to undo that.

    Args:
        unit: the unit, at its initialisation, its scales set.
        params: losses, sizes and rates.
        base: means, features and factors of the classes.
        generator: what all draws come from.
        progress: takes the fraction that is done.
        convergence: counts the solver's failures, where the loss needs one.

    Raises:
        FscilError: the loss or the parameters are not finite.
    """
    optimiser = torch.optim.Adam(unit.parameters(), lr=params.unit_lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, params.unit_steps))
    losses = torch.zeros(params.unit_steps)
    for step in range(params.unit_steps):
        loss = _step_loss(unit, params, base, generator, convergence)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        losses[step] = loss.detach()
        finite = bool(losses[step].isfinite())
        if step + 1 == params.unit_steps:
            finite &= all(bool(torch.isfinite(p).all()) for p in unit.parameters())
        if not finite:
            raise FscilError(
                f"method 'ldc': the calibration unit diverges (loss {losses[step]:g}) in step "
                f"{step + 1} of its training; lower unit_lr = {params.unit_lr:g}"
            )
        progress((step + 1) / params.unit_steps)
    return losses


@torch.no_grad()
def mean_loss(
    unit: CalibrationUnit, params: LdcParams, base: BaseClasses, generator: torch.Generator
) -> float:
    """Return a unit's mean loss over some steps' draws, which the generator decides."""
    steps = [_step_loss(unit, params, base, generator, None) for _ in range(CHECKED_STEPS)]
    return float(torch.stack(steps).mean())


def _step_loss(
    unit: CalibrationUnit,
    params: LdcParams,
    base: BaseClasses,
    generator: torch.Generator,
    convergence: Convergence | None,
) -> torch.Tensor:
    device, dim = base.means.device, base.means.shape[1]
    order = torch.randperm(len(base.means), generator=generator, device=device)
    chosen = order[: params.unit_classes]
    centres, counts = base.means[chosen], base.counts[chosen]
    targets = [base.real[i] for i in chosen.tolist()]
    if params.virtual_classes > 0:
        centres, targets = with_mixtures(centres, targets, base, params.virtual_classes, generator)
    if float(torch.rand(1, generator=generator, device=device)) < params.biased_steps:
        shots = _subsets(targets, params.simulated_shots, generator)
        centres, counts = shots.mean(dim=1), torch.full_like(counts, shots.shape[1])
    factors = base.factors(centres, chosen)
    shape = len(chosen), params.unit_samples, params.noise_rank(dim)
    noise = torch.randn(shape, generator=generator, device=device)
    samples = unit.steps(centres, factors, noise, counts)
    axes = directions = None
    if params.directions == "sliced":
        directions = random_directions(dim, min(dim, params.slices), generator)
        axes = random_axes(dim, params.slices, generator)
    compared = _subsets(targets, MAX_REAL, generator)
    parts = [
        matching_loss(x, compared, params.loss, directions, convergence, axes) for x in samples
    ]
    return torch.stack(parts).sum()


def with_mixtures(
    centres: torch.Tensor,
    targets: list[torch.Tensor],
    base: BaseClasses,
    fraction: float,
    generator: torch.Generator,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Mix some of a step's classes, at random, with another base class each.

    A mixture of classes a and b has the mean λμ_a + (1−λ)μ_b and, from pairs of real features,
    the deviations √λ·(x_a − μ_a) + √(1−λ)·(x_b − μ_b), so the covariance λΣ_a + (1−λ)Σ_b. Plain
    interpolation of features would shrink the spread that the unit is to learn.
    """
    draws = torch.rand(len(targets), 3, generator=generator, device=generator.device).tolist()
    centres, mixed = centres.clone(), list(targets)
    for i, (chance, other, share) in enumerate(draws):
        if chance >= fraction:
            continue
        b = int(other * len(base.real))
        pairs = [_subsets([rows], len(rows), generator)[0] for rows in (targets[i], base.real[b])]
        (x, mean_x), (y, mean_y) = ((rows, rows.mean(dim=0)) for rows in pairs)
        n = min(len(x), len(y))
        spread = share**0.5 * (x[:n] - mean_x) + (1 - share) ** 0.5 * (y[:n] - mean_y)
        mixed[i] = share * mean_x + (1 - share) * mean_y + spread
        centres[i] = share * centres[i] + (1 - share) * base.means[b]
    return centres, mixed


def _subsets(classes: list[torch.Tensor], size: int, generator: torch.Generator) -> torch.Tensor:
    """Return random features (classes, size, D), fewer where the smallest class has fewer."""
    size = min(size, *(len(rows) for rows in classes))
    picks = [
        torch.randperm(len(rows), generator=generator, device=generator.device)[:size]
        for rows in classes
    ]
    return torch.stack([rows[pick] for rows, pick in zip(classes, picks, strict=True)])
