"""Tables of intervals, as Markdown and as CSV (`_latex` writes the same as LaTeX)."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fscil_bench.metrics import Interval


@dataclass(frozen=True)
class Column:
    """A column of numbers: `key` names it in CSV, `heading` in print, under a `group` or none.

    `best` says which end is the good one, if one is.
    """

    key: str
    heading: str
    group: str = ""
    best: Literal["highest", "lowest", "none"] = "highest"


@dataclass(frozen=True)
class TableRow:
    """A row: its name, how many runs it averages, its intervals, and what CSV says beside them."""

    label: str
    count: int
    cells: Mapping[str, Interval]
    facts: Mapping[str, str | int | float] = field(default_factory=dict)

    def cell(self, column: Column) -> Interval:
        """Return the row's interval in a column, NaN where it has none."""
        return self.cells.get(column.key, Interval(math.nan, math.nan, 0))


def markdown_table(columns: Sequence[Column], rows: Sequence[TableRow]) -> str:
    """Return a pipe table, the best mean of each column in bold.

    A pipe table has one line of headings: those that several groups have name their group.
    """
    best = best_cells(columns, rows)
    count = Counter(column.heading for column in columns)
    headings = [
        f"{c.group}: {c.heading}" if count[c.heading] > 1 and c.group else c.heading
        for c in columns
    ]
    lines = [_pipes(["Method", "n", *map(escape_markdown, headings)])]
    lines.append(_pipes(["---", "---:", *("---:" for _ in columns)]))
    for index, row in enumerate(rows):
        cells = []
        for column in columns:
            text = cell_text(row.cell(column), " ± ")
            cells.append(f"**{text}**" if (index, column.key) in best else text)
        lines.append(_pipes([escape_markdown(row.label), str(row.count), *cells]))
    return "\n".join(lines) + "\n"


def csv_table(columns: Sequence[Column], rows: Sequence[TableRow]) -> str:
    """Return one line a row: its facts, then mean, half-width and n of each column, in full."""
    lines: list[dict[str, str | int | float]] = []
    for row in rows:
        line: dict[str, str | int | float] = {"label": row.label, "runs": row.count, **row.facts}
        for column in columns:
            cell = row.cell(column)
            line[f"{column.key}_mean"] = cell.mean
            line[f"{column.key}_half_width"] = cell.half_width
            line[f"{column.key}_n"] = cell.count
        lines.append(line)
    return csv_text(lines)


def csv_text(lines: Sequence[Mapping[str, str | int | float]]) -> str:
    """Return mappings with the same keys as CSV; numbers at full precision, NaN left empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({name: "" if _is_nan(value) else value for name, value in line.items()})
    return buffer.getvalue()


def best_cells(columns: Sequence[Column], rows: Sequence[TableRow]) -> set[tuple[int, str]]:
    """Return (row index, column key) of each column's best means.

    Means that print alike are equally good, and where all are alike none is the best.
    """
    best: set[tuple[int, str]] = set()
    for column in columns if len(rows) > 1 else ():
        if column.best == "none":
            continue
        sign = 1 if column.best == "highest" else -1
        means = {i: sign * round(row.cell(column).mean, 2) for i, row in enumerate(rows)}
        finite = [mean for mean in means.values() if not math.isnan(mean)]
        if len(set(finite)) > 1 or len(finite) == 1:
            best |= {(i, column.key) for i, mean in means.items() if mean == max(finite)}
    return best


def cell_text(cell: Interval, plus_minus: str) -> str:
    """Return a mean with its half-width if it has one, to two decimals."""
    if math.isnan(cell.mean):
        return "–"
    # The z keeps a rounded zero from being printed as -0.00.
    mean = f"{cell.mean:z.2f}"
    return mean if math.isnan(cell.half_width) else f"{mean}{plus_minus}{cell.half_width:z.2f}"


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, also in a table's cell."""
    text = re.sub(r"[\\|*`<]", r"\\\g<0>", " ".join(text.split()))
    text = text.replace("](", r"]\(")
    text = re.sub(r"&(?=#?\w+;)", r"\&", text)
    # An underscore inside a word is no emphasis, and names in terminals stay readable without \.
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _is_nan(value: str | int | float) -> bool:
    return isinstance(value, float) and math.isnan(value)
