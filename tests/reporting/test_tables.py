from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from fscil_bench.report import Column, Table
from fscil_bench.reporting.tables import (
    ROW_COLUMNS,
    csv_text,
    escape_latex,
    escape_markdown,
    latex_table,
    markdown_table,
    measure_columns,
    table_notes,
)

LAST, DROP = Column("last", "Last", best="highest"), Column("drop", "PD", best="lowest")
FRAME = pd.DataFrame(
    {
        "label": ["ncm", "a|b"],
        "runs": [1, 3],
        "last_mean": [60.126, 1 / 3],
        "last_half_width": [math.nan, 2 / 3],
        "last_n": [1, 3],
        "drop_mean": [9.0, 8.0],
        "drop_half_width": [math.nan, 0.0],
        "drop_n": [1, 3],
    }
)


def cells(values: list[Any], column: Column, halves: Sequence[float] = ()) -> list[str]:
    """Return what is printed in a column with these values or means, and their half-widths."""
    key = f"{column.key}_mean" if column.kind == "interval" else column.key
    frame = pd.DataFrame({key: values} | ({f"{column.key}_half_width": halves} if halves else {}))
    text = markdown_table(Table("t", frame, [column]))
    return [line.strip("| ") for line in text.splitlines()[2:]]


def test_markdown_table() -> None:
    assert markdown_table(Table("t", FRAME, [*ROW_COLUMNS, LAST, DROP])) == (
        "| Method | n | Last | PD |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| ncm | 1 | 60.13 | 9.00 |\n"
        "| a\\|b | 3 | 0.33 ± 0.67 | 8.00 ± 0.00 |"
    )


def test_without_columns_every_one_is_printed_as_it_is() -> None:
    frame = pd.DataFrame({"x": [1.5, 2.0]}, index=pd.Index(["a", "b"], name="name"))

    assert markdown_table(Table("t", frame)).splitlines() == [
        "| name | x |",
        "| --- | ---: |",
        "| a | 1.50 |",
        "| b | 2.00 |",
    ]


def test_headings_that_several_groups_have_name_theirs() -> None:
    columns = [
        Column("a", "All", "Plain"),
        Column("b", "All", "Outliers"),
        Column("c", "PD", "Plain"),
        Column("d", "n"),
    ]

    text = markdown_table(Table("t", pd.DataFrame(), columns))

    assert text.startswith("| Plain: All | Outliers: All | PD | n |")


NUMBER = Column("x", "x", kind="number", best="highest")


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        ([50.0], ["50.00"]),
        ([50.001, 50.004, 49.9], ["**50.00**", "**50.00**", "49.90"]),
        ([50.0, 50.0], ["50.00", "50.00"]),
        ([math.nan, -1.0], ["–", "-1.00"]),
        ([-0.001, -2.0], ["**0.00**", "-2.00"]),
    ],
)
def test_the_best_is_bold_unless_all_are_alike(values: list[float], printed: list[str]) -> None:
    assert cells(values, NUMBER) == printed
    assert "**" not in "".join(cells(values, Column("x", "x", kind="number")))
    lowest = Column("x", "x", kind="number", best="lowest")
    assert cells([-v for v in values], lowest)[0].startswith("**") == printed[0].startswith("**")


@pytest.mark.parametrize(
    ("halves", "bold"),
    [
        # 0.3 and 0.4 together are 0.5, by which the first two differ.
        ([0.3, 0.39, 9.0], True),
        ([0.3, 0.41, 9.0], False),
        ([0.0, 0.0, math.nan], True),
        ([math.nan, 0.0, 0.0], False),
        ([0.0, math.nan, 0.0], False),
    ],
)
def test_a_mean_is_bold_where_its_interval_tells_it_from_the_next(
    halves: list[float], bold: bool
) -> None:
    first, *others = cells([60.0, 59.5, 40.0], LAST, halves)
    assert first.startswith("**") == bold
    assert "**" not in "".join(others)
    assert cells([8.0, 9.0], measure_columns("performance_drop")[0], [0.1, 0.1]) == [
        *("**8.00 ± 0.10**", "9.00 ± 0.10")
    ]


def test_numbers_and_texts() -> None:
    assert cells([3, None], Column("n", "n", kind="number", decimals=0)) == ["3", "–"]
    assert cells(["a*b", None], Column("x", "x", kind="text")) == [r"a\*b", "–"]
    assert cells(["holds"], Column("x", "x", kind="text", bold=True)) == ["**holds**"]


def test_csv_keeps_full_precision_and_leaves_nan_empty() -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(FRAME.set_index("label")))))

    assert [line["label"] for line in lines] == ["ncm", "a|b"]
    assert (lines[0]["last_half_width"], lines[0]["runs"]) == ("", "1")
    assert float(lines[1]["last_mean"]) == 1 / 3
    assert float(lines[1]["last_half_width"]) == 2 / 3
    assert lines[1]["last_n"] == "3"


def test_csv_executes_nothing() -> None:
    texts = ["=1+1", "+a", "-a", "@a", "-1.5", "a=1"]
    frame = pd.DataFrame({"label": texts, "value": [-1.0] * 6})

    lines = list(csv.DictReader(io.StringIO(csv_text(frame))))

    written = ["'=1+1", "'+a", "'-a", "'@a", "-1.5", "a=1"]
    assert [line["label"] for line in lines] == written
    assert {line["value"] for line in lines} == {"-1.0"}
    assert frame["label"].tolist() == texts


