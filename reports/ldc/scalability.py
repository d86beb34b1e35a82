"""The paper's scalability study: what accuracy is lost as classes come, at fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import pandas as pd
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.facts import human_bytes
from fscil_bench.reporting.tables import measure_columns
from fscil_bench.reporting.violins import ViolinPanel, violin_numbers, violins

from .shelf import Shelf
from .study import PAIRED, Findings, Study, interval_table, lettered, told
from .terms import StudyParams, Terms
from .values import FLOAT, apart
from .variants import Variant

LDC = "ldc"
NOTE = (
    "A_0 − A_t in points after each session, by the number of classes seen; slope: of that drop "
    "against classes seen, least squares over all sessions, in points for 10 classes. {bytes} "
    "bytes for covariances in every row: LDC's one, or what Free-Lunch buys with them, whole "
    "covariances of a few base classes (full) or low-rank ones of all (low_rank){orders}."
)
VIOLINS = (
    "against the number of classes seen. A violin for each method and session (kernel density, cut "
    "at the extremes), its dots the runs, its bar their median."
)
MORE = f"{PAIRED} Class orders are paired too; above 0 Free-Lunch loses more."


@dataclass(frozen=True)
class ScalabilityParams(StudyParams):
    """Parameters of the report.

    Attributes:
        orders: orders in which the classes come: the protocol's, then random ones (seed:1, …).
            Each needs a network of its own, trained on its base classes.
    """

    orders: Annotated[int, Field(ge=1)] = 1


class Scalability(Study):
    """The accuracy drop of LDC and of Free-Lunch within the same bytes, as the classes grow."""

    name = "scalability"
    title = "Accuracy lost as classes come, at fixed memory"
    Params = ScalabilityParams

    def variants(self, terms: Terms[ScalabilityParams]) -> dict[tuple[str, str], Variant]:
        """Return LDC, and Free-Lunch with each way of spending the bytes, in every class order.

        Raises:
            UsageError: the protocol has no sessions.
        """
        if terms.protocol.sessions == 0:
            raise UsageError(
                f"scalability compares sessions, and protocol {terms.protocol.name!r} has none"
            )
        makers: dict[str, Callable[..., Variant]] = {LDC: terms.ldc}
        for mode in terms.budget_modes:
            makers[f"free_lunch, {mode}"] = partial(terms.budgeted, mode)
        own, count = terms.protocol.class_order, terms.params.orders
        others = [o for n in range(1, count + 1) if (o := f"seed:{n}") != own][: count - 1]
        return {
            (name, order): make(overrides={"class_order": order} if order != own else {})
            for name, make in makers.items()
            for order in (own, *others)
        }

    def findings(self, terms: Terms[ScalabilityParams], shelf: Shelf) -> Findings:
        """Return drops by session, their slopes, and differences of slopes."""
        orders, seen = terms.params.orders, terms.seen[1:]
        runs = {name: _by_order(shelf, name, seen) for name, _ in shelf.variants}
        pairs = [(name, LDC) for name in runs if name != LDC]
        columns = [Column(f"drop_{n}", str(n), "Drop after classes") for n in seen]
        columns.append(Column("slope", "Slope"))
        keys = [column.key for column in columns]
        more = {name: apart(runs[name], runs[LDC], keys) for name, _ in pairs}
        paired = {f"{name} − {LDC}": own for name, own in more.items()}
        differences = interval_table("scalability-differences", paired, columns, MORE, ())
        best = [replace(column, best="lowest") for column in columns]
        best += measure_columns("last", "average")
        several = f"; {orders} class orders are taken together" * (orders > 1)
        note = NOTE.format(bytes=f"{FLOAT * terms.dim**2:,}", orders=several)
        figure, unit = "slope of the accuracy drop", "points for 10 classes"
        return Findings(
            [
                Notes(told(runs, pairs, "slope", figure, unit, "pairs of runs")),
                Section("Accuracy drop", [interval_table(self.name, runs, best, note)]),
                Section("Differences", [differences]),
                _figure(runs, more, seen),
            ],
            {
                f"{name}, class order {order}" if orders > 1 else name: own.loc[order]
                for name, own in runs.items()
                for order in own.index.unique(0)
            },
            [_memory(name, own) for name, own in runs.items() if len(own)],
        )


def _by_order(shelf: Shelf, name: str, seen: Sequence[int]) -> pd.DataFrame:
    """Return runs by class order and seed, with drops by classes seen and slopes of 10 classes."""
    own = {order: each for (other, order), each in shelf.variants.items() if other == name}
    runs = pd.concat({order: shelf.runs(variant) for order, variant in own.items()})
    drops = {f"drop_{n}": runs["session_0"] - runs[f"session_{t}"] for t, n in enumerate(seen, 1)}
    valued: pd.DataFrame = runs.assign(slope=10 * runs["drop_slope"], **drops)
    return valued


def _memory(name: str, runs: pd.DataFrame) -> str:
    first, last = (human_bytes(int(runs[key].iloc[0])) for key in ("state_0", "bytes"))
    return f"{name} stores {first} in all after the base session and {last} after the last."


def _figure(
    runs: Mapping[str, pd.DataFrame], more: Mapping[str, pd.DataFrame], seen: Sequence[int]
) -> Figure:
    drawn = {
        "accuracy lost since the base session": ViolinPanel(
            "Accuracy lost (points)", _by_run(runs, seen)
        ),
        "how much more of it Free-Lunch loses than LDC, paired by seed and class order": (
            ViolinPanel("More than ldc (points)", _by_run(more, seen), zero=True)
        ),
    }
    drawn = {what: panel for what, panel in drawn.items() if len(panel.numbers)}
    caption = f"{lettered(drawn)}; {VIOLINS}"
    panels = list(drawn.values())
    return Figure("drop-violins", lambda: violins(panels), violin_numbers(panels), caption)


def _by_run(runs: Mapping[str, pd.DataFrame], seen: Sequence[int]) -> pd.DataFrame:
    lines = [
        (name, n, value) for name, own in runs.items() for n in seen for value in own[f"drop_{n}"]
    ]
    return pd.DataFrame(lines, columns=["label", "classes_seen", "value"])
