"""The comparison of rows as Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._claims_accuracy import FIGURES
from ._claims_tables import latex_texts, markdown_texts
from ._comparison import FEWEST, Pair, is_tested, p_text, sentence
from ._latex import escape_latex, latex_table
from ._missing import Lack
from ._orders import Rankings
from ._orders_text import agreement_lines, bounded, bounds, order_parts, order_table
from ._paired import high, low
from ._rows import Row
from ._significance import LEVEL, RESAMPLES, pairs_needed
from ._tables import Column, TableRow, csv_text, escape_markdown, markdown_table

MOST_DRAWN = 28
"""Pairs that a page's figure has room for."""
HEADINGS = ("Pair", "n", "Difference [95 %]", "Bootstrap [95 %]", "p", "p, Holm", "Outcome")
WIDTHS = (0.27, 0.04, 0.17, 0.15, 0.07, 0.07, 0.11)
RULE = (
    "Rule, fixed in code. Two rows are paired by seed and representation_seed, and only if they "
    "share split, classes, shots, test images and engine. Difference: the mean over pairs of first "
    "minus second in percentage points, with its Student-t interval. Bootstrap: BCa interval of "
    f"the same mean, pairs drawn together, {RESAMPLES} resamples. p: Wilcoxon's signed-rank test, "
    "two-sided, pairs without difference dropped. Holm: corrected over all lines of a table that "
    f"can be tested. A difference holds if Holm's p is below {LEVEL:g}; fewer than {FEWEST} pairs "
    "can never reach that, and are not tested."
)
CAUTION = (
    "What seeds vary is chance in shots and method noise; other classes, networks or data are no "
    "part of these intervals unless the runs vary them."
)
FORMULAS = {
    "last session": "Accuracy after the last session.",
    "average over sessions": "Mean of the accuracies of all sessions, base session included.",
    "harmonic mean": "2 · base · new / (base + new), of the last session's accuracies.",
}


@dataclass(frozen=True)
class Comparison:
    """What was compared.

    Attributes:
        rows: under short names, best last session first.
        names: what the short names stand for.
        pairs: all that were compared.
        orders: rankings across class orders, where several are stored.
        commands: what makes runs with other class orders.
        lacks: runs that a complete comparison would have.
        notes: terms of the rows, and what was left out.
    """

    rows: Sequence[Row]
    names: Mapping[str, str]
    pairs: Sequence[Pair]
    orders: Sequence[Rankings]
    commands: Sequence[str]
    lacks: Sequence[Lack]
    notes: Sequence[str]

    @property
    def drawn(self) -> list[Pair]:
        """The pairs that the figure shows: all, or the most that one row is first in."""
        if len(self.pairs) <= MOST_DRAWN:
            return list(self.pairs)
        tested = [pair for pair in self.pairs if is_tested(pair, "last session")]
        counts = Counter(pair.first.label for pair in tested or self.pairs)
        # Rows stand best first, so that this is the best row of most that share its terms.
        (best, _), *_ = counts.most_common(1)
        own = [pair for pair in tested or self.pairs if pair.first.label == best]
        return own[:MOST_DRAWN]


def markdown(found: Comparison) -> str:
    """Return the report."""
    protocol = found.rows[0].spec.protocol
    columns, rows = _row_table(found)
    parts = [
        f"# Compared on {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)})",
        "\n".join(f"- {escape_markdown(line)}" for line in sentences(found, "last session")),
        markdown_table(columns, rows).rstrip(),
        *(_figure_part(found, figure) for figure in _figures(found)),
        escape_markdown(f"{RULE} {CAUTION}"),
        _drawn_line(found),
        "## Across class orders",
        *order_parts(found.orders, found.commands),
        "## Terms",
        "\n".join(f"- {escape_markdown(note)}" for note in [*_alone(found), *found.notes]),
    ]
    if found.lacks:
        lines = [f"- {escape_markdown(lack.what)}: `{lack.command}`" for lack in found.lacks]
        parts.append("\n".join(["Missing:", "", *lines]))
    return "\n\n".join(parts) + "\n"


