"""The paper's scalability study: what accuracy is lost as classes come, at fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportInput
from fscil_bench.store.runs import StoredRun

from ._costs import drop_slope, drops
from ._facts import human_bytes
from ._paired import paired_interval
from ._rows import Row
from ._run_values import average, last_accuracy, over_runs
from ._sentences import difference_sentence
from ._shelf import Shelf
from ._study import Drawing, Findings, Study, Table
from ._tables import Column, TableRow
from ._terms import StudyParams, Terms
from ._variants import Variant
from ._violins import ViolinPanel, Violins, violin_figure, violin_lines

Runs = Mapping[tuple[str, int], StoredRun]
"""Runs by class order and seed."""

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

    params: ScalabilityParams

    def variants(self, terms: Terms) -> list[Variant]:
        """Return LDC, and Free-Lunch with each way of spending the bytes, in every class order.

        Raises:
            UsageError: the protocol has no sessions.
        """
        if terms.protocol.sessions == 0:
            raise UsageError(
                f"scalability compares sessions, and protocol {terms.protocol.name!r} has none"
            )
        return [variant for own in self._named(terms).values() for variant in own.values()]

    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return drops by session, their slopes, and differences of slopes."""
        del given
        runs = {
            name: {
                (order, seed): run
                for order, variant in variants.items()
                for seed, run in shelf.runs(variant).items()
            }
            for name, variants in self._named(terms).items()
        }
        runs = {name: own for name, own in runs.items() if own}
        seen = [terms.protocol.classes_seen(t) for t in range(1, terms.protocol.sessions + 1)]
        several = f" ({self.params.orders} class orders, taken together)"
        note = NOTE.format(
            bytes=f"{4 * terms.dim**2:,}", orders=several if self.params.orders > 1 else ""
        )
        tables = [
            Table("scalability", "Accuracy drop", note, _columns(seen), _rows(runs)),
            Table(
                "scalability-differences", "Differences", PAIRED, _apart_columns(seen), _apart(runs)
            ),
        ]
        shown = [
            Row(tuple(r for (at, _), r in own.items() if at == order), _label(name, order, self))
            for name, own in runs.items()
            for order in dict.fromkeys(order for order, _ in own)
        ]
        remarks = [_memory(name, own) for name, own in runs.items()]
        return Findings(_sentences(runs), tables, [_drawing(runs, seen)], shown, remarks)

    def _named(self, terms: Terms) -> dict[str, dict[str, Variant]]:
        """Return variants by name and class order."""
        makers: dict[str, Callable[..., Variant]] = {LDC: terms.ldc}
        for mode in terms.budget_modes:
            makers[f"free_lunch, {mode}"] = lambda mode=mode, **changes: terms.budgeted(
                mode, **changes
            )
        return {
            name: {
                order: make(overrides={"class_order": order} if number else {})
                for number, order in enumerate(_orders(terms.protocol, self.params.orders))
            }
            for name, make in makers.items()
        }


def _orders(protocol: Protocol, count: int) -> list[str]:
    """Return the protocol's class order, and random ones beside it."""
    others = [f"seed:{n}" for n in range(1, count + 1)]
    return [protocol.class_order, *(o for o in others if o != protocol.class_order)][:count]


def _label(name: str, order: str, report: Scalability) -> str:
    return f"{name}, class order {order}" if report.params.orders > 1 else name


def _columns(seen: list[int]) -> list[Column]:
    columns = [Column(f"drop_{n}", str(n), "Drop after classes", "lowest") for n in seen]
    columns.append(Column("slope", "Slope", best="lowest"))
    return [*columns, Column("last", "Last"), Column("average", "Avg")]


def _apart_columns(seen: list[int]) -> list[Column]:
    columns = [Column(f"drop_{n}", str(n), "Drop after classes", "none") for n in seen]
    return [*columns, Column("slope", "Slope", best="none")]


def _slope(run: StoredRun) -> float:
    return 10 * drop_slope(run)


def _drop_values(runs: Runs, session: int) -> dict[tuple[str, int], float]:
    return {key: drops(run)[session] for key, run in runs.items()}


def _rows(runs: Mapping[str, Runs]) -> list[TableRow]:
    rows = []
    for name, own in runs.items():
        sessions = next(iter(own.values())).record.sessions[1:]
        cells = {
            f"drop_{s.classes_seen}": mean_interval(list(_drop_values(own, s.index).values()))
            for s in sessions
        }
        cells |= {"slope": over_runs(own, _slope), "last": over_runs(own, last_accuracy)}
        cells["average"] = over_runs(own, average)
        rows.append(TableRow(name, len(own), cells))
    return rows


def _apart(runs: Mapping[str, Runs]) -> list[TableRow]:
    ldc = runs.get(LDC, {})
    rows = []
    for name, own in runs.items():
        shared = len(set(own) & set(ldc))
        if name == LDC or not shared:
            continue
        sessions = next(iter(own.values())).record.sessions[1:]
        cells = {
            f"drop_{s.classes_seen}": paired_interval(
                _drop_values(own, s.index), _drop_values(ldc, s.index)
            )
            for s in sessions
        }
        cells["slope"] = _slopes_apart(own, ldc)
        rows.append(TableRow(f"{name} − {LDC}", shared, cells))
    return rows


def _slopes_apart(ours: Runs, theirs: Runs) -> Interval:
    first, second = ({key: _slope(run) for key, run in runs.items()} for runs in (ours, theirs))
    return paired_interval(first, second)


def _sentences(runs: Mapping[str, Runs]) -> list[str]:
    ldc = runs.get(LDC, {})
    figure, unit = "slope of the accuracy drop", "points for 10 classes"
    pairs = "pairs of runs"
    return [
        difference_sentence(name, LDC, figure, _slopes_apart(own, ldc), unit, pairs)
        for name, own in runs.items()
        if name != LDC
    ]


def _memory(name: str, runs: Runs) -> str:
    sessions = next(iter(runs.values())).record.sessions
    first, last = (human_bytes(s.state_bytes) for s in (sessions[0], sessions[-1]))
    return f"{name} stores {first} in all after the base session and {last} after the last."


def _drawing(runs: Mapping[str, Runs], seen: list[int]) -> Drawing:
    ldc = runs.get(LDC, {})
    lost = [
        Violins(name, {n: list(_drop_values(own, t).values()) for t, n in enumerate(seen, start=1)})
        for name, own in runs.items()
    ]
    more = [
        Violins(name, {n: _more(own, ldc, t) for t, n in enumerate(seen, start=1)})
        for name, own in runs.items()
        if name != LDC and set(own) & set(ldc)
    ]
    panels = [ViolinPanel("Accuracy lost (points)", lost)]
    panels += [ViolinPanel("More than ldc (points)", more, zero=True)] if more else []
    caption = (
        "(a) Accuracy lost since the base session, (b) how much more of it Free-Lunch loses than "
        "LDC, paired by seed and class order, against the number of classes seen. A violin for "
        "each method and session (kernel density, cut at the extremes), its dots the runs, its bar "
        "their median."
    )
    lines = violin_lines(panels)
    return Drawing("drop-violins", caption, lambda: violin_figure(panels), lines)


def _more(ours: Runs, theirs: Runs, session: int) -> list[float]:
    """Return how much more accuracy is lost, run by run, in points."""
    first, second = (_drop_values(runs, session) for runs in (ours, theirs))
    return [first[key] - second[key] for key in first if key in second]
