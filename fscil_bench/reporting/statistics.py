"""Intervals, paired differences and tests, and the one rule that turns them into verdicts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from fscil_bench.metrics import Interval, mean_interval

Verdict = Literal["holds", "does not hold", "cannot be told", "not tested"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "cannot be told"
UNTESTED: Verdict = "not tested"

LEVEL = 0.05
"""The chance of a false alarm, over all pairs of a comparison together."""
RESAMPLES = 9999
"""Of the bootstrap."""
DECIMALS = 9
"""To which differences are rounded: far below anything that a count of images can show."""
TIED_EXACT = 13
"""Differences up to which all 2ⁿ signs are gone through where some are equally large."""
PAIRING = ("representation_seed", "seed")
"""Columns that two runs of different rows share if they are a pair."""

Key = TypeVar("Key", bound=Hashable)


def aggregate(frame: pd.DataFrame, by: str | list[str], measures: Iterable[str]) -> pd.DataFrame:
    """Return a row for each value of `by`, indexed by it, in order of appearance.

    Its columns are `runs` (how many there are) and of each measure `{measure}_mean`,
    `{measure}_half_width` (of the 95 % Student-t interval, NaN for a single run) and
    `{measure}_n`.
    """
    grouped = frame.groupby(by, sort=False)
    columns: dict[str, Any] = {"runs": grouped.size()}
    for measure in measures:
        cells = [mean_interval(values.tolist()) for _, values in grouped[measure]]
        columns[f"{measure}_mean"] = [each.mean for each in cells]
        columns[f"{measure}_half_width"] = [each.half_width for each in cells]
        columns[f"{measure}_n"] = [each.count for each in cells]
    return pd.DataFrame(columns)


def interval(frame: pd.DataFrame, measure: str) -> Interval:
    """Return the interval of a measure over the runs of a frame."""
    return mean_interval(frame[measure].tolist())


def paired(first: pd.DataFrame, second: pd.DataFrame, measure: str) -> Interval:
    """Return the interval of first − second over the runs that share their seeds (`PAIRING`)."""
    one, two = (side.set_index(list(PAIRING))[measure] for side in (first, second))
    return paired_interval(one.to_dict(), two.to_dict())


def paired_interval(first: Mapping[Key, float], second: Mapping[Key, float]) -> Interval:
    """Return the mean of first − second with its 95 % interval, over the keys that both have.

    The interval is Student's over the differences, so that what two runs with one key share
    (shots, order, episode) cancels. Its half-width, t·s/√n, is also the smallest difference that
    these pairs could have shown: a mean of just that size has an interval that ends at 0.
    """
    shared = [key for key in first if key in second]
    return mean_interval(differences([first[k] for k in shared], [second[k] for k in shared]))


def differences(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    """Return first − second of each pair, rounded to `DECIMALS`.

    Equal counts give differences of 1e-14 points when percentages are subtracted: no gain at all.
    """
    # Adding 0.0 makes 0.0 of -0.0.
    return tuple(round(a - b, DECIMALS) + 0.0 for a, b in zip(first, second, strict=True))


def above_zero(interval: Interval) -> Verdict:
    """Judge the claim that a difference is positive.

    It holds if the lower bound is above 0 and does not if the upper bound is at or below 0; with
    fewer than `FEWEST_PAIRS` pairs nothing can be told.
    """
    return _judged(interval, interval.low > 0, interval.high <= 0)


def at_most(interval: Interval, limit: float) -> Verdict:
    """Judge the claim that something is no larger than `limit`.

    It holds if the upper bound is at or below the limit and does not if the lower one is above it.
    """
    return _judged(interval, interval.high <= limit, interval.low > limit)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Judge a claim of several parts: it holds if all do, and does not if one of them does not.

    Otherwise it is not tested if one of them is not, and else cannot be told.
    """
    found = set(verdicts)
    for verdict in (FAILS, UNTESTED, OPEN):
        if verdict in found:
            return verdict
    return HOLDS if found else UNTESTED


@dataclass(frozen=True)
class PairedTest:
    """What n paired differences say.

    Attributes:
        differences: of each pair, first minus second.
        interval: their mean with its 95 % Student-t interval.
        low: lower end of the bootstrap's 95 % interval; NaN for fewer than two pairs.
        high: its upper end.
        p: of Wilcoxon's signed-rank test, two-sided; 1 if all differences are 0.
        adjusted: the same after Holm's correction over all pairs.
    """

    differences: tuple[float, ...]
    interval: Interval
    low: float
    high: float
    p: float
    adjusted: float = math.nan

    @property
    def zeros(self) -> int:
        """How many pairs are exactly alike."""
        return self.differences.count(0.0)


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairedTest:
    """Test whether paired values differ; `first` and `second` are in the order of the pairs."""
    apart = differences(first, second)
    low, high = bootstrap_interval(apart)
    return PairedTest(apart, mean_interval(apart), low, high, wilcoxon_p(apart))


def wilcoxon_p(differences: Sequence[float]) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test (Wilcoxon, 1945).

    Zero differences are dropped, as Wilcoxon does. p is exact; only for more than 13 differences
    of which some are equally large, or more than 50, it is the normal approximation.
    """
    from scipy import stats

    data = np.array([d for d in differences if d != 0])
    if len(data) == 0:
        return 1.0
    tied = len(np.unique(np.abs(data))) < len(data)
    if tied and len(data) <= TIED_EXACT:
        return float(stats.wilcoxon(data, method=stats.PermutationMethod()).pvalue)
    return float(stats.wilcoxon(data).pvalue)


def bootstrap_interval(differences: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % BCa bootstrap interval of the mean difference (Efron, 1987).

    Without spread both ends are the difference; a single pair has none.
    """
    from scipy import stats

    data = np.asarray(differences, dtype=np.float64)
    if len(data) < 2:
        return math.nan, math.nan
    if data.max() == data.min():
        return float(data[0]), float(data[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few pairs some resamples are all alike
        found = stats.bootstrap(
            (data,),
            np.mean,
            n_resamples=RESAMPLES,
            method="BCa",
            random_state=np.random.default_rng(seed),
        )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p after Holm's correction (Holm, 1979), in the order given.

    The k-th smallest of m is multiplied by m − k + 1, is at most 1 and no smaller than the one
    before it. Comparing with a level then bounds the chance of any false alarm by it.
    """
    order = np.argsort(ps, kind="stable")
    raised = np.asarray(ps)[order] * np.arange(len(ps), 0, -1)
    adjusted = np.empty(len(ps))
    adjusted[order] = np.maximum.accumulate(np.minimum(raised, 1.0))
    return [float(p) for p in adjusted]


def smallest_p(pairs: int) -> float:
    """Return the smallest p that Wilcoxon's test can give for so many pairs: 2 / 2ⁿ."""
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_needed(comparisons: int, level: float = LEVEL) -> int:
    """Return from how many pairs on the smallest p passes Holm's first step below the level."""
    pairs = 1
    while smallest_p(pairs) * comparisons >= level:
        pairs += 1
    return pairs


FEWEST_PAIRS = pairs_needed(1)
"""Six: below, no arrangement of differences reaches the level in Wilcoxon's test."""


def _judged(interval: Interval, holds: bool, fails: bool) -> Verdict:
    if interval.count == 0:
        return UNTESTED
    if interval.count < FEWEST_PAIRS:
        return OPEN
    return HOLDS if holds else FAILS if fails else OPEN
