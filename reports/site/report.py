"""The results as a website: pages that open from a file, without a network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

import fscil_bench
from fscil_bench.defaults import FIRST_METHOD, FIRST_PROTOCOL
from fscil_bench.errors import FscilError, StoreError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Document, Notes, Report, Table
from fscil_bench.reporting.choice import Chosen, asked_for, chosen, plain_command
from fscil_bench.reporting.details import row_details
from fscil_bench.reporting.facts import image_facts
from fscil_bench.reporting.frame import SESSION_COLUMNS, Results, run_frame
from fscil_bench.reporting.measures import MEASURES, formulas, plain
from fscil_bench.reporting.tables import measure_columns
from fscil_bench.running.commands import command_for
from fscil_bench.store.runs import StoredRun

from .leaderboard import (
    MEASURED,
    POINT_COLUMNS,
    PUBLISHED,
    SHOWN,
    Entry,
    best_first,
    curves,
    leaderboard,
    measured_entries,
    published_entries,
)
from .pages import Pages, asset_files, counted
from .shelves import Shelf, copied_shelves

FILTERS = ("protocol", "terms", "representation", "backbone", "split", "views")
"""Columns that the leaderboard can be filtered by."""
CURVES = {"accuracy": "All classes", "base": "Base classes", "new": "New classes"}
"""What a row's page draws."""


