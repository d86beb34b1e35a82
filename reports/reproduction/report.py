"""The ledger: what is measured beside what is published, how far apart, and what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.metrics import Interval
from fscil_bench.report import Column, Document, Lack, Notes, Part, Report, Section, Table
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.measures import MEASURES
from fscil_bench.reporting.statistics import aggregate, interval
from fscil_bench.request import Wanted
from fscil_bench.running.commands import wanted_commands

from ..published import PublishedRow, published_name, published_rows
from .counterparts import Pair, measured_pairs, measured_tables, wanted_runs
from .terms import FIELDS, differing, measured_terms, not_told, published_terms

LIMIT = 1.5
"""Percentage points that a reproduced figure may be off."""
SHOWN = {"first": "Session 0 (%)", "last": "Last session (%)", "average": "Average (%)"}
JUDGED = ("first", "last")
AGREES, FAR, OPEN, APART = "yes", "no", "cannot be told", "not comparable"
ABOUT = (
    "One line a published row and a row that was measured with the same method; all in %. The "
    "difference is measured minus published, with the 95 % Student-t interval over the measured "
    "row's runs where these are several; the published figure counts as exact, as nobody tells its "
    "spread."
)
RULE = (
    f"Within {LIMIT}: {AGREES}, if in session 0 and in the last session the interval of the "
    f"difference lies within ± {LIMIT} points; {FAR}, if in one of them it lies outside; else it "
    f"{OPEN}, as of a single run or a figure that nobody printed. A row on another backbone, "
    f"pre-training or division of the data is {APART}. On other terms (last column) agreement and "
    "disagreement both prove little."
)


class Reproduction(Report):
    """One line a published row that was measured here: the difference, and on what other terms.

    With a protocol it is of all protocols whose rows are published under the same name (recipes of
    one data set), without one of all that have stored runs.
    """

    name = "reproduction"
    title = "What is published beside what is measured, and what differs"

    @dataclass(frozen=True)
    class Params:
        """With `all` runs on a changed recipe (`--epochs 40`) are shown too."""

        all: bool = False

    def requests(self, params: Any) -> Sequence[Wanted]:
        """Return a run of each comparable row, on the nearest recipe, for ten seeds."""
        del params
        return [
            wanted
            for name, rows in self._families()
            for _, runs in wanted_runs(rows, name, self.results)
            for wanted in runs
        ]

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return the ledger, the terms that differ, and what is lacking.

        Raises:
            UsageError: nothing is published for the protocol.
            FscilError: no protocol is named, and no stored run has published rows.
        """
        del frame
        pairs, tables, lacks, apart = [], [], [], []
        for name, rows in self._families():
            found = measured_tables(self.results, name, rows, params.all)
            own = measured_pairs(rows, found)
            pairs += own
            tables += [table for table in found if table.labels]
            lacks += self._lacks(name, rows, own)
            apart += self._apart(name, rows, own)
        ledger = _ledger(pairs) if pairs else "Nothing that answers a published row is stored."
        problems = [text for table in tables for text in table.problems]
        parts = [ABOUT, ledger, *apart, *_sections(pairs, tables)]
        return Document(self.title, parts, lacks, problems)

    def _families(self) -> list[tuple[str, list[PublishedRow]]]:
        """Return the names under which rows are published, with the rows that may be answered."""
        registry, asked = self.results.registry, self.results.selection.protocol
        stored = {run.spec.protocol.name: run.spec.protocol for run in self.results.runs}
        known = {own: registry.protocol(own)[0] for own in registry.names("protocol")}
        if asked is not None and asked not in stored | known:
            registry.protocol(asked)
        names = [asked] if asked is not None else list(stored)
        protocols = [(stored | known)[own] for own in names]
        found = {
            name: [row for row in published_rows(protocol) if row.counterpart is not None]
            for protocol in protocols
            if (name := published_name(protocol)) is not None
        }
        if found:
            return list(found.items())
        if asked is not None:
            raise UsageError(
                f"no paper prints rows for protocol {asked!r} that a method here answers: there is "
                "nothing to compare with"
            )
        named = next(p.name for p in known.values() if published_name(p) is not None)
        raise FscilError(
            "no stored run is of a protocol that papers print rows for; name one with --protocol "
            f"{named}"
        )

    def _lacks(self, name: str, rows: Sequence[PublishedRow], pairs: list[Pair]) -> list[Lack]:
        have = {pair.published.method for pair in pairs}
        registry = self.results.registry
        commands: dict[str, list[str]] = {}
        for row, runs in wanted_runs(rows, name, self.results):
            for command in wanted_commands(runs, registry) if row.method not in have else ():
                commands.setdefault(command, []).append(row.method)
        return [Lack(f"for {', '.join(own)}", command) for command, own in commands.items()]

    def _apart(self, name: str, rows: Sequence[PublishedRow], pairs: list[Pair]) -> list[str]:
        """Say for which rows no run is asked, although a method here is meant to be the same."""
        if self.results.selection.methods:
            return []
        known = {row.method for row, _ in wanted_runs(rows, name, self.results)}
        known |= {pair.published.method for pair in pairs}
        left = [row.method for row in rows if row.method not in known]
        if not left:
            return []
        return [
            f"No run is asked for beside {', '.join(left)}, which are on another backbone, "
            f"pre-training or division of the data; one that is made stands here as {APART}."
        ]


