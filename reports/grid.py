"""Representations × methods: what each pair reaches, and what each of the two gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from fscil_bench.errors import FscilError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.request import Selection, Wanted
from fscil_bench.store.files import write_text

from ._figures import figure_style, save_figure
from ._grid import Grid, grid_of
from ._grid_notes import grid_notes
from ._grid_runs import grid_runs, missing_commands
from ._grid_tables import (
    best_first,
    figure_columns,
    figure_row,
    gain_columns,
    heat_lines,
    method_gains,
    representation_gains,
)
from ._heat_map import heat_map
from ._latex import escape_latex, latex_table
from ._one_protocol import rows_of_protocol
from ._selected import files_folder
from ._tables import Column, TableRow, csv_table, escape_markdown, markdown_table
from ._usual import registered_protocol

MEANING = (
    "Avg is the mean accuracy over all sessions; Last, Base, New and HM are the last session's "
    "accuracy over all test images, over those of base and of all later classes alone, and the "
    "harmonic mean of the two; all top-1 over the joint label space, in %. ± is the half-width of "
    "the 95 % Student-t interval of the mean over a row's n runs."
)
GAINS = (
    "In percentage points, with the 95 % Student-t interval of the paired differences; n counts "
    "the pairs. An interval that holds 0 shows no difference."
)
OVER_BASELINE = (
    "What each representation gains over cosine with the same views, and averaged views over "
    "plain ones, under class means in two variants; paired by seed. "
)
OVER_RULER = (
    "What each method gains over class means in two variants on the same trained network; paired "
    "by network and seed. "
)


def _words(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        stem: names its files.
        first: heads the first column.
        heading: stands above it.
        note: says what its numbers are.
    """

    stem: str
    first: str
    heading: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]


class GridReport(Report):
    """One row a representation and method, with what each gains over the baseline's."""

    name = "grid"
    title = "Representations × methods, with what each gains, paired by seed"

    @dataclass(frozen=True)
    class Params:
        """`all` shows rows with parameters set by hand too; `views` are those that are needed."""

        all: bool = False
        views: Annotated[tuple[Literal["plain", "flip"], ...], BeforeValidator(_words)] = ("plain",)

    params: Params

    def requests(self, selection: Selection, registry: Registry) -> Sequence[Wanted]:
        """Return the runs of all methods that need no images on all representations."""
        return grid_runs(selection, self.params.views, registry)

    def build(self, given: ReportInput) -> ReportOutput:
        """Write grid.md / .csv / .tex, the gains as .csv / .tex, and heat-map.png / .pdf / .csv.

        Raises:
            UsageError: no protocol was named, or something that is not there.
            FscilError: nothing stored fits.
        """
        found, damaged = rows_of_protocol(self.name, given, "")
        registry, selection = given.registry, given.selection
        protocol = registered_protocol(found[0].spec, registry)
        split = selection.split or protocol.split
        grid = grid_of(found, protocol, split, self.params.all, registry)
        if not grid.places:
            reasons = "; ".join(f"{n} {reason}" for reason, n in grid.left_out.items())
            raise FscilError(
                f"no stored row of {protocol.name!r} belongs into the grid; left out: {reasons}"
            )
        rows = [replace(place.row, label=place.label) for place in grid.places]
        notes = [*grid_notes(grid, rows, registry), *damaged]
        missing = missing_commands(grid, selection, self.params.views, registry)
        tables = _tables(grid, protocol)
        text = _markdown(protocol, tables, notes, missing)
        contents = {f"{self.name}.md": text, **_files(tables, notes)}
        folder = files_folder(given, self.params)
        files = {folder / name: content for name, content in contents.items()}
        for path, content in files.items():
            write_text(path, content)
        return ReportOutput(text, (*files, *_draw(grid, folder)), missing, tuple(damaged))


def _tables(grid: Grid, protocol: Protocol) -> list[Table]:
    """Return the tables that have rows: the grid first."""
    gains = gain_columns(grid)
    over_baseline = representation_gains(grid, protocol.recipe)
    tables = [
        Table(
            "grid", "Method", "", MEANING, figure_columns(), [figure_row(p) for p in grid.places]
        ),
        Table(
            "representation-gains",
            "Compared",
            "What representations gain",
            OVER_BASELINE + GAINS,
            gains,
            over_baseline,
        ),
        Table(
            "method-gains",
            "Method",
            "What methods gain",
            OVER_RULER + GAINS,
            gains,
            method_gains(grid),
        ),
    ]
    return [table for table in tables if table.rows]


def _files(tables: Sequence[Table], notes: Sequence[str]) -> dict[str, str]:
    """Return the CSV and LaTeX of each table by name; the first has all notes below it."""
    contents = {}
    for table in tables:
        below = [table.note, *(notes if table is tables[0] else ())]
        latex = latex_table(table.columns, table.rows, list(map(escape_latex, below)))
        latex = latex.replace("\nMethod &", f"\n{table.first} &", 1)
        contents[f"{table.stem}.csv"] = csv_table(table.columns, table.rows)
        contents[f"{table.stem}.tex"] = latex
    return contents


def _draw(grid: Grid, folder: Path) -> tuple[Path, ...]:
    lines = heat_lines(grid)
    cells = {}
    for line in lines:
        mean, high = float(line["mean"]), float(line["high"])
        text = f"{mean:.2f}" if high != high else f"{mean:.2f}\n±{high - mean:.2f}"
        cells[str(line["method"]), str(line["representation"])] = mean, text
    with figure_style():
        figure = heat_map(
            best_first(lines, "method"),
            list(grid.columns.values()),
            cells,
            "Accuracy, last session (%)",
        )
        return save_figure(figure, folder, "heat-map", lines)


def _markdown(
    protocol: Protocol, tables: Sequence[Table], notes: Sequence[str], missing: Sequence[str]
) -> str:
    parts = [
        f"# {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)}): "
        "representations × methods"
    ]
    for table in tables:
        parts += [f"## {table.heading}"] if table.heading else []
        parts += [_table_markdown(table), escape_markdown(table.note)]
    parts += [
        "`heat-map.png` shows the last session's accuracy.",
        "\n".join(f"- {escape_markdown(note)}" for note in notes),
    ]
    if missing:
        parts.append("\n".join(["Missing:", "", *(f"- `{command}`" for command in missing)]))
    return "\n\n".join(parts) + "\n"


def _table_markdown(table: Table) -> str:
    text = markdown_table(table.columns, table.rows).rstrip()
    return text.replace("| Method |", f"| {table.first} |", 1)
