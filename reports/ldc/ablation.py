"""The paper's ablation: what sampler, mapping and recurrence each add to the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import pandas as pd

from fscil_bench.report import Column, Figure, Notes, Section, Table
from fscil_bench.reporting.accuracy import SUMMARY, accuracy_columns, accuracy_frame
from fscil_bench.reporting.measures import formulas
from fscil_bench.reporting.panels import Panel

from .shelf import Shelf
from .study import PAIRED, Findings, Study, interval_table, panel_figure, told
from .terms import StudyParams, Terms
from .values import apart, gaps, points
from .variants import Variant

BASELINE, SAMPLER, MAPPING, RECURRENT = "baseline", "+ sampler", "+ mapping", "+ recurrent"
ROWS = (
    'The baseline is class means; the paper\'s "Gaussian sampler" is the row "+ mapping", and '
    '"+ sampler" has the shared covariance.'
)
LINEAR, QUADRATIC = "bayes, shared", "bayes, mapped"
CHOICES = (
    ("base_rows=trained", "base_rows=means"),
    ("new_means=borrowed", "new_means=sample"),
    ("bayes, shared, borrowed", "bayes, shared, sample"),
    (LINEAR, SAMPLER),
    (QUADRATIC, MAPPING),
)
"""What can be chosen beside the paper's parts: each with what it is set against."""

CHOSEN = (
    "Rows trained on real base features, and means borrowed from base classes, in the whole of "
    'LDC; "bayes" is the closed form of the Gaussians that rows are trained on samples of in '
    '"+ sampler" (shared) and in "+ mapping" (mapped).'
)
PARTS = {"base": "Base", "new": "New", "harmonic": "HM"}


class Ablation(Study):
    """LDC's parts one after the other, and choices beside them, each against what it replaces."""

    name = "ablation"
    title = "What each part of LDC adds"

    def variants(self, terms: Terms[StudyParams]) -> dict[str, Variant]:
        """Return the four rows of the ablation, and the choices."""
        return ablation_variants(terms) | choice_variants(terms)

    def findings(self, terms: Terms[StudyParams], shelf: Shelf) -> Findings:
        """Return accuracies of the rows, and paired differences from row to row."""
        stored = shelf.named()
        runs = {name: stored[name] for name in (BASELINE, SAMPLER, MAPPING, RECURRENT)}
        pairs = [*((after, before) for before, after in pairwise(runs)), (RECURRENT, BASELINE)]
        pairs += CHOICES
        chosen = {name: stored[name] for name in dict.fromkeys(chain(*CHOICES))}
        columns = [Column(f"session_{t}", str(t), "Session") for t in range(len(terms.seen))]
        columns += [Column(f"last_{part}", word, "Last session") for part, word in PARTS.items()]
        above = gaps(stored, pairs, [column.key for column in columns])
        differences = interval_table("ablation-differences", above, columns, PAIRED, ())
        return Findings(
            [
                Notes(told(stored, pairs, "last")),
                Section("Accuracy", ablation_tables(shelf, runs)),
                Section("Choices", [interval_table("ablation-choices", chosen, columns, CHOSEN)]),
                Section("Differences", [differences]),
                _curves(runs, terms.seen),
            ],
            stored,
        )


def ablation_variants(terms: Terms[Any]) -> dict[str, Variant]:
    """Return the rows of the ablation by name.

    The paper's "Gaussian sampler" includes the mapping; what the sampler does with the shared
    covariance alone is a row of its own here.
    """
    return {
        BASELINE: terms.complete(sampler="none", base_rows="means"),
        SAMPLER: terms.complete(recurrent_steps=0, covariance="shared"),
        MAPPING: terms.complete(recurrent_steps=0),
        RECURRENT: terms.complete(),
    }


def choice_variants(terms: Terms[Any]) -> dict[str, Variant]:
    """Return what `CHOICES` compares, but for the rows of the ablation, by name."""
    return {
        "base_rows=trained": terms.complete(base_rows="trained"),
        "base_rows=means": terms.complete(base_rows="means"),
        "new_means=borrowed": terms.complete(new_means="borrowed"),
        "new_means=sample": terms.complete(new_means="sample"),
        LINEAR: terms.closed("shared"),
        QUADRATIC: terms.closed("mapped"),
        "bayes, shared, borrowed": terms.closed("shared", new_means="borrowed"),
        "bayes, shared, sample": terms.closed("shared", new_means="sample"),
    }


def ablation_tables(shelf: Shelf, runs: Mapping[str, pd.DataFrame]) -> list[Table]:
    """Return the table of the rows that have runs, if any has."""
    if not any(map(len, runs.values())):
        return []
    chosen = shelf.chosen(runs)
    frame, columns = accuracy_frame(chosen), accuracy_columns(chosen)
    return [Table("ablation", frame, columns, formulas=formulas(*SUMMARY), notes=[ROWS])]


def _curves(runs: Mapping[str, pd.DataFrame], seen: Sequence[int]) -> Figure:
    keys = {n: f"session_{t}" for t, n in enumerate(seen)}
    rows = {name: own for name, own in runs.items() if name != BASELINE}
    above = {name: apart(own, runs[BASELINE], keys.values()) for name, own in rows.items()}
    x, y = "Number of classes seen", "Above the baseline (points)"
    drawn = {
        "accuracy against the number of classes seen": Panel(x, "Accuracy (%)", points(runs, keys)),
        "what a row has above the baseline, paired by seed": Panel(
            x, y, points(above, keys), bars=True, zero=True
        ),
    }
    return panel_figure("ablation-curves", drawn, "bands and bars are 95 % intervals over seeds.")
