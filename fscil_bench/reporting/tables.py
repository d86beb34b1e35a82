"""Tables as Markdown, LaTeX and CSV, and the text of their cells."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from fscil_bench.report import Column, Table
from fscil_bench.reporting.measures import MEASURES, PERCENT

ROW_COLUMNS = (
    Column("label", "Method", kind="text"),
    Column("runs", "n", kind="number", decimals=0),
)
"""What a table of rows begins with: their names, and how many runs each averages."""
NOTHING = "–"
"""Stands in a cell without a value."""
UNBOUNDED = (
    f"± {NOTHING}: too few runs, as the interval would leave the range that the figure can have."
)

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that act on a terminal, or turn the direction of a line."""
_EXECUTED = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of texts that spreadsheets take for formulas."""

_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\texttt{\char34}",
    "`": r"\textasciigrave{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": r"$-$",
    "–": "--",
    "…": r"\dots{}",
    "√": r"$\surd$",
    "‖": r"$\Vert$",
    "ß": r"\ss{}",
    "ø": r"\o{}",
    "æ": r"\ae{}",
    "ł": r"\l{}",
}
_ACCENTS = dict(zip("\u0300\u0301\u0302\u0303\u0308\u030a\u030c\u0327", "`'^~\"rvc", strict=True))
"""Combining marks and the letters of LaTeX's accent commands."""


def measure_columns(*keys: str) -> list[Column]:
    """Return the columns of measures (`MEASURES`): means with intervals, the best in bold."""
    found = [MEASURES[key] for key in keys]
    return [
        Column(
            m.key,
            m.heading,
            m.group,
            best=m.better,
            limits=m.limits,
            decimals=0 if m.unit == "bytes" else 2,
        )
        for m in found
    ]


def printed_columns(table: Table) -> Sequence[Column]:
    """Return a table's columns; where it names none, every column of its frame as it is."""
    if table.columns:
        return table.columns
    frame = flat(table.frame)
    numbers = set(frame.select_dtypes("number"))
    return [
        Column(str(name), str(name), kind="number" if name in numbers else "text") for name in frame
    ]


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose index, if it has a name, is a column."""
    return frame if frame.index.name is None else frame.reset_index()


def csv_text(frame: pd.DataFrame) -> str:
    """Return a frame as CSV: numbers at full precision, what is not there left empty.

    A ' stands before texts that a spreadsheet would execute.
    """
    columns = flat(frame).copy()
    for name in columns.select_dtypes(["object", "str"]):
        columns[name] = columns[name].map(_inert)
    text: str = columns.to_csv(index=False, lineterminator="\n")
    return text


def markdown_table(table: Table) -> str:
    """Return a pipe table, the best mean of each column in bold.

    A pipe table has one line of headings: those that several groups have name their group.
    """
    columns, lines = printed_columns(table), flat(table.frame).to_dict("records")
    count = Counter(column.heading for column in columns)
    headings = [
        f"{c.group}: {c.heading}" if count[c.heading] > 1 and c.group else c.heading
        for c in columns
    ]
    rules = ["---" if column.kind == "text" else "---:" for column in columns]
    rows = [_pipes(map(escape_markdown, headings)), _pipes(rules)]
    best = best_cells(columns, lines)
    for index, line in enumerate(lines):
        cells = []
        for column in columns:
            text = escape_markdown(cell_text(line, column))
            strong = column.bold or (index, column.key) in best
            cells.append(f"**{text}**" if strong and text else text)
        rows.append(_pipes(cells))
    return "\n".join(rows)


def latex_table(table: Table) -> str:
    r"""Return a booktabs tabular, and below it its formulas and notes.

    Plain ASCII that pdflatex sets with no package but booktabs. Where the frame has a column
    `citation`, its keys are cited behind the row's name. Notes are a paragraph of their own,
    so that a tabular that is shrunk leaves them legible.
    """
    columns = printed_columns(table)
    lines = [
        r"% Needs \usepackage{booktabs}. Wider than the page? Then, with graphicx, before it:",
        r"% \newcommand{\fscilfit}[1]{\resizebox{\linewidth}{!}{#1}}",
        r"\providecommand{\fscilfit}[1]{#1}",
        r"\fscilfit{%",
        rf"\begin{{tabular}}{{@{{}}{''.join(map(_alignment, columns))}@{{}}}}",
        r"\toprule",
        *_group_lines(columns),
        " & ".join(_heading(column) for column in columns) + r" \\",
        r"\midrule",
        *_row_lines(columns, flat(table.frame).to_dict("records")),
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    formulas = " ".join(map(latex_formula, table.formulas))
    notes = [*filter(None, [formulas]), *map(escape_latex, table_notes(table))]
    return "\n".join(lines) + "\n" + (r"\par\smallskip" + small_print(notes) if notes else "")


def small_print(lines: Iterable[str]) -> str:
    """Return lines of LaTeX as small paragraphs, which may go on over the end of a page."""
    body = " \\par\n".join(lines)
    return f"{{\\footnotesize\\raggedright\\noindent\n{body}\\par}}\n"


def table_notes(table: Table) -> list[str]:
    """Return a table's notes, and why it shows some intervals as a dash, if it does."""
    lines = flat(table.frame).to_dict("records")
    cells = (cell_text(line, column) for line in lines for column in printed_columns(table))
    return [*table.notes, *[UNBOUNDED] * any(cell.endswith(f"± {NOTHING}") for cell in cells)]


