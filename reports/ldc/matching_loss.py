"""The paper's comparison of matching losses: accuracy, time and convergence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.measures import formulas
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.tables import measure_columns

from .convergence import (
    FALL_LEFT,
    by_step,
    classifier_loss,
    loss_curves,
    remaining_fall,
    steps_to_fall,
)
from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure, told
from .terms import LOSSES, StudyParams, Terms
from .values import apart, busy_remarks, once, one_machine, points
from .variants import Variant

Losses = Mapping[str, Mapping[int, np.ndarray]]
"""Curves by loss and seed."""

UNIT_LOSS = "session0/unit_loss"
"""Name of the unit's own training curve among a run's arrays."""

PAPER = "kl"
"""The loss that the paper settles on."""

ACCURACY = ("last", "last_base", "last_new", "last_harmonic")
COLUMNS = (
    *measure_columns(*ACCURACY),
    Column("minus", f"− {PAPER}"),
    Column("unit", "Unit", "Seconds", best="lowest"),
    Column("learning", "Sessions", "Seconds", best="lowest"),
    Column("unit_steps", "Unit steps", "Convergence", best="lowest"),
    Column("epochs", "Epochs", "Convergence", best="lowest"),
)
NOTE = (
    f"Accuracies are those of the last session; − {PAPER} is what Last has above that of {PAPER}, "
    "in points, paired by seed. Seconds, on one machine: the unit's training, once for all seeds, "
    "and learning in all sessions after the base session. Convergence: unit steps, and epochs of "
    f"the classifier in the last session, until {FALL_LEFT:.0%} of a training curve's fall is "
    "left, over the seeds whose curves are kept; – where no curve is stored or it does not fall."
)
FALLS = (
    "which part of a training loss's whole fall is still to come (1 at the first step, 0 at the "
    "mean of the last tenth), so that losses of different kinds compare; running mean over a tenth "
    "of the steps, less at the start. Means over the seeds whose curves are kept."
)


@dataclass(frozen=True)
class MatchingLossParams(StudyParams):
    """Parameters of the report.

    Attributes:
        curves: from how many of the seeds training curves are kept: a run that keeps them keeps
            its generated features too, some tens of megabytes.
    """

    curves: Annotated[int, Field(ge=1)] = 1


class MatchingLoss(Study):
    """LDC's unit trained with KL, EMD, JS and Hellinger: what each reaches, costs and how soon."""

    name = "matching-loss"
    title = "The loss that the calibration unit is trained with"
    Params = MatchingLossParams

    def variants(self, terms: Terms[MatchingLossParams]) -> dict[tuple[str, str], Variant]:
        """Return LDC with each loss, on all seeds, and with its curves on some."""
        some = {"seeds": terms.seeds[: terms.params.curves], "artifacts": True}
        return {
            (kind, loss): terms.complete(loss=loss, **fields)
            for kind, fields in (("all", {}), ("curves", some))
            for loss in LOSSES
        }

    def findings(self, terms: Terms[MatchingLossParams], shelf: Shelf) -> Findings:
        """Return accuracy, seconds and convergence for each loss."""
        made = {loss: shelf.runs(shelf.variants["all", loss]) for loss in LOSSES}
        unit, classifier = (
            {loss: loss_curves(shelf, shelf.variants["curves", loss], name) for loss in LOSSES}
            for name in (UNIT_LOSS, classifier_loss(terms.protocol.sessions))
        )
        runs = {
            loss: own.assign(
                minus=apart(own, made[PAPER], ["last"])["last"] if loss != PAPER else math.nan,
                # Once for all seeds; the least, if oftener: other work only adds to it.
                unit=once(own, own["pretrain_seconds"].min()),
                unit_steps=_steps(unit[loss]),
                epochs=_steps(classifier[loss]),
            )
            for loss, own in one_machine(made).items()
        }
        table = interval_table(self.name, runs, COLUMNS, NOTE, formulas(*ACCURACY))
        sentences = told(runs, [(PAPER, loss) for loss in LOSSES if loss != PAPER], "last")
        return Findings(
            [
                Notes([*sentences, *_fastest(runs)]),
                Section("Losses", [table]),
                _curves(unit, classifier),
            ],
            runs,
            busy_remarks(runs),
        )


def _steps(curves: Mapping[int, np.ndarray]) -> pd.Series:
    steps = {seed: steps_to_fall(curve, FALL_LEFT) for seed, curve in curves.items()}
    return pd.Series(steps, dtype=float)


def _fastest(runs: Mapping[str, pd.DataFrame]) -> list[str]:
    """Say which loss trains the unit in the least time, and which in the most."""
    seconds = pd.Series({loss: own["unit"].max() for loss, own in runs.items()})
    seconds = seconds[seconds > 0].sort_values(kind="stable")
    if len(seconds) < 2:
        return []
    first, last = seconds.index[0], seconds.index[-1]
    return [
        f"Training the unit took {seconds[first]:.0f} seconds with {first}, the fastest, and "
        f"{seconds[last]:.0f} with {last}, the slowest: {seconds[last] / seconds[first]:.1f} times "
        "as many (no interval: all seeds share one unit)."
    ]


def _curves(unit: Losses, classifier: Losses) -> Figure:
    y = "Fall of the loss still to come"
    drawn = {
        "the unit's matching loss, trained once for all seeds": Panel(
            "Unit's training step", y, points(_falls(unit)), zero=True
        ),
        "the classifier's loss in the last session": Panel(
            "Epoch in the last session", y, points(_falls(classifier)), zero=True
        ),
    }
    return panel_figure("loss-curves", drawn, FALLS)


def _falls(losses: Losses) -> dict[str, pd.DataFrame]:
    """Return what is still to come of each loss's fall, by step: means over those that fall."""
    found = {}
    for loss, own in losses.items():
        falls = {seed: remaining_fall(curve) for seed, curve in own.items()}
        steps = by_step({seed: fall for seed, fall in falls.items() if not np.isnan(fall).any()})
        # One curve is all that a seed tells of the unit: it has no interval.
        found[loss] = steps.mean().to_frame().T
    return found
