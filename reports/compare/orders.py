"""Whether the order of methods survives another order of classes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pandas as pd

from fscil_bench.metrics import Interval
from fscil_bench.reporting.choice import Chosen, on_equal_terms
from fscil_bench.reporting.labels import row_labels
from fscil_bench.reporting.sentences import interval_text, signed
from fscil_bench.reporting.statistics import DECIMALS, FEWEST_PAIRS, aggregate, paired
from fscil_bench.spec import RunSpec

ORDER = "class_order"
_OF_ORDER = (ORDER, "data fingerprint", "shots")
"""Terms that another order of classes changes by itself."""

Ranked = Mapping[str, Mapping[str, pd.DataFrame]]
"""Runs by the label of their row and by class order, all else on equal terms."""
Swaps = dict[tuple[str, str], tuple[Interval, Interval]]
"""The differences of two rows in two class orders in which their signs are not alike."""


def rankings(chosen: Chosen) -> list[Ranked]:
    """Return the rows that are stored for several class orders, one mapping for each terms."""
    found = [_by_order(group, chosen) for group in on_equal_terms(chosen, *_OF_ORDER)]
    return [each for each in found if len(orders_of(each)) > 1]


def orders_of(ranked: Ranked) -> list[str]:
    """Return the class orders, in order of appearance."""
    return list(dict.fromkeys(order for own in ranked.values() for order in own))


def order_frame(ranked: Ranked) -> pd.DataFrame:
    """Return last-session accuracy in %: a line a row, an interval a class order."""
    lines = []
    for label, own in ranked.items():
        found = aggregate(pd.concat(own.values()), ORDER, ["last"])
        cells = {
            f"{order}_{part}": value
            for part in ("mean", "half_width", "n")
            for order, value in found[f"last_{part}"].items()
        }
        lines.append({"label": label, "runs": found["runs"].max(), **cells})
    return pd.DataFrame(lines)


def agreement_lines(ranked: Ranked) -> list[str]:
    """Say whether the order of the rows survives, then how each two class orders agree.

    By Kendall's tau of the means, and the rows that change places; a change is told from chance
    if both differences are, over pairs enough.
    """
    lines, swaps = [], []
    for orders in combinations(orders_of(ranked), 2):
        both = {label: own for label, own in ranked.items() if set(orders) <= set(own)}
        if len(both) > 1:
            swaps.append(_swaps(both, *orders))
            lines.append(_agreement(both, swaps[-1], *orders))
    if not lines:
        return ["No two class orders have two rows in common."]
    changed = sum(bool(own) for own in swaps)
    head = f"The order of the rows is the same in all {len(orders_of(ranked))} class orders."
    if changed:
        certain = sum(
            all(d.count >= FEWEST_PAIRS and (d.low > 0 or d.high < 0) for d in both)
            for own in swaps
            for both in own.values()
        )
        head = (
            f"The order of the rows changes in {changed} of {len(lines)} pairs of class orders; "
            f"{certain} of the changes are told from chance in both orders."
        )
    return [head, *lines]


def _swaps(both: Ranked, one: str, two: str) -> Swaps:
    """Return the pairs of rows that change places between two class orders."""
    found: Swaps = {}
    for a, b in combinations(both, 2):
        before, after = (paired(both[a][order], both[b][order], "last") for order in (one, two))
        if before.mean * after.mean < 0:
            found[a, b] = before, after
    return found


def _agreement(both: Ranked, swaps: Swaps, one: str, two: str) -> str:
    from scipy.stats import kendalltau

    means = (
        [round(own[order]["last"].mean(), DECIMALS) for own in both.values()]
        for order in (one, two)
    )
    tau = float(kendalltau(*means).statistic)
    text = f"{one} and {two}: Kendall's tau {tau:.2f} over {len(both)} rows"
    words = [
        f"{a} − {b} is {_text(before)} under {one} and {_text(after)} under {two}"
        for (a, b), (before, after) in swaps.items()
    ]
    return f"{text}; changed places: {'; '.join(words)}." if words else f"{text}."


def _text(interval: Interval) -> str:
    return interval_text(interval) if interval.count > 1 else signed(interval.mean)


def _by_order(labels: list[str], chosen: Chosen) -> Ranked:
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(_any_order(chosen.spec(label)).row, []).append(label)
    specs = [_any_order(chosen.spec(own[0])) for own in groups.values()]
    names = row_labels(specs, chosen.results.registry)
    return {
        name: {chosen.spec(label).protocol.class_order: chosen.of(label) for label in own}
        for name, own in zip(names, groups.values(), strict=True)
    }


def _any_order(spec: RunSpec) -> RunSpec:
    """Return a specification that is alike for all class orders."""
    unordered = {ORDER: "dataset"}
    brought = spec.representation.model_copy(update={**unordered, "data_fingerprint": ""})
    protocol = spec.protocol.model_copy(update=unordered)
    return spec.model_copy(update={"representation": brought, "protocol": protocol})
