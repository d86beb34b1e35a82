"""The paper's comparison of matching losses: accuracy, time and convergence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from fscil_bench.metrics import Interval
from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import difference_sentence
from fscil_bench.reporting.tables import measure_columns

from .convergence import FALL_LEFT, classifier_loss, loss_curves, remaining_fall, steps_to_fall
from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure
from .terms import LOSSES, StudyParams, Terms
from .values import apart, busy_remarks, curves, difference, once, one_machine, point
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
    "Accuracy in the last session in %, with its difference to {paper} in points, paired by seed; "
    "± is the half-width of the 95 % Student-t interval over n seeds. Seconds, on one machine: the "
    "unit's training, once for all seeds, and learning in all sessions after the base session. "
    "Convergence: unit steps, and epochs of the classifier in the last session, until {left:.0%} "
    "of a training curve's fall is left, over the seeds whose curves are kept; – where no curve is "
    "stored or it does not fall."
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

    def variants(self, terms: Terms, params: MatchingLossParams) -> list[Variant]:
        """Return LDC with each loss, on all seeds, and with its curves on some."""
        return [*self._all(terms).values(), *self._kept(terms, params).values()]

    def findings(self, terms: Terms, shelf: Shelf, params: MatchingLossParams) -> Findings:
        """Return accuracy, seconds and convergence for each loss."""
        made = {loss: shelf.runs(variant) for loss, variant in self._all(terms).items()}
        kept = self._kept(terms, params)
        unit, classifier = (
            {loss: loss_curves(shelf, variant, name) for loss, variant in kept.items()}
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
        note = NOTE.format(paper=PAPER, left=FALL_LEFT)
        return Findings(
            [
                Notes([*_sentences(runs), *_fastest(runs)]),
                Section("Losses", [interval_table("matching-loss", runs, COLUMNS, note)]),
                _curves(unit, classifier),
            ],
            runs,
            busy_remarks(runs),
        )

    def _all(self, terms: Terms) -> dict[str, Variant]:
        return {loss: terms.complete(loss=loss) for loss in LOSSES}

    def _kept(self, terms: Terms, params: MatchingLossParams) -> dict[str, Variant]:
        fields = {"seeds": terms.seeds[: params.curves], "artifacts": True}
        return {loss: terms.complete(loss=loss, **fields) for loss in LOSSES}


def _steps(curves: Mapping[int, np.ndarray]) -> pd.Series:
    steps = {seed: steps_to_fall(curve, FALL_LEFT) for seed, curve in curves.items()}
    return pd.Series(steps, dtype=float)


def _sentences(runs: Mapping[str, pd.DataFrame]) -> list[str]:
    figure = "accuracy after the last session"
    return [
        difference_sentence(PAPER, loss, figure, difference(runs[PAPER], own, "last"))
        for loss, own in runs.items()
        if loss != PAPER
    ]


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
    kinds = (("Unit's training step", unit), ("Epoch in the last session", classifier))
    panels = [
        Panel(x_label, "Fall of the loss still to come", curves(_falls(losses)), zero=True)
        for x_label, losses in kinds
    ]
    panels = [panel for panel in panels if len(panel.numbers)]
    caption = (
        "Which part of a training loss's whole fall is still to come (1 at the first step, 0 at "
        "the mean of the last tenth), so that losses of different kinds compare; running mean over "
        f"a tenth of the steps, less at the start. {' '.join(_titles(panels))} Means over the "
        "seeds whose curves are kept."
    )
    return panel_figure("loss-curves", panels, caption)


def _titles(panels: Sequence[Panel]) -> list[str]:
    titles = {
        "Unit's training step": "the unit's matching loss, trained once for all seeds.",
        "Epoch in the last session": "the classifier's loss in the last session.",
    }
    return [f"({'ab'[i]}) {titles[panel.x_label]}" for i, panel in enumerate(panels)]


def _falls(losses: Losses) -> dict[str, dict[int, Interval]]:
    """Return what is still to come of each loss's fall, by step: means over those that fall."""
    found = {}
    for loss, own in losses.items():
        falls = [remaining_fall(curve) for curve in own.values()]
        falls = [fall for fall in falls if not np.isnan(fall).any()]
        steps = range(min(map(len, falls), default=0))
        # One curve is all that a seed tells of the unit: it has no interval.
        means = {step + 1: point(float(np.mean([fall[step] for fall in falls]))) for step in steps}
        found[loss] = means
    return found
