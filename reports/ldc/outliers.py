"""The paper's outlier study: shots far from their class mean, and the whole range up to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import pandas as pd
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.params import AS_WORDS
from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.measures import formulas
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.tables import measure_columns

from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure, told
from .terms import StudyParams, Terms
from .values import apart, points
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
    "are the same for every seed, so that there ± is of the methods' own noise alone; ncm in Tukey "
    "space."
)
PAIRED = (
    "ldc minus another method with the same shots, paired by seed, in points, ± the half-width of "
    "the 95 % Student-t interval; a lower PD is the better one. The columns on the right are the "
    "same less what it is for normal shots of the same seed: whether the gain grows with outliers."
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

    def variants(self, terms: Terms[OutliersParams]) -> dict[tuple[str, str], Variant]:
        """Return every method with every kind of shots.

        Raises:
            UsageError: another split was asked for.
        """
        if terms.split != NORMAL:
            raise UsageError(
                "outliers compares splits: leave --split away, and say with "
                "--set fractions=0.1,0.5 from which parts of a class shots are drawn"
            )
        found = {}
        for split in _splits(terms):
            found[split, "ncm"] = terms.ncm("tukey", split=split)
            found[split, "free_lunch"] = terms.free_lunch(split=split)
            found[split, "ldc"] = terms.ldc(split=split)
        return found

    def findings(self, terms: Terms[OutliersParams], shelf: Shelf) -> Findings:
        """Return accuracies for every kind of shots, and differences between methods."""
        names, runs = _splits(terms), shelf.named()
        farthest = next(iter(names))
        gains = {
            (split, rival): apart(runs[split, "ldc"], runs[split, rival], KEYS)
            for split in names
            for rival in RIVALS
        }
        reached = {
            f"{method}, {names[split]}": own.assign(method=method, split=split)
            for (split, method), own in runs.items()
        }
        gained = {
            f"ldc − {rival}, {names[split]}": own.join(_more(gains, split, rival)).assign(
                rival=rival, split=split
            )
            for (split, rival), own in gains.items()
        }
        note, facts = NOTE.format(shot=terms.protocol.shot), ["method", "split"]
        accuracy = interval_table("outliers", reached, COLUMNS, note, formulas(*KEYS), facts)
        facts = ["rival", "split"]
        paired = interval_table("outliers-differences", gained, DIFFERENCES, PAIRED, (), facts)
        return Findings(
            [
                Notes(_sentences(runs, gains, farthest, f"with the {names[farthest]} shots")),
                Section("Accuracy", [accuracy]),
                Section("Differences", [paired]),
                _figure(runs, gains, names),
            ],
            {m: runs[NORMAL, m] if len(runs[NORMAL, m]) else runs[farthest, m] for m in METHODS},
        )


def _splits(terms: Terms[OutliersParams]) -> dict[str, str]:
    """Return the splits, the farthest shots first, with what they are called."""
    images, shot = terms.protocol.train_images, terms.protocol.shot
    # A fraction of fewer images than shots is taken for just as many.
    farthest = shot / images if images else FALLBACK
    splits = {f"outlier:{farthest:g}": f"{shot} farthest"}
    for fraction in sorted(terms.params.fractions):
        splits.setdefault(f"outlier:{fraction:g}", f"{100 * fraction:g} %")
    return splits | {NORMAL: "normal"}


def _more(gains: Runs, split: str, rival: str) -> pd.DataFrame:
    """Return what a gain is for outliers, less what it is for normal shots."""
    both = gains[split, rival], gains[NORMAL, rival]
    more = apart(*both, KEYS) if split != NORMAL else pd.DataFrame(columns=KEYS, dtype=float)
    return more.add_prefix("more_")


def _sentences(runs: Runs, gains: Runs, farthest: str, far: str) -> list[str]:
    normal = "with normal shots"
    named = {f"{m} {normal}": runs[NORMAL, m] for m in METHODS}
    named |= {f"{m} {far}": runs[farthest, m] for m in METHODS}
    sentences = told(named, [(f"{m} {normal}", f"{m} {far}") for m in METHODS], "last")
    for rival in RIVALS:
        sentences += told(named, [(f"ldc {far}", f"{rival} {far}")], "last")
        grown = {f"ldc {far}": gains[farthest, rival], f"ldc {normal}": gains[NORMAL, rival]}
        figure = f"gain in PR over {rival}"
        sentences += told(grown, [(f"ldc {far}", f"ldc {normal}")], "performance_retention", figure)
    return sentences


def _figure(runs: Runs, gains: Runs, names: Mapping[str, str]) -> Figure:
    ticks = {float(place): name for place, name in enumerate(names.values())}
    reached, gained = (
        {
            f"{before}{label}": {
                place: own[split, label]["last"] for place, split in enumerate(names)
            }
            for label in labels
        }
        for own, labels, before in ((runs, METHODS, ""), (gains, RIVALS, "ldc − "))
    )
    x, y = "Shots from the farthest part of a class", "Accuracy, last session (%)"
    drawn = {
        "accuracy after the last session against where in a class its shots come from": Panel(
            x, y, points(reached), ticks, bars=True
        ),
        "differences paired by seed": Panel(
            x, "Difference (points)", points(gained), ticks, bars=True, zero=True
        ),
    }
    return panel_figure("outlier-curves", drawn, "bars are 95 % intervals over seeds.")
