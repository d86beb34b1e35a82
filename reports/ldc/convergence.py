"""Loss curves of training: how soon they are down, alone and on a common scale."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from .shelf import Shelf
from .variants import Variant

FALL_LEFT = 0.05
"""What is left of a curve's fall when it counts as converged."""

FINAL_PART = 0.1
"""The part of a curve, at its end, whose mean is its final loss."""

SMOOTHED_OVER = 0.1
"""The part of a curve that a running mean is taken over, at most."""


def classifier_loss(session: int) -> str:
    """Return the name of a session's training curve among a run's arrays."""
    return f"session{session}/classifier_loss"


def loss_curves(shelf: Shelf, variant: Variant, name: str) -> dict[int, np.ndarray]:
    """Return the curves (steps,) of that name by seed; runs without one are left out."""
    runs = shelf.stored(variant)
    found = {seed: shelf.artifacts(run, name).get(name) for seed, run in runs.items()}
    return {seed: curve for seed, curve in found.items() if curve is not None and len(curve)}


def by_step(curves: Mapping[int, np.ndarray]) -> pd.DataFrame:
    """Return a line for each curve and a column for each step, from 1, as far as all go."""
    count = min(map(len, curves.values()), default=0)
    return pd.DataFrame([curve[:count] for curve in curves.values()], columns=range(1, count + 1))


def epochs_to(curve: np.ndarray, threshold: float) -> int:
    """Return the first epoch, counted from 1, whose mean loss is at or below the threshold."""
    below = np.flatnonzero(curve <= threshold)
    return int(below[0]) + 1 if len(below) else len(curve)


def epochs_to_common(
    first: Mapping[int, np.ndarray], second: Mapping[int, np.ndarray]
) -> pd.DataFrame:
    """Return when training curves (epochs,) by seed are both down, for the seeds that both have.

    Columns `first` and `second`: epochs to their common threshold, the higher of the two final
    values plus 5 % of that curve's fall from its first epoch. So each curve reaches it before its
    last epoch, and noise in the last one decides little.
    """
    found = {}
    for seed in (seed for seed in first if seed in second):
        pair = first[seed], second[seed]
        highest = max(pair, key=lambda curve: float(curve[-1]))
        fall = max(0.0, float(highest[0] - highest[-1]))
        found[seed] = [epochs_to(curve, float(highest[-1]) + FALL_LEFT * fall) for curve in pair]
    columns = ["first", "second"]
    return pd.DataFrame.from_dict(found, orient="index", columns=columns, dtype=float)


def remaining_fall(curve: np.ndarray) -> np.ndarray:
    """Return, step by step, which part of a curve's whole fall is still to come: float64 (steps,).

    Losses of different kinds so have one scale: 1 at the first step, 0 at the final loss, which is
    the mean of the last tenth. What a step's draws make of its loss is taken out by a running
    mean over the later half of the steps so far, at most a tenth of all, which leaves the first
    steps as steep as they are. NaN where a curve does not fall, and has no such scale.
    """
    values = curve.astype(np.float64)
    size = max(1, round(SMOOTHED_OVER * len(values)))
    sums = np.concatenate([[0.0], values.cumsum()])
    ends = np.arange(1, len(values) + 1)
    starts = ends - np.minimum(size, (ends + 1) // 2)
    smooth: np.ndarray = (sums[ends] - sums[starts]) / (ends - starts)
    final = values[-max(1, round(FINAL_PART * len(values))) :].mean()
    fall = smooth[0] - final
    return (smooth - final) / fall if fall > 0 else np.full(len(values), math.nan)


def steps_to_fall(curve: np.ndarray, left: float) -> float:
    """Return the first step, from 1, at which no more than `left` of a curve's fall is to come.

    NaN where the curve does not fall.
    """
    remaining = remaining_fall(curve)
    return math.nan if np.isnan(remaining).any() else float(epochs_to(remaining, left))
