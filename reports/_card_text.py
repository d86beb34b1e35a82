"""A card as Markdown, as LaTeX and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fscil_bench.metrics import Interval

from ._card import CardContent
from ._latex import escape_latex
from ._tables import cell_text, csv_text, escape_markdown

MEANING = (
    "Accuracy is correct / total, top-1, in %, over the test images and the joint label space of "
    "all classes seen so far; Base and New count test images of base classes and of all later "
    "classes alone, and HM = 2 · Base · New / (Base + New). Avg is the mean over sessions, "
    "PD = A_0 − A_T in percentage points, PR = A_T / A_0 in %; base forgetting is the best earlier "
    "accuracy on base classes minus the last, in points. ± is the half-width of the 95 % "
    "Student-t interval of the mean over the runs."
)


def card_markdown(content: CardContent, figure: str) -> str:
    """Return a card in Markdown; `figure` is the file name of its picture."""
    head = ["Session", *map(str, range(len(content.classes_seen)))]
    numbers = [["Classes seen", *map(str, content.classes_seen)]]
    numbers += [[name, *_cells(each, " ± ")] for name, each in content.sessions.items()]
    summary = [*_cells(list(content.summary.values()), " ± ")]
    facts = [
        [f"**{heading}**" if first else "", escape_markdown(name), escape_markdown(text)]
        for heading, each in content.facts.items()
        for first, (name, text) in zip([True] + [False] * len(each), each.items(), strict=False)
    ]
    parts = [
        f"# {escape_markdown(content.title)}",
        *map(escape_markdown, content.about),
        _pipe_table(head, numbers),
        _pipe_table(list(content.summary), [summary]),
        f"![Accuracy in each session]({figure})",
        escape_markdown(MEANING),
        _pipe_table(["", "", ""], facts),
        "Made by:",
        "\n".join(["```", *content.commands, "```"]),
    ]
    return "\n\n".join(parts) + "\n"


def card_latex(content: CardContent, figure: str) -> str:
    r"""Return a card as a LaTeX box of one page's height; `figure` is its picture, without ending.

    It stands in a document or a figure environment alike; facts are set in two columns.
    """
    lines = [
        r"% Needs \usepackage{booktabs,graphicx}.",
        r"\begin{minipage}{\linewidth}\scriptsize\raggedright",
        rf"{{\normalsize\bfseries {escape_latex(content.title)}}}\par\smallskip",
        *(rf"{escape_latex(each)}\par\smallskip" for each in content.about),
        r"\begin{minipage}{0.62\linewidth}\raggedright",
        *_latex_sessions(content),
        r"\par\smallskip",
        *_latex_table(
            "r" * len(content.summary),
            [list(map(escape_latex, content.summary))],
            [_latex_cells(list(content.summary.values()))],
        ),
        r"\end{minipage}\hfill",
        rf"\begin{{minipage}}{{0.36\linewidth}}\includegraphics[width=\linewidth]{{{figure}}}"
        r"\end{minipage}\par\smallskip",
        rf"{escape_latex(MEANING)}\par\smallskip",
    ]
    for heading, each in content.facts.items():
        said = "; ".join(rf"\emph{{{escape_latex(n)}}}: {_breakable(t)}" for n, t in each.items())
        lines.append(rf"\textbf{{{escape_latex(heading)}.}} {said}.\par\smallskip")
    lines += [rf"\texttt{{{_breakable(command)}}}\par" for command in content.commands]
    return "\n".join([*lines, r"\end{minipage}"]) + "\n"


def card_csv(content: CardContent) -> str:
    """Return a line for each fact and number: heading, name, value, half-width, n."""
    lines: list[dict[str, str | int | float]] = []
    for session, seen in enumerate(content.classes_seen):
        heading = f"Session {session}"
        lines.append(_line(heading, "Classes seen", seen))
        for name, intervals in content.sessions.items():
            lines.append(_interval_line(heading, name, intervals[session]))
    lines += [_interval_line("All sessions", name, each) for name, each in content.summary.items()]
    for heading, facts in content.facts.items():
        lines += [_line(heading, name, text) for name, text in facts.items()]
    lines += [_line("Made by", "command", command) for command in content.commands]
    return csv_text(lines)


def _line(heading: str, name: str, value: str | int) -> dict[str, str | int | float]:
    return {"heading": heading, "name": name, "value": value, "half_width": "", "n": ""}


def _interval_line(heading: str, name: str, cell: Interval) -> dict[str, str | int | float]:
    numbers = {"value": cell.mean, "half_width": cell.half_width, "n": cell.count}
    return {"heading": heading, "name": name, **numbers}


def _cells(intervals: Sequence[Interval], plus_minus: str) -> list[str]:
    return [cell_text(each, plus_minus) for each in intervals]


def _latex_cells(intervals: Sequence[Interval]) -> list[str]:
    return [
        text.replace("-", "$-$").replace("–", "--").replace("±", r"\,$\pm$\,")
        for text in _cells(intervals, "±")
    ]


def _latex_sessions(content: CardContent) -> list[str]:
    """Return the sessions as rows, which leaves the page its width."""
    names: Mapping[str, Sequence[Interval]] = content.sessions
    rows = [
        [str(t), str(seen), *_latex_cells([each[t] for each in names.values()])]
        for t, seen in enumerate(content.classes_seen)
    ]
    head = ["Session", "Classes", *map(escape_latex, names)]
    return _latex_table("r" * len(head), [head], rows)


def _latex_table(
    columns: str, head: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]
) -> list[str]:
    return [
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        *(" & ".join(each) + r" \\" for each in head),
        r"\midrule",
        *(" & ".join(each) + r" \\" for each in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _breakable(text: str) -> str:
    """Return text in which TeX may break a line after `=` and `,`, as values have no spaces."""
    escaped = escape_latex(text)
    return escaped.replace("=", r"=\allowbreak{}").replace(",", r",\allowbreak{}")


def _pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines)
