from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fscil_bench.reports.overall.statistics import (
    improvement,
    interquartile_mean,
    mean_ranks,
    profile,
    signed_rank_posterior,
    summary,
)


def test_mean_ranks_by_hand() -> None:
    # Task 1: 3, 2, 1; task 2: the first two share ranks 1 and 2.
    means = np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 4.0]])
    assert mean_ranks(means).tolist() == [2.25, 1.75, 2.0]


def test_interquartile_mean_is_scipy_s_trimmed_mean_and_weighs_tasks_alike() -> None:
    values = np.random.default_rng(0).normal(size=(3, 8))
    equal = np.full(8, 1 / 8)
    assert interquartile_mean(values, equal) == pytest.approx(stats.trim_mean(values, 0.25, axis=1))
    # By hand: of 1, 2, 9 with half, a quarter, a quarter the middle half is 1 and 2.
    assert interquartile_mean(np.array([9.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25])) == 1.5


def test_summary_resamples_runs_within_tasks() -> None:
    apart = np.array([[9.0, 8.0, 7.0], [1.0, 2.0, 3.0]])
    mixed = np.array([[5.0, 1.0], [4.0, 4.0]])
    found = summary(["a", "b"], [apart, mixed])

    assert found["rank"].tolist() == [1.5, 1.5]
    # a always wins the first task; the second is won by b where a's lower run is drawn at all.
    assert found.loc["a", ["rank_low", "rank_high"]].tolist() == [1.0, 1.5]
    assert found.loc["b", ["rank_low", "rank_high"]].tolist() == [1.5, 2.0]
    assert found.loc["b", "iqm_low"] < found.loc["b", "iqm"] < found.loc["b", "iqm_high"]


def test_profile_by_hand() -> None:
    tasks = [np.array([[10.0, 20.0]]), np.array([[20.0, 30.0, 30.0, 40.0]])]
    shares = profile(tasks, np.array([10.0, 20.0, 30.0, 41.0]))
    assert shares.tolist() == [[1.0, 0.75, 0.375, 0.0]]


def test_probability_of_improvement_by_hand() -> None:
    # 1 > 0, 1 = 1, 3 > 0, 3 > 1: 3.5 of 4.
    value, low, high = improvement([np.array([[1.0, 3.0], [0.0, 1.0]])])
    assert value == 3.5 / 4
    assert low <= value <= high
    certain = np.array([[2.0, 3.0], [0.0, 1.0]])
    assert improvement([certain]) == (1.0, 1.0, 1.0)
    assert improvement([certain, certain[::-1]]) == (0.5, 0.5, 0.5)


def test_signed_rank_posterior() -> None:
    assert signed_rank_posterior([5.0] * 10, 1)[0] > 0.999
    assert signed_rank_posterior([-5.0] * 10, 1)[2] > 0.999
    assert signed_rank_posterior([0.5, -0.5] * 5, 1)[1] > 0.999
    first, equal, second = signed_rank_posterior([3.0, -3.0] * 3, 1)
    assert first == pytest.approx(second, abs=0.02)
    assert first + equal + second == pytest.approx(1)
    # baycomp gives 0.2738, 0.7262 and 0.0001 of 50,000 draws; 0.3 + 1.7 lies on the edge.
    mixed = signed_rank_posterior([2.1, 0.3, -0.4, 1.7, 0.2, 3.0, -1.3, 0.9], 1)
    assert mixed == pytest.approx((0.2738, 0.7262, 0.0001), abs=0.01)
    # One difference beside the prior's 0 has most of the weight where the prior's weight w is below
    # sqrt(1/2); w is Beta(1/2, 1), of which P(w < x) is sqrt(x).
    assert signed_rank_posterior([9.0], 1)[0] == pytest.approx(0.5**0.25, abs=0.01)
