"""The card: one method on one protocol on one page, with all that a reviewer asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.store.files import write_text

from ._accuracy import curve_lines
from ._card import card_content, card_curves
from ._card_text import card_csv, card_latex, card_markdown
from ._figures import curve_figure, figure_style, save_figure
from ._missing import lacking_runs
from ._one_protocol import meant_rows
from ._rows import Row
from ._selectors import HOW

MOST = 12
"""Cards that are made at once; a method may have hundreds of rows."""


class Card(Report):
    """One page for each table row: what it is, its accuracy, its terms, its cost, its identity.

    A method has a row for each set of parameters and settings that it was run with; `rows` chooses
    among them. Runs that differ in their seeds alone are one row, and one card.
    """

    name = "card"
    title = "A method on one page: accuracy, terms, cost, environment, digests, command"

    @dataclass(frozen=True)
    class Params:
        """`rows`: table rows as labels name them, with `;` between.

        Without them, each method's rows with nothing set by hand and class means in Tukey space
        (all rows of a method that has none such); with `all` every row.
        """

        rows: str = ""
        all: bool = False

    params: Params

    def build(self, given: ReportInput) -> ReportOutput:
        """Write METHOD-ROW.md / .tex / .csv and METHOD-ROW-curve.png / .pdf / .csv of each row."""
        rows, left_out, damaged = meant_rows(self.name, given, self.params.rows, self.params.all)
        _check_count(rows)
        texts: list[str] = []
        files: list[Path] = []
        for row in rows:
            text, own = _write(row, given.folder, given.registry)
            texts.append(text)
            files += own
        # Cards stand alone: only what was asked for by its seed can be missing.
        lacks = lacking_runs(rows, given.selection, given.registry) if given.selection.seeds else []
        missing = tuple(dict.fromkeys(lack.command for lack in lacks))
        text = "\n".join([*texts, *left_out])
        return ReportOutput(text, tuple(files), missing, tuple(damaged))


def card_stem(row: Row) -> str:
    """Return how the files of a row's card are called; the same whatever else is stored."""
    return f"{row.spec.method}-{row.spec.row[:8]}"


def _check_count(rows: list[Row]) -> None:
    if len(rows) > MOST:
        labels = "\n  ".join(row.label for row in rows)
        raise UsageError(
            f"{len(rows)} rows fit, and a card shows one; name those wanted (at most {MOST}) with "
            f"--method, --split or --set rows=...: {HOW}; the rows are\n  {labels}"
        )


def _write(row: Row, folder: Path, registry: Registry) -> tuple[str, tuple[Path, ...]]:
    """Write the files of a row's card; return its Markdown and the files."""
    content, stem = card_content(row, registry), card_stem(row)
    curve = f"{stem}-curve"
    text = card_markdown(content, f"{curve}.png")
    contents = {"md": text, "tex": card_latex(content, curve), "csv": card_csv(content)}
    files = {folder / f"{stem}.{kind}": value for kind, value in contents.items()}
    for path, value in files.items():
        write_text(path, value)
    curves = card_curves(content)
    with figure_style():
        figure = curve_figure(curves, "Number of classes seen", "Accuracy (%)")
        drawn = save_figure(figure, folder, curve, curve_lines(curves))
    return text, (*files, *drawn)
