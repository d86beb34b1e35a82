"""The paper's outlier study: shots far from their class mean, and the whole range up to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from fscil_bench.errors import UsageError
from fscil_bench.metrics import Interval
from fscil_bench.report import ReportInput

from ._outlier_figure import METHODS, RIVALS, Key, Runs, outlier_drawing
from ._paired import paired_interval
from ._rows import Row
from ._run_values import (
    Value,
    difference,
    drop,
    last_accuracy,
    last_harmonic,
    last_new,
    over_runs,
    retention,
)
from ._sentences import difference_sentence
from ._shelf import Shelf
from ._study import Findings, Study, Table
from ._tables import Column, TableRow
from ._terms import StudyParams, Terms
from ._variants import Variant

NORMAL = "seeded"
FALLBACK = 1e-6
"""A fraction of which no class has as many images as there are shots: the farthest are drawn."""

VALUES: Mapping[str, Value] = {
    "last": last_accuracy,
    "new": last_new,
    "harmonic": last_harmonic,
    "performance_drop": drop,
    "performance_retention": retention,
}
COLUMNS = (
    Column("last", "All", "Last session (%)", "none"),
    Column("new", "New", "Last session (%)", "none"),
    Column("harmonic", "HM", "Last session (%)", "none"),
    Column("performance_drop", "PD", best="none"),
    Column("performance_retention", "PR", best="none"),
)
"""Without a best: normal shots would always have it."""

DIFFERENCES = (
    *(Column(f"{c.key}", c.heading, "Difference", "none") for c in COLUMNS),
    *(
        Column(f"more_{c.key}", c.heading, "More than for normal shots", "none")
        for c in COLUMNS
        if c.key in ("last", "performance_drop", "performance_retention")
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


def _numbers(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Fractions = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1), BeforeValidator(_numbers)
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

    params: OutliersParams

    def variants(self, terms: Terms) -> list[Variant]:
        """Return every method with every kind of shots.

        Raises:
            UsageError: another split was asked for.
        """
        if terms.split != NORMAL:
            raise UsageError(
                "outliers compares splits: leave --split away, and say with "
                "--set fractions=0.1,0.5 from which parts of a class shots are drawn"
            )
        return list(self._all(terms).values())

    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return accuracies for every kind of shots, and differences between methods."""
        del given
        names = self._splits(terms)
        runs = {key: shelf.runs(variant) for key, variant in self._all(terms).items()}
        note = NOTE.format(shot=terms.protocol.shot)
        tables = [
            Table("outliers", "Accuracy", note, COLUMNS, _rows(runs, names)),
            Table("outliers-differences", "Differences", PAIRED, DIFFERENCES, _apart(runs, names)),
        ]
        shown = [
            Row(tuple(own.values()), method)
            for method in METHODS
            if (own := runs[NORMAL, method] or runs[next(iter(names)), method])
        ]
        return Findings(_sentences(runs, names), tables, [outlier_drawing(runs, names)], shown)

    def _splits(self, terms: Terms) -> dict[str, str]:
        """Return the splits, the farthest shots first, with what they are called."""
        images = terms.protocol.train_images
        shot = terms.protocol.shot
        # A fraction of fewer images than shots is taken for just as many.
        farthest = shot / images if images else FALLBACK
        splits = {f"outlier:{farthest:g}": f"{shot} farthest"}
        for fraction in sorted(self.params.fractions):
            splits.setdefault(f"outlier:{fraction:g}", f"{100 * fraction:g} %")
        return splits | {NORMAL: "normal"}

    def _all(self, terms: Terms) -> dict[Key, Variant]:
        found: dict[Key, Variant] = {}
        for split in self._splits(terms):
            found[split, "ncm"] = terms.ncm("tukey", split=split)
            found[split, "free_lunch"] = terms.free_lunch(split=split)
            found[split, "ldc"] = terms.ldc(split=split)
        return found


def _rows(runs: Mapping[Key, Runs], names: Mapping[str, str]) -> list[TableRow]:
    return [
        TableRow(
            f"{method}, {name}",
            len(own),
            {key: over_runs(own, value) for key, value in VALUES.items()},
            {"method": method, "split": split},
        )
        for split, name in names.items()
        for method in METHODS
        if (own := runs[split, method])
    ]


def _apart(runs: Mapping[Key, Runs], names: Mapping[str, str]) -> list[TableRow]:
    rows = []
    for split, name in names.items():
        for rival in RIVALS:
            ours, theirs = runs[split, "ldc"], runs[split, rival]
            shared = len(set(ours) & set(theirs))
            if not shared:
                continue
            cells = {key: difference(ours, theirs, value) for key, value in VALUES.items()}
            if split != NORMAL:
                cells |= {f"more_{k}": _more(runs, split, rival, v) for k, v in VALUES.items()}
            facts = {"rival": rival, "split": split}
            rows.append(TableRow(f"ldc − {rival}, {name}", shared, cells, facts))
    return rows


def _gains(runs: Mapping[Key, Runs], split: str, rival: str, value: Value) -> dict[int, float]:
    ours, theirs = runs[split, "ldc"], runs[split, rival]
    return {seed: value(ours[seed]) - value(theirs[seed]) for seed in ours if seed in theirs}


def _more(runs: Mapping[Key, Runs], split: str, rival: str, value: Value) -> Interval:
    """Return what a difference is for outliers, less what it is for normal shots, by seed."""
    there, here = (_gains(runs, each, rival, value) for each in (split, NORMAL))
    return paired_interval(there, here)


def _sentences(runs: Mapping[Key, Runs], names: Mapping[str, str]) -> list[str]:
    farthest = next(iter(names))
    far, figure = f"with the {names[farthest]} shots", "accuracy after the last session"
    sentences = []
    for method in METHODS:
        normal, outlying = runs[NORMAL, method], runs[farthest, method]
        apart = difference(normal, outlying, last_accuracy)
        pair = f"{method} with normal shots", f"{method} {far}"
        sentences.append(difference_sentence(*pair, figure, apart))
    for rival in RIVALS:
        apart = difference(runs[farthest, "ldc"], runs[farthest, rival], last_accuracy)
        sentences.append(difference_sentence(f"ldc {far}", rival, figure, apart))
        more = _more(runs, farthest, rival, retention)
        pair = f"ldc {far}", "ldc with normal shots"
        sentences.append(difference_sentence(*pair, f"gain in PR over {rival}", more))
    return sentences
