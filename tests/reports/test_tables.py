from __future__ import annotations

import csv
import io
import math

import pytest

from fscil_bench.metrics import Interval
from fscil_bench.reports._tables import (
    Column,
    TableRow,
    best_cells,
    cell_text,
    csv_table,
    escape_markdown,
    markdown_table,
)

COLUMNS = [Column("last", "Last"), Column("drop", "PD", best="lowest")]
ROWS = [
    TableRow("ncm", 1, {"last": Interval(60.126, math.nan, 1), "drop": Interval(9.0, math.nan, 1)}),
    TableRow(
        "a|b",
        3,
        {"last": Interval(1 / 3, 2 / 3, 3), "drop": Interval(8.0, 0.0, 3)},
        {"method": "a|b"},
    ),
]


def test_markdown_table() -> None:
    assert markdown_table(COLUMNS, ROWS) == (
        "| Method | n | Last | PD |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| ncm | 1 | **60.13** | 9.00 |\n"
        "| a\\|b | 3 | 0.33 ± 0.67 | **8.00 ± 0.00** |\n"
    )


def test_headings_that_several_groups_have_name_theirs() -> None:
    columns = [
        Column("a", "All", "Plain"),
        Column("b", "All", "Outliers"),
        Column("c", "PD", "Plain"),
        Column("d", "n"),
    ]
    assert markdown_table(columns, []).startswith("| Method | n | Plain: All | Outliers: All | PD ")


def test_a_single_row_is_not_the_best_of_anything() -> None:
    assert best_cells(COLUMNS, ROWS[:1]) == set()


def test_means_that_print_alike_are_equally_good() -> None:
    rows = [TableRow("x", 1, {"last": Interval(mean, 0.1, 2)}) for mean in (50.001, 50.004, 49.9)]

    assert best_cells(COLUMNS[:1], rows) == {(0, "last"), (1, "last")}


def test_where_all_are_alike_none_is_the_best() -> None:
    rows = [TableRow("x", 1, {"last": Interval(50.0, 0.1, 2)})] * 2

    assert best_cells(COLUMNS, rows) == set()


def test_a_column_without_a_good_end_has_no_best() -> None:
    assert best_cells([Column("last", "Last", best="none"), COLUMNS[1]], ROWS) == {(1, "drop")}


def test_a_row_without_a_value_is_never_the_best() -> None:
    rows = [TableRow("x", 1, {}), TableRow("y", 1, {"last": Interval(-1.0, math.nan, 1)})]

    assert best_cells(COLUMNS, rows) == {(1, "last")}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Interval(math.nan, math.nan, 0), "–"),
        (Interval(12.345678, math.nan, 1), "12.35"),
        (Interval(12.345678, 0.5, 2), "12.35 ± 0.50"),
        (Interval(-0.001, 1e-17, 2), "0.00 ± 0.00"),
        (Interval(-1.5, math.nan, 1), "-1.50"),
    ],
)
def test_cell_text(cell: Interval, expected: str) -> None:
    assert cell_text(cell, " ± ") == expected


def test_csv_keeps_full_precision_and_leaves_nan_empty() -> None:
    rows = [TableRow(row.label, row.count, row.cells, {"method": row.label}) for row in ROWS]

    lines = list(csv.DictReader(io.StringIO(csv_table(COLUMNS, rows))))

    assert [line["label"] for line in lines] == ["ncm", "a|b"]
    assert lines[0]["last_half_width"] == ""
    assert lines[0]["runs"] == "1"
    assert float(lines[1]["last_mean"]) == 1 / 3
    assert float(lines[1]["last_half_width"]) == 2 / 3
    assert lines[1]["last_n"] == "3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ldc (recurrent_steps=3)", "ldc (recurrent_steps=3)"),
        ("ncm [tukey]", "ncm [tukey]"),
        ("a|b", r"a\|b"),
        ("*a* _b_ `c` <d>", r"\*a\* \_b\_ \`c\` \<d>"),
        ("a\\|b", r"a\\\|b"),
        ("[a](b)", r"[a]\(b)"),
        ("A & B &copy; &#169;", r"A & B \&copy; \&#169;"),
        ("two\nlines", "two lines"),
    ],
)
def test_escape_markdown(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected
