"""Claim (d): the learnt mapping against the empirical covariance of the nearest base classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fscil_bench.reporting.sentences import number

from ..convergence import classifier_loss, epochs_to_common, loss_curves
from ..shelf import Shelf
from ..terms import COVARIANCES
from .claim import Claim, Part, compared, untested
from .setup import Setup

CURVE = classifier_loss(1)


def mapping_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (d)."""
    variants = [setup.unseen(covariance) for covariance in COVARIANCES]
    mapped, empirical = (shelf.runs(variant) for variant in variants)
    way = variants[0].overrides["way"]
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
            _convergence(*(loss_curves(shelf, variant, CURVE) for variant in variants)),
            compared(mapped, empirical, "last_new", "new classes"),
        ),
    )


def _convergence(mapped: Mapping[int, np.ndarray], empirical: Mapping[int, np.ndarray]) -> Part:
    epochs = epochs_to_common(mapped, empirical)
    if epochs.empty:
        return untested("its training curves are not stored", "epochs")
    fast, slow = (epochs[[side]].set_axis(["epochs"], axis=1) for side in ("first", "second"))
    part = compared(slow, fast, "epochs", "epochs", "epochs fewer")
    finals = [
        number(float(np.mean([own[seed][-1] for seed in epochs.index])))
        for own in (empirical, mapped)
    ]
    return replace(part, detail=f"{part.detail}; final losses {' against '.join(finals)}")
