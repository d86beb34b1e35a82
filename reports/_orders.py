"""Whether the order of methods survives another order of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from fscil_bench.metrics import Interval
from fscil_bench.plugins.registry import Registry
from fscil_bench.request import seeds_text
from fscil_bench.running.commands import command_for
from fscil_bench.spec import RunSpec

from ._comparison import terms
from ._labels import row_labels
from ._paired import high, low, paired_interval
from ._rows import Row
from ._run_values import last_accuracy

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
        """Whether both differences are told from 0 by their intervals."""
        return all(low(each) > 0 or high(each) < 0 for each in (self.before, self.after))


@dataclass(frozen=True)
class OrderPair:
    """Two class orders: Kendall's tau of their rankings and the rows that change places."""

    orders: tuple[str, str]
    rows: int
    tau: float
    swaps: tuple[Swap, ...]


@dataclass(frozen=True)
class Rankings:
    """Rows by label and class order, all else on equal terms."""

    rows: Mapping[str, Mapping[str, Row]]

    @property
    def orders(self) -> list[str]:
        """The class orders, in order of appearance."""
        return list(dict.fromkeys(order for own in self.rows.values() for order in own))

    def pairs(self) -> list[OrderPair]:
        """Return how each two class orders agree, where they share two rows or more."""
        found = []
        for one, two in combinations(self.orders, 2):
            both = [label for label, own in self.rows.items() if one in own and two in own]
            if len(both) > 1:
                found.append(self._agreement(one, two, both))
        return found

    def _agreement(self, one: str, two: str, labels: Sequence[str]) -> OrderPair:
        from scipy.stats import kendalltau

        means = [[_mean(self.rows[label][order]) for label in labels] for order in (one, two)]
        swaps = []
        for a, b in combinations(labels, 2):
            before, after = (_difference(self.rows[a][o], self.rows[b][o]) for o in (one, two))
            if before.mean * after.mean < 0:
                swaps.append(Swap(a, b, before, after))
        tau = float(kendalltau(*means).statistic)
        return OrderPair((one, two), len(labels), tau, tuple(swaps))


def rankings(rows: Sequence[Row], registry: Registry) -> list[Rankings]:
    """Return the rankings of rows that are stored for several class orders, one for each terms."""
    settings: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        own = terms(row.spec)
        key = tuple(value for name, value in own.items() if name not in _OF_ORDER)
        settings.setdefault(key, []).append(row)
    found = [_by_order(group, registry) for group in settings.values()]
    return [each for each in found if len(each.orders) > 1]


def order_commands(rows: Sequence[Row], registry: Registry) -> list[str]:
    """Return the commands that make the rows' runs with other class orders."""
    return [
        _command(row, order, registry)
        for order in OTHER_ORDERS
        for row in rows
        if order != row.spec.protocol.class_order
    ]


def _command(row: Row, order: str, registry: Registry) -> str:
    spec = row.spec
    other = spec.model_copy(update={"protocol": spec.protocol.model_copy(update={ORDER: order})})
    one_seed, all_seeds = f"--seeds {spec.seed} ", seeds_text([seed for _, seed in row.axes])
    return command_for(other, registry).replace(one_seed, f"--seeds {all_seeds} ", 1)


def _by_order(rows: Sequence[Row], registry: Registry) -> Rankings:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_any_order(row.spec).row, []).append(row)
    labels = row_labels([_any_order(own[0].spec) for own in groups.values()], registry)
    return Rankings(
        {
            label: {row.spec.protocol.class_order: row for row in own}
            for label, own in zip(labels, groups.values(), strict=True)
        }
    )


def _any_order(spec: RunSpec) -> RunSpec:
    """Return a specification that is alike for all class orders."""
    unordered = {ORDER: "dataset"}
    brought = spec.representation.model_copy(update={**unordered, "data_fingerprint": ""})
    protocol = spec.protocol.model_copy(update=unordered)
    return spec.model_copy(update={"representation": brought, "protocol": protocol})


def _mean(row: Row) -> float:
    return round(row.interval(last_accuracy).mean, 9)


def _difference(one: Row, two: Row) -> Interval:
    sides = [
        {(run.spec.representation.seed, run.spec.seed): last_accuracy(run) for run in row.runs}
        for row in (one, two)
    ]
    return paired_interval(sides[0], sides[1])
