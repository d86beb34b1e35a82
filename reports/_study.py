"""The frame of a study: a report that knows its runs, and says in sentences what they show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fscil_bench.errors import FscilError
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.request import Selection, Wanted
from fscil_bench.running.commands import wanted_commands
from fscil_bench.store.files import write_text

from ._facts import note_lines
from ._figures import figure_style, save_figure
from ._latex import escape_latex, latex_table
from ._rows import Row
from ._sentences import RULE
from ._shelf import Shelf
from ._tables import Column, TableRow, csv_table, escape_markdown, markdown_table
from ._terms import StudyParams, Terms, remedy, terms_of
from ._variants import Variant, wanted_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORIGIN = (
    "LDC is a reconstruction here; what is shown was measured in these runs alone, and no "
    "published figure is among it."
)


@dataclass(frozen=True)
class Table:
    """A table of a study: `stem` names its CSV, `note` says what its numbers are."""

    stem: str
    heading: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]


@dataclass(frozen=True)
class Drawing:
    """A figure of a study: `stem` names its files, `lines` are the numbers drawn."""

    stem: str
    caption: str
    draw: Callable[[], Figure]
    lines: Sequence[dict[str, str | int | float]]


@dataclass(frozen=True)
class Findings:
    """What a study found.

    Attributes:
        sentences: what the numbers say, in words.
        tables: the first is the study's own; those without rows are left out.
        drawings: figures; those without anything drawn are left out.
        rows: runs whose terms are stated.
        remarks: what else a reader must know.
    """

    sentences: Sequence[str]
    tables: Sequence[Table]
    drawings: Sequence[Drawing]
    rows: Sequence[Row]
    remarks: Sequence[str] = ()


class Study(Report):
    """A report that compares variants of LDC, and of its rivals, on one protocol."""

    Params = StudyParams

    @abstractmethod
    def variants(self, terms: Terms) -> list[Variant]:
        """Return what the study runs."""

    @abstractmethod
    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return what the stored runs show; some may be missing, but not all."""

    def requests(self, selection: Selection, registry: Registry) -> Sequence[Wanted]:
        """Return a run for each variant and seed.

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
        """
        terms = terms_of(Terms, self, selection, registry)
        return list(wanted_runs(self.variants(terms), terms.protocol, registry).values())

    def build(self, given: ReportInput) -> ReportOutput:
        """Write tables (Markdown, CSV, LaTeX) and figures (PNG, PDF, CSV).

        Raises:
            UsageError: no protocol was named, or something that the study leaves no choice of.
            FscilError: none of the runs is stored.
        """
        terms = terms_of(Terms, self, given.selection, given.registry)
        shelf = Shelf(given, terms.protocol, self.variants(terms))
        command = remedy(self.name, terms)
        if shelf.empty:
            raise FscilError(
                f"none of the runs that {self.name} compares is stored for protocol "
                f"{terms.protocol.name!r}; make them: {command}"
            )
        found = self.findings(terms, shelf, given)
        missing = wanted_commands(shelf.missing, given.registry)
        notes = _notes(found, terms, shelf)
        text = _markdown(self.title, terms, found, notes, (command, missing))
        files = _write(self.name, given.folder, text, found, notes)
        return ReportOutput(text, files, tuple(missing), tuple(shelf.problems))


def _notes(found: Findings, terms: Terms, shelf: Shelf) -> list[str]:
    lines = [ORIGIN, RULE, *found.remarks]
    lines += note_lines(found.rows, terms.registry) if found.rows else []
    if terms.params.ldc_set:
        lines.append(f"ldc runs with {terms.params.ldc_set}.")
    if terms.params.free_lunch_set:
        lines.append(f"free_lunch runs with {terms.params.free_lunch_set}.")
    if shelf.older:
        lines.append(
            f"{shelf.older} stored runs were left out, made with earlier code, other data or "
            "another network than the newest."
        )
    return lines


def _markdown(
    title: str,
    terms: Terms,
    found: Findings,
    notes: Sequence[str],
    missing: tuple[str, Sequence[str]],
) -> str:
    protocol = terms.protocol
    parts = [
        f"# {title}: {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)})",
        _bullets(found.sentences),
    ]
    for table in _tables(found):
        parts.append(f"## {table.heading}")
        parts += [markdown_table(table.columns, table.rows).rstrip(), escape_markdown(table.note)]
    for drawing in _drawings(found):
        parts.append(f"`{drawing.stem}.png`: {escape_markdown(drawing.caption)}")
    parts += ["## Terms", _bullets(notes)]
    command, commands = missing
    if commands:
        lines = [f"Missing; all of it is made by `{command}`, or one by one:", ""]
        parts.append("\n".join([*lines, *(f"- `{each}`" for each in commands)]))
    return "\n\n".join(parts) + "\n"


def _write(
    name: str, folder: Path, text: str, found: Findings, notes: Sequence[str]
) -> tuple[Path, ...]:
    tables = _tables(found)
    contents = {f"{name}.md": text, f"{name}.tex": _latex(tables, [*found.sentences, *notes])}
    contents |= {f"{each.stem}.csv": csv_table(each.columns, each.rows) for each in tables}
    for file, content in contents.items():
        write_text(folder / file, content)
    files = [folder / file for file in contents]
    for drawing in _drawings(found):
        files += save_drawing(drawing, folder)
    return tuple(files)


def save_drawing(drawing: Drawing, folder: Path) -> tuple[Path, ...]:
    """Write a figure as PNG, PDF and the numbers drawn."""
    with figure_style():
        return save_figure(drawing.draw(), folder, drawing.stem, drawing.lines)


def _latex(tables: Sequence[Table], notes: Sequence[str]) -> str:
    parts = [latex_table(each.columns, each.rows, [escape_latex(each.note)]) for each in tables]
    # Unlike a box, a group can go on over the end of a page.
    body = " \\par\n".join(escape_latex(note) for note in notes)
    parts.append(f"{{\\footnotesize\\raggedright\\noindent\n{body}\\par}}\n")
    return "\n\\par\\medskip\n".join(parts)


def _tables(found: Findings) -> list[Table]:
    return [table for table in found.tables if table.rows]


def _drawings(found: Findings) -> list[Drawing]:
    return [drawing for drawing in found.drawings if drawing.lines]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)
