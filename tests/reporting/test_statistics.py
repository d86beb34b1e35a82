from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.reporting.statistics import (
    FEWEST_PAIRS,
    Verdict,
    above_zero,
    all_of,
    at_most,
    bootstrap_interval,
    differences,
    holm,
    paired,
    paired_interval,
    paired_test,
    pairs_needed,
    smallest_p,
    wilcoxon_p,
)


def enumerated_p(differences: list[float]) -> float:
    """Return the two-sided p by going through all signs, as Wilcoxon's paper does."""
    data = np.array([d for d in differences if d != 0])
    ranks = stats.rankdata(np.abs(data))
    observed = ranks[data > 0].sum()
    sums = np.array(
        [
            ranks[np.array(signs)].sum()
            for signs in itertools.product([False, True], repeat=len(data))
        ]
    )
    return min(1.0, 2 * min(np.mean(sums >= observed), np.mean(sums <= observed)))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3, 4, 5, 6], 2 / 64),
        ([-1, -2, -3, -4, -5], 2 / 32),
        # Of 16 signs, 2 have a rank sum of at least 9: all positive, or all but the smallest.
        ([-1, 2, 3, 4], 4 / 16),
        ([1, 1, 1, 1, 1, 1], 2 / 64),
        ([0, 0, 1, 2, 3, 4, 5, 6], 2 / 64),
        ([0, 0, 0], 1.0),
        ([2], 1.0),
    ],
)
def test_wilcoxon_by_hand(differences: list[float], p: float) -> None:
    assert wilcoxon_p(differences) == pytest.approx(p)
    assert wilcoxon_p([-d for d in differences]) == pytest.approx(p)


@pytest.mark.parametrize(
    "differences", [[1, -1, 2, 3, 3, 5, -2, 4], [0.5, 0.5, -0.5, 1, 0, 2, 2.5], [1, 1, -1, 2, 3, 4]]
)
def test_ties_are_exact(differences: list[float]) -> None:
    assert wilcoxon_p(differences) == pytest.approx(enumerated_p(differences))


def test_many_ties_are_approximated() -> None:
    differences = [1.0, 1.0, -2.0] * 7

    assert 0 < wilcoxon_p(differences) < 1


def test_holm_by_hand() -> None:
    # 3 · 0.01, then 2 · 0.03, then 1 · 0.04, which may not fall below the one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_how_many_pairs_a_comparison_takes() -> None:
    assert smallest_p(6) == wilcoxon_p([1, 2, 3, 4, 5, 6])
    assert [pairs_needed(m) for m in (1, 6, 180)] == [6, 8, 13]


def test_the_bootstrap_is_of_differences() -> None:
    rng = np.random.default_rng(3)
    shared = 100 * rng.random(12)
    apart = differences(shared + 1 + 0.1 * rng.standard_normal(12), shared)

    low, high = bootstrap_interval(apart)

    # What a pair shares has a thousand times the spread of its difference.
    assert 0.9 < low < np.mean(apart) < high < 1.1
    assert bootstrap_interval(apart) == (low, high)


def test_the_bootstrap_of_few_or_equal_differences() -> None:
    assert all(math.isnan(end) for end in bootstrap_interval([-1.0]))
    assert bootstrap_interval([0.0, 0.0]) == (0.0, 0.0)
    assert bootstrap_interval([1.0, 1.0, 1.0]) == (1.0, 1.0)


def test_equal_percentages_are_no_difference() -> None:
    test = paired_test([0.1 + 0.2, 1.0, 2.0], [0.3, 1.0, 1.0])

    assert test.differences == (0.0, 0.0, 1.0)
    assert test.zeros == 2
    assert test.interval.mean == pytest.approx(1 / 3)
    # s = 1/√3, t(0.975, 2) = 4.302653: t·s/√3.
    assert test.interval.half_width == pytest.approx(4.302653 / 3, rel=1e-6)
    assert math.isnan(test.adjusted)


