"""The results as a website: pages that open from a file, without a network."""

from __future__ import annotations

from dataclasses import replace

from fscil_bench.errors import FscilError, StoreError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.store.files import write_text
from fscil_bench.store.runs import StoredRun

from ._missing import plain_command
from ._one_protocol import FIRST_METHOD, FIRST_PROTOCOL
from ._readable import readable
from ._rows import chosen_runs
from ._selected import files_folder
from ._site_content import Content
from ._site_csv import csv_files
from ._site_entries import best_first, measured_entries, published_entries
from ._site_pages import pages, write_assets
from ._site_shelf import Shelf, copy_shelves
from ._site_writing import write_site


class Site(Report):
    """A leaderboard that sorts and filters, curves, all figures, and a page for each run.

    The pages share one copy of the plotting library beside them, which only the leaderboard loads:
    inlined it would add 5 MB to each page. Pages of runs that are no longer stored are not linked,
    and not removed either: the folder may hold files of others.
    """

    name = "site"
    title = "The results as a website that needs no network"

    def build(self, given: ReportInput) -> ReportOutput:
        """Write index.html and what it links to; the page and the CSVs alone are returned."""
        runs, damaged = _runs(given)
        folder = files_folder(given, self.params)
        measured = measured_entries(runs, given.registry)
        published = published_entries(_protocols(runs, given))
        content = Content(
            entries=best_first([*measured, *published]),
            runs=runs,
            shelves=self._shelves(given),
            damaged=damaged,
        )
        numbers = {folder / "data" / n: t for n, t in csv_files(content.entries, runs).items()}
        for path, text in numbers.items():
            write_text(path, text)
        write_assets(folder / "assets")
        first = write_site(pages(folder, **content.shared()), content, given.registry)
        return ReportOutput(content.summary(first), (first, *numbers), (), damaged)

    def _shelves(self, given: ReportInput) -> list[Shelf]:
        """Copy what other reports have written, where it is known where they write."""
        if given.evaluation is None:
            return []
        reports = given.evaluation.store.report_folder(self.name, None).parents[1]
        target = files_folder(given, self.params) / "reports"
        return copy_shelves(reports, target, self.name, given.selection.protocol, given.registry)


def _runs(given: ReportInput) -> tuple[list[StoredRun], tuple[str, ...]]:
    """Return the runs to show, and what is wrong with others.

    Raises:
        FscilError: nothing stored fits; the message gives a command that would make a run.
        StoreError: nothing that fits can be read.
    """
    selection, registry = given.selection, given.registry
    asked = chosen_runs(given.runs, selection)
    if not asked:
        names = sorted({run.spec.protocol.name for run in given.runs})
        first = names[0] if names else FIRST_PROTOCOL
        wanted = replace(selection, protocol=selection.protocol or first)
        methods = selection.methods or (FIRST_METHOD,)
        brought, seed = next(iter(selection.representations), None), next(iter(selection.seeds), 0)
        raise FscilError(
            "no stored run fits what was asked for (protocols with runs: "
            f"{', '.join(names) or 'none'}); make one: "
            f"{plain_command(methods[0], wanted, brought, seed, registry)}"
        )
    good, damaged = readable(asked, lambda run: run.metrics)
    if not good:
        raise StoreError("no run can be read; " + "; ".join(damaged))
    return good, (*given.unread_runs, *damaged)


def _protocols(runs: list[StoredRun], given: ReportInput) -> list[Protocol]:
    """Return the protocols whose published rows are shown, each name once.

    Those that runs were made with, and registered ones that papers print under their own name.
    """
    registered = _registered(given.registry)
    named = {name: p for name, p in registered.items() if p.canonical_rows in (None, name)}
    for run in runs:
        name = run.spec.protocol.name
        named[name] = registered.get(name, run.spec.protocol)
    asked = given.selection.protocol
    return [protocol for name, protocol in named.items() if asked in (None, name)]


def _registered(registry: Registry) -> dict[str, Protocol]:
    return {name: registry.protocol(name)[0] for name in registry.names("protocol")}
