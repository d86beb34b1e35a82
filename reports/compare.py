"""Methods compared pair by pair: paired differences, tests, and a plain sentence each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fscil_bench.errors import FscilError
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.store.files import write_text

from ._comparison import Pair, compared_pairs, on_equal_terms
from ._comparison_text import Comparison, latex, markdown, pairs_csv
from ._difference_figure import difference_figure, difference_lines
from ._facts import note_lines
from ._figures import figure_style, save_figure
from ._missing import lacking_runs
from ._one_protocol import meant_rows
from ._orders import order_commands, rankings
from ._rows import Row
from ._selected import files_folder
from ._usual import usual_rows_of_all_orders

LONG = 52
"""Characters from which on a row's label is too long to stand in sentences."""


class Compare(Report):
    """Every two rows of the chosen methods, paired by seed, tested and corrected.

    `fscil-bench report compare --protocol P --method A,B`; rows are told apart as in main-table,
    and `--set "rows=A (x=1); B"` chooses among them.
    """

    name = "compare"
    title = "Paired differences between methods, with tests; their order across class orders"

    @dataclass(frozen=True)
    class Params:
        """`rows`: which rows to compare, as their labels in main-table are written.

        Without them, each method's rows with nothing set by hand and class means in Tukey space
        (all rows of a method that has none such); with `all` every row. More pairs ask for larger
        differences, as tests are corrected over all of them.
        """

        rows: str = ""
        all: bool = False

    params: Params

    def build(self, given: ReportInput) -> ReportOutput:
        """Write compare.md / .csv / .tex and differences.png / .pdf / .csv.

        Raises:
            FscilError: nothing stored fits, or there are not two rows to compare.
        """
        full, left_out, problems = meant_rows(
            self.name, given, self.params.rows, self.params.all, usual_rows_of_all_orders
        )
        rows, names = _short(full)
        pairs = compared_pairs(on_equal_terms(rows))
        orders = rankings(rows, given.registry)
        if not pairs:
            raise FscilError(_nothing_to_compare(full))
        lacks = lacking_runs(full, given.selection, given.registry)
        commands = [] if orders else order_commands(full, given.registry)
        notes = note_lines(full, given.registry) + left_out + problems
        found = Comparison(rows, names, pairs, orders, commands, lacks, notes)
        folder = files_folder(given, self.params)
        contents = {"md": markdown(found), "csv": pairs_csv(pairs, names), "tex": latex(found)}
        files = {folder / f"{self.name}.{kind}": value for kind, value in contents.items()}
        for path, content in files.items():
            write_text(path, content)
        missing = tuple(dict.fromkeys([*(lack.command for lack in lacks), *commands]))
        drawn = (*files, *_draw(found.drawn, folder))
        return ReportOutput(contents["md"], drawn, missing, tuple(problems))


def _short(rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """Return the rows under names that a sentence can carry, and what these stand for."""
    if all(len(row.label) <= LONG for row in rows):
        return list(rows), {row.label: row.label for row in rows}
    renamed, names = [], {}
    counts: dict[str, int] = {}
    for row in rows:
        method = row.spec.method
        counts[method] = counts.get(method, 0) + 1
        name = f"{method} #{counts[method]}"
        renamed.append(replace(row, label=name))
        names[name] = row.label
    return renamed, names


def _nothing_to_compare(rows: Sequence[Row]) -> str:
    listed = "\n  ".join(row.label for row in rows)
    return (
        "no two of the chosen rows share a seed on equal terms (classes, shots, test images, "
        f"engine), so that nothing can be paired; the rows are\n  {listed}"
    )


def _draw(pairs: Sequence[Pair], folder: Path) -> tuple[Path, ...]:
    with figure_style():
        return save_figure(difference_figure(pairs), folder, "differences", difference_lines(pairs))
