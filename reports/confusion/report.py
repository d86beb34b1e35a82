"""What is taken for what: base and new classes, sessions, single classes; forgetting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from fscil_bench.report import Column, Document, Figure, Notes, Report, Section, Table
from fscil_bench.reporting.choice import Chosen, meant_rows
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.lacks import lacking_runs
from fscil_bench.reporting.tables import ROW_COLUMNS

from .counts import (
    by_session,
    drawn_rates,
    last_rates,
    matrices_of,
    mean_blocks,
    pairs_frame,
    session_frame,
)
from .figures import block_figure, block_lines, rate_figure

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
BASE_TO_NEW = "Base images taken for new classes, session by session (%)"
NEW_TO_BASE = "New images taken for base classes, session by session (%)"
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
        nothing = "No image was taken for another class."
        listed = nothing if pairs.empty else Table("pairs", pairs, PAIR_COLUMNS)
        drawn = chosen.labels[:MOST_DRAWN]
        rates = drawn_rates(sessions[sessions["label"].isin(drawn)])
        blocks = {label: mean_blocks(chosen, label, matrices) for label in drawn}
        protocol = chosen.spec(chosen.labels[0]).protocol
        return Document(
            title=f"Confusion on {protocol.title} ({protocol.name})",
            parts=[
                Section(
                    "Errors after the last session",
                    [
                        Table(self.name, last_rates(sessions), [*ROW_COLUMNS, *RATE_COLUMNS]),
                        RATES_NOTE,
                    ],
                ),
                *(_by_session(sessions) if sessions["session"].max() else ()),
                Section("Classes most confused after the last session", [listed]),
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


def _by_session(sessions: pd.DataFrame) -> Iterator[Section]:
    """Yield a table for each figure that has a column a session."""
    new = sessions[sessions["session"] > 0]
    for figure, title in (("base_to_new", BASE_TO_NEW), ("new_to_base", NEW_TO_BASE)):
        yield Section(title, [_session_table(new, figure, "lowest", None)])
    forgetting = _session_table(sessions, "forgetting", "lowest", 0)
    yield Section("Forgetting, by session", [forgetting, FORGETTING_NOTE])
    plasticity = _session_table(sessions, "plasticity", "highest", 1)
    yield Section("Plasticity, by session", [plasticity, PLASTICITY_NOTE])


def _session_table(
    sessions: pd.DataFrame, figure: str, best: Literal["highest", "lowest"], mean_from: int | None
) -> Table:
    found, shown = by_session(sessions, figure, mean_from)
    columns = [Column(f"session_{t}", str(t), "Session", best=best) for t in shown]
    columns += [Column("mean", "Mean", best=best)] if mean_from is not None else []
    return Table(figure.replace("_", "-"), found, [*ROW_COLUMNS, *columns])


def _drawn(chosen: Chosen) -> str:
    which = "all rows"
    if len(chosen.labels) > MOST_DRAWN:
        which = f"the {MOST_DRAWN} rows with the best last session (choose others: --set rows=...)"
    return f"errors of {which} session by session, base images left and new ones right."
