"""Rows of the site's leaderboard: what was measured here, and what is published."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fscil_bench.metrics import Interval
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.spec import digest_of
from fscil_bench.store.runs import StoredRun

from ._accuracy import accuracy_cells
from ._published import PublishedRow, published_rows
from ._published_notes import row_notes
from ._rows import Row, group_rows
from ._tables import Column
from ._usual import usual_rows

MEASURED, PUBLISHED = "measured", "published"
USUAL, OTHER = "usual", "other"
"""Rows that method names mean (`usual_rows`), published ones among them, and the others."""
COLUMNS = (
    Column("first", "A_0"),
    Column("last", "A_T"),
    Column("average", "Avg"),
    Column("performance_drop", "PD", best="lowest"),
    Column("performance_retention", "PR"),
    Column("last_base", "Base"),
    Column("last_new", "New"),
    Column("last_harmonic", "HM"),
)
"""What a leaderboard shows of a row, in percent."""

_FIGURES = {"Avg": "average", "PD": "performance_drop", "PR": "performance_retention"}


@dataclass(frozen=True)
class Point:
    """Accuracy in percent after a session."""

    session: int
    classes_seen: int
    accuracy: Interval


@dataclass(frozen=True)
class Entry:
    """A line of the leaderboard; what is not known is empty.

    Attributes:
        page: path of the row's own page in the site.
        detail: what tells the row from others of its method.
        images: training images a class at most, NaN where not known.
        stored: bytes kept after the last session, NaN where not known.
        runs: how many runs it averages; 0 for a published row.
        terms: whether it is what the protocol and the method say, or something was set otherwise.
        remarks: what must stand beside it; `notes` are all footnotes of a published row.
    """

    kind: str
    page: str
    protocol: str
    method: str
    cells: Mapping[str, Interval]
    points: Sequence[Point]
    detail: str = ""
    representation: str = ""
    backbone: str = ""
    epochs: str = ""
    split: str = ""
    views: str = ""
    images: float = math.nan
    stored: float = math.nan
    runs: int = 0
    terms: str = USUAL
    remarks: Sequence[str] = ()
    notes: Sequence[str] = ()
    row: Row | None = field(default=None, repr=False)
    published: PublishedRow | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The method with what tells the row from its others."""
        return f"{self.method} {self.detail}".strip()

    def cell(self, column: Column) -> Interval:
        """Return the interval in a column, NaN where there is none."""
        return self.cells.get(column.key, Interval(math.nan, math.nan, 0))


def measured_entries(runs: Iterable[StoredRun], registry: Registry) -> list[Entry]:
    """Return a line for each table row of some runs; rows are named within their protocol."""
    by_protocol: dict[str, list[StoredRun]] = {}
    for run in runs:
        by_protocol.setdefault(run.spec.protocol.name, []).append(run)
    found: list[Entry] = []
    for own in by_protocol.values():
        rows = group_rows(own, registry)
        # Among themselves these need no words on shots and sessions.
        usual = {row.spec.row: row for row in usual_rows(rows, registry)}
        found += _telling(_measured(row, usual.get(row.spec.row)) for row in rows)
    return found


def published_entries(protocols: Iterable[Protocol]) -> list[Entry]:
    """Return a line for each published row of some protocols."""
    return [_published(row, p) for p in protocols for row in published_rows(p)]


def best_first(entries: Iterable[Entry]) -> list[Entry]:
    """Return lines by accuracy after the last session, those without one at the end."""

    def rank(entry: Entry) -> tuple[bool, float]:
        last = entry.cell(COLUMNS[1]).mean
        return math.isnan(last), -last

    return sorted(entries, key=rank)


def _measured(row: Row, usual: Row | None) -> Entry:
    """Return the line of a row; `usual` is the row by its shorter name, if it has one."""
    spec, table_row = row.spec, accuracy_cells(row)
    sessions = row.runs[0].record.sessions
    cells = dict(table_row.cells)
    points = [Point(s.index, s.classes_seen, cells[f"session_{s.index}"]) for s in sessions]
    flags = {flag for run in row.runs for flag in run.record.flags}
    return Entry(
        kind=MEASURED,
        page=f"rows/{spec.row}.html",
        protocol=spec.protocol.name,
        method=spec.method,
        detail=(usual or row).label.removeprefix(spec.method).strip(),
        representation=spec.representation.name,
        backbone=spec.representation.backbone,
        epochs=str(spec.representation.recipe.epochs),
        split=spec.split,
        views=spec.views,
        images=max(run.record.train_images[1] for run in row.runs),
        stored=max(run.record.sessions[-1].state_bytes for run in row.runs),
        runs=len(row.runs),
        terms=USUAL if usual else OTHER,
        cells=_with_ends(cells, points),
        points=points,
        remarks=sorted(flags),
        row=row,
    )


def _published(row: PublishedRow, protocol: Protocol) -> Entry:
    points = list(_published_points(row, protocol))
    figures, notes = row.figures(protocol.sessions), row_notes(row, protocol)
    cells = {key: Interval(figures[name], math.nan, 0) for name, key in _FIGURES.items()}
    return Entry(
        kind=PUBLISHED,
        page=f"published/{digest_of([protocol.name, row.method])}.html",
        protocol=protocol.name,
        method=row.method,
        backbone=row.backbone,
        epochs=row.terms.epochs,
        cells=_with_ends(cells, points),
        points=points,
        remarks=notes.name,
        notes=notes.all(),
        published=row,
    )


def _published_points(row: PublishedRow, protocol: Protocol) -> Iterator[Point]:
    for session, accuracy in enumerate(row.accuracies(protocol.sessions)):
        if not math.isnan(accuracy):
            interval = Interval(accuracy, math.nan, 0)
            yield Point(session, protocol.classes_seen(session), interval)


def _telling(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries whose details begin with what fewest rows of their method have.

    Long details are cut where there is no room, and methods have dozens of parameters.
    """
    found = list(entries)
    counts = Counter((entry.method, part) for entry in found for part in _parts(entry.detail)[1])
    return [replace(entry, detail=_sorted_detail(entry, counts)) for entry in found]


def _sorted_detail(entry: Entry, counts: Mapping[tuple[str, str], int]) -> str:
    brought, parts = _parts(entry.detail)
    ordered = sorted(parts, key=lambda part: counts[entry.method, part])
    return f"{brought}({', '.join(ordered)})" if ordered else brought


def _parts(detail: str) -> tuple[str, list[str]]:
    """Return what a label says before its parameters, and these as `name=value`."""
    brought, bracket, rest = detail.partition("(")
    return brought, re.split(r", (?=[\w' ]+=)", rest.removesuffix(")")) if bracket else []


def _with_ends(cells: Mapping[str, Interval], points: Sequence[Point]) -> dict[str, Interval]:
    """Return cells with `first` and `last`; a row is of a protocol with at least its last one."""
    ends = {"last": points[-1].accuracy}
    if points[0].session == 0:
        ends["first"] = points[0].accuracy
    return {**cells, **ends}
