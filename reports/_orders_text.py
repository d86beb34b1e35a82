"""Class orders in words and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fscil_bench.metrics import Interval

from ._claims_accuracy import FIGURES
from ._orders import OrderPair, Rankings
from ._paired import high, low
from ._tables import Column, TableRow, escape_markdown, markdown_table


def order_parts(orders: Sequence[Rankings], commands: Sequence[str]) -> list[str]:
    """Return what is known of other class orders as Markdown, or the commands that make more."""
    if not orders:
        listed = "\n".join(f"- `{command}`" for command in commands)
        return [
            "Runs of one class order alone are stored for these rows, so that nothing can be said "
            f"of another. These make more:\n\n{listed}"
        ]
    parts = []
    for each in orders:
        lines = "\n".join(f"- {escape_markdown(line)}" for line in agreement_lines(each))
        parts += [markdown_table(*order_table(each)).rstrip(), lines]
    return [*parts, "Last-session accuracy in %, ± the half-width of the 95 % interval over seeds."]


def order_table(each: Rankings) -> tuple[list[Column], list[TableRow]]:
    """Return the last-session accuracy of each row under each class order."""
    columns = [Column(order, order, "Class order") for order in each.orders]
    value = FIGURES["last session"]
    rows = [
        TableRow(
            label,
            max(len(row.runs) for row in own.values()),
            {order: row.interval(value) for order, row in own.items()},
        )
        for label, own in each.rows.items()
    ]
    return columns, rows


def agreement_lines(each: Rankings) -> list[str]:
    """Say whether the order of the rows survives, then how each two class orders agree."""
    pairs = each.pairs()
    if not pairs:
        return ["No two class orders have two rows in common."]
    swapped = sum(bool(pair.swaps) for pair in pairs)
    certain = sum(swap.certain for pair in pairs for swap in pair.swaps)
    if not swapped:
        head = f"The order of the rows is the same in all {len(each.orders)} class orders."
    else:
        head = (
            f"The order of the rows changes in {swapped} of {len(pairs)} pairs of class orders; "
            f"{certain} of the changes are told from chance in both orders."
        )
    return [head, *(_agreement(pair) for pair in pairs)]


def _agreement(pair: OrderPair) -> str:
    one, two = pair.orders
    text = f"{one} and {two}: Kendall's tau {pair.tau:.2f} over {pair.rows} rows"
    swaps = [
        f"{swap.first} − {swap.second} is {_short(swap.before)} under {one} "
        f"and {_short(swap.after)} under {two}"
        for swap in pair.swaps
    ]
    return f"{text}; changed places: {'; '.join(swaps)}." if swaps else f"{text}."


def _short(interval: Interval) -> str:
    return bounded(interval.mean, low(interval), high(interval))


def bounded(mean: float, lower: float, upper: float) -> str:
    """Return a difference with its sign and, in brackets, its bounds if it has some."""
    return _signed(mean) + ("" if math.isnan(lower) else f" {bounds(lower, upper)}")


def bounds(lower: float, upper: float) -> str:
    """Return bounds in brackets."""
    return "–" if math.isnan(lower) else f"[{_signed(lower)}, {_signed(upper)}]"


def _signed(value: float) -> str:
    return f"{value:+z.2f}".replace("-", "−") if round(value, 2) else "0.00"
