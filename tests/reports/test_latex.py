from __future__ import annotations

import math

import pytest

from fscil_bench.metrics import Interval
from fscil_bench.reports._latex import escape_latex, latex_table
from fscil_bench.reports._tables import Column, TableRow

COLUMNS = [
    Column("session_0", "0", "Accuracy (%)"),
    Column("session_1", "1", "Accuracy (%)"),
    Column("drop", "PD", best="lowest"),
]
ROWS = [
    TableRow(
        "ncm_1",
        1,
        {"session_0": Interval(70.0, math.nan, 1), "session_1": Interval(71.5, math.nan, 1)},
    ),
    TableRow(
        "[x] & y",
        3,
        {
            "session_0": Interval(72.0, 0.25, 3),
            "session_1": Interval(60.0, 1.0, 3),
            "drop": Interval(-1.5, 0.0, 3),
        },
    ),
]
EXPECTED = r"""% Needs \usepackage{booktabs}.
% Wider than the page? \resizebox{\linewidth}{!}{\input{...}}, of package graphicx.
\begin{tabular}{@{}l@{}}
\begin{tabular}{@{}lrrrr@{}}
\toprule
&  & \multicolumn{2}{c}{Accuracy (\%)} & \\
\cmidrule(lr){3-4}
Method & $n$ & 0 & 1 & PD \\
\midrule
ncm\_1 & 1 & 70.00 & \textbf{71.50} & -- \\
{}[x] \& y & 3 & \textbf{72.00\,$\pm$\,0.25} & 60.00\,$\pm$\,1.00 & \textbf{$-$1.50\,$\pm$\,0.00} \\
\bottomrule
\end{tabular} \\
\parbox{\linewidth}{\footnotesize\raggedright
First. \par
Second.}
\end{tabular}
"""


def test_latex_table() -> None:
    assert latex_table(COLUMNS, ROWS, ["First.", "Second."]) == EXPECTED


def test_without_notes_or_groups_only_the_table_is_left() -> None:
    text = latex_table(
        [Column("a", "A")], [TableRow("x", 1, {"a": Interval(1.0, math.nan, 1)})], []
    )

    assert "parbox" not in text
    assert "cmidrule" not in text
    assert "x & 1 & 1.00 \\\\\n\\bottomrule\n\\end{tabular}\n\\end{tabular}\n" in text


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
    ],
)
def test_escape_latex(text: str, expected: str) -> None:
    assert escape_latex(text) == expected


def test_the_table_is_plain_ascii_with_balanced_braces() -> None:
    rows = [TableRow("ç {a} 中 \\", 1, {"drop": Interval(1.0, 0.5, 2)})]

    text = latex_table(COLUMNS, rows, [escape_latex("√ {")])

    assert text.isascii()
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
