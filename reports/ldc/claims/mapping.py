"""Claim (d): the learnt mapping against the empirical covariance of the nearest base classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fscil_bench.metrics import mean_interval

from ._claims import Claim, Part, compared, contrasted, number, untested
from ._claims_setup import Setup
from ._convergence import classifier_loss, common_threshold, epochs_to, loss_curves
from ._shelf import Shelf
from ._terms import COVARIANCES

CURVE = classifier_loss(1)


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
            _convergence(*(loss_curves(shelf, runs, CURVE) for runs in (mapped, empirical))),
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
