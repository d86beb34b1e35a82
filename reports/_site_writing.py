"""Writes the site's pages: leaderboard, reports, list of runs; one for each row and run."""

from __future__ import annotations

from pathlib import Path

from fscil_bench.plugins.registry import Registry

from ._card_facts import card_facts
from ._rows import Row
from ._site_content import Content
from ._site_entries import Entry
from ._site_pages import Pages
from ._site_runs import class_sessions, run_page, session_intervals


def write_site(site: Pages, content: Content, registry: Registry) -> Path:
    """Write all pages and return the first.

    Raises:
        StoreError: the folder cannot be written to.
    """
    rows = {entry.row.spec.row: entry.row for entry in content.entries if entry.row is not None}
    for entry in content.entries:
        if entry.row is not None:
            _write_row(site, entry, entry.row, registry)
        elif entry.published is not None:
            site.write(entry.page, "published.html", entry=entry, row=entry.published)
    _write_runs(site, content, rows, registry)
    site.write("reports.html", "reports.html", shelves=content.shelves)
    return site.write(
        "index.html",
        "index.html",
        content=content,
        choices=content.choices(),
        curves=content.curves(),
    )


def _write_row(site: Pages, entry: Entry, row: Row, registry: Registry) -> None:
    site.write(
        entry.page,
        "row.html",
        entry=entry,
        row=row,
        sessions=session_intervals(row),
        facts=card_facts(row, registry),
        classes=class_sessions(row.runs[0].record),
    )


def _write_runs(site: Pages, content: Content, rows: dict[str, Row], registry: Registry) -> None:
    newest_first = list(reversed(content.runs))
    views = [run_page(run, rows[run.spec.row], registry) for run in newest_first]
    for view in views:
        site.write(f"runs/{view.run.key}.html", "run.html", view=view)
    site.write("runs.html", "runs.html", views=views)
