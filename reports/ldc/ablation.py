"""The paper's ablation: what sampler, mapping and recurrence each add to the baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from fscil_bench.metrics import Interval
from fscil_bench.report import ReportInput
from fscil_bench.store.runs import StoredRun

from ._ablation import BASELINE, RECURRENT, ablation_table, ablation_variants
from ._accuracy import accuracy_curve
from ._figures import Curve
from ._panels import Panel, panel_figure, panel_lines
from ._rows import Row
from ._run_values import difference, last_accuracy, last_base, last_harmonic, last_new
from ._sentences import difference_sentence
from ._shelf import Shelf
from ._study import Drawing, Findings, Study, Table
from ._tables import Column, TableRow
from ._terms import Terms
from ._variants import Variant

Runs = Mapping[int, StoredRun]

ACCURACY = (
    "Accuracy in each session, its average, PD, PR and the last session's base, new and harmonic "
    "mean, in %; ± is the half-width of the 95 % Student-t interval over n seeds. The paper's "
    '"Gaussian sampler" is the row "+ mapping"; "+ sampler" has the shared covariance.'
)
DIFFERENCES = (
    "Accuracy in points, paired by seed, ± the half-width of the 95 % Student-t interval of the "
    "mean difference. A row compares what stands before − with what stands after it."
)
LAST = "Last session"
PARTS = {"Base": last_base, "New": last_new, "HM": last_harmonic}


class Ablation(Study):
    """LDC's parts one after the other: baseline, + sampler, + mapping, + recurrent."""

    name = "ablation"
    title = "What each part of LDC adds"

    def variants(self, terms: Terms) -> list[Variant]:
        """Return the four rows of the ablation."""
        return list(ablation_variants(terms.ldc, terms.recurrent_steps).values())

    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return accuracies of the rows, and paired differences from row to row."""
        del given
        named = ablation_variants(terms.ldc, terms.recurrent_steps)
        runs = {name: shelf.runs(variant) for name, variant in named.items()}
        rows = [Row(tuple(own.values()), name) for name, own in runs.items() if own]
        pairs = [*((after, before) for before, after in pairwise(runs)), (RECURRENT, BASELINE)]
        columns, cells = ablation_table(shelf, named)
        return Findings(
            [_sentence(after, before, runs) for after, before in pairs],
            [
                Table("ablation", "Accuracy", ACCURACY, columns, cells),
                _differences(terms, runs, pairs),
            ],
            [_curves(runs, rows)],
            rows,
        )


def _sentence(after: str, before: str, runs: Mapping[str, Runs]) -> str:
    interval = difference(runs[after], runs[before], last_accuracy)
    return difference_sentence(after, before, "accuracy after the last session", interval)


def _session(number: int) -> Callable[[StoredRun], float]:
    """Return what reads the accuracy of a session from a run, in %."""
    return lambda run: 100 * run.accuracies[number]


def _differences(terms: Terms, runs: Mapping[str, Runs], pairs: list[tuple[str, str]]) -> Table:
    count = terms.protocol.sessions + 1
    columns = [Column(f"session_{t}", str(t), "Session", "none") for t in range(count)]
    columns += [Column(f"last_{name}", name, LAST, "none") for name in PARTS]
    rows = []
    for after, before in pairs:
        ours, theirs = runs[after], runs[before]
        shared = len(set(ours) & set(theirs))
        if not shared:
            continue
        cells = {f"session_{t}": difference(ours, theirs, _session(t)) for t in range(count)}
        cells |= {f"last_{name}": difference(ours, theirs, v) for name, v in PARTS.items()}
        rows.append(TableRow(f"{after} − {before}", shared, cells))
    return Table("ablation-differences", "Differences", DIFFERENCES, columns, rows)


def _curves(runs: Mapping[str, Runs], rows: list[Row]) -> Drawing:
    seen = "Number of classes seen"
    panels = [Panel(seen, "Accuracy (%)", tuple(accuracy_curve(row) for row in rows))]
    above = tuple(
        Curve(row.label, accuracy_curve(row).positions, _above(runs[row.label], runs[BASELINE]))
        for row in rows
        if row.label != BASELINE and set(runs[row.label]) & set(runs[BASELINE])
    )
    if above:
        panels.append(Panel(seen, "Above the baseline (points)", above, bars=True, zero=True))
    caption = (
        "(a) Accuracy against the number of classes seen, (b) what a row has above the baseline, "
        "paired by seed; bands and bars are 95 % intervals over seeds."
    )
    lines = panel_lines(panels)
    return Drawing("ablation-curves", caption, lambda: panel_figure(panels), lines)


def _above(ours: Runs, baseline: Runs) -> list[Interval]:
    count = len(next(iter(ours.values())).record.sessions)
    return [difference(ours, baseline, _session(t)) for t in range(count)]
