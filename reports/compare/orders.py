"""Whether the order of methods survives another order of classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from fscil_bench.metrics import Interval
from fscil_bench.report import Lack
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.labels import row_labels
from fscil_bench.reporting.sentences import interval_text, signed
from fscil_bench.reporting.statistics import DECIMALS, FEWEST_PAIRS, aggregate, paired
from fscil_bench.running.commands import command_for
from fscil_bench.spec import RunSpec

from .pairs import on_equal_terms

ORDER = "class_order"
OTHER_ORDERS = ("seed:1", "seed:2")
"""Class orders that commands are named for where only one is stored."""
_OF_ORDER = (ORDER, "data fingerprint", "shots")
"""Terms that another order of classes changes by itself."""


@dataclass(frozen=True)
class Swap:
    """Two rows that change places between two class orders, with their difference in each."""

    first: str
    second: str
    before: Interval
    after: Interval

    @property
    def certain(self) -> bool:
        """Whether both differences are told from 0: by their intervals, over pairs enough."""
        return all(
            each.count >= FEWEST_PAIRS and (each.low > 0 or each.high < 0)
            for each in (self.before, self.after)
        )


@dataclass(frozen=True)
class OrderPair:
    """Two class orders: Kendall's tau of their rankings and the rows that change places."""

    orders: tuple[str, str]
    rows: int
    tau: float
    swaps: tuple[Swap, ...]

    def __str__(self) -> str:
        one, two = self.orders
        text = f"{one} and {two}: Kendall's tau {self.tau:.2f} over {self.rows} rows"
        swaps = [
            f"{swap.first} − {swap.second} is {_text(swap.before)} under {one} "
            f"and {_text(swap.after)} under {two}"
            for swap in self.swaps
        ]
        return f"{text}; changed places: {'; '.join(swaps)}." if swaps else f"{text}."


@dataclass(frozen=True)
class Rankings:
    """Runs of rows by label and class order, all else on equal terms."""

    rows: Mapping[str, Mapping[str, pd.DataFrame]]

    @property
    def orders(self) -> list[str]:
        """The class orders, in order of appearance."""
        return list(dict.fromkeys(order for own in self.rows.values() for order in own))

    def frame(self) -> pd.DataFrame:
        """Return last-session accuracy in %: a line a row, an interval a class order."""
        lines = []
        for label, own in self.rows.items():
            runs = pd.concat([each.assign(order=order) for order, each in own.items()])
            found = aggregate(runs, "order", ["last"])
            cells = {
                f"{order}_{part}": value
                for part in ("mean", "half_width", "n")
                for order, value in found[f"last_{part}"].items()
            }
            lines.append({"label": label, "runs": found["runs"].max(), **cells})
        return pd.DataFrame(lines)

    def pairs(self) -> list[OrderPair]:
        """Return how each two class orders agree, where they share two rows or more."""
        found = []
        for one, two in combinations(self.orders, 2):
            both = [label for label, own in self.rows.items() if one in own and two in own]
            if len(both) > 1:
                found.append(self._agreement(one, two, both))
        return found

    def _agreement(self, one: str, two: str, labels: list[str]) -> OrderPair:
        from scipy.stats import kendalltau

        means = [
            [round(self.rows[label][order]["last"].mean(), DECIMALS) for label in labels]
            for order in (one, two)
        ]
        swaps = []
        for a, b in combinations(labels, 2):
            before, after = (paired(self.rows[a][o], self.rows[b][o], "last") for o in (one, two))
            if before.mean * after.mean < 0:
                swaps.append(Swap(a, b, before, after))
        tau = float(kendalltau(*means).statistic)
        return OrderPair((one, two), len(labels), tau, tuple(swaps))


def rankings(chosen: Chosen) -> list[Rankings]:
    """Return the rankings of rows that are stored for several class orders, one for each terms."""
    found = [_by_order(group, chosen) for group in on_equal_terms(chosen, *_OF_ORDER)]
    return [each for each in found if len(each.orders) > 1]


def agreement_lines(each: Rankings) -> list[str]:
    """Say whether the order of the rows survives, then how each two class orders agree."""
    pairs = each.pairs()
    if not pairs:
        return ["No two class orders have two rows in common."]
    swapped = sum(bool(pair.swaps) for pair in pairs)
    certain = sum(swap.certain for pair in pairs for swap in pair.swaps)
    head = f"The order of the rows is the same in all {len(each.orders)} class orders."
    if swapped:
        head = (
            f"The order of the rows changes in {swapped} of {len(pairs)} pairs of class orders; "
            f"{certain} of the changes are told from chance in both orders."
        )
    return [head, *map(str, pairs)]


def order_lacks(chosen: Chosen) -> list[Lack]:
    """Return the rows' runs with other class orders, as what is lacking."""
    registry = chosen.results.registry
    lacks = []
    for order in OTHER_ORDERS:
        for label in chosen.labels:
            spec = chosen.spec(label)
            if order != spec.protocol.class_order:
                protocol = spec.protocol.model_copy(update={ORDER: order})
                other = spec.model_copy(update={"protocol": protocol})
                seeds = [seed for _, seed in chosen.axes(label)]
                command = command_for(other, registry, seeds)
                lacks.append(Lack(f"{label}, class order {order}", command))
    return lacks


def _text(interval: Interval) -> str:
    return interval_text(interval) if interval.count > 1 else signed(interval.mean)


def _by_order(labels: list[str], chosen: Chosen) -> Rankings:
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(_any_order(chosen.spec(label)).row, []).append(label)
    specs = [_any_order(chosen.spec(own[0])) for own in groups.values()]
    return Rankings(
        {
            name: {chosen.spec(label).protocol.class_order: chosen.of(label) for label in own}
            for name, own in zip(
                row_labels(specs, chosen.results.registry), groups.values(), strict=True
            )
        }
    )


def _any_order(spec: RunSpec) -> RunSpec:
    """Return a specification that is alike for all class orders."""
    unordered = {ORDER: "dataset"}
    brought = spec.representation.model_copy(update={**unordered, "data_fingerprint": ""})
    protocol = spec.protocol.model_copy(update=unordered)
    return spec.model_copy(update={"representation": brought, "protocol": protocol})
