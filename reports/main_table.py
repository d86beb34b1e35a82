"""The field's main table: accuracy in every session, what is kept of it, and the curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.protocol import Protocol
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.store.files import write_text

from ._accuracy import accuracy_cells, accuracy_columns, accuracy_curve, curve_lines
from ._facts import note_lines
from ._figures import curve_figure, figure_style, save_figure
from ._latex import escape_latex, latex_table
from ._missing import Lack, lacking_runs
from ._one_protocol import meant_rows
from ._published import PublishedRow, published_rows
from ._published_alone import PublishedAlone, published_alone
from ._published_table import PublishedTable, chosen_published
from ._rows import Row
from ._selected import files_folder
from ._tables import csv_table, escape_markdown, markdown_table
from ._usual import own_rows, registered_protocol

FORMULAS = (
    "A_t is the accuracy after session t, in %: correct / total, top-1, over the test images and "
    "the joint label space of all classes seen so far; T is the last session. "
    "Avg = (A_0 + … + A_T) / (T + 1). PD = A_0 − A_T, in percentage points (lower is better). "
    "PR = A_T / A_0, in %. Base and New are A_T counted over test images of base classes and of "
    "all later classes alone; HM = 2 · Base · New / (Base + New). Each is computed run by run; "
    "± is the half-width of the 95 % Student-t interval of the mean over a row's n runs, "
    "t · s / √n with s the sample standard deviation."
)
FORMULAS_LATEX = (
    r"$A_t$ is the accuracy after session $t$, in \%: correct / total, top-1, over the test "
    r"images and the joint label space of all classes seen so far; $T$ is the last session. "
    r"Avg $= (A_0 + \dots + A_T) / (T + 1)$. PD $= A_0 - A_T$, in percentage points (lower is "
    r"better). PR $= A_T / A_0$, in \%. Base and New are $A_T$ counted over test images of base "
    r"classes and of all later classes alone; HM $= 2 \cdot \mathrm{Base} \cdot \mathrm{New} / "
    r"(\mathrm{Base} + \mathrm{New})$. Each is computed run by run; $\pm$ is the half-width of "
    r"the 95\,\% Student-$t$ interval of the mean over a row's $n$ runs, $t \cdot s / \sqrt{n}$ "
    r"with $s$ the sample standard deviation."
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
        """`rows`: of these rows alone, `ncm; ldc (steps=3)`. `published`: all, none or `CEC; FACT`.

        Both as they are called in the table; a `;` stands between several. Rows with other shots,
        sessions, class order or recipe than the protocol's own are left out, unless `all` is true
        or they are asked for by `rows` or the split.
        """

        rows: str = ""
        published: str = "all"
        all: bool = False

    params: Params

    def build(self, given: ReportInput) -> ReportOutput:
        """Write main-table.md / .csv / .tex, -published.csv / .tex, and curve.png / .pdf / .csv.

        A part of the table goes into a folder of its own.
        """
        alone = published_alone(given, self.params.rows)
        if alone is not None and chosen_published(alone.rows, self.params.published):
            return self._build_alone(alone, files_folder(given, self.params))
        found, left_out, damaged = meant_rows(
            self.name, given, self.params.rows, self.params.all, own_rows
        )
        rows = found[::-1]  # as the field prints them: the best at the end of the table
        lacks = lacking_runs(rows, given.selection, given.registry)
        columns, cells = accuracy_columns(rows), [accuracy_cells(row) for row in rows]
        notes = note_lines(rows, given.registry) + left_out
        protocol = registered_protocol(rows[0].spec, given.registry)
        published = self._published(protocol, published_rows(protocol))
        table = markdown_table(columns, cells)
        text = _markdown(rows[0], table, notes + damaged, lacks, published)
        latex = latex_table(columns, cells, [FORMULAS_LATEX, *map(escape_latex, notes)])
        contents = {
            f"{self.name}.md": text,
            f"{self.name}.csv": csv_table(columns, cells),
            f"{self.name}.tex": latex,
        }
        folder = files_folder(given, self.params)
        files = _write(folder, contents | self._published_files(published))
        missing = tuple(dict.fromkeys(lack.command for lack in lacks))
        return ReportOutput(text, (*files, *_draw(found, folder)), missing, tuple(damaged))

    def _build_alone(self, alone: PublishedAlone, folder: Path) -> ReportOutput:
        """Write what is published, where nothing is measured."""
        published = self._published(alone.protocol, alone.rows)
        parts = [_title(alone.protocol), alone.notice, "## Published", published.markdown()]
        text = "\n\n".join(parts) + "\n"
        files = _write(folder, {f"{self.name}.md": text} | self._published_files(published))
        return ReportOutput(text, files, (alone.command,))

    def _published(self, protocol: Protocol, rows: Sequence[PublishedRow]) -> PublishedTable:
        return PublishedTable(protocol, chosen_published(rows, self.params.published))

    def _published_files(self, published: PublishedTable) -> dict[str, str]:
        if not published.rows:
            return {}
        stem = f"{self.name}-published"
        return {f"{stem}.csv": published.csv(), f"{stem}.tex": published.latex()}


def _write(folder: Path, contents: Mapping[str, str]) -> tuple[Path, ...]:
    files = {folder / name: content for name, content in contents.items()}
    for path, content in files.items():
        write_text(path, content)
    return tuple(files)


def _title(protocol: Protocol) -> str:
    return f"# {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)})"


def _draw(rows: Sequence[Row], folder: Path) -> tuple[Path, ...]:
    # The legend then reads from top to bottom as the curves end.
    curves = [accuracy_curve(row) for row in rows]
    with figure_style():
        figure = curve_figure(curves, "Number of classes seen", "Accuracy (%)")
        return save_figure(figure, folder, "curve", curve_lines(curves))


def _markdown(
    row: Row, table: str, notes: Sequence[str], lacks: Sequence[Lack], published: PublishedTable
) -> str:
    parts = [
        _title(row.spec.protocol),
        "Accuracy in each session, its average, drop and retention, and the last session's "
        "accuracy on base and new classes; all in %.",
        table.rstrip(),
        escape_markdown(FORMULAS),
        "`curve.png` shows the accuracies against the number of classes seen; its bands are the "
        "same intervals.",
        "\n".join(f"- {escape_markdown(note)}" for note in notes),
    ]
    if lacks:
        lines = [f"- {escape_markdown(lack.what)}: `{lack.command}`" for lack in lacks]
        parts.append("\n".join(["Missing:", "", *lines]))
    if published.rows:
        parts += ["## Published", published.markdown()]
    return "\n\n".join(parts) + "\n"
