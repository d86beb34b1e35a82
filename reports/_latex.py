"""The LaTeX form of tables: plain ASCII that pdflatex sets with no package but booktabs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

from ._tables import Column, TableRow, best_cells, cell_text

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


def latex_table(columns: Sequence[Column], rows: Sequence[TableRow], notes: Sequence[str]) -> str:
    r"""Return a booktabs tabular with its notes set below it; `notes` are LaTeX already.

    The outer tabular is one box, so that it stands in a table environment, a \resizebox or a
    standalone document alike.
    """
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"% Wider than the page? \resizebox{\linewidth}{!}{\input{...}}, of package graphicx.",
        r"\begin{tabular}{@{}l@{}}",
        rf"\begin{{tabular}}{{@{{}}lr{'r' * len(columns)}@{{}}}}",
        r"\toprule",
        *_group_lines(columns),
        " & ".join(["Method", "$n$", *(escape_latex(column.heading) for column in columns)])
        + r" \\",
        r"\midrule",
        *_row_lines(columns, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if notes:
        lines[-1] += r" \\"
        lines += [r"\parbox{\linewidth}{\footnotesize\raggedright", " \\par\n".join(notes) + "}"]
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def escape_latex(text: str) -> str:
    """Return text that LaTeX sets as it is; a letter it has no ASCII form for becomes U+XXXX."""
    # TeX would draw neighbouring hyphens together, as a dash.
    parts = re.split(r"(?<=-)(?=-)", " ".join(text.split()))
    return "{}".join("".join(map(_character, part)) for part in parts)


def _group_lines(columns: Sequence[Column]) -> list[str]:
    """Return the line of headings that span several columns, and the rules under these."""
    cells, rules, position = ["", ""], [], 3
    for heading, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        if heading:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(heading)}}}")
            rules.append(rf"\cmidrule(lr){{{position}-{position + width - 1}}}")
        else:
            cells += [""] * width
        position += width
    return [" & ".join(cells).strip() + r" \\", " ".join(rules)] if rules else []


def _row_lines(columns: Sequence[Column], rows: Sequence[TableRow]) -> list[str]:
    best = best_cells(columns, rows)
    lines = []
    for index, row in enumerate(rows):
        # At the start of a line, [ and * would be taken for arguments of the \\ before it.
        cells = ["{}" * row.label.startswith(("[", "*")) + escape_latex(row.label)]
        cells.append(str(row.count))
        for column in columns:
            text = cell_text(row.cell(column), "±")
            text = text.replace("-", "$-$").replace("–", "--").replace("±", r"\,$\pm$\,")
            cells.append(rf"\textbf{{{text}}}" if (index, column.key) in best else text)
        lines.append(" & ".join(cells) + r" \\")
    return lines


def _character(character: str) -> str:
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    if character.isascii():
        return character
    parts = unicodedata.normalize("NFD", character)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return f"U+{ord(character):04X}"
