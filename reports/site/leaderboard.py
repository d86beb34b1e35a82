"""Lines of the leaderboard: what was measured here, and what is published."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fscil_bench.protocol import Protocol
from fscil_bench.report import Column
from fscil_bench.reporting.choice import Chosen, terms, usual_rows
from fscil_bench.reporting.labels import RowName, row_names
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.running.commands import command_for
from fscil_bench.spec import digest_of

from ..published import PublishedRow, footnotes, other_terms, published_rows

Line = dict[str, Any]

MEASURED, PUBLISHED = "measured", "published"
USUAL, OTHER = "usual", "other"
"""Rows that method names mean (`usual_rows`), published ones among them, and the others."""
SHOWN = (
    *("first", "last", "average", "performance_drop", "performance_retention"),
    *("last_base", "last_new", "last_harmonic"),
)
"""The measures of a leaderboard."""
POINT_COLUMNS = (
    Column("accuracy", "Accuracy"),
    Column("base", "Base"),
    Column("new", "New"),
    Column("latest", "Latest"),
    Column("harmonic", "HM"),
)
"""What a row's own page shows of each session."""
WHO = ("row", "kind", "protocol", "method", "detail")
"""What identifies a line in every file."""


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard with its own page.

    Attributes:
        line: its cells by column; "" where something is not known, NaN in measures.
        points: session, classes seen, and of accuracies mean, half-width and n, in percent.
        page: path of its page in the site.
        source: the published row; None of a measured one. `notes` are all its footnotes.
        command: what makes all its runs; empty of a published one.
        runs: `SHOWN` of each run, by its seeds as a text.
        equal: identifies the terms that rows share whose runs can be paired.
    """

    line: Line
    points: pd.DataFrame
    page: str
    source: PublishedRow | None = None
    notes: Sequence[str] = ()
    command: str = ""
    runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    equal: str = ""

    @property
    def name(self) -> str:
        """The method with what tells the row from its others."""
        return f"{self.line['method']} {self.line['detail']}".strip()


def measured_entries(found: Chosen) -> list[Entry]:
    """Return an entry for each row of a protocol's runs."""
    cells = aggregate(found.frame, "label", SHOWN).to_dict("index")
    names, usual = _names(found), {spec.row for spec in usual_rows(found).specs.values()}
    told = Counter((n.method, setting) for n in names.values() for setting in n.settings)
    return [
        _measured(found, label, cells[label], _detail(names[spec.row], told), spec.row in usual)
        for label, spec in found.specs.items()
    ]


def published_entries(protocol: Protocol) -> list[Entry]:
    """Return an entry for each published row of a protocol."""
    return [_published(row, protocol) for row in published_rows(protocol)]


def best_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries by accuracy after the last session, those without one at the end."""
    last = [entry.line["last_mean"] for entry in entries]
    order = pd.Series(last, dtype=float).sort_values(ascending=False, kind="stable").index
    return [entries[place] for place in order]


def leaderboard(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return a row for each entry."""
    return pd.DataFrame([entry.line for entry in entries])


