from __future__ import annotations

import math

import pytest

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.reports._paired import (
    Verdict,
    above_zero,
    all_of,
    at_most,
    high,
    low,
    paired_interval,
)


def test_differences_are_taken_pair_by_pair() -> None:
    interval = paired_interval({0: 3.0, 1: 5.0, 2: 10.0}, {2: 7.0, 0: 2.0, 1: 3.0})

    # Differences 1, 2, 3: s = 1, t(0.975, 2) = 4.302653, half-width t/√3.
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.half_width == pytest.approx(4.3026527 / math.sqrt(3), rel=1e-7)
    assert (low(interval), high(interval)) == pytest.approx((-0.4841377, 4.4841377))


def test_what_has_no_partner_is_left_out() -> None:
    interval = paired_interval({0: 1.0, 1: 9.0, 3: 4.0}, {0: 0.0, 2: 7.0, 3: 3.0})

    assert (interval.mean, interval.half_width, interval.count) == (1.0, 0.0, 2)


def test_a_shift_of_all_pairs_alike_has_no_spread_however_far_the_pairs_lie_apart() -> None:
    interval = paired_interval({0: 11.0, 1: 51.0, 2: 91.0}, {0: 10.0, 1: 50.0, 2: 90.0})

    assert (interval.mean, interval.half_width) == (1.0, 0.0)


def test_rounding_is_no_difference() -> None:
    # 0.1 + 0.2 - 0.3 is 5.6e-17, on every pair alike.
    interval = paired_interval(dict.fromkeys(range(5), 0.1 + 0.2), dict.fromkeys(range(5), 0.3))

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


def test_two_pairs_that_agree_by_chance_tell_nothing() -> None:
    assert above_zero(mean_interval([-0.04, -0.04])) == "cannot be told"
    assert above_zero(mean_interval([-0.04, -0.04, -0.04])) == "does not hold"
    assert at_most(mean_interval([1.0, 1.0]), 1.5) == "cannot be told"