def verdict(differences: Sequence[Interval]) -> str:
    """Say whether differences in points lie within `LIMIT`; the rule stands under the table."""
    if any(each.low > LIMIT or each.high < -LIMIT for each in differences):
        return FAR
    within = (each.low >= -LIMIT and each.high <= LIMIT for each in differences)
    return AGREES if all(within) else OPEN


def _figures(row: PublishedRow, sessions: int) -> dict[str, float]:
    accuracies = row.accuracies(sessions)
    average = row.figures(sessions)["average"]
    return {"first": accuracies[0], "last": accuracies[-1], "average": average}


def _ledger(pairs: Sequence[Pair]) -> Table:
    columns = [
        Column("published_name", "Published row", kind="text"),
        Column("measured", "Measured", kind="text"),
        Column("protocol", "Protocol", kind="text"),
        Column("runs", "n", kind="number", decimals=0),
    ]
    for key, group in SHOWN.items():
        columns += [
            Column(f"{key}_mean", "measured", group, "number"),
            Column(f"{key}_published", "published", group, "number"),
            Column(f"{key}_difference", "difference", group),
        ]
    columns += [
        Column("verdict", f"Within {LIMIT}", kind="text", bold=True),
        Column("differs", "Other terms", kind="text", width=0.2),
    ]
    formulas = [MEASURES[key].latex for key in SHOWN]
    frame = pd.DataFrame([_line(pair) for pair in pairs])
    frame["measured"] = frame["measured"].where(
        ~frame.duplicated(["published_name", "protocol", "measured"], keep=False), frame["label"]
    )
    return Table("reproduction", frame, columns, formulas=formulas, notes=[RULE])


def _line(pair: Pair) -> dict[str, Any]:
    row, runs = pair.published, pair.rows.of(pair.label)
    figures = _figures(row, pair.spec.protocol.sessions)
    if pair.obstacles:
        gaps = {key: pd.Series(math.nan, runs.index) for key in SHOWN}
    else:
        gaps = {key: runs[key] - figures[key] for key in SHOWN}
    runs = runs.assign(**{f"{key}_difference": gap for key, gap in gaps.items()})
    measures = [each for key in SHOWN for each in (key, f"{key}_difference")]
    (cells,) = aggregate(runs, "label", measures).to_dict("records")
    judged = verdict([interval(runs, f"{key}_difference") for key in JUDGED])
    other = differing(published_terms(row), measured_terms(pair.rows, pair.label))
    return {
        "published_name": row.method,
        "measured": pair.title,
        "label": pair.label,
        "protocol": pair.spec.protocol.name,
        **{str(key): value for key, value in cells.items()},
        **{f"{key}_published": figure for key, figure in figures.items()},
        "verdict": APART if pair.obstacles else judged,
        "differs": ", ".join([*pair.obstacles, *other]),
        "row": pair.spec.row,
        "version": pair.spec.version,
    }


def _sections(pairs: Sequence[Pair], tables: Sequence[Chosen]) -> Iterator[Part]:
    """Yield what the ledger's last column says in short, and how rows were measured."""
    if pairs:
        columns = [
            Column("field", "What", kind="text"),
            Column("published", "published", kind="text", width=0.2),
            Column("measured", "measured", kind="text", width=0.2),
            Column("rows", "Rows", kind="text", width=0.3),
        ]
        rows = {pair.published.method: pair.published for pair in pairs}
        notes = [note for row in rows.values() for note in _told(row)]
        yield Section("What differs", [Table("terms", _differences(pairs), columns, notes=notes)])
    named = [(table.spec(table.labels[0]).protocol.name, table) for table in tables]
    yield Notes([f"On {name}: {line}" for name, table in named for line in note_lines(table)])


def _differences(pairs: Sequence[Pair]) -> pd.DataFrame:
    """Return a line for each difference, with the rows and the protocols that have it."""
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for pair in pairs:
        published, measured = published_terms(pair.published), measured_terms(pair.rows, pair.label)
        for name, (told, ours) in differing(published, measured).items():
            rows = found.setdefault((name, told, ours), {})
            rows.setdefault(pair.published.method, []).append(pair.spec.protocol.name)
    lines = [
        (*key, "; ".join(f"{row} ({', '.join(dict.fromkeys(own))})" for row, own in rows.items()))
        for key, rows in found.items()
    ]
    frame = pd.DataFrame(lines, columns=["field", "published", "measured", "rows"])
    order = {name: place for place, name in enumerate(FIELDS)}
    return frame.sort_values("field", key=lambda names: names.map(order), kind="stable")


def _told(row: PublishedRow) -> Iterator[str]:
    """Say where a row's terms are read, and which nobody tells."""
    if row.training.source:
        yield f"Terms of {row.method}: {row.training.source}."
    unknown = not_told(published_terms(row))
    if unknown:
        yield f"Not told of {row.method}: {', '.join(unknown)}."