class Site(Report):
    """A leaderboard that sorts, filters and compares, curves, all figures, a page for each run.

    Pages of runs that are no longer stored are not linked, and not removed either: the folder may
    hold files of others.
    """

    name = "site"
    title = "The results as a website that needs no network"

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return the pages and what they link to, and the numbers that they show."""
        del params
        runs = _asked_runs(self.results)
        described = {run.key: _run_page(run, self.results.registry) for run in runs}
        found = [self._rows_of(name) for name in dict.fromkeys(r.spec.protocol.name for r in runs)]
        entries = best_first(
            [
                *(entry for rows in found for entry in measured_entries(rows)),
                *(e for p in _protocols(runs, self.results) for e in published_entries(p)),
            ]
        )
        shelves = self._shelves()
        pages = Pages(_shared(runs, entries, self._damaged()))
        _add_rows(pages, entries, found, described)
        _add_runs(pages, runs, found, described)
        pages.add("reports.html", "reports.html", shelves=shelves)
        pages.add(
            "index.html",
            "index.html",
            curves=[_curve(entry.points, entry.name, entry.line["kind"]) for entry in entries],
            compared=_compared(entries),
        )
        copies = {path: content for shelf in shelves for path, content in shelf.files.items()}
        return Document(
            title="Site",
            parts=(
                _summary(runs, entries, shelves),
                Notes([note for rows in found for note in rows.notes]),
                *_numbers(frame, runs, entries),
            ),
            warnings=self._damaged(),
            attachments={**pages.files, **asset_files(), **copies},
        )

    def _rows_of(self, protocol: str) -> Chosen:
        selection = replace(self.results.selection, protocol=protocol)
        return chosen(replace(self.results, selection=selection))

    def _damaged(self) -> tuple[str, ...]:
        asked = [run for run in self.results.runs if asked_for(run.spec, self.results.selection)]
        damaged = (self.results.damaged.get(run.key) for run in asked)
        return (*self.results.unread_runs, *filter(None, damaged))

    def _shelves(self) -> list[Shelf]:
        """Copy what other reports have written, where it is known where they write."""
        evaluation, selection = self.results.evaluation, self.results.selection
        if evaluation is None:
            return []
        reports = evaluation.store.report_folder(self.name, None).parents[1]
        return copied_shelves(reports, self.name, selection.protocol, self.results.registry)


def _asked_runs(results: Results) -> list[StoredRun]:
    """Return the runs to show.

    Raises:
        FscilError: nothing stored fits; the message gives a command that would make a run.
        StoreError: nothing that fits can be read.
    """
    selection = results.selection
    asked = [run for run in results.runs if asked_for(run.spec, selection)]
    if not asked:
        names = sorted({run.spec.protocol.name for run in results.runs})
        first = names[0] if names else FIRST_PROTOCOL
        named = replace(selection, protocol=selection.protocol or first)
        wanted = replace(results, selection=named)
        methods = selection.methods or (FIRST_METHOD,)
        brought, seed = next(iter(selection.representations), None), next(iter(selection.seeds), 0)
        raise FscilError(
            "no stored run fits what was asked for (protocols with runs: "
            f"{', '.join(names) or 'none'}); make one: "
            f"{plain_command(methods[0], wanted, brought, seed)}"
        )
    good = [run for run in asked if run.key not in results.damaged]
    if not good:
        raise StoreError("no run can be read; " + "; ".join(results.damaged.values()))
    return good


def _run_page(run: StoredRun, registry: Registry) -> dict[str, Any]:
    """Return what the page of a run shows; facts are pairs of a name and a text.

    `classes` are those of each session under a heading, the base session first.
    """
    record, protocol = run.record, run.spec.protocol
    return {
        "run": run,
        "command": command_for(run.spec, registry),
        "sessions": list(zip(record.sessions, run.metrics, strict=True)),
        "images": [text.split(": ", 1) for text in image_facts(run.spec, [record]).values()],
        "notes": list(_flat(record.notes)),
        "environment": list(_flat(record.environment)),
        "specification": list(_flat(record.spec.model_dump(mode="json"))),
        "log": list(_flat(record.representation_log)),
        "classes": [
            (
                f"Session {t}" if t else "Base session",
                [record.class_names[c] for c in protocol.session_classes(t)],
            )
            for t in range(protocol.sessions + 1)
        ],
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) for each value of nested mappings; long lists are shortened."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        texts = [_text(each) for each in value]
        if len(texts) > 8:
            return f"{', '.join(texts[:3])}, … {texts[-1]} ({len(texts)} values)"
        return ", ".join(texts) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None or value in ("", {}):
        return "none"
    return str(value)


def _protocols(runs: Sequence[StoredRun], results: Results) -> list[Protocol]:
    """Return the protocols whose published rows are shown, each name once.

    Those that runs were made with, and registered ones that papers print under their own name.
    """
    registry = results.registry
    registered = {name: registry.protocol(name)[0] for name in registry.names("protocol")}
    named = {name: p for name, p in registered.items() if p.canonical_rows in (None, name)}
    for run in runs:
        name = run.spec.protocol.name
        named[name] = registered.get(name, run.spec.protocol)
    asked = results.selection.protocol
    return [protocol for name, protocol in named.items() if asked in (None, name)]


def _shared(
    runs: Sequence[StoredRun], entries: Sequence[Entry], damaged: Sequence[str]
) -> Mapping[str, Any]:
    """Return what every page may show."""
    return {
        "version": fscil_bench.__version__,
        "newest": max(run.record.created for run in runs),
        "columns": measure_columns(*SHOWN),
        "session_columns": POINT_COLUMNS,
        "titles": {key: MEASURES[key].formula for key in SHOWN},
        "formulas": " ".join(map(plain, formulas(*SHOWN))),
        "runs_shown": len(runs),
        "kinds": Counter(entry.line["kind"] for entry in entries),
        "entries": entries,
        "choices": _choices(runs, entries),
        "damaged": damaged,
    }


def _choices(runs: Sequence[StoredRun], entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return the values that each filter offers; what is not known is not offered.

    Protocols stand with that of most runs first, then those for tuning, then published ones.
    """
    found = {name: sorted({entry.line[name] for entry in entries} - {""}) for name in FILTERS}
    counts = Counter(run.spec.protocol.name for run in runs)
    tuning = {r.spec.protocol.name for r in runs if r.spec.protocol.test_from_train}
    found["protocol"].sort(key=lambda name: (not counts[name], name in tuning, -counts[name]))
    return found


