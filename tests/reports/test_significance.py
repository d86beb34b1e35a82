from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fscil_bench.reports._significance import (
    bootstrap_interval,
    holm,
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


def test_the_bootstrap_draws_pairs_together() -> None:
    rng = np.random.default_rng(3)
    shared = 100 * rng.random(12)
    first, second = shared + 1 + 0.1 * rng.standard_normal(12), shared

    low, high = bootstrap_interval(first.tolist(), second.tolist())

    # What a pair shares has a thousand times the spread of its difference.
    assert 0.9 < low < np.mean(first - second) < high < 1.1
    assert bootstrap_interval(first.tolist(), second.tolist()) == (low, high)


def test_the_bootstrap_of_few_or_equal_differences() -> None:
    assert all(math.isnan(end) for end in bootstrap_interval([1.0], [2.0]))
    assert bootstrap_interval([0.1 + 0.2, 1.3], [0.3, 1.3]) == (0.0, 0.0)
    assert bootstrap_interval([2.0, 5.0, 9.0], [1.0, 4.0, 8.0]) == (1.0, 1.0)


def test_equal_percentages_are_no_difference() -> None:
    test = paired_test([0.1 + 0.2, 1.0, 2.0], [0.3, 1.0, 1.0])

    assert test.differences == (0.0, 0.0, 1.0)
    assert test.zeros == 2
    assert test.interval.mean == pytest.approx(1 / 3)
    # s = 1/√3, t(0.975, 2) = 4.302653: t·s/√3.
    assert test.interval.half_width == pytest.approx(4.302653 / 3, rel=1e-6)
    assert math.isnan(test.adjusted)
