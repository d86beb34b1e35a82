"""Paired differences and the rules that turn their intervals into verdicts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Literal, TypeVar

from fscil_bench.metrics import Interval, mean_interval

Verdict = Literal["holds", "does not hold", "cannot be told", "not tested"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "cannot be told"
UNTESTED: Verdict = "not tested"

DECIMALS = 9
"""To which differences are rounded: far below anything that a count of images can show."""

FEWEST_PAIRS = 3
"""Pairs below which nothing can be told: two that agree by chance have an interval of no width."""

Key = TypeVar("Key", bound=Hashable)


def paired_interval(first: Mapping[Key, float], second: Mapping[Key, float]) -> Interval:
    """Return the mean of first − second with its 95 % interval, over the keys that both have.

    The interval is Student's over the differences, so that what two runs with one key share
    (shots, order, episode) cancels. Its half-width, t·s/√n, is also the smallest difference that
    these pairs could have shown: a mean of just that size has an interval that ends at 0.
    """
    shared = [key for key in first if key in second]
    # Equal counts give differences of 1e-14 points when percentages are subtracted: no gain at all.
    return mean_interval([round(first[key] - second[key], DECIMALS) for key in shared])


def low(interval: Interval) -> float:
    """Return the interval's lower bound; NaN where there is none."""
    return interval.mean - interval.half_width


def high(interval: Interval) -> float:
    """Return the interval's upper bound; NaN where there is none."""
    return interval.mean + interval.half_width


def above_zero(interval: Interval) -> Verdict:
    """Judge the claim that a difference is positive.

    It holds if the lower bound is above 0 and does not if the upper bound is at or below 0.
    """
    return _judged(interval, low(interval) > 0, high(interval) <= 0)


def at_most(interval: Interval, limit: float) -> Verdict:
    """Judge the claim that something is no larger than `limit`.

    It holds if the upper bound is at or below the limit and does not if the lower one is above it.
    """
    return _judged(interval, high(interval) <= limit, low(interval) > limit)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Judge a claim of several parts: it holds if all do, and does not if one of them does not.

    Otherwise it is not tested if one of them is not, and else cannot be told.
    """
    found = set(verdicts)
    for verdict in (FAILS, UNTESTED, OPEN):
        if verdict in found:
            return verdict
    return HOLDS if found else UNTESTED


def _judged(interval: Interval, holds: bool, fails: bool) -> Verdict:
    if interval.count == 0:
        return UNTESTED
    if interval.count < FEWEST_PAIRS:
        return OPEN
    return HOLDS if holds else FAILS if fails else OPEN
