"""The paper's comparison of matching losses: accuracy, time and convergence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.report import ReportInput
from fscil_bench.store.runs import StoredRun

from ._convergence import (
    FALL_LEFT,
    classifier_loss,
    loss_curves,
    remaining_fall,
    steps_to_fall,
)
from ._costs import busy_remarks, learning_seconds, one_machine, unit_seconds
from ._figures import Curve
from ._panels import Panel, panel_figure, panel_lines, point
from ._rows import Row
from ._run_values import difference, last_accuracy, last_base, last_harmonic, last_new, over_runs
from ._sentences import difference_sentence
from ._shelf import Shelf
from ._study import Drawing, Findings, Study, Table
from ._tables import Column, TableRow
from ._terms import LOSSES, StudyParams, Terms
from ._variants import Variant

Runs = Mapping[int, StoredRun]
Curves = Mapping[str, Mapping[int, np.ndarray]]

UNIT_LOSS = "session0/unit_loss"
"""Name of the unit's own training curve among a run's arrays."""

PAPER = "kl"
"""The loss that the paper settles on."""

COLUMNS = (
    Column("last", "All", "Last session (%)"),
    Column("base", "Base", "Last session (%)"),
    Column("new", "New", "Last session (%)"),
    Column("harmonic", "HM", "Last session (%)"),
    Column("minus", f"− {PAPER}", "Last session (%)", "none"),
    Column("unit_seconds", "Unit", "Seconds", "lowest"),
    Column("session_seconds", "Sessions", "Seconds", "lowest"),
    Column("unit_steps", "Unit steps", "Convergence", "lowest"),
    Column("epochs", "Epochs", "Convergence", "lowest"),
)
"""Of the table."""

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

    params: MatchingLossParams

    def variants(self, terms: Terms) -> list[Variant]:
        """Return LDC with each loss, on all seeds, and with its curves on some."""
        return [each for loss in LOSSES for each in self._of(terms, loss)]

    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return accuracy, seconds and convergence for each loss."""
        del given
        runs = {loss: shelf.runs(self._of(terms, loss)[0]) for loss in LOSSES}
        kept = {loss: shelf.runs(self._of(terms, loss)[1]) for loss in LOSSES}
        timed = one_machine(runs)
        last = classifier_loss(terms.protocol.sessions)
        unit, classifier = (
            {loss: loss_curves(shelf, own, name) for loss, own in kept.items()}
            for name in (UNIT_LOSS, last)
        )
        rows = [
            TableRow(
                loss,
                len(own),
                _accuracies(own, runs[PAPER] if loss != PAPER else {})
                | _seconds(timed[loss])
                | {"unit_steps": _steps(unit[loss]), "epochs": _steps(classifier[loss])},
            )
            for loss, own in runs.items()
            if own
        ]
        note = NOTE.format(paper=PAPER, left=FALL_LEFT)
        table = Table("matching-loss", "Losses", note, COLUMNS, rows)
        sentences = _sentences(runs) + _fastest(rows)
        shown = [Row(tuple(own.values()), loss) for loss, own in runs.items() if own]
        drawing = _curves(unit, classifier)
        return Findings(sentences, [table], [drawing], shown, busy_remarks(timed))

    def _of(self, terms: Terms, loss: str) -> tuple[Variant, Variant]:
        """Return LDC with a loss, on all seeds, and on those that keep their curves."""
        kept = terms.seeds[: self.params.curves]
        return terms.complete(loss=loss), terms.complete(loss=loss, seeds=kept, artifacts=True)


def _accuracies(own: Runs, paper: Runs) -> dict[str, Interval]:
    values = {"last": last_accuracy, "base": last_base, "new": last_new, "harmonic": last_harmonic}
    cells = {name: over_runs(own, value) for name, value in values.items()}
    return cells | ({"minus": difference(own, paper, last_accuracy)} if paper else {})


def _seconds(own: Runs) -> dict[str, Interval]:
    if not own:
        return {}
    return {
        "unit_seconds": point(unit_seconds(own)),
        "session_seconds": over_runs(own, learning_seconds),
    }


def _steps(curves: Mapping[int, np.ndarray]) -> Interval:
    steps = [steps_to_fall(curve, FALL_LEFT) for curve in curves.values()]
    return mean_interval([step for step in steps if not math.isnan(step)])


def _sentences(runs: Mapping[str, Runs]) -> list[str]:
    figure = "accuracy after the last session"
    return [
        difference_sentence(PAPER, loss, figure, difference(runs[PAPER], own, last_accuracy))
        for loss, own in runs.items()
        if loss != PAPER
    ]


def _fastest(rows: list[TableRow]) -> list[str]:
    """Say which loss trains the unit in the least time, and which in the most."""
    column = COLUMNS[5]
    timed = {row.label: row.cell(column).mean for row in rows}
    timed = {label: seconds for label, seconds in timed.items() if seconds > 0}
    if len(timed) < 2:
        return []
    ordered = sorted(timed, key=lambda label: timed[label])
    first, last = ordered[0], ordered[-1]
    return [
        f"Training the unit took {timed[first]:.0f} seconds with {first}, the fastest, and "
        f"{timed[last]:.0f} with {last}, the slowest: {timed[last] / timed[first]:.1f} times as "
        "many (no interval: all seeds share one unit)."
    ]


def _curves(unit: Curves, classifier: Curves) -> Drawing:
    kinds = (("Unit's training step", unit), ("Epoch in the last session", classifier))
    panels = [
        Panel(x_label, "Fall of the loss still to come", curves, zero=True)
        for x_label, of_losses in kinds
        if (curves := tuple(_curve(loss, own) for loss, own in of_losses.items() if _falls(own)))
    ]
    caption = (
        "Which part of a training loss's whole fall is still to come (1 at the first step, 0 at "
        "the mean of the last tenth), so that losses of different kinds compare; running mean over "
        f"a tenth of the steps, less at the start. {' '.join(_titles(panels))} Means over the "
        "seeds whose curves are kept."
    )
    lines = panel_lines(panels)
    columns = min(2, len(panels))
    return Drawing("loss-curves", caption, lambda: panel_figure(panels, columns), lines)


def _titles(panels: list[Panel]) -> list[str]:
    titles = {
        "Unit's training step": "the unit's matching loss, trained once for all seeds.",
        "Epoch in the last session": "the classifier's loss in the last session.",
    }
    return [f"({'ab'[i]}) {titles[panel.x_label]}" for i, panel in enumerate(panels)]


def _falls(curves: Mapping[int, np.ndarray]) -> bool:
    return any(not np.isnan(remaining_fall(curve)).any() for curve in curves.values())


def _curve(loss: str, curves: Mapping[int, np.ndarray]) -> Curve:
    falls = [remaining_fall(curve) for curve in curves.values()]
    falls = [fall for fall in falls if not np.isnan(fall).any()]
    steps = range(min(map(len, falls)))
    # One curve is all that a seed tells of the unit: it has no interval.
    return Curve(
        loss,
        [step + 1 for step in steps],
        [point(float(np.mean([fall[step] for fall in falls]))) for step in steps],
    )
