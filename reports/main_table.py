"""The field's main table: accuracy in every session, what is kept of it, and the curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fscil_bench.protocol import Protocol
from fscil_bench.report import Document, Figure, Part, Report, Table
from fscil_bench.reporting.accuracy import (
    SUMMARY,
    accuracy_columns,
    accuracy_frame,
    curve_numbers,
)
from fscil_bench.reporting.choice import Chosen, meant_rows, own_rows, usual_rows
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.figures import curves, far_sentence
from fscil_bench.reporting.lacks import lacking_runs, lacking_scores
from fscil_bench.reporting.measures import MEASURES, formulas, named_measures
from fscil_bench.reporting.usual import registered_protocol

from .published import (
    PublishedRow,
    chosen_published,
    of_measured,
    published_alone,
    published_rows,
    published_section,
)

MEASURED = "measured"
"""Asks for the published rows of methods that were measured."""
ABOUT = (
    "Accuracy in each session, its average, drop and retention, and the last session's accuracy "
    "on base and new classes; all in %. Rows stand by their last session, the best at the end."
)


class MainTable(Report):
    """One row a method: accuracy in each session, Avg, PD, PR, base, new and harmonic mean.

    What papers print for the protocol stands in a block of its own, or alone while no run of the
    protocol is stored.
    """

    name = "main-table"
    title = "Accuracy in each session, drop and retention, base and new classes"

    @dataclass(frozen=True)
    class Params:
        """`rows`: of these rows alone, `ncm; ldc (steps=3)`. `published`: which published rows.

        That is `measured` (those of methods that stand above), `all`, `none`, or `CEC; FACT`;
        `paper:LDC` are those that a paper prints. Names are as the table has them, with a `;`
        between several. Rows with other shots,
        sessions, class order or recipe than the protocol's own are left out, unless `all` is true
        or they are asked for by `rows` or the split; with `usual` those with parameters set by
        hand are left out too. `measures`: further columns, by name with commas between:
        `gacc_area,average_forgetting,last_harmonic_classes,learn_seconds,score_seconds,memory`.
        """

        rows: str = ""
        published: str = MEASURED
        all: bool = False
        usual: bool = False
        measures: str = ""

    def build(self, frame: pd.DataFrame, params: Params) -> Document:
        """Return the table, the curve, and the table of what is published."""
        del frame
        wanted = {*SUMMARY, *named_measures(params.measures)}
        summary = [key for key in MEASURES if key in wanted]
        alone = published_alone(self.results, params.rows)
        asked = params.published.strip()
        if alone is not None:
            printed = chosen_published(alone.rows, "all" if asked == MEASURED else asked)
            if printed:
                block = self._block(alone.protocol, printed)
                return Document(title_of(alone.protocol), (alone.notice, block), (alone.lack,))
        choose = usual_rows if params.usual else own_rows
        found = meant_rows(self.results, self.name, params.rows, params.all, choose)
        rows = found.keep(found.labels[::-1])  # as the field prints them: the best at the end
        spec = rows.spec(rows.labels[0])
        protocol = registered_protocol(spec, self.results.registry)
        parts = (
            ABOUT,
            self._table(rows, summary),
            _curve(found),
            *self._published(protocol, asked, rows),
        )
        known = self.results.registry.plugins.get("method", {})
        shown = [known[name] for name in rows.frame["method"].unique() if name in known]
        papers = "\n\n".join(dict.fromkeys(plugin.bibtex for plugin in shown if plugin.bibtex))
        attached = {"references.bib": f"{papers}\n"} if papers else {}
        title = title_of(spec.protocol)
        lacks = [*lacking_runs(rows), *lacking_scores(rows, summary)]
        return Document(title, parts, lacks, found.problems, attached)

    def _table(self, rows: Chosen, summary: Sequence[str]) -> Table:
        frame = accuracy_frame(rows, summary)
        known = self.results.registry.plugins.get("method", {})
        keys = {name: plugin.citation for name, plugin in known.items()}
        frame = frame.assign(citation=frame["method"].map(keys).fillna(""))
        columns, formula = accuracy_columns(rows, summary), formulas(*summary)
        return Table(self.name, frame, columns, formulas=formula, notes=note_lines(rows))

    def _published(self, protocol: Protocol, asked: str, rows: Chosen) -> list[Part]:
        """Return the block of published rows; of those of measured methods, how to see all."""
        every = published_rows(protocol)
        if asked != MEASURED:
            printed, told = chosen_published(every, asked), ""
        else:
            known = self.results.registry.plugins.get("method", {})
            measured = rows.frame[["method", "representation"]].drop_duplicates()
            titles = {name: plugin.title for name, plugin in known.items()}
            printed = of_measured(every, measured.assign(title=measured["method"].map(titles)))
            told = (
                f"Papers print {len(every)} rows for this protocol, {len(printed)} of them of "
                "methods in the table above; --set published=all shows all."
            )
        block = [self._block(protocol, printed)] if printed else []
        return [*block, told] if told and len(printed) < len(every) else [*block]

    def _block(self, protocol: Protocol, rows: Sequence[PublishedRow]) -> Part:
        return published_section(f"{self.name}-published", protocol, rows)


def _curve(rows: Chosen) -> Figure:
    # The legend then reads from top to bottom as the curves end.
    numbers = curve_numbers(rows)
    caption = "accuracies against the number of classes seen; bands are the same intervals."
    caption += far_sentence(numbers)
    return Figure("curve", lambda: curves(numbers), numbers, caption)


def title_of(protocol: Protocol) -> str:
    """Return how a protocol is called in headings."""
    return f"{protocol.title} ({protocol.name})"
