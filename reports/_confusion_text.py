"""The tables of confusion, as Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._claims_tables import latex_texts
from ._confusion_tables import (
    Table,
    forgetting_table,
    plasticity_table,
    rate_table,
    session_rates,
)
from ._confusions import ConfusedPair, session_of
from ._latex import escape_latex, latex_table
from ._missing import Lack
from ._rows import Row
from ._tables import (
    cell_text,
    csv_table,
    csv_text,
    escape_markdown,
    markdown_table,
)

PAIR_HEADINGS = ("Method", "Class", "Taken for", "Images a run", "% of its images")
PAIR_WIDTHS = (0.3, 0.2, 0.2, 0.1, 0.1)
RATES_NOTE = (
    "Test images after the last session. Base->base: images of base classes taken for another base "
    "class; base->new: for a class of a later session; new likewise. With those that are right "
    "they add up to 100."
)
FORGETTING_NOTE = (
    "Forgetting of session j: f_j = max over j <= l < T of a_(l,j), minus a_(T,j), with a_(l,j) "
    "the accuracy after session l on the test images of session j's classes, over the joint label "
    "space, and T the last session (Chaudhry et al., Riemannian Walk for Incremental Learning, "
    "ECCV 2018, eq. 3); in points, negative where accuracy rose. Mean: over all sessions before "
    "the last, each counting once, as they average it."
)
PLASTICITY_NOTE = (
    "Plasticity of session j: a_(j,j), the accuracy on its classes right after they were learnt, "
    "in %. Mean: over the sessions after the base session."
)
INTERVALS = (
    "Each figure is computed run by run; ± is the half-width of the 95 % Student-t interval of the "
    "mean over a row's n runs."
)


@dataclass(frozen=True)
class Findings:
    """What is shown: rows, the most confused classes of each, and terms.

    Attributes:
        rows: best last session first.
        pairs: of each row, by label.
        drawn: how many rows the figures show.
        lacks: runs that a complete table would have.
        notes: terms of the rows, and what was left out.
    """

    rows: Sequence[Row]
    pairs: Mapping[str, Sequence[ConfusedPair]]
    drawn: int
    lacks: Sequence[Lack]
    notes: Sequence[str]

    @property
    def tables(self) -> dict[str, Table]:
        """The tables of intervals, by the stem of their files."""
        found = {
            "confusion": rate_table(self.rows),
            "base-to-new": session_rates(self.rows, "base_to_new"),
            "new-to-base": session_rates(self.rows, "new_to_base"),
            "forgetting": forgetting_table(self.rows),
            "plasticity": plasticity_table(self.rows),
        }
        return {stem: table for stem, table in found.items() if table[0]}


TITLES = {
    "confusion": ("Errors after the last session", RATES_NOTE),
    "base-to-new": ("Base images taken for new classes, session by session (%)", ""),
    "new-to-base": ("New images taken for base classes, session by session (%)", ""),
    "forgetting": ("Forgetting, by session", FORGETTING_NOTE),
    "plasticity": ("Plasticity, by session", PLASTICITY_NOTE),
}


def markdown(found: Findings) -> str:
    """Return the report."""
    protocol = found.rows[0].spec.protocol
    parts = [f"# Confusion on {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)})"]
    for stem, table in found.tables.items():
        title, note = TITLES[stem]
        parts += [f"## {title}", markdown_table(*table).rstrip()]
        parts += [escape_markdown(note)] if note else []
    parts += ["## Classes most confused after the last session", _pairs_markdown(found)]
    notes = "\n".join(f"- {escape_markdown(note)}" for note in found.notes)
    parts += [escape_markdown(INTERVALS), _drawn_line(found), "## Terms", notes]
    if found.lacks:
        lines = [f"- {escape_markdown(lack.what)}: `{lack.command}`" for lack in found.lacks]
        parts.append("\n".join(["Missing:", "", *lines]))
    return "\n\n".join(parts) + "\n"


def latex(found: Findings) -> str:
    """Return the tables one after the other, with their notes."""
    parts = []
    for stem, (columns, rows) in found.tables.items():
        title, note = TITLES[stem]
        notes = [escape_latex(text) for text in (title + ".", note) if text]
        parts.append(latex_table(columns, rows, notes))
    pairs = [cells for row in found.rows for cells in _pair_cells(row, found.pairs[row.label])]
    parts.append(latex_texts(PAIR_HEADINGS, PAIR_WIDTHS, pairs))
    body = " \\par\n".join(escape_latex(note) for note in (INTERVALS, *found.notes))
    parts.append(f"{{\\footnotesize\\raggedright\\noindent\n{body}\\par}}\n")
    return "\n\\par\\medskip\n".join(parts)


def csv_files(found: Findings) -> dict[str, str]:
    """Return the contents of the CSV files by stem."""
    files = {stem: csv_table(*table) for stem, table in found.tables.items()}
    lines = [line for row in found.rows for line in _pair_lines(row, found.pairs[row.label])]
    return files | ({"pairs": csv_text(lines)} if lines else {})


def _pairs_markdown(found: Findings) -> str:
    cells = [each for row in found.rows for each in _pair_cells(row, found.pairs[row.label])]
    if not cells:
        return "No image was taken for another class."
    lines = [PAIR_HEADINGS, ["---"] * len(PAIR_HEADINGS), *(map(escape_markdown, c) for c in cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pair_cells(row: Row, pairs: Sequence[ConfusedPair]) -> list[tuple[str, ...]]:
    return [
        (
            row.label,
            _class_text(row, pair.true),
            _class_text(row, pair.predicted),
            cell_text(pair.images, " ± "),
            cell_text(pair.share, " ± "),
        )
        for pair in pairs
    ]


def _class_text(row: Row, class_id: int) -> str:
    record = row.runs[0].record
    session = session_of([each.classes_seen for each in record.sessions], class_id)
    kind = f"session {session}" if session else "base"
    return f"{record.class_names[class_id]} ({kind})"


def _pair_lines(row: Row, pairs: Sequence[ConfusedPair]) -> list[dict[str, str | int | float]]:
    record = row.runs[0].record
    seen = [each.classes_seen for each in record.sessions]
    return [
        {
            "label": row.label,
            "class": record.class_names[pair.true],
            "class_id": pair.true,
            "class_session": session_of(seen, pair.true),
            "taken_for": record.class_names[pair.predicted],
            "taken_for_id": pair.predicted,
            "taken_for_session": session_of(seen, pair.predicted),
            "images_mean": pair.images.mean,
            "images_half_width": pair.images.half_width,
            "percent_mean": pair.share.mean,
            "percent_half_width": pair.share.half_width,
            "n": pair.images.count,
        }
        for pair in pairs
    ]


def _drawn_line(found: Findings) -> str:
    which = "all rows"
    if found.drawn < len(found.rows):
        which = f"the {found.drawn} rows with the best last session (choose others: --set rows=...)"
    return (
        f"`rates.png` shows the errors of {which} session by session, base images left and new "
        "ones right; `blocks.png` of which session classes are taken for those of which after the "
        "last session, in % of the images of the true session (colours by square root)."
    )
