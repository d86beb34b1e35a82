"""What is taken for what: base and new classes, sessions, single classes; forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from fscil_bench.report import Column, Document, Figure, Notes, Part, Report, Section, Table
from fscil_bench.reporting.choice import Chosen, meant_rows
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.lacks import lacking_runs
from fscil_bench.reporting.tables import ROW_COLUMNS

from .figures import block_figure, block_lines, rate_figure
from .tables import (
    by_session,
    drawn_rates,
    last_rates,
    matrices_of,
    mean_blocks,
    pairs_frame,
    session_frame,
)

MOST_DRAWN = 6
"""Rows that a page's figures have room for."""
_BASE, _NEW = "Base images (%)", "New images (%)"
RATE_COLUMNS = (
    Column("base_right", "Base right", _BASE, best="highest"),
    Column("base_to_base", "Base->base", _BASE, best="lowest"),
    Column("base_to_new", "Base->new", _BASE, best="lowest"),
    Column("new_right", "New right", _NEW, best="highest"),
    Column("new_to_new", "New->new", _NEW, best="lowest"),
    Column("new_to_base", "New->base", _NEW, best="lowest"),
)
PAIR_COLUMNS = (
    ROW_COLUMNS[0],
    Column("class", "Class", kind="text"),
    Column("class_session", "of session", kind="number", decimals=0),
    Column("taken_for", "Taken for", kind="text"),
    Column("taken_for_session", "of session", kind="number", decimals=0),
    Column("images", "Images a run"),
    Column("percent", "% of its images"),
)
RATES_TITLE = "Errors after the last session"
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
BLOCKS = (
    "of which session classes of the same rows are taken for those of which after the last "
    "session, in % of the images of the true session (colours by square root)."
)


@dataclass(frozen=True)
class BySession:
    """A table with a column for each session from `first` on, and perhaps the mean of some.

    `figure` is the column of the session frame; `mean_from` the first session of the mean.
    """

    name: str
    title: str
    figure: str
    best: Literal["highest", "lowest"] = "lowest"
    first: int = 1
    mean_from: int | None = None
    note: str = ""

    def section(self, sessions: pd.DataFrame) -> Section:
        """Return the table under its title."""
        shown = sessions[sessions["session"] >= self.first]
        found, known = by_session(shown, self.figure, self.mean_from)
        columns = [Column(f"session_{t}", str(t), "Session", best=self.best) for t in known]
        if self.mean_from is not None:
            columns.append(Column("mean", "Mean", best=self.best))
        table = Table(self.name, found, [*ROW_COLUMNS, *columns])
        return Section(self.title, [table, self.note] if self.note else [table])


TABLES = (
    BySession(
        "base-to-new", "Base images taken for new classes, session by session (%)", "base_to_new"
    ),
    BySession(
        "new-to-base", "New images taken for base classes, session by session (%)", "new_to_base"
    ),
    BySession(
        "forgetting",
        "Forgetting, by session",
        "forgetting",
        first=0,
        mean_from=0,
        note=FORGETTING_NOTE,
    ),
    BySession(
        "plasticity", "Plasticity, by session", "plasticity", "highest", 0, 1, PLASTICITY_NOTE
    ),
)


class Confusion(Report):
    """Errors between base and new classes, classes most confused, forgetting and plasticity."""

    name = "confusion"
    title = "Which classes are taken for which; forgetting and plasticity of each session"

    @dataclass(frozen=True)
    class Params:
        """`pairs`: most confused classes a row; `rows`: which, as main-table's labels are.

        Without `rows`, each method's rows with nothing set by hand and class means in Tukey space
        (all rows of a method that has none such); with `all` every row.
        """

        pairs: Annotated[int, Field(ge=1)] = 10
        rows: str = ""
        all: bool = False

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return error rates, forgetting, plasticity and pairs of classes, and two figures.

        Raises:
            FscilError: nothing stored fits; the message gives a command that would make a run.
        """
        del frame
        chosen = meant_rows(self.results, self.name, params.rows, params.all)
        matrices = matrices_of(chosen)
        sessions = session_frame(chosen, matrices)
        pairs = pairs_frame(chosen, matrices, params.pairs)
        drawn = chosen.labels[:MOST_DRAWN]
        rates = drawn_rates(sessions[sessions["label"].isin(drawn)])
        blocks = {label: mean_blocks(chosen, label, matrices) for label in drawn}
        protocol = chosen.spec(chosen.labels[0]).protocol
        return Document(
            title=f"Confusion on {protocol.title} ({protocol.name})",
            parts=[
                Section(RATES_TITLE, [_rates_table(sessions), RATES_NOTE]),
                *(each.section(sessions) for each in TABLES if sessions["session"].max()),
                Section("Classes most confused after the last session", [_pairs(pairs)]),
                INTERVALS,
                Figure("rates", lambda: rate_figure(rates), rates, _drawn(chosen)),
                Figure(
                    "blocks",
                    lambda: block_figure(blocks),
                    block_lines(blocks, chosen.frame["label"].value_counts()),
                    BLOCKS,
                ),
                Notes(note_lines(chosen), heading="Terms"),
            ],
            lacks=lacking_runs(chosen),
            warnings=chosen.problems,
        )


def _rates_table(sessions: pd.DataFrame) -> Table:
    return Table("confusion", last_rates(sessions), [*ROW_COLUMNS, *RATE_COLUMNS])


def _pairs(pairs: pd.DataFrame) -> Part:
    nothing = "No image was taken for another class."
    return nothing if pairs.empty else Table("pairs", pairs, PAIR_COLUMNS)


def _drawn(chosen: Chosen) -> str:
    which = "all rows"
    if len(chosen.labels) > MOST_DRAWN:
        which = f"the {MOST_DRAWN} rows with the best last session (choose others: --set rows=...)"
    return f"errors of {which} session by session, base images left and new ones right."
