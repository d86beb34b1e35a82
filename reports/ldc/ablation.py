"""The paper's ablation: what sampler, mapping and recurrence each add to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd

from fscil_bench.report import Column, Figure, Notes, Section, Table
from fscil_bench.reporting.accuracy import accuracy_columns, accuracy_frame
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import difference_sentence

from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure
from .terms import StudyParams, Terms
from .values import apart, curves, difference, interval
from .variants import Variant

BASELINE, SAMPLER, MAPPING, RECURRENT = "baseline", "+ sampler", "+ mapping", "+ recurrent"
ACCURACY = (
    "Accuracy in each session, its average, PD, PR and the last session's base, new and harmonic "
    "mean, in %; ± is the half-width of the 95 % Student-t interval over n seeds. The paper's "
    '"Gaussian sampler" is the row "+ mapping"; "+ sampler" has the shared covariance.'
)
DIFFERENCES = (
    "Accuracy in points, paired by seed, ± the half-width of the 95 % Student-t interval of the "
    "mean difference. A row compares what stands before − with what stands after it."
)
PARTS = {"base": "Base", "new": "New", "harmonic": "HM"}


class Ablation(Study):
    """LDC's parts one after the other: baseline, + sampler, + mapping, + recurrent."""

    name = "ablation"
    title = "What each part of LDC adds"

    def variants(self, terms: Terms, params: StudyParams) -> list[Variant]:
        """Return the four rows of the ablation."""
        del params
        return list(ablation_variants(terms).values())

    def findings(self, terms: Terms, shelf: Shelf, params: StudyParams) -> Findings:
        """Return accuracies of the rows, and paired differences from row to row."""
        del params
        seen = [terms.protocol.classes_seen(t) for t in range(terms.protocol.sessions + 1)]
        runs = {name: shelf.runs(variant) for name, variant in ablation_variants(terms).items()}
        pairs = [*((after, before) for before, after in pairwise(runs)), (RECURRENT, BASELINE)]
        figure = "accuracy after the last session"
        sentences = [
            difference_sentence(
                after, before, figure, difference(runs[after], runs[before], "last")
            )
            for after, before in pairs
        ]
        sides = {f"{after} − {before}": (runs[after], runs[before]) for after, before in pairs}
        return Findings(
            [
                Notes(sentences),
                Section("Accuracy", ablation_tables(shelf, runs, ACCURACY)),
                Section("Differences", [_differences(sides, len(seen))]),
                _curves(runs, seen),
            ],
            runs,
        )


def ablation_variants(terms: Terms) -> dict[str, Variant]:
    """Return the rows of the ablation by name.

    The paper's "Gaussian sampler" includes the mapping; what the sampler does with the shared
    covariance alone is a row of its own here.
    """
    plain = {"sampler": "gaussian", "recurrent_steps": 0}
    return {
        BASELINE: terms.ldc(sampler="none"),
        SAMPLER: terms.ldc(**plain, covariance="shared"),
        MAPPING: terms.ldc(**plain, covariance="mapped"),
        RECURRENT: terms.complete(),
    }


def ablation_tables(shelf: Shelf, runs: Mapping[str, pd.DataFrame], note: str) -> list[Table]:
    """Return the table of the rows that have runs, if any has."""
    if not any(map(len, runs.values())):
        return []
    chosen = shelf.chosen(runs)
    return [Table("ablation", accuracy_frame(chosen), accuracy_columns(chosen), notes=[note])]


def _differences(sides: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], sessions: int) -> Table:
    columns = [Column(f"session_{t}", str(t), "Session") for t in range(sessions)]
    columns += [Column(f"last_{part}", heading, "Last session") for part, heading in PARTS.items()]
    keys = [column.key for column in columns]
    pairs = {name: apart(*side, keys) for name, side in sides.items()}
    return interval_table("ablation-differences", pairs, columns, DIFFERENCES)


def _curves(runs: Mapping[str, pd.DataFrame], seen: Sequence[int]) -> Figure:
    keys = {n: f"session_{t}" for t, n in enumerate(seen)}
    base = runs[BASELINE]
    reached = {
        name: {n: interval(own, key) for n, key in keys.items()} for name, own in runs.items()
    }
    above = {
        name: {n: difference(own, base, key) for n, key in keys.items()}
        for name, own in runs.items()
        if name != BASELINE
    }
    x_label = "Number of classes seen"
    panels = [
        Panel(x_label, "Accuracy (%)", curves(reached)),
        Panel(x_label, "Above the baseline (points)", curves(above), bars=True, zero=True),
    ]
    caption = (
        "(a) Accuracy against the number of classes seen, (b) what a row has above the baseline, "
        "paired by seed; bands and bars are 95 % intervals over seeds."
    )
    return panel_figure("ablation-curves", panels, caption)