@pytest.mark.parametrize(
    ("mean", "half", "printed"),
    [
        (42.0, 152.47, "42.00 ± –"),
        (99.5, 0.75, "99.50 ± –"),
        (0.25, 0.25, "0.25 ± 0.25"),
        (99.5, 0.5, "99.50 ± 0.50"),
        (42.0, math.nan, "42.00"),
        (math.nan, math.nan, "–"),
    ],
)
def test_an_interval_that_leaves_its_figure_s_range_is_a_dash(
    mean: float, half: float, printed: str
) -> None:
    frame = pd.DataFrame({"last_mean": [mean], "last_half_width": [half]})
    table = Table("t", frame, measure_columns("last"), notes=["Note."])

    assert markdown_table(table).splitlines()[-1] == f"| {printed} |"
    reason = "± –: too few runs, as the interval would leave the range that the figure can have."
    assert table_notes(table) == ["Note.", *[reason] * ("± –" in printed)]
    assert table.frame["last_half_width"].tolist() == pytest.approx([half], nan_ok=True)


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
        ("\x1b[2J\u202ecat", "U+001B[2JU+202Ecat"),
    ],
)
def test_escape_markdown(text: str, expected: str) -> None:
    assert escape_markdown(text) == expected


COLUMNS = [
    *ROW_COLUMNS,
    Column("session_0", "0", "Accuracy (%)", best="highest"),
    Column("session_1", "1", "Accuracy (%)", best="highest"),
    DROP,
]
ROWS = pd.DataFrame(
    {
        "label": ["ncm_1", "[x] & y"],
        "runs": [2, 3],
        "session_0_mean": [70.0, 72.0],
        "session_0_half_width": [0.5, 0.25],
        "session_1_mean": [71.5, 60.0],
        "session_1_half_width": [math.nan, 1.0],
        "drop_mean": [math.nan, -1.5],
        "drop_half_width": [math.nan, 0.0],
    }
)
EXPECTED = r"""% Needs \usepackage{booktabs}. Wider than the page? Then, with graphicx, before it:
% \newcommand{\fscilfit}[1]{\resizebox{\linewidth}{!}{#1}}
\providecommand{\fscilfit}[1]{#1}
\fscilfit{%
\begin{tabular}{@{}lrrrr@{}}
\toprule
&  & \multicolumn{2}{c}{Accuracy (\%)} & \\
\cmidrule(lr){3-4}
Method & $n$ & 0 & 1 & PD \\
\midrule
ncm\_1 & 2 & 70.00\,$\pm$\,0.50 & 71.50 & -- \\
{}[x] \& y & 3 & \textbf{72.00\,$\pm$\,0.25} & 60.00\,$\pm$\,1.00 & $-$1.50\,$\pm$\,0.00 \\
\bottomrule
\end{tabular}}
\par\smallskip{\footnotesize\raggedright\noindent
First $A_0$. Each is $\pm$ \"{u}. \par
Second \%.\par}
"""


def test_latex_table() -> None:
    formulas = ["First $A_0$.", r"Each is $\pm$ ü."]
    table = Table("t", ROWS, COLUMNS, formulas=formulas, notes=["Second %."])

    assert latex_table(table) == EXPECTED


def test_without_notes_or_groups_only_the_table_is_left() -> None:
    text = latex_table(Table("t", FRAME.iloc[:1], [*ROW_COLUMNS, LAST]))

    assert "cmidrule" not in text
    assert text.endswith("ncm & 1 & 60.13 \\\\\n\\bottomrule\n\\end{tabular}}\n")


def test_long_texts_have_a_width_in_latex() -> None:
    frame = pd.DataFrame({"claim": ["50 % more"], "verdict": ["holds"]})
    columns = [
        Column("claim", "Claim", kind="text", width=0.3, bold=True),
        Column("verdict", "Verdict", kind="text", bold=True),
    ]

    text = latex_table(Table("t", frame, columns))

    assert r"{@{}p{0.3\linewidth}l@{}}" in text
    # A paragraph is none of \textbf's arguments.
    assert r"{\bfseries {\raggedright 50 \% more\par}} & \textbf{holds} \\" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & c%", r"a\_b \& c\%"),
        ("$x^2$ #1 {y} ~", r"\$x\textasciicircum{}2\$ \#1 \{y\} \textasciitilde{}"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("a<b>c|d", r"a\textless{}b\textgreater{}c\textbar{}d"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("1 ± 2 × 3 – 4", r"1 $\pm$ 2 $\times$ 3 -- 4"),
        ("é ü ß ø", r"\'{e} \"{u} \ss{} \o{}"),
        ("αβ 中", "U+03B1U+03B2 U+4E2D"),
        ('?` "q"', r"?\textasciigrave{} \texttt{\char34}q\texttt{\char34}"),
        ("two\nlines", "two lines"),
        ("\x1b[2J\u202ecat", "U+001B[2JU+202Ecat"),
    ],
)
def test_escape_latex(text: str, expected: str) -> None:
    assert escape_latex(text) == expected


def test_the_table_is_plain_ascii_with_balanced_braces() -> None:
    frame = ROWS.assign(label=["ç {a} 中 \\", "x"])

    text = latex_table(Table("t", frame, COLUMNS, notes=["√ {"]))

    assert text.isascii()
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
