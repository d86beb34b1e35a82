"""The numbers behind the site, as CSV: rows, curves, runs and their sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from fscil_bench.store.runs import StoredRun, run_row

from ._site_entries import COLUMNS, Entry
from ._tables import csv_text

Line = Mapping[str, str | int | float]


def csv_files(entries: Sequence[Entry], runs: Sequence[StoredRun]) -> dict[str, str]:
    """Return the content of each CSV by file name."""
    lines: dict[str, list[Line]] = {
        "leaderboard.csv": [_entry_line(entry) for entry in entries],
        "curves.csv": [line for entry in entries for line in _point_lines(entry)],
        "runs.csv": [_run_line(run) for run in runs],
        "sessions.csv": [line for run in runs for line in _session_lines(run)],
    }
    return {name: csv_text(each) for name, each in lines.items()}


def _entry_line(entry: Entry) -> Line:
    line: dict[str, str | int | float] = {
        **_who(entry),
        "representation": entry.representation,
        "backbone": entry.backbone,
        "epochs": entry.epochs,
        "split": entry.split,
        "views": entry.views,
        "images_per_class": entry.images,
        "runs": entry.runs or "",
        "terms": entry.terms,
        "stored_bytes": entry.stored,
    }
    for column in COLUMNS:
        cell = entry.cell(column)
        line |= {f"{column.key}_mean": cell.mean, f"{column.key}_half_width": cell.half_width}
    return {**line, "remarks": " ".join(entry.remarks)}


def _point_lines(entry: Entry) -> Iterator[Line]:
    for point in entry.points:
        yield {
            **_who(entry),
            "session": point.session,
            "classes_seen": point.classes_seen,
            "accuracy": point.accuracy.mean,
            "half_width": point.accuracy.half_width,
            # How many runs a published value averages is not known.
            "n": point.accuracy.count or "",
        }


def _who(entry: Entry) -> dict[str, str | int | float]:
    return {
        "row": "" if entry.row is None else entry.row.spec.row,
        "kind": entry.kind,
        "protocol": entry.protocol,
        "method": entry.method,
        "detail": entry.detail,
    }


def _run_line(run: StoredRun) -> Line:
    line = {"row": run.spec.row, **run_row(run)}
    line["accuracies"] = json.dumps(line["accuracies"])
    del line["folder"]  # of the machine that the runs were read on
    return line


def _session_lines(run: StoredRun) -> Iterator[Line]:
    for record, metrics in zip(run.record.sessions, run.metrics, strict=True):
        yield {"key": run.key, "session": record.index, **vars(metrics), **_cost(record)}


def _cost(record: object) -> dict[str, float]:
    names = ("learn_seconds", "score_seconds", "state_bytes")
    return {name: getattr(record, name) for name in names}
