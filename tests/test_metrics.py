from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fscil_bench.metrics import (
    NOT_SCORED,
    SessionMetrics,
    accuracy,
    average_accuracy,
    average_forgetting,
    base_forgetting,
    calibration_error,
    harmonic_mean,
    mean_interval,
    performance_drop,
    performance_retention,
    session_metrics,
)

# Two base classes (0, 1), then class 2, then class 3; two test samples each.
TARGETS = np.array([0, 0, 1, 1, 2, 2, 3, 3])
PREDICTIONS = np.array(
    [
        [0, 0, 1, 0, -1, -1, -1, -1],
        [0, 2, 1, 0, 2, 2, -1, -1],
        [0, 2, 3, 0, 2, 0, 3, 3],
    ]
)


def test_accuracy_is_correct_over_total() -> None:
    assert accuracy(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 0])) == 0.75
    assert math.isnan(accuracy(np.array([], int), np.array([], int)))


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        (0.6, 0.3, 0.4),
        (0.5, 0.5, 0.5),
        (0.8, 0.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.6, math.nan, math.nan),
        (math.nan, 0.3, math.nan),
    ],
)
def test_harmonic_mean(base: float, new: float, expected: float) -> None:
    assert harmonic_mean(base, new) == pytest.approx(expected, abs=1e-15, nan_ok=True)


def test_session_metrics_by_hand() -> None:
    first, second, third = session_metrics(PREDICTIONS, TARGETS, [2, 3, 4])
    assert (first.accuracy, first.base, first.latest) == (0.75, 0.75, 0.75)
    assert math.isnan(first.new) and math.isnan(first.harmonic)
    assert (first.images, first.classes) == (4, 2)
    by_hand = {"accuracy": 4 / 6, "base": 0.5, "new": 1.0, "latest": 1.0, "images": 6, "classes": 3}
    by_hand |= {"harmonic": 2 / 3, "harmonic_classes": 2 / 3, "new_sessions": 1, "forgetting": 0.25}
    assert second == SessionMetrics(**by_hand)
    # In the last session base has 1 of 4, class 2 has 1 of 2, class 3 has 2 of 2.
    assert (third.accuracy, third.base, third.new, third.latest) == (0.5, 0.25, 0.75, 1.0)
    assert third.harmonic == pytest.approx(2 * 0.25 * 0.75 / (0.25 + 0.75))
    assert (third.images, third.classes) == (8, 4)
    # Base falls from 3 of 4 to 1 of 4, class 2 from 2 of 2 to 1 of 2.
    assert (third.new_sessions, third.forgetting) == (0.75, 0.5)


def test_harmonic_means_differ_where_classes_have_unequally_many_samples() -> None:
    # Class 0 has 3 of 3, class 1 has 0 of 1; class 2 has 1 of 4, class 3 has 1 of 1; class 4 none.
    targets = np.array([0, 0, 0, 1, 2, 2, 2, 2, 3])
    predictions = np.array([[0, 0, 0, 0, 2, 0, 0, 0, 3]] * 2)
    found = session_metrics(predictions, targets, [2, 5])[1]
    assert found.harmonic == pytest.approx(2 * (3 / 4) * (2 / 5) / (3 / 4 + 2 / 5))
    assert found.harmonic_classes == pytest.approx(2 * (1 / 2) * (5 / 8) / (1 / 2 + 5 / 8))


def test_samples_of_unseen_classes_do_not_count() -> None:
    lucky = PREDICTIONS.copy()
    lucky[0, 4:] = TARGETS[4:]
    unscored, scored = (session_metrics(p, TARGETS, [2, 3, 4])[0] for p in (PREDICTIONS, lucky))
    assert (scored.accuracy, scored.images) == (unscored.accuracy, unscored.images)


def test_a_base_sample_taken_for_a_new_class_is_wrong() -> None:
    predictions = np.array([[0, 1, NOT_SCORED], [2, 1, 2]])
    last = session_metrics(predictions, np.array([0, 1, 2]), [2, 3])[-1]
    assert (last.base, last.new) == (0.5, 1.0)


def test_figures_of_all_sessions_by_hand() -> None:
    assert average_accuracy([0.8, 0.6, 0.4]) == pytest.approx(0.6)
    assert performance_drop([0.8, 0.1, 0.5]) == pytest.approx(0.3)
    assert performance_retention([0.8, 0.1, 0.5]) == pytest.approx(0.625)
    assert math.isnan(performance_retention([0.0, 0.5]))


def test_forgetting_is_measured_from_the_best_earlier_session() -> None:
    for bases, expected in (((0.7, 0.8, 0.5), 0.3), ((0.5, 0.6), -0.1), ((0.5,), 0.0)):
        sessions = [SessionMetrics(0.0, base, *[0.0] * 6, 1, 1) for base in bases]
        assert base_forgetting(sessions) == pytest.approx(expected)


def test_average_forgetting_by_hand() -> None:
    # Session 0 falls from its best, 0.9, by 0.3; session 1 gains 0.1; the last has nothing to lose.
    table = [[0.8], [0.9, 0.4], [0.6, 0.5, 0.7]]
    assert average_forgetting(table) == pytest.approx((0.3 - 0.1) / 2)
    assert average_forgetting(table[:1]) == 0
    # A session without test images.
    assert average_forgetting([[0.8], [0.9, math.nan], [0.6, math.nan, 0.7]]) == pytest.approx(0.3)


def test_calibration_error_by_hand() -> None:
    # Bins of 1/15: 0.95 and 0.96 share one, of whose two one is right; 0.5 is alone and right.
    confidence = np.array([0.95, 0.96, 0.5], dtype=np.float32)
    error = calibration_error(confidence, np.array([True, False, True]))
    assert error == pytest.approx((abs(1 - 0.95 - 0.96) + 0.5) / 3, abs=1e-6)
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0


def test_interval_by_hand() -> None:
    # s = 1 and t(0.975, 2 degrees of freedom) = 4.302653 in printed tables.
    interval = mean_interval([1.0, 2.0, 3.0])
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_interval_agrees_with_scipy(confidence: float) -> None:
    values = np.random.default_rng(0).normal(0.6, 0.01, 7)
    interval = mean_interval(list(values), confidence)
    low, high = stats.t.interval(confidence, 6, loc=values.mean(), scale=stats.sem(values))
    assert interval.mean - interval.half_width == pytest.approx(low)
    assert interval.mean + interval.half_width == pytest.approx(high)


@pytest.mark.parametrize(
    ("values", "mean", "half_width"),
    [([0.5], 0.5, math.nan), ([], math.nan, math.nan), ([0.1] * 3, 0.1, 0), ([0.7] * 3, 0.7, 0)],
)
def test_interval_of_no_one_and_equals(values: list[float], mean: float, half_width: float) -> None:
    interval = mean_interval(values)
    assert interval.mean == pytest.approx(mean, rel=1e-15, nan_ok=True)
    assert interval.half_width == pytest.approx(half_width, abs=1e-15, nan_ok=True)
    assert interval.count == len(values)
