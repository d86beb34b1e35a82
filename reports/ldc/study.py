"""The frame of a study: a report that knows its runs, and says in sentences what they show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from fscil_bench.errors import FscilError
from fscil_bench.report import Column, Document, Figure, Notes, Part, Report, Section, Table
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.panels import Panel, panel_numbers, panels
from fscil_bench.reporting.sentences import RULE
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.request import Wanted

from .shelf import Shelf
from .terms import StudyParams, Terms
from .values import means
from .variants import Variant, wanted_runs

ORIGIN = (
    "LDC is a reconstruction here; what is shown was measured in these runs alone, and no "
    "published figure is among it."
)


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Attributes:
        parts: sentences, tables and figures; tables and figures without a line are left out.
        rows: the runs whose terms are stated, by name.
        remarks: what else a reader must know.
    """

    parts: Sequence[Part]
    rows: Mapping[str, pd.DataFrame]
    remarks: Sequence[str] = ()


class Study(Report):
    """A report that compares variants of LDC, and of its rivals, on one protocol."""

    whole = True
    Params = StudyParams
    terms: ClassVar[type[Terms]] = Terms
    rules: ClassVar[Sequence[str]] = (ORIGIN, RULE)

    @abstractmethod
    def variants(self, terms: Any, params: Any) -> list[Variant]:
        """Return what the study runs."""

    @abstractmethod
    def findings(self, terms: Any, shelf: Shelf, params: Any) -> Findings:
        """Return what the stored runs show; some may be missing, but not all."""

    def requests(self, params: StudyParams) -> Sequence[Wanted]:
        """Return a run for each variant and seed.

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
        """
        terms = self.terms.asked(self.name, self.results, params)
        variants = self.variants(terms, params)
        return list(wanted_runs(variants, terms.protocol, terms.registry).values())

    def build(self, frame: pd.DataFrame, params: StudyParams) -> Document:
        """Return what the runs of all variants show.

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
            FscilError: none of the runs is stored.
        """
        del frame
        terms = self.terms.asked(self.name, self.results, params)
        shelf = Shelf(self.results, terms.protocol, self.variants(terms, params))
        protocol = terms.protocol
        if shelf.empty:
            raise FscilError(
                f"none of the runs that {self.name} compares is stored for protocol "
                f"{protocol.name!r}; make them: {terms.remedy(self.name)}"
            )
        found = self.findings(terms, shelf, params)
        notes = [*self.rules, *found.remarks, *self._terms(found, terms, shelf)]
        return Document(
            f"{self.title}: {protocol.title} ({protocol.name})",
            [*_shown(found.parts), Section("Terms", [Notes(notes)])],
            shelf.lacks(),
            tuple(shelf.problems),
        )

    def _terms(self, found: Findings, terms: Terms, shelf: Shelf) -> list[str]:
        lines = note_lines(shelf.chosen(found.rows)) if any(map(len, found.rows.values())) else []
        lines += terms.settings_lines()
        if shelf.older:
            lines.append(
                f"{shelf.older} stored runs were left out, made with earlier code, other data or "
                "another network than the newest."
            )
        if shelf.missing:
            lines.append(f"All that is missing is made by: {terms.remedy(self.name)}")
        return lines


def interval_table(
    name: str,
    runs: Mapping[str, pd.DataFrame],
    columns: Sequence[Column],
    note: str,
    facts: Sequence[str] = (),
) -> Table:
    """Return a line for each name that has runs.

    Args:
        name: of the table.
        runs: by name.
        columns: intervals over the runs, with `note` below them.
        note: what they are.
        facts: columns of the runs that a name's runs have in common, for the CSV alone.
    """
    frame = means(runs, [column.key for column in columns])
    for fact in facts:
        frame[fact] = [runs[str(label)][fact].iloc[0] for label in frame.index]
    return Table(name, frame, [*ROW_COLUMNS, *columns], notes=[note])


def panel_figure(name: str, drawn: Sequence[Panel], caption: str, columns: int = 2) -> Figure:
    """Return the panels that have something to show as one figure."""
    kept = [panel for panel in drawn if len(panel.numbers)]
    numbers = panel_numbers(kept) if kept else pd.DataFrame()
    return Figure(name, lambda: panels(kept, min(columns, len(kept))), numbers, caption)


def _shown(parts: Sequence[Part]) -> list[Part]:
    """Return what has something to show, of sections what is left of them."""
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, Section):
            inner = _shown(part.parts)
            kept += [replace(part, parts=inner)] if inner else []
        elif isinstance(part, Table):
            kept += [part] if len(part.frame) else []
        elif isinstance(part, Figure):
            kept += [part] if len(part.numbers) else []
        else:
            kept.append(part)
    return kept