def _curve(points: pd.DataFrame, name: str, kind: str, key: str = "accuracy") -> dict[str, Any]:
    """Return the points of a curve, as the page's script draws them.

    A row of None stands where a session is not known, and breaks the line: one from the first
    session to the last would claim those between.
    """
    points = points.set_index("session")
    points = points.reindex(range(points.index[0], points.index[-1] + 1))
    known = points[f"{key}_mean"].notna()
    points = points[known | points[f"{key}_mean"].shift().notna()]
    columns = {
        "session": points.index.to_series().where(known),
        "seen": points["classes_seen"],
        "mean": points[f"{key}_mean"],
        "half": points[f"{key}_half_width"],
    }
    # JSON has no NaN.
    drawn = {
        name: [None if math.isnan(value) else value for value in values]
        for name, values in columns.items()
    }
    return {"name": name, "kind": kind, **drawn}


def _compared(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what two rows are compared by: each run's figures, and Student's t by pairs less 1."""
    from scipy.special import stdtrit

    most = max(len(entry.runs) for entry in entries)
    return {
        "figures": [column.heading for column in measure_columns(*SHOWN)],
        "t": [round(float(stdtrit(freedom, 0.975)), 6) for freedom in range(1, most)],
        "rows": [
            {
                "page": entry.page,
                "name": entry.name,
                "equal": entry.equal,
                "means": [_known(entry.line[f"{key}_mean"]) for key in SHOWN],
                "runs": {k: [*map(_known, own)] for k, own in entry.runs.items()},
            }
            for entry in entries
        ],
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)


def _add_rows(
    pages: Pages,
    entries: Sequence[Entry],
    found: Sequence[Chosen],
    described: Mapping[str, Mapping[str, Any]],
) -> None:
    rows = {spec.row: (part, label) for part in found for label, spec in part.specs.items()}
    for entry in entries:
        points = entry.points.to_dict("records")
        if entry.source is not None:
            own = [_curve(entry.points, entry.name, PUBLISHED)]
            shown = {"entry": entry, "row": entry.source, "sessions": points, "curves": own}
            pages.add(entry.page, "published.html", **shown)
            continue
        part, label = rows[entry.line["row"]]
        runs = part.runs(label)
        pages.add(
            entry.page,
            "row.html",
            entry=entry,
            runs=runs,
            sessions=points,
            curves=[
                _curve(entry.points, title, MEASURED, key)
                for key, title in CURVES.items()
                if entry.points[f"{key}_mean"].notna().any()
            ],
            facts=row_details(part, label),
            classes=described[runs[0].key]["classes"],
        )


def _add_runs(
    pages: Pages,
    runs: Sequence[StoredRun],
    found: Sequence[Chosen],
    described: Mapping[str, Mapping[str, Any]],
) -> None:
    labels = {spec.row: label for part in found for label, spec in part.specs.items()}
    averaged = {str(key) for part in found for key in part.frame.index}
    newest_first = list(reversed(runs))
    for run in newest_first:
        pages.add(
            f"runs/{run.key}.html",
            "run.html",
            label=labels.get(run.spec.row),
            shown=run.key in averaged,
            **described[run.key],
        )
    pages.add("runs.html", "runs.html", runs=newest_first, averaged=averaged)


def _numbers(
    frame: pd.DataFrame, runs: Sequence[StoredRun], entries: Sequence[Entry]
) -> list[Table]:
    """Return the numbers behind the site: rows, curves, runs and their sessions."""
    shown = frame[frame["key"].isin([run.key for run in runs])]
    # The folder is one of the machine that the runs were read on.
    whole = run_frame(shown).drop(columns="folder").reset_index()
    whole.insert(0, "row", whole.pop("row"))
    return [
        Table("data/leaderboard", leaderboard(entries), printed=False),
        Table("data/curves", curves(entries), printed=False),
        Table("data/runs", whole, printed=False),
        Table("data/sessions", shown[["key", *SESSION_COLUMNS]], printed=False),
    ]


def _summary(runs: Sequence[StoredRun], entries: Sequence[Entry], shelves: Sequence[Shelf]) -> str:
    """Say what was made of what."""
    counts = Counter(entry.line["kind"] for entry in entries)
    figures = sum(len(shelf.figures) for shelf in shelves)
    return (
        f"A site of {counted(len(runs), 'run')} in {counted(counts[MEASURED], 'row')}, "
        f"{counted(counts[PUBLISHED], 'published row')} and {counted(figures, 'figure')} of "
        f"{counted(len(shelves), 'report')}; index.html is its first page."
    )
