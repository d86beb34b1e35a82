"""The field's main table: accuracy in every session, what is kept of it, and the curve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fscil_bench.errors import FscilError, StoreError, UsageError, nearest
from fscil_bench.registry import Registry
from fscil_bench.report import Report, ReportInput, ReportOutput, Selection
from fscil_bench.store import StoredRun, write_text

from ._accuracy import (
    accuracy_cells,
    accuracy_columns,
    accuracy_curve,
    curve_lines,
    session_accuracies,
)
from ._facts import note_lines
from ._figures import curve_figure, figure_style, save_figure
from ._latex import escape_latex, latex_table
from ._missing import Lack, lacking_runs, plain_command
from ._readable import readable
from ._rows import Row, chosen_runs, group_rows
from ._tables import csv_table, escape_markdown, markdown_table

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
    """One row a method: accuracy in each session, Avg, PD, PR, base, new and harmonic mean."""

    name = "main-table"
    title = "Accuracy in each session, drop and retention, base and new classes"

    def build(self, given: ReportInput) -> ReportOutput:
        """Write main-table.md / .csv / .tex and curve.png / .pdf / .csv."""
        runs, damaged = _readable(_runs_of_one_protocol(given))
        # As the field prints them: baselines first, the best at the end of the table.
        rows = sorted(
            group_rows(runs, given.registry), key=lambda row: session_accuracies(row)[-1].mean
        )
        lacks = lacking_runs(rows, given.selection, given.registry)
        columns, cells = accuracy_columns(rows), [accuracy_cells(row) for row in rows]
        notes = note_lines(rows, given.registry)
        text = _markdown(rows[0], markdown_table(columns, cells), notes + damaged, lacks)
        latex = latex_table(columns, cells, [FORMULAS_LATEX, *map(escape_latex, notes)])
        contents = {"md": text, "csv": csv_table(columns, cells), "tex": latex}
        files = {given.folder / f"{self.name}.{kind}": value for kind, value in contents.items()}
        for path, content in files.items():
            write_text(path, content)
        missing = tuple(dict.fromkeys(lack.command for lack in lacks))
        return ReportOutput(text, (*files, *_draw(rows, given.folder)), missing, tuple(damaged))


def _draw(rows: Sequence[Row], folder: Path) -> tuple[Path, ...]:
    # The legend then reads from top to bottom as the curves end.
    curves = [accuracy_curve(row) for row in reversed(rows)]
    with figure_style():
        figure = curve_figure(curves, "Number of classes seen", "Accuracy (%)")
        return save_figure(figure, folder, "curve", curve_lines(curves))


def _markdown(row: Row, table: str, notes: Sequence[str], lacks: Sequence[Lack]) -> str:
    protocol = row.spec.protocol
    parts = [
        f"# {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)})",
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
    return "\n\n".join(parts) + "\n"


def _runs_of_one_protocol(given: ReportInput) -> list[StoredRun]:
    """Return the runs to show.

    Raises:
        UsageError: no protocol was named.
        FscilError: nothing stored fits.
    """
    stored = ", ".join(sorted({run.spec.protocol.name for run in given.runs})) or "none"
    if given.selection.protocol is None:
        raise UsageError(
            f"{MainTable.name} shows one protocol: name it with --protocol; stored: {stored}"
        )
    runs = chosen_runs(given.runs, given.selection)
    if not runs:
        _check_names(given)
        command = _first_command(given.selection, given.registry)
        raise FscilError(
            f"no stored run fits protocol {given.selection.protocol!r} and what else was asked "
            f"for (protocols with runs: {stored}); make one: {command}"
        )
    return runs


def _check_names(given: ReportInput) -> None:
    """Refuse names that are neither stored nor registered: no command could make their runs.

    Raises:
        UsageError: there is one; the nearest known are named.
    """
    stored = {"protocol": {run.spec.protocol.name for run in given.runs}}
    stored["method"] = {run.spec.method for run in given.runs}
    asked = {"protocol": (given.selection.protocol or "",), "method": given.selection.methods}
    for kind, names in asked.items():
        known = stored[kind] | set(given.registry.names(kind))
        for name in names:
            if name not in known:
                raise UsageError(f"unknown {kind} {name!r}; {nearest(name, known)}")


def _first_command(selection: Selection, registry: Registry) -> str:
    methods = selection.methods or tuple(registry.names("method")) or ("METHOD",)
    representation = next(iter(selection.representations), None)
    seed = next(iter(selection.seeds), 0)
    return plain_command(methods[0], selection, representation, seed)


def _readable(runs: Sequence[StoredRun]) -> tuple[list[StoredRun], list[str]]:
    """Return the runs whose predictions can be read, and what is wrong with the others.

    Raises:
        StoreError: none can be read.
    """
    good, problems = readable(runs, lambda run: run.metrics)
    if not good:
        raise StoreError("no run can be read; " + "; ".join(problems))
    return good, problems
