"""Claim (d): the learnt mapping against the empirical covariance of the nearest base classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fscil_bench.metrics import mean_interval
from fscil_bench.store import StoredRun

from ._claims import Claim, Part, compared, contrasted, number, untested
from ._claims_setup import COVARIANCES, Setup
from ._shelf import Shelf

CURVE = "session1/classifier_loss"
FALL_LEFT = 0.05
"""Of the fall of the curve that ends higher, what is left when the common threshold is reached."""


def common_threshold(one: np.ndarray, other: np.ndarray) -> float:
    """Return the loss at which both training curves (epochs,) count as converged.

    It is the higher of the two final values, plus 5 % of that curve's fall from its first epoch,
    so that each curve reaches it before its last epoch, and noise in the last one decides little.
    """
    highest = max(one, other, key=lambda curve: float(curve[-1]))
    fall = max(0.0, float(highest[0] - highest[-1]))
    return float(highest[-1]) + FALL_LEFT * fall


def epochs_to(curve: np.ndarray, threshold: float) -> int:
    """Return the first epoch, counted from 1, whose mean loss is at or below the threshold."""
    below = np.flatnonzero(curve <= threshold)
    return int(below[0]) + 1 if len(below) else len(curve)


def mapping_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (d)."""
    mapped, empirical = (shelf.runs(setup.unseen(covariance)) for covariance in COVARIANCES)
    way = setup.unseen("mapped").overrides["way"]
    return Claim(
        "d",
        "The learnt mapping converges faster than the empirical covariance, and generalises better "
        "to unseen classes",
        f"One session of {way} unseen classes. Epochs: those that the training loss under "
        "covariance=empirical takes to a common threshold minus those under covariance=mapped; the "
        "threshold is the higher of the two final losses plus 5 % of that curve's fall since its "
        "first epoch, seed by seed. New classes: the accuracy on them under mapped minus "
        "empirical. Holds if both are above 0. Each loss is taken on its own samples: tighter "
        "ones are easier to fit, whether or not they are right.",
        (
            _convergence(_curves(shelf, mapped), _curves(shelf, empirical)),
            compared(mapped, empirical, lambda run: 100 * run.metrics[-1].new, "new classes"),
        ),
    )


def _convergence(mapped: Mapping[int, np.ndarray], empirical: Mapping[int, np.ndarray]) -> Part:
    shared = [seed for seed in mapped if seed in empirical]
    if not shared:
        return untested("its training curves are not stored", "epochs")
    levels = {seed: common_threshold(mapped[seed], empirical[seed]) for seed in shared}
    slow, fast = (
        {seed: float(epochs_to(own[seed], levels[seed])) for seed in shared}
        for own in (empirical, mapped)
    )
    part = contrasted(slow, fast, "epochs", "epochs fewer")
    finals = [
        number(mean_interval([float(own[seed][-1]) for seed in shared]).mean)
        for own in (empirical, mapped)
    ]
    return replace(part, detail=f"{part.detail}; final losses {' against '.join(finals)}")


def _curves(shelf: Shelf, runs: Mapping[int, StoredRun]) -> dict[int, np.ndarray]:
    found = {seed: shelf.artifacts(run, CURVE).get(CURVE) for seed, run in runs.items()}
    return {seed: curve for seed, curve in found.items() if curve is not None and len(curve)}
