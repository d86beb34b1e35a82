"""Numbers and differences in words, each sentence chosen by a rule."""

from __future__ import annotations

import math

from fscil_bench.metrics import Interval
from fscil_bench.reporting.statistics import FAILS, FEWEST_PAIRS, HOLDS, above_zero

RULE = (
    "Sentences on differences are chosen by a rule: a difference is the mean over pairs, in "
    "brackets its 95 % Student-t interval, mean ± t·s/√n. It is told where the interval lies on "
    "one side of 0; otherwise t·s/√n is the smallest difference that these pairs could have shown. "
    f"Fewer than {FEWEST_PAIRS} pairs tell nothing: no test of signs or ranks could reach 5 %."
)


def number(value: float) -> str:
    """Return a number with two decimals, or two significant digits if it is smaller than 0.1.

    What is smaller than 1e-12 is what rounding leaves of 0.
    """
    value = 0.0 if abs(value) < 1e-12 else value
    plain = value == 0 or math.isnan(value) or abs(value) >= 0.1
    return (f"{value:z.2f}" if plain else f"{value:.2g}").replace("-", "−")


def signed(value: float) -> str:
    """Return a number with its sign."""
    return f"+{number(value)}" if value >= 1e-12 else number(value)


def interval_text(interval: Interval) -> str:
    """Return a difference with its sign and, in brackets, its interval's bounds."""
    return f"{signed(interval.mean)} [{signed(interval.low)}, {signed(interval.high)}]"


def difference_sentence(
    ours: str,
    theirs: str,
    figure: str,
    interval: Interval,
    unit: str = "points",
    pairs: str = "seeds",
) -> str:
    """Return what paired differences, ours − theirs, say of two sides.

    Args:
        ours: name of the first side.
        theirs: name of the second.
        figure: what is compared, as in "accuracy after the last session".
        interval: of the differences.
        unit: of the figure.
        pairs: what the interval is taken over.
    """
    if interval.count == 0:
        return f"{ours} and {theirs} cannot be compared in {figure}: no pair of runs is stored."
    counted = f"n = {interval.count} {pairs if interval.count > 1 else pairs.removesuffix('s')}"
    if interval.count < FEWEST_PAIRS:
        figures = f"{signed(interval.mean)} {unit} ({counted})"
        return f"{ours} against {theirs}, {figure}: {figures}, too few pairs to tell."
    verdict = above_zero(interval)
    if verdict == HOLDS or (verdict == FAILS and interval.high < 0):
        word = "higher" if verdict == HOLDS else "lower"
        measured = f"{_size_text(interval)} {unit} ({counted})"
        return f"{ours} has a {word} {figure} than {theirs}, by {measured}."
    if interval.mean == 0 and interval.half_width == 0:
        return f"{ours} and {theirs} have the same {figure} in every pair ({counted})."
    shown = f"the smallest that could have shown: {number(interval.half_width)}"
    measured = f"{interval_text(interval)} {unit} ({counted})"
    return f"{ours} and {theirs} cannot be told apart in {figure}: {measured}; {shown}."


def _size_text(interval: Interval) -> str:
    """Return how large a difference is, whichever its sign, with its interval's bounds."""
    sign = 1 if interval.mean > 0 else -1
    bounds = sorted((sign * interval.low, sign * interval.high))
    return f"{number(sign * interval.mean)} [{number(bounds[0])}, {number(bounds[1])}]"