def latex(found: Comparison) -> str:
    """Return the tables one after the other, with their notes."""
    columns, rows = _row_table(found)
    parts = [latex_table(columns, rows, [])]
    for figure in _figures(found):
        parts.append(_paragraphs([f"{figure.capitalize()}: {FORMULAS[figure]}"]))
        parts.append(latex_texts(HEADINGS, WIDTHS, pair_cells(found.pairs, figure)))
    for each in found.orders:
        parts.append(latex_table(*order_table(each), []))
        parts.append(_paragraphs(agreement_lines(each)))
    notes = [f"{RULE} {CAUTION}", *sentences(found, "last session"), *found.notes]
    return "\n\\par\\medskip\n".join([*parts, _paragraphs(notes)])


def pairs_csv(pairs: Sequence[Pair], names: Mapping[str, str]) -> str:
    """Return one line for each pair and figure, numbers in full, rows under their full labels."""
    return csv_text(
        [
            {
                "figure": figure,
                "first": names[pair.first.label],
                "second": names[pair.second.label],
                "n": len(test.differences),
                "mean": test.interval.mean,
                "low": low(test.interval),
                "high": high(test.interval),
                "bootstrap_low": test.low,
                "bootstrap_high": test.high,
                "equal_pairs": test.zeros,
                "p": test.p,
                "p_holm": test.adjusted,
                "outcome": pair.outcome(figure),
            }
            for figure in FIGURES
            for pair in pairs
            if (test := pair.tests.get(figure)) is not None
        ]
    )


def pair_cells(pairs: Sequence[Pair], figure: str) -> list[tuple[str, ...]]:
    """Return a row of texts for each pair, under `HEADINGS`."""
    return [
        (
            pair.name,
            str(len(test.differences)),
            bounded(test.interval.mean, low(test.interval), high(test.interval)),
            bounds(test.low, test.high),
            p_text(test.p),
            "–" if math.isnan(test.adjusted) else p_text(test.adjusted),
            pair.outcome(figure),
        )
        for pair in pairs
        if (test := pair.tests.get(figure)) is not None
    ]


def sentences(found: Comparison, figure: str) -> list[str]:
    """Return a sentence for each pair, and one where no difference could have held."""
    having = [pair for pair in found.pairs if figure in pair.tests]
    tested = [pair for pair in having if is_tested(pair, figure)]
    lines = [sentence(pair, figure, len(tested)) for pair in having]
    most = max((len(pair.tests[figure].differences) for pair in tested), default=0)
    needed = pairs_needed(len(tested))
    if tested and most < needed:
        lines.append(
            f"With {len(tested)} comparisons and at most {most} pairs each none can hold after "
            f"correction: that takes {needed} pairs, or fewer rows (--set rows=...)."
        )
    return lines


def _figures(found: Comparison) -> list[str]:
    return [name for name in FIGURES if any(name in pair.tests for pair in found.pairs)]


def _figure_part(found: Comparison, figure: str) -> str:
    table = markdown_texts(HEADINGS, pair_cells(found.pairs, figure))
    return f"## {figure.capitalize()}\n\n{escape_markdown(FORMULAS[figure])}\n\n{table}"


def _row_table(found: Comparison) -> tuple[list[Column], list[TableRow]]:
    columns = [Column(name, name.capitalize()) for name in FIGURES]
    rows = []
    for row in found.rows:
        full = found.names[row.label]
        label = row.label if row.label == full else f"{row.label}: {full}"
        cells = {name: row.interval(value) for name, value in FIGURES.items()}
        rows.append(TableRow(label, len(row.runs), cells))
    return columns, rows


def _drawn_line(found: Comparison) -> str:
    which = "all pairs"
    if len(found.drawn) < len(found.pairs):
        best = found.drawn[0].first.label
        which = f"{len(found.drawn)} of {len(found.pairs)} pairs, those of {best} with rows below"
    return (
        f"`differences.png` shows {which}, with Student-t intervals; a filled circle is a "
        "difference that holds after correction, an open diamond one that does not."
    )


def _alone(found: Comparison) -> list[str]:
    """Name the rows that nothing could be compared with."""
    used = {row.label for pair in found.pairs for row in (pair.first, pair.second)}
    alone = [row.label for row in found.rows if row.label not in used]
    if not alone:
        return []
    return [f"Compared with nothing, as no other row has their terms or seeds: {', '.join(alone)}."]


def _paragraphs(notes: Sequence[str]) -> str:
    body = " \\par\n".join(escape_latex(note) for note in notes)
    return f"{{\\footnotesize\\raggedright\\noindent\n{body}\\par}}\n"
