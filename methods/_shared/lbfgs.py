"""Minimisation of a smooth function by L-BFGS with a preconditioner."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

Objective = Callable[[torch.Tensor], tuple[float, torch.Tensor]]
"""Returns the value and the gradient at a point."""

Precondition = Callable[[torch.Tensor], torch.Tensor]
"""Multiplies a gradient by an approximation of the inverse Hessian, up to a factor."""

MEMORY = 20
"""Pairs of steps and gradient changes that are remembered."""

DECREASE, CURVATURE = 1e-4, 0.9
"""Constants of Wolfe's conditions on a step."""

VALUE_ERROR = 1e-6
"""Rounding of a value, relative to it, within which slopes decide (Hager and Zhang, 2005)."""

TRIALS = 40
"""Step lengths that a line search tries before it gives up."""


@dataclass(frozen=True)
class Minimum:
    """Where a minimisation ended.

    Attributes:
        point: float64, of the start's shape.
        gradient: largest absolute entry of the gradient there.
        steps: how many steps were made.
    """

    point: torch.Tensor
    gradient: float
    steps: int


class _History:
    """The last pairs of step s and gradient change y, as an approximation of the inverse Hessian.

    Nocedal and Wright, "Numerical Optimization" (2006), algorithm 7.4, with the preconditioner as
    the initial matrix, scaled by sᵀy / yᵀPy of the last pair.
    """

    def __init__(self, precondition: Precondition) -> None:
        self.precondition = precondition
        self.pairs: list[tuple[torch.Tensor, torch.Tensor, float]] = []
        self.scale = 1.0

    def add(self, step: torch.Tensor, change: torch.Tensor) -> None:
        """Remember a pair; Wolfe's conditions see to it that sᵀy > 0."""
        curvature = float((step * change).sum())
        self.pairs = [*self.pairs[1 - MEMORY :], (step, change, 1 / curvature)]
        self.scale = curvature / float((change * self.precondition(change)).sum())

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return minus the inverse Hessian times a gradient."""
        direction, factors = -gradient, []
        for step, change, rho in reversed(self.pairs):
            factors.append(rho * (step * direction).sum())
            direction = direction - factors[-1] * change
        direction = self.precondition(direction) * self.scale
        for (step, change, rho), factor in zip(self.pairs, reversed(factors), strict=True):
            direction = direction + (factor - rho * (change * direction).sum()) * step
        return direction


def minimise(
    objective: Objective,
    start: torch.Tensor,
    precondition: Precondition,
    tolerance: float,
    max_steps: int,
) -> Minimum:
    """Minimise from `start` until no entry of the gradient exceeds `tolerance`.

    It also ends after `max_steps`, and where no step decreases the objective any more; compare
    the gradient that is returned with the tolerance.
    """
    here = _at(objective, start.double())
    history = _History(precondition)
    for steps in range(max_steps):
        if here.steepness <= tolerance:
            return Minimum(here.point, here.steepness, steps)
        there = _searched(objective, here, history.direction(here.gradient))
        if there is None:
            return Minimum(here.point, here.steepness, steps)
        history.add(there.point - here.point, there.gradient - here.gradient)
        here = there
    return Minimum(here.point, here.steepness, max_steps)


@dataclass(frozen=True)
class _Place:
    """A point with the objective's value and gradient."""

    point: torch.Tensor
    value: float
    gradient: torch.Tensor

    @property
    def steepness(self) -> float:
        return float(self.gradient.abs().max())


def _at(objective: Objective, point: torch.Tensor) -> _Place:
    return _Place(point, *objective(point))


def _searched(objective: Objective, here: _Place, direction: torch.Tensor) -> _Place | None:
    """Return a place along a direction where Wolfe's conditions hold; None if none is found.

    Bisection, after doubling (Lewis and Overton, "Nonsmooth optimization via quasi-Newton
    methods", 2013). Where values differ by no more than their rounding, slopes decide instead.
    """
    slope = float((here.gradient * direction).sum())
    length, shortest, longest = 1.0, 0.0, math.inf
    for _ in range(TRIALS):
        there = _at(objective, here.point + length * direction)
        new_slope = float((there.gradient * direction).sum())
        enough = there.value <= here.value + DECREASE * length * slope
        level = there.value <= here.value + VALUE_ERROR * abs(here.value)
        if not (enough or (level and new_slope <= (2 * DECREASE - 1) * slope)):
            longest = length
        elif new_slope < CURVATURE * slope:
            shortest = length
        else:
            return there
        length = 2 * length if longest == math.inf else (shortest + longest) / 2
    return None
