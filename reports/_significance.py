"""Tests of paired differences: Wilcoxon's, a paired bootstrap, and Holm's correction."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fscil_bench.metrics import Interval, mean_interval

from ._paired import DECIMALS

LEVEL = 0.05
"""The chance of a false alarm, over all pairs of a comparison together."""
RESAMPLES = 9999
TIED_EXACT = 13
"""Differences up to which all 2ⁿ signs are gone through where some are equally large."""


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
    # Equal counts give differences of 1e-14 points when percentages are subtracted: no gain at all.
    rounded = [round(a - b, DECIMALS) for a, b in zip(first, second, strict=True)]
    differences = tuple(difference + 0.0 for difference in rounded)  # no -0.0
    low, high = bootstrap_interval(first, second)
    return PairedTest(differences, mean_interval(differences), low, high, wilcoxon_p(differences))


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
    if not tied or len(data) > TIED_EXACT:
        return float(stats.wilcoxon(data).pvalue)

    ranks = stats.rankdata(np.abs(data))

    def positive_ranks(signed: np.ndarray, axis: int = -1) -> np.ndarray:
        # The signs are permuted, the sizes stay where they are, and so do their ranks.
        total: np.ndarray = np.sum((signed > 0) * ranks, axis=axis)
        return total

    found = stats.permutation_test(
        (data,),
        positive_ranks,
        permutation_type="samples",
        vectorized=True,
        n_resamples=2 ** len(data),
    )
    return float(found.pvalue)


def bootstrap_interval(
    first: Sequence[float], second: Sequence[float], seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % BCa bootstrap interval of the mean difference (Efron, 1987).

    Pairs are drawn together. Without spread both ends are the difference; a single pair has none.
    """
    from scipy import stats

    rounded = np.round(np.subtract(first, second), DECIMALS)
    if len(rounded) < 2:
        return math.nan, math.nan
    if rounded.max() == rounded.min():
        return float(rounded[0]), float(rounded[0])

    def mean_difference(one: np.ndarray, two: np.ndarray, axis: int = -1) -> np.ndarray:
        mean: np.ndarray = np.mean(np.round(one - two, DECIMALS), axis=axis)
        return mean

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few pairs some resamples are all alike
        found = stats.bootstrap(
            (np.asarray(first), np.asarray(second)),
            mean_difference,
            n_resamples=RESAMPLES,
            paired=True,
            vectorized=True,
            method="BCa",
            random_state=np.random.default_rng(seed),
        )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p after Holm's correction (Holm, 1979), in the order given.

    The k-th smallest of m is multiplied by m − k + 1, is at most 1 and no smaller than the one
    before it. Comparing with a level then bounds the chance of any false alarm by it.
    """
    adjusted = [1.0] * len(ps)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        highest = max(highest, min(1.0, ps[index] * (len(ps) - place)))
        adjusted[index] = highest
    return adjusted


def smallest_p(pairs: int) -> float:
    """Return the smallest p that Wilcoxon's test can give for so many pairs: 2 / 2ⁿ."""
    return min(1.0, 2.0 ** (1 - pairs))


def pairs_needed(comparisons: int, level: float = LEVEL) -> int:
    """Return from how many pairs on the smallest p passes Holm's first step below the level."""
    pairs = 1
    while smallest_p(pairs) * comparisons >= level:
        pairs += 1
    return pairs
