"""The paper's outlier study: shots far from their class mean, and the whole range up to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import pandas as pd
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.params import AS_WORDS
from fscil_bench.report import Column, Figure, Notes, Section, Table
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import difference_sentence
from fscil_bench.reporting.tables import measure_columns

from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure
from .terms import StudyParams, Terms
from .values import apart, curves, difference, interval
from .variants import Variant

Runs = Mapping[tuple[str, str], pd.DataFrame]
"""By split and method."""

METHODS = ("ncm", "free_lunch", "ldc")
RIVALS = METHODS[:2]
NORMAL = "seeded"
FALLBACK = 1e-6
"""A fraction of which no class has as many images as there are shots: the farthest are drawn."""

KEYS = ("last", "last_new", "last_harmonic", "performance_drop", "performance_retention")
COLUMNS = tuple(replace(column, best="none") for column in measure_columns(*KEYS))
"""Without a best: normal shots would always have it."""
MORE = ("last", "performance_drop", "performance_retention")
DIFFERENCES = (
    *(replace(column, group="Difference") for column in COLUMNS),
    *(
        Column(f"more_{column.key}", column.heading, "More than for normal shots")
        for column in COLUMNS
        if column.key in MORE
    ),
)
NOTE = (
    "Shots are drawn from the fraction of a class's training images that lie farthest from its "
    "mean in the network's features (Euclidean distance), or from all of them. The {shot} farthest "
    "are the same for every seed, so that there ± is of the methods' own noise alone. Accuracy and "
    "PR in %, PD in points; ncm in Tukey space; ± is the half-width of the 95 % Student-t interval "
    "over n seeds."
)
PAIRED = (
    "ldc minus another method with the same shots, paired by seed, in points; a lower PD is the "
    "better one. The columns on the right are the same less what it is for normal shots of the "
    "same seed: whether the gain grows with outliers."
)


Fractions = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1), AS_WORDS
]
"""Fractions of a class; on a command line `0.1,0.5`."""


@dataclass(frozen=True)
class OutliersParams(StudyParams):
    """Parameters of the report.

    Attributes:
        fractions: from which parts of a class, farthest from its mean, shots are drawn, beside the
            farthest shots of all and normal ones.
    """

    fractions: Fractions = (0.05, 0.1, 0.25, 0.5, 1.0)


class Outliers(Study):
    """Class means, Free-Lunch and LDC with shots from far out in their class, and normal ones."""

    name = "outliers"
    title = "Shots far from their class mean"
    Params = OutliersParams

    def variants(self, terms: Terms, params: OutliersParams) -> list[Variant]:
        """Return every method with every kind of shots.

        Raises:
            UsageError: another split was asked for.
        """
        if terms.split != NORMAL:
            raise UsageError(
                "outliers compares splits: leave --split away, and say with "
                "--set fractions=0.1,0.5 from which parts of a class shots are drawn"
            )
        return list(_variants(terms, _splits(terms, params)).values())

    def findings(self, terms: Terms, shelf: Shelf, params: OutliersParams) -> Findings:
        """Return accuracies for every kind of shots, and differences between methods."""
        names = _splits(terms, params)
        runs = {key: shelf.runs(variant) for key, variant in _variants(terms, names).items()}
        farthest = next(iter(names))
        shown = {method: (runs[NORMAL, method], runs[farthest, method]) for method in METHODS}
        return Findings(
            [
                Notes(_sentences(runs, names)),
                Section("Accuracy", [_reached(runs, names, terms.protocol.shot)]),
                Section("Differences", [_gained(runs, names)]),
                _figure(runs, names),
            ],
            {method: normal if len(normal) else far for method, (normal, far) in shown.items()},
        )


def _splits(terms: Terms, params: OutliersParams) -> dict[str, str]:
    """Return the splits, the farthest shots first, with what they are called."""
    images, shot = terms.protocol.train_images, terms.protocol.shot
    # A fraction of fewer images than shots is taken for just as many.
    farthest = shot / images if images else FALLBACK
    splits = {f"outlier:{farthest:g}": f"{shot} farthest"}
    for fraction in sorted(params.fractions):
        splits.setdefault(f"outlier:{fraction:g}", f"{100 * fraction:g} %")
    return splits | {NORMAL: "normal"}


def _variants(terms: Terms, splits: Mapping[str, str]) -> dict[tuple[str, str], Variant]:
    found = {}
    for split in splits:
        found[split, "ncm"] = terms.ncm("tukey", split=split)
        found[split, "free_lunch"] = terms.free_lunch(split=split)
        found[split, "ldc"] = terms.ldc(split=split)
    return found


def _reached(runs: Runs, names: Mapping[str, str], shot: int) -> Table:
    labelled = {
        f"{method}, {name}": runs[split, method].assign(method=method, split=split)
        for split, name in names.items()
        for method in METHODS
    }
    note = NOTE.format(shot=shot)
    return interval_table("outliers", labelled, COLUMNS, note, ["method", "split"])


def _gained(runs: Runs, names: Mapping[str, str]) -> Table:
    labelled = {
        f"ldc − {rival}, {name}": _gain(runs, split, rival)
        .join(_more(runs, split, rival).add_prefix("more_"))
        .assign(rival=rival, split=split)
        for split, name in names.items()
        for rival in RIVALS
    }
    facts = ["rival", "split"]
    return interval_table("outliers-differences", labelled, DIFFERENCES, PAIRED, facts)


def _gain(runs: Runs, split: str, rival: str) -> pd.DataFrame:
    """Return what LDC has above a rival with the same shots, by seed."""
    return apart(runs[split, "ldc"], runs[split, rival], KEYS)


def _more(runs: Runs, split: str, rival: str) -> pd.DataFrame:
    """Return what that gain is for outliers, less what it is for normal shots."""
    if split == NORMAL:
        return pd.DataFrame(columns=list(KEYS), dtype=float)
    return apart(_gain(runs, split, rival), _gain(runs, NORMAL, rival), KEYS)


def _sentences(runs: Runs, names: Mapping[str, str]) -> list[str]:
    farthest = next(iter(names))
    far, figure = f"with the {names[farthest]} shots", "accuracy after the last session"
    sentences = []
    for method in METHODS:
        lost = difference(runs[NORMAL, method], runs[farthest, method], "last")
        pair = f"{method} with normal shots", f"{method} {far}"
        sentences.append(difference_sentence(*pair, figure, lost))
    for rival in RIVALS:
        gained = interval(_gain(runs, farthest, rival), "last")
        sentences.append(difference_sentence(f"ldc {far}", rival, figure, gained))
        more = interval(_more(runs, farthest, rival), "performance_retention")
        pair = f"ldc {far}", "ldc with normal shots"
        sentences.append(difference_sentence(*pair, f"gain in PR over {rival}", more))
    return sentences


def _figure(runs: Runs, names: Mapping[str, str]) -> Figure:
    ticks = {float(place): name for place, name in enumerate(names.values())}
    reached = {method: {split: runs[split, method] for split in names} for method in METHODS}
    gained = {
        f"ldc − {rival}": {split: _gain(runs, split, rival) for split in names} for rival in RIVALS
    }
    x_label = "Shots from the farthest part of a class"
    panels = [
        Panel(x_label, "Accuracy, last session (%)", _by_split(reached), ticks, bars=True),
        Panel(x_label, "Difference (points)", _by_split(gained), ticks, bars=True, zero=True),
    ]
    caption = (
        "(a) Accuracy after the last session against where in a class its shots come from, (b) "
        "differences paired by seed; bars are 95 % intervals over seeds."
    )
    return panel_figure("outlier-curves", panels, caption)


def _by_split(measured: Mapping[str, Mapping[str, pd.DataFrame]]) -> pd.DataFrame:
    return curves(
        {
            label: {place: interval(runs, "last") for place, runs in enumerate(own.values())}
            for label, own in measured.items()
        }
    )
