"""The block of published rows: as Markdown, LaTeX and CSV, with footnotes and sources."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, product
from string import ascii_lowercase

from fscil_bench.errors import UsageError, nearest
from fscil_bench.protocol import Protocol

from ._latex import escape_latex
from ._published import PublishedRow
from ._published_notes import RowNotes, row_notes
from ._tables import csv_text, escape_markdown

ABOUT = (
    "Published accuracies under their published names, not measured here; a name that also stands "
    "among the measured rows is not the same code. Avg, PD and PR are computed from the row, "
    "whatever is printed; where that is something else, a footnote says so. Rows stand by their "
    "last session, the best at the end. Where no footnote tells how the epoch was chosen, it is "
    "not known, unless it says otherwise."
)
FIGURES = ("Avg", "PD", "PR")
CSV_NAMES = {"Avg": "average", "PD": "performance_drop", "PR": "performance_retention"}


@dataclass(frozen=True)
class PublishedTable:
    """Published rows of a protocol, in the order of showing."""

    protocol: Protocol
    rows: Sequence[PublishedRow]

    @cached_property
    def notes(self) -> list[RowNotes]:
        """Footnotes of each row."""
        return [row_notes(row, self.protocol) for row in self.rows]

    @cached_property
    def marks(self) -> dict[str, str]:
        """The letter of each footnote, in order of appearance."""
        texts = dict.fromkeys(note for notes in self.notes for note in notes.all())
        return dict(zip(texts, _letters(), strict=False))

    def markdown(self) -> str:
        """Return a pipe table, its footnotes and its sources."""
        headings = ["Published", *self._headings()]
        lines = [_pipes(headings), _pipes(["---", *("---:" for _ in headings[1:])])]
        for row, notes in zip(self.rows, self.notes, strict=True):
            cells = [f"{text}{self._marked(own)}" for text, own in self._cells(row, notes)]
            lines.append(_pipes([escape_markdown(row.method) + self._marked(notes.name), *cells]))
        footnotes = [f"- [{mark}] {escape_markdown(text)}" for text, mark in self.marks.items()]
        sources = [f"- {escape_markdown(text)}" for text in self._sources()]
        return "\n".join([*lines, "", ABOUT, "", *footnotes, "", "Sources:", "", *sources])

    def latex(self) -> str:
        """Return a booktabs tabular with its footnotes and sources below."""
        width = len(self._headings())
        lines = [
            r"% Needs \usepackage{booktabs}.",
            r"% Larger than the page? Choose rows with --set published=..., or",
            r"% \resizebox{!}{\textheight}{\input{...}}, of package graphicx.",
            r"\begin{tabular}{@{}l@{}}",
            rf"\begin{{tabular}}{{@{{}}l{'r' * width}@{{}}}}",
            r"\toprule",
            rf" & \multicolumn{{{self.protocol.sessions + 1}}}{{c}}{{Accuracy in session (\%)}}"
            + " & " * len(FIGURES)
            + r" \\",
            rf"\cmidrule(lr){{2-{self.protocol.sessions + 2}}}",
            " & ".join(["Published", *self._headings()]) + r" \\",
            r"\midrule",
        ]
        for row, notes in zip(self.rows, self.notes, strict=True):
            cells = [
                text.replace("-", "$-$").replace("–", "--") + self._raised(own)
                for text, own in self._cells(row, notes)
            ]
            lines.append(
                " & ".join([escape_latex(row.method) + self._raised(notes.name), *cells]) + r" \\"
            )
        footnotes = (
            rf"\textsuperscript{{{mark}}}\,{escape_latex(text)}"
            for text, mark in self.marks.items()
        )
        below = [escape_latex(ABOUT), "\n".join(footnotes)]
        below.append("Sources: " + escape_latex("; ".join(self._sources())) + ".")
        lines += [r"\bottomrule", r"\end{tabular} \\"]
        lines += [r"\parbox{\linewidth}{\footnotesize\raggedright", " \\par\n".join(below) + "}"]
        return "\n".join([*lines, r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """Return one line a row, with its terms, footnotes and sources in full."""
        return csv_text([self._line(r, n) for r, n in zip(self.rows, self.notes, strict=True)])

    def _headings(self) -> list[str]:
        return [*(str(t) for t in range(self.protocol.sessions + 1)), *FIGURES]

    def _cells(self, row: PublishedRow, notes: RowNotes) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each cell's text, as printed or computed, with its footnotes."""
        for t in range(self.protocol.sessions + 1):
            text = row.values[t].text if t in row.values else "–"
            yield text, notes.cells.get(f"session_{t}", ())
        for name, value in row.figures(self.protocol.sessions).items():
            yield "–" if math.isnan(value) else f"{value:.2f}", notes.cells.get(name, ())

    def _line(self, row: PublishedRow, notes: RowNotes) -> dict[str, str | int | float]:
        accuracies = row.accuracies(self.protocol.sessions)
        printed = {name: "" for name in FIGURES} | {p.quantity: p.text for p in row.printed}
        return {
            "published_name": row.method,
            **{f"session_{t}": value for t, value in enumerate(accuracies)},
            **{CSV_NAMES[n]: v for n, v in row.figures(self.protocol.sessions).items()},
            **{f"printed_{CSV_NAMES[n]}": text for n, text in printed.items()},
            "backbone": row.backbone,
            "pretraining": row.pretraining,
            "epochs": row.terms.epochs,
            "chosen_on_test": row.terms.chosen_on_test,
            "footnotes": " ".join(notes.all()),
            "sources": "; ".join(dict.fromkeys(v.source.printed_in for v in row.values.values())),
        }

    def _sources(self) -> list[str]:
        """Return each source with the rows it prints."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows:
            for value in row.values.values():
                found.setdefault(value.source.printed_in, {})[row.method] = None
        return [f"{source}: {', '.join(methods)}" for source, methods in found.items()]

    def _marked(self, notes: Sequence[str]) -> str:
        return f" [{' '.join(self.marks[note] for note in notes)}]" if notes else ""

    def _raised(self, notes: Sequence[str]) -> str:
        marks = ",".join(self.marks[note] for note in notes)
        return rf"\textsuperscript{{{marks}}}" if notes else ""


def chosen_published(rows: Sequence[PublishedRow], names: str) -> list[PublishedRow]:
    """Return the published rows that are named: `all`, `none`, or names with `;` between.

    Raises:
        UsageError: a name is not among them.
    """
    if names.strip() in ("all", "none"):
        return list(rows) if names.strip() == "all" else []
    known: Mapping[str, PublishedRow] = {row.method: row for row in rows}
    wanted = list(filter(None, (name.strip() for name in names.split(";"))))
    for name in wanted:
        if name not in known:
            hint = nearest(name, known) if known else "nothing is published for this protocol"
            raise UsageError(f"published={names!r}: no published row {name!r}; {hint}")
    return [row for row in rows if row.method in wanted]


def _letters() -> Iterator[str]:
    """Yield a, b and so on to z, then aa, ab and so on."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            yield "".join(letters)


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
