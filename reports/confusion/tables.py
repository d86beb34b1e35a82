"""The tables of confusion, row by row: error rates, forgetting, plasticity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fscil_bench.metrics import Interval
from fscil_bench.store.runs import StoredRun

from ._confusions import error_rates, forgetting, percent, plasticity
from ._rows import Row
from ._tables import Column, TableRow

Table = tuple[list[Column], list[TableRow]]

_BASE, _NEW = "Base images (%)", "New images (%)"
RATE_COLUMNS = (
    Column("base_right", "Base right", _BASE),
    Column("base_to_base", "Base->base", _BASE, "lowest"),
    Column("base_to_new", "Base->new", _BASE, "lowest"),
    Column("new_right", "New right", _NEW),
    Column("new_to_new", "New->new", _NEW, "lowest"),
    Column("new_to_base", "New->base", _NEW, "lowest"),
)


def rate_table(rows: Sequence[Row]) -> Table:
    """Return the error rates after the last session."""
    cells = []
    for row in rows:
        last = len(row.runs[0].record.sessions) - 1
        cells.append({c.key: _rate(row, last, c.key) for c in RATE_COLUMNS})
    return list(RATE_COLUMNS), _labelled(rows, cells)


def forgetting_table(rows: Sequence[Row]) -> Table:
    """Return what is forgotten of each session's classes, and the mean."""
    return _by_session(rows, forgetting, _count(rows) - 1, 0, "lowest")


def plasticity_table(rows: Sequence[Row]) -> Table:
    """Return the accuracy on each session's classes when they were new, and the mean."""
    if _count(rows) < 2:
        return [], []
    return _by_session(rows, plasticity, _count(rows), 1, "highest")


def session_rates(rows: Sequence[Row], name: str) -> Table:
    """Return one of `RATES` after each session but the first."""
    sessions = range(1, _count(rows))
    columns = [Column(f"session_{t}", str(t), "Session", "lowest") for t in sessions]
    cells = []
    for row in rows:
        own = range(1, len(row.runs[0].record.sessions))
        cells.append({f"session_{t}": _rate(row, t, name) for t in own})
    return columns, _labelled(rows, cells)


def _rate(row: Row, session: int, name: str) -> Interval:
    return percent(row, lambda run: error_rates(run, session)[name])


def _by_session(
    rows: Sequence[Row],
    value: Callable[[StoredRun, int], float],
    count: int,
    first: int,
    best: str,
) -> Table:
    """Return the table of a figure that each session has; its mean is over those from `first`."""
    columns = [Column(f"session_{j}", str(j), "Session", best) for j in range(count)]  # type: ignore[arg-type]
    columns += [Column("mean", "Mean", "", best)] if count else []  # type: ignore[arg-type]
    cells = []
    for row in rows:
        own = {j: percent(row, lambda run, j=j: value(run, j)) for j in range(_sessions(row))}  # type: ignore[misc]
        known = [j for j, interval in own.items() if not math.isnan(interval.mean)]
        found = {f"session_{j}": own[j] for j in known}
        late = [j for j in known if j >= first]
        if late:
            found["mean"] = percent(row, lambda run, late=late: _mean(run, value, late))  # type: ignore[misc]
        cells.append(found)
    return columns, _labelled(rows, cells)


def _mean(
    run: StoredRun, value: Callable[[StoredRun, int], float], sessions: Sequence[int]
) -> float:
    return sum(value(run, j) for j in sessions) / len(sessions)


def _labelled(rows: Sequence[Row], cells: Sequence[dict[str, Interval]]) -> list[TableRow]:
    return [TableRow(row.label, len(row.runs), own) for row, own in zip(rows, cells, strict=True)]


def _count(rows: Sequence[Row]) -> int:
    return max(map(_sessions, rows))


def _sessions(row: Row) -> int:
    return len(row.runs[0].record.sessions)
