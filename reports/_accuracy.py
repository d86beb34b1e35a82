"""The columns of the field's tables, and the accuracy curve, computed from rows of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fscil_bench.metrics import Interval, average_accuracy, performance_drop, performance_retention
from fscil_bench.store.runs import StoredRun

from ._figures import Curve
from ._rows import Row
from ._tables import Column, TableRow

_LAST = "Last session (%)"
_SUMMARY: Mapping[Column, Callable[[StoredRun], float]] = {
    Column("average", "Avg"): lambda run: average_accuracy(run.accuracies),
    Column("performance_drop", "PD", best="lowest"): lambda run: performance_drop(run.accuracies),
    Column("performance_retention", "PR"): lambda run: performance_retention(run.accuracies),
    Column("last_base", "Base", _LAST): lambda run: run.metrics[-1].base,
    Column("last_new", "New", _LAST): lambda run: run.metrics[-1].new,
    Column("last_harmonic", "HM", _LAST): lambda run: run.metrics[-1].harmonic,
}


def session_accuracies(row: Row) -> list[Interval]:
    """Return the accuracy of each session in percent, over the row's runs."""
    count = len(row.runs[0].record.sessions)
    return [_percent(row, lambda run, t=t: run.accuracies[t]) for t in range(count)]  # type: ignore[misc]


def accuracy_columns(rows: Sequence[Row]) -> list[Column]:
    """Return a column for each session that any row has, and those that sum a run up."""
    count = max(len(row.runs[0].record.sessions) for row in rows)
    sessions = [Column(f"session_{t}", str(t), "Accuracy in session (%)") for t in range(count)]
    return [*sessions, *_SUMMARY]


def accuracy_cells(row: Row) -> TableRow:
    """Return a row's cells in percent, and what identifies the row and its runs."""
    cells = {f"session_{t}": interval for t, interval in enumerate(session_accuracies(row))}
    cells |= {column.key: _percent(row, value) for column, value in _SUMMARY.items()}
    spec = row.spec
    facts = {
        "method": spec.method,
        "params": json.dumps(spec.params, sort_keys=True),
        "representation": spec.representation.name,
        "representation_params": json.dumps(spec.representation.params, sort_keys=True),
        "protocol": spec.protocol.name,
        "split": spec.split,
        "views": spec.views,
        "seeds": _words(seed for _, seed in row.axes),
        "representation_seeds": _words(seed for seed, _ in row.axes),
        "row": spec.row,
        "version": spec.version,
    }
    return TableRow(row.label, len(row.runs), cells, facts)


def accuracy_curve(row: Row) -> Curve:
    """Return accuracy in percent against the number of classes seen."""
    seen = [session.classes_seen for session in row.runs[0].record.sessions]
    return Curve(row.label, seen, session_accuracies(row))


def curve_lines(curves: Iterable[Curve]) -> list[dict[str, str | int | float]]:
    """Return one line for each point drawn; `low` and `high` are NaN where there is no band."""
    return [
        {
            "label": curve.label,
            "session": session,
            "classes_seen": seen,
            "mean": interval.mean,
            "low": interval.mean - interval.half_width,
            "high": interval.mean + interval.half_width,
            "n": interval.count,
        }
        for curve in curves
        for session, seen, interval in zip(
            curve.sessions or range(len(curve.positions)),
            curve.positions,
            curve.intervals,
            strict=True,
        )
    ]


def _percent(row: Row, value: Callable[[StoredRun], float]) -> Interval:
    interval = row.interval(value)
    return replace(interval, mean=100 * interval.mean, half_width=100 * interval.half_width)


def _words(numbers: Iterable[int]) -> str:
    return " ".join(str(number) for number in sorted(set(numbers)))
