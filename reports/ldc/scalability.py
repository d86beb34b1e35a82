"""The paper's scalability study: what accuracy is lost as classes come, at fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.protocol import Protocol
from fscil_bench.report import Column, Figure, Notes, Section, Table
from fscil_bench.reporting.facts import human_bytes
from fscil_bench.reporting.sentences import difference_sentence
from fscil_bench.reporting.tables import measure_columns
from fscil_bench.reporting.violins import ViolinPanel, violin_numbers, violins

from .shelf import Shelf
from .study import Findings, Study, interval_table
from .terms import StudyParams, Terms
from .values import FLOAT, apart, difference
from .variants import Variant

Best = Literal["lowest", "none"]

LDC = "ldc"
NOTE = (
    "A_0 − A_t in points after each session, by the number of classes seen; slope: of that drop "
    "against classes seen, least squares over all sessions, in points for 10 classes; accuracy in "
    "%. {bytes} bytes for covariances in every row: LDC's one, or what Free-Lunch buys with them, "
    "whole covariances of a few base classes (full) or low-rank ones of all (low_rank). ± is the "
    "half-width of the 95 % Student-t interval over n runs{orders}."
)
PAIRED = (
    "Free-Lunch minus LDC, paired by seed and class order, ± the half-width of the 95 % Student-t "
    "interval: above 0 where Free-Lunch loses more."
)


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

    def variants(self, terms: Terms, params: ScalabilityParams) -> list[Variant]:
        """Return LDC, and Free-Lunch with each way of spending the bytes, in every class order.

        Raises:
            UsageError: the protocol has no sessions.
        """
        if terms.protocol.sessions == 0:
            raise UsageError(
                f"scalability compares sessions, and protocol {terms.protocol.name!r} has none"
            )
        named = _named(terms, params.orders).values()
        return [variant for own in named for variant in own.values()]

    def findings(self, terms: Terms, shelf: Shelf, params: ScalabilityParams) -> Findings:
        """Return drops by session, their slopes, and differences of slopes."""
        seen = [terms.protocol.classes_seen(t) for t in range(1, terms.protocol.sessions + 1)]
        named = _named(terms, params.orders).items()
        runs = {name: _by_order(shelf, variants, seen) for name, variants in named}
        runs = {name: own for name, own in runs.items() if len(own)}
        several = f" ({params.orders} class orders, taken together)" * (params.orders > 1)
        note = NOTE.format(bytes=f"{FLOAT * terms.dim**2:,}", orders=several)
        return Findings(
            [
                Notes(_sentences(runs)),
                Section("Accuracy drop", [_drops(runs, seen, note)]),
                Section("Differences", [_apart(runs, seen)]),
                _figure(runs, seen),
            ],
            {
                f"{name}, class order {order}" if params.orders > 1 else name: own.loc[order]
                for name, own in runs.items()
                for order in own.index.unique(0)
            },
            [_memory(name, own) for name, own in runs.items()],
        )


def _named(terms: Terms, count: int) -> dict[str, dict[str, Variant]]:
    """Return variants by name and class order."""
    makers: dict[str, Callable[..., Variant]] = {LDC: terms.ldc}
    for mode in terms.budget_modes:
        makers[f"free_lunch, {mode}"] = partial(terms.budgeted, mode)
    own, *others = _orders(terms.protocol, count)
    return {
        name: {own: make(), **{o: make(overrides={"class_order": o}) for o in others}}
        for name, make in makers.items()
    }


def _orders(protocol: Protocol, count: int) -> list[str]:
    """Return the protocol's class order, and random ones beside it."""
    others = [f"seed:{n}" for n in range(1, count + 1)]
    return [protocol.class_order, *(o for o in others if o != protocol.class_order)][:count]


def _by_order(shelf: Shelf, variants: Mapping[str, Variant], seen: Sequence[int]) -> pd.DataFrame:
    """Return runs by class order and seed, with drops by classes seen and slopes of 10 classes."""
    runs = pd.concat({order: shelf.runs(variant) for order, variant in variants.items()})
    if runs.empty:
        return runs
    drops = {
        f"drop_{n}": runs["session_0"] - runs[f"session_{t}"] for t, n in enumerate(seen, start=1)
    }
    return runs.assign(slope=10 * runs["drop_slope"], **drops)


def _drop_columns(seen: Sequence[int], best: Best) -> list[Column]:
    group = "Drop after classes"
    columns = [Column(f"drop_{n}", str(n), group, best=best) for n in seen]
    return [*columns, Column("slope", "Slope", best=best)]


def _drops(runs: Mapping[str, pd.DataFrame], seen: Sequence[int], note: str) -> Table:
    columns = [*_drop_columns(seen, "lowest"), *measure_columns("last", "average")]
    return interval_table("scalability", runs, columns, note)


def _apart(runs: Mapping[str, pd.DataFrame], seen: Sequence[int]) -> Table:
    columns = _drop_columns(seen, "none")
    more = _more(runs, [column.key for column in columns])
    pairs = {f"{name} − {LDC}": own for name, own in more.items()}
    return interval_table("scalability-differences", pairs, columns, PAIRED)


def _more(runs: Mapping[str, pd.DataFrame], keys: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return by how much each of Free-Lunch's figures is above LDC's, by name, pair by pair."""
    rivals = {name: own for name, own in runs.items() if name != LDC and LDC in runs}
    return {name: apart(own, runs[LDC], keys) for name, own in rivals.items()}


def _sentences(runs: Mapping[str, pd.DataFrame]) -> list[str]:
    figure, unit = "slope of the accuracy drop", "points for 10 classes"
    none = pd.DataFrame({"slope": []})
    return [
        difference_sentence(
            name, LDC, figure, difference(own, runs.get(LDC, none), "slope"), unit, "pairs of runs"
        )
        for name, own in runs.items()
        if name != LDC
    ]


def _memory(name: str, runs: pd.DataFrame) -> str:
    first, last = (human_bytes(int(runs[key].iloc[0])) for key in ("state_0", "bytes"))
    return f"{name} stores {first} in all after the base session and {last} after the last."


def _figure(runs: Mapping[str, pd.DataFrame], seen: Sequence[int]) -> Figure:
    panels = [ViolinPanel("Accuracy lost (points)", _by_run(runs, seen))]
    more = _by_run(_more(runs, [f"drop_{n}" for n in seen]), seen)
    panels += [ViolinPanel("More than ldc (points)", more, zero=True)] if len(more) else []
    caption = (
        "(a) Accuracy lost since the base session, (b) how much more of it Free-Lunch loses than "
        "LDC, paired by seed and class order, against the number of classes seen. A violin for "
        "each method and session (kernel density, cut at the extremes), its dots the runs, its bar "
        "their median."
    )
    return Figure("drop-violins", lambda: violins(panels), violin_numbers(panels), caption)


def _by_run(runs: Mapping[str, pd.DataFrame], seen: Sequence[int]) -> pd.DataFrame:
    lines = [
        (name, n, value) for name, own in runs.items() for n in seen for value in own[f"drop_{n}"]
    ]
    return pd.DataFrame(lines, columns=["label", "classes_seen", "value"])
