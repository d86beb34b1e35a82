"""The frame of a study: a report that knows its runs, and says in sentences what they show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd

from fscil_bench.errors import FscilError
from fscil_bench.report import Column, Document, Figure, Notes, Part, Report, Section, Table
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.measures import INTERVAL
from fscil_bench.reporting.panels import LETTERS, Panel, panel_numbers, panels
from fscil_bench.reporting.sentences import RULE, difference_sentence
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.request import Wanted

from .shelf import Shelf
from .terms import StudyParams, Terms
from .values import difference, means
from .variants import Variant, wanted_runs

ORIGIN = (
    "LDC is a reconstruction here; what is shown was measured in these runs alone, and no "
    "published figure is among it."
)
LAST = "accuracy after the last session"
PAIRED = (
    "First minus second, paired by seed, ± the half-width of the 95 % Student-t interval of the "
    "mean difference."
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
    terms: ClassVar[type[Terms[Any]]] = Terms
    rules: ClassVar[Sequence[str]] = (ORIGIN, RULE)

    @abstractmethod
    def variants(self, terms: Any) -> Mapping[Any, Variant]:
        """Return what the study runs, by what it calls it.

        Raises:
            UsageError: the study leaves no choice of something that was asked for.
        """

    @abstractmethod
    def findings(self, terms: Any, shelf: Shelf) -> Findings:
        """Return what the stored runs show; some may be missing, but not all."""

    def requests(self, params: StudyParams) -> Sequence[Wanted]:
        """Return a run for each variant and seed.

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
        """
        terms = self.terms.asked(self.name, self.results, params)
        variants = self.variants(terms).values()
        return list(wanted_runs(variants, terms.protocol, terms.registry).values())

    def build(self, frame: pd.DataFrame, params: StudyParams) -> Document:
        """Return what the runs of all variants show.

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
            FscilError: none of the runs is stored.
        """
        del frame
        terms = self.terms.asked(self.name, self.results, params)
        protocol = terms.protocol
        shelf = Shelf(self.results, protocol, self.variants(terms))
        if shelf.empty:
            raise FscilError(
                f"none of the runs that {self.name} compares is stored for protocol "
                f"{protocol.name!r}; make them: {terms.remedy(self.name)}"
            )
        found = self.findings(terms, shelf)
        notes = [*self.rules, *found.remarks]
        notes += note_lines(shelf.chosen(found.rows)) if any(map(len, found.rows.values())) else []
        given = {"ldc": params.ldc_set, "free_lunch": params.free_lunch_set}
        notes += [f"{method} runs with {text}." for method, text in given.items() if text]
        if shelf.older:
            notes.append(
                f"{shelf.older} stored runs were left out, made with earlier code, other data or "
                "another network than the newest."
            )
        if shelf.missing:
            notes.append(f"All that is missing is made by: {terms.remedy(self.name)}")
        return Document(
            f"{self.title}: {protocol.title} ({protocol.name})",
            [*_shown(found.parts), Section("Terms", [Notes(notes)])],
            shelf.lacks(),
            tuple(shelf.problems),
        )


def interval_table(
    name: str,
    runs: Mapping[str, pd.DataFrame],
    columns: Sequence[Column],
    note: str,
    formulas: Sequence[str] = (INTERVAL,),
    facts: Sequence[str] = (),
) -> Table:
    """Return a line for each name that has runs.

    Args:
        name: of the table.
        runs: by name.
        columns: intervals over the runs.
        note: what they are, below what `formulas` say.
        formulas: as `Table` has them.
        facts: columns of the runs that a name's runs have in common, for the CSV alone.
    """
    frame = means(runs, [column.key for column in columns])
    for fact in facts:
        frame[fact] = [runs[str(label)][fact].iloc[0] for label in frame.index]
    return Table(name, frame, [*ROW_COLUMNS, *columns], formulas=formulas, notes=[note])


def told(
    runs: Mapping[str, pd.DataFrame],
    pairs: Iterable[tuple[str, str]],
    key: str,
    figure: str = LAST,
    unit: str = "points",
    counted: str = "seeds",
) -> list[str]:
    """Return a sentence on each pair of names: what column `key` of the first has above that."""
    apart = {(one, two): difference(runs[one], runs[two], key) for one, two in pairs}
    return [difference_sentence(*p, figure, each, unit, counted) for p, each in apart.items()]


def panel_figure(name: str, drawn: Mapping[str, Panel], note: str) -> Figure:
    """Return the panels that have something to show; `drawn` has them by what that is."""
    kept = {what: panel for what, panel in drawn.items() if len(panel.numbers)}
    numbers = panel_numbers(kept.values()) if kept else pd.DataFrame()
    columns = len(kept) if len(kept) < 4 else 2
    caption = f"{lettered(kept)}; {note}"
    return Figure(name, lambda: panels(list(kept.values()), columns), numbers, caption)


def lettered(shown: Collection[str]) -> str:
    """Return what panels show, each with the letter that stands over it if there are several."""
    named = (f"({letter}) {what}" for letter, what in zip(LETTERS, shown, strict=False))
    return ", ".join(named if len(shown) > 1 else shown)


def _shown(parts: Sequence[Part]) -> list[Part]:
    """Return what has something to show, of sections what is left of them."""
    kept: list[Part] = []
    for part in parts:
        match part:
            case Section():
                inner = _shown(part.parts)
                kept += [replace(part, parts=inner)] if inner else []
            case Table(frame=numbers) | Figure(numbers=numbers):
                kept += [part] if len(numbers) else []
            case _:
                kept.append(part)
    return kept