def curves(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return a row for each entry and session."""
    columns = ["session", "classes_seen", "accuracy_mean", "accuracy_half_width", "accuracy_n"]
    parts = []
    for entry in entries:
        points = entry.points[columns]
        parts.append(pd.DataFrame({key: entry.line[key] for key in WHO}, points.index).join(points))
    renamed = {"accuracy_mean": "accuracy", "accuracy_half_width": "half_width", "accuracy_n": "n"}
    return pd.concat(parts, ignore_index=True).rename(columns=renamed)


def _names(found: Chosen) -> Mapping[str, RowName]:
    """Return the names of rows by their digest; the usual ones need tell only one another apart."""
    parts = found, usual_rows(found)
    names: dict[str, RowName] = {}
    for specs in (list(part.specs.values()) for part in parts):
        own = row_names(specs, found.results.registry)
        names |= {spec.row: name for spec, name in zip(specs, own, strict=True)}
    return names


def _detail(name: RowName, told: Counter[tuple[str, str]]) -> str:
    """Return what a name says beside the method, first what fewest rows of the method have.

    Long details are cut where there is no room, and methods have dozens of parameters.
    """
    ordered = sorted(name.settings, key=lambda setting: told[name.method, setting])
    settings = f"({', '.join(ordered)})" if ordered else ""
    return f"{name.representation} {settings}".strip()


def _measured(
    found: Chosen, label: str, cells: Mapping[Any, Any], detail: str, usual: bool
) -> Entry:
    spec, runs = found.spec(label), found.of(label)
    own = found.sessions[found.sessions["label"] == label]
    names = [column.key for column in POINT_COLUMNS]
    percent = own.assign(**{name: 100 * own[name] for name in names})
    points = aggregate(percent, ["session", "classes_seen"], names).drop(columns="runs")
    flags = {flag for run in found.runs(label) for flag in run.record.told_flags}
    line = {
        **dict(
            zip(WHO, (spec.row, MEASURED, spec.protocol.name, spec.method, detail), strict=True)
        ),
        "representation": spec.representation.name,
        "backbone": spec.representation.backbone,
        "epochs": str(spec.representation.recipe.epochs),
        "split": spec.split,
        "views": spec.views,
        "images_per_class": int(runs["train_images"].max()),
        "runs": len(runs),
        "terms": USUAL if usual else OTHER,
        "stored_bytes": int(runs["bytes"].max()),
        **{name: cells[name] for key in SHOWN for name in (f"{key}_mean", f"{key}_half_width")},
        "remarks": "; ".join(sorted(flags)),
    }
    return Entry(
        line,
        points.reset_index(),
        f"rows/{spec.row}.html",
        command=row_command(found, label),
        runs={
            f"{r.representation_seed}/{r.seed}": [round(getattr(r, key), 6) for key in SHOWN]
            for r in runs.itertuples()
        },
        equal=digest_of([spec.protocol.name, terms(spec)]),
    )


def row_command(found: Chosen, label: str) -> str:
    """Return the commands that make a row's runs, one a line and representation seed."""
    seeds: dict[int, list[int]] = {}
    for representation_seed, seed in sorted(found.axes(label)):
        seeds.setdefault(representation_seed, []).append(seed)
    registry, firsts = (
        found.results.registry,
        {r.spec.representation.seed: r.spec for r in found.runs(label)},
    )
    return "\n".join(command_for(firsts[each], registry, own) for each, own in seeds.items())


def _published(row: PublishedRow, protocol: Protocol) -> Entry:
    known = pd.Series(row.accuracies(protocol.sessions), name="accuracy_mean").dropna()
    points = known.rename_axis("session").reset_index()
    points.insert(1, "classes_seen", points["session"].map(protocol.classes_seen))
    # How many runs a published value averages is not known.
    points = points.assign(accuracy_half_width=math.nan, accuracy_n="")
    figures = row.figures(protocol.sessions) | {"last": known.iloc[-1]}
    figures |= {"first": known[0]} if 0 in known else {}
    line: Line = {
        **dict(zip(WHO, ("", PUBLISHED, protocol.name, row.method, ""), strict=True)),
        "representation": "",
        # As measured rows spell it: papers write ResNet18 and ResNet-18.
        "backbone": row.backbone.lower().replace("-", ""),
        "epochs": row.terms.epochs,
        **dict.fromkeys(("split", "views", "images_per_class", "runs"), ""),
        "terms": USUAL,
        "stored_bytes": "",
    }
    for key in SHOWN:
        line |= {f"{key}_mean": figures.get(key, math.nan), f"{key}_half_width": math.nan}
    line["remarks"] = " ".join(other_terms(row, protocol))
    page = f"published/{digest_of([protocol.name, row.method])}.html"
    return Entry(line, points, page, row, footnotes(row, protocol))