def test_differences_are_taken_pair_by_pair() -> None:
    interval = paired_interval({0: 3.0, 1: 5.0, 2: 10.0}, {2: 7.0, 0: 2.0, 1: 3.0})

    # Differences 1, 2, 3: s = 1, t(0.975, 2) = 4.302653, half-width t/√3.
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.half_width == pytest.approx(4.3026527 / math.sqrt(3), rel=1e-7)
    assert (interval.low, interval.high) == pytest.approx((-0.4841377, 4.4841377))


def test_what_has_no_partner_is_left_out() -> None:
    interval = paired_interval({0: 1.0, 1: 9.0, 3: 4.0}, {0: 0.0, 2: 7.0, 3: 3.0})

    assert (interval.mean, interval.half_width, interval.count) == (1.0, 0.0, 2)


def test_a_shift_of_all_pairs_alike_has_no_spread_however_far_the_pairs_lie_apart() -> None:
    interval = paired_interval({0: 11.0, 1: 51.0, 2: 91.0}, {0: 10.0, 1: 50.0, 2: 90.0})

    assert (interval.mean, interval.half_width) == (1.0, 0.0)


def test_rounding_is_no_difference() -> None:
    # 0.1 + 0.2 - 0.3 is 5.6e-17, on every pair alike.
    interval = paired_interval(dict.fromkeys(range(6), 0.1 + 0.2), dict.fromkeys(range(6), 0.3))

    assert (interval.mean, interval.half_width) == (0.0, 0.0)
    assert above_zero(interval) == "does not hold"


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (1.0, 0.5, "holds"),
        (1.0, 1.0, "cannot be told"),
        (1.0, 2.0, "cannot be told"),
        (-1.0, 2.0, "cannot be told"),
        (-1.0, 1.0, "does not hold"),
        (-1.0, 0.5, "does not hold"),
        (0.0, 0.0, "does not hold"),
        (0.1, 0.0, "holds"),
        (5.0, math.nan, "cannot be told"),
    ],
)
def test_a_positive_difference(mean: float, half: float, verdict: Verdict) -> None:
    assert above_zero(Interval(mean, half, 10)) == verdict


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (1.0, 0.4, "holds"),
        (1.0, 0.5, "holds"),
        (1.0, 0.6, "cannot be told"),
        (2.0, 0.5, "cannot be told"),
        (2.0, 0.4, "does not hold"),
        (1.5, 0.0, "holds"),
    ],
)
def test_a_limit(mean: float, half: float, verdict: Verdict) -> None:
    assert at_most(Interval(mean, half, 10), 1.5) == verdict


def test_without_pairs_nothing_is_tested() -> None:
    nothing = paired_interval({0: 1.0}, {1: 1.0})

    assert above_zero(nothing) == at_most(nothing, 1.5) == "not tested"


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        (("holds", "holds"), "holds"),
        (("holds", "cannot be told"), "cannot be told"),
        (("cannot be told", "not tested", "holds"), "not tested"),
        (("holds", "not tested", "does not hold", "cannot be told"), "does not hold"),
        ((), "not tested"),
    ],
)
def test_a_claim_of_several_parts(verdicts: tuple[Verdict, ...], whole: Verdict) -> None:
    assert all_of(verdicts) == whole


def test_too_few_pairs_tell_nothing_however_they_agree() -> None:
    assert FEWEST_PAIRS == 6  # 2 / 2⁵ is above 0.05, 2 / 2⁶ is not
    assert above_zero(mean_interval([0.04] * 5)) == "cannot be told"
    assert above_zero(mean_interval([0.04] * 6)) == "holds"
    assert at_most(mean_interval([1.0] * 5), 1.5) == "cannot be told"


def test_runs_are_paired_by_both_seeds() -> None:
    first = pd.DataFrame({"representation_seed": [0, 0, 1], "seed": [0, 1, 0], "last": [3, 5, 9.0]})
    second = pd.DataFrame({"representation_seed": [1, 0], "seed": [0, 1], "last": [6.0, 4.0]})

    interval = paired(first, second, "last")

    # 9 - 6 and 5 - 4; s = √2, t(0.975, 1) = 12.706205, divided by √2.
    assert (interval.mean, interval.count) == (2.0, 2)
    assert interval.half_width == pytest.approx(12.706205, rel=1e-6)