def best_cells(columns: Sequence[Column], lines: Sequence[dict[Any, Any]]) -> set[tuple[int, str]]:
    """Return (row index, column key) of each column's best values.

    Values that print alike are equally good, and where all are alike none is the best. Nor is a
    mean whose interval does not tell it from the next: a single run has none.
    """
    ranked = [column for column in columns if column.best != "none"]
    return {(i, column.key) for column in ranked for i in _leading(column, lines)}


def _leading(column: Column, lines: Sequence[dict[Any, Any]]) -> list[int]:
    """Return the lines whose value is the best, if it can be told from the next."""
    key = f"{column.key}_mean" if column.kind == "interval" else column.key
    values = {i: _number(line.get(key)) for i, line in enumerate(lines)}
    printed = {i: round(v, column.decimals) for i, v in values.items() if not math.isnan(v)}
    levels = sorted(set(printed.values()), reverse=column.best == "highest")
    if len(levels) < 2:
        return []
    first, second = ([i for i, v in printed.items() if v == level] for level in levels[:2])
    if column.kind == "interval":
        halves = [_number(line.get(f"{column.key}_half_width")) for line in lines]
        apart = (
            abs(values[i] - values[j]) > math.hypot(halves[i], halves[j])
            for i in first
            for j in second
        )
        return first if all(apart) else []
    return first


def cell_text(line: dict[Any, Any], column: Column) -> str:
    """Return what stands in a cell; of an interval the mean and, if it has one, its half-width."""
    if column.kind == "text":
        value = line.get(column.key)
        return NOTHING if value is None or value is pd.NA or value != value else str(value)
    if column.kind == "number":
        return _decimals(_number(line.get(column.key)), column.decimals)
    mean, half = (_number(line.get(f"{column.key}_{part}")) for part in ("mean", "half_width"))
    return mean_text(mean, half, column.limits, column.decimals)


def mean_text(
    mean: float, half: float, limits: tuple[float, float] = PERCENT, decimals: int = 2
) -> str:
    """Return a mean with its half-width, if it has one: a dash where that leaves the limits."""
    text = _decimals(mean, decimals)
    if math.isnan(mean) or math.isnan(half):
        return text
    low, high = limits
    bounded = low <= round(mean - half, 9) and round(mean + half, 9) <= high
    return f"{text} ± {_decimals(half if bounded else math.nan, decimals)}"


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, also in a table's cell."""
    text = re.sub(r"[\\|*`<]", r"\\\g<0>", _visible(text))
    text = text.replace("](", r"]\(")
    text = re.sub(r"&(?=#?\w+;)", r"\&", text)
    # An underscore inside a word is no emphasis, and names in terminals stay readable without \.
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def escape_latex(text: str) -> str:
    """Return text that LaTeX sets as it is; a letter it has no ASCII form for becomes U+XXXX."""
    # TeX would draw neighbouring hyphens together, as a dash.
    parts = re.split(r"(?<=-)(?=-)", _visible(text))
    return "{}".join("".join(map(_character, part)) for part in parts)


def latex_formula(latex: str) -> str:
    """Return a measure's formula with the letters outside its mathematics in ASCII."""
    return "".join(c if c.isascii() else _character(c) for c in latex)


def _visible(text: str) -> str:
    """Return text on one line, with control characters as U+XXXX."""
    return _CONTROLS.sub(lambda found: f"U+{ord(found[0]):04X}", " ".join(text.split()))


def _inert(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(_EXECUTED):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _number(value: Any) -> float:
    return math.nan if value is None or value is pd.NA or value == "" else float(value)


def _decimals(value: float, decimals: int) -> str:
    # The z keeps a rounded zero from being printed as -0.00.
    return NOTHING if math.isnan(value) else f"{value:z.{decimals}f}"


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _alignment(column: Column) -> str:
    if column.width:
        return rf"p{{{column.width:g}\linewidth}}"
    return "l" if column.kind == "text" else "r"


def _heading(column: Column) -> str:
    return "$n$" if column.heading == "n" else escape_latex(column.heading)


def _group_lines(columns: Sequence[Column]) -> list[str]:
    """Return the line of headings that span several columns, and the rules under these."""
    cells: list[str] = []
    rules: list[str] = []
    last = 0
    for heading, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        first, last = last + 1, last + width
        if heading:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(heading)}}}")
            rules.append(rf"\cmidrule(lr){{{first}-{last}}}")
        else:
            cells += [""] * width
    return [" & ".join(cells).strip() + r" \\", " ".join(rules)] if rules else []


def _row_lines(columns: Sequence[Column], lines: Sequence[dict[Any, Any]]) -> list[str]:
    best = best_cells(columns, lines)
    rows = []
    for index, line in enumerate(lines):
        cells = []
        for column in columns:
            text = _latex_cell(cell_text(line, column), column)
            if column.key == "label" and line.get("citation"):
                text += rf"~\cite{{{line['citation']}}}"
            strong = column.bold or (index, column.key) in best
            # \textbf takes no paragraphs, which texts with a width are.
            heavy = rf"{{\bfseries {text}}}" if column.width else rf"\textbf{{{text}}}"
            cells.append(heavy if strong else text)
        # At the start of a line, [ and * would be taken for arguments of the \\ before it.
        guard = "{}" * cells[0].startswith(("[", "*"))
        rows.append(guard + " & ".join(cells) + r" \\")
    return rows


def _latex_cell(text: str, column: Column) -> str:
    if column.width:
        # In braces \raggedright leaves the \\ that ends the row alone, which else takes array.
        return rf"{{\raggedright {escape_latex(text)}\par}}"
    if column.kind == "text":
        return escape_latex(text)
    return text.replace("-", "$-$").replace(NOTHING, "--").replace(" ± ", r"\,$\pm$\,")


def _character(character: str) -> str:
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return f"U+{ord(character):04X}"
