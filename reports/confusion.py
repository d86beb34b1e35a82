"""What is taken for what: base and new classes, sessions, single classes; forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.store.files import write_text

from ._confusion_figures import block_figure, block_lines, rate_figure, rate_lines
from ._confusion_text import Findings, csv_files, latex, markdown
from ._confusions import confused_pairs
from ._facts import note_lines
from ._figures import figure_style, save_figure
from ._missing import lacking_runs
from ._one_protocol import meant_rows
from ._rows import Row
from ._selected import files_folder

MOST_DRAWN = 6
"""Rows that a page's figures have room for."""


class Confusion(Report):
    """Errors between base and new classes, classes most confused, forgetting and plasticity."""

    name = "confusion"
    title = "Which classes are taken for which; forgetting and plasticity of each session"

    @dataclass(frozen=True)
    class Params:
        """`pairs`: most confused classes a row; `rows`: which, as main-table's labels are.

        Without `rows`, each method's rows with nothing set by hand and class means in Tukey space
        (all rows of a method that has none such); with `all` every row.
        """

        pairs: Annotated[int, Field(ge=1)] = 10
        rows: str = ""
        all: bool = False

    params: Params

    def build(self, given: ReportInput) -> ReportOutput:
        """Write confusion.md / .csv / .tex, further tables as CSV, and rates and blocks as figures.

        Raises:
            FscilError: nothing stored fits; the message gives a command that would make a run.
        """
        rows, left_out, problems = meant_rows(self.name, given, self.params.rows, self.params.all)
        pairs = {row.label: confused_pairs(row, self.params.pairs) for row in rows}
        lacks = lacking_runs(rows, given.selection, given.registry)
        notes = note_lines(rows, given.registry) + left_out + problems
        drawn = rows[:MOST_DRAWN]
        found = Findings(rows, pairs, len(drawn), lacks, notes)
        folder = files_folder(given, self.params)
        contents = {f"{self.name}.md": markdown(found), f"{self.name}.tex": latex(found)}
        contents |= {f"{stem}.csv": text for stem, text in csv_files(found).items()}
        files = tuple(folder / name for name in contents)
        for path, content in zip(files, contents.values(), strict=True):
            write_text(path, content)
        missing = tuple(dict.fromkeys(lack.command for lack in lacks))
        text = contents[f"{self.name}.md"]
        return ReportOutput(text, (*files, *_draw(drawn, folder)), missing, tuple(problems))


def _draw(rows: Sequence[Row], folder: Path) -> tuple[Path, ...]:
    rates, blocks = rate_lines(rows), block_lines(rows)
    with figure_style():
        return (
            *save_figure(rate_figure(rates), folder, "rates", rates),
            *save_figure(block_figure(rows), folder, "blocks", blocks),
        )
