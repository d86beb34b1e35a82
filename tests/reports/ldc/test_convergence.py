from __future__ import annotations

import math

import numpy as np
import pytest

from fscil_bench.reports.ldc.convergence import (
    by_step,
    epochs_to_common,
    remaining_fall,
    steps_to_fall,
)


def test_what_is_left_of_a_fall_on_one_scale() -> None:
    falling = np.array([5.0, 3.0, 2.0, 1.5, 1.2, 1.1, 1.0, 1.0, 1.0, 1.0])
    expected = [1, 0.5, 0.25, 0.125, 0.05, 0.025, 0, 0, 0, 0]

    assert remaining_fall(falling).tolist() == pytest.approx(expected)
    assert remaining_fall(1000 * falling - 300).tolist() == pytest.approx(expected)


def test_running_means_are_long_at_the_end_and_short_at_the_start() -> None:
    curve = np.concatenate([np.full(90, 2.0), [0.0, 1.0] * 5])

    remaining = remaining_fall(curve)

    # A value is the mean of ten steps: ½ at the end, nine of 2 and one of 0 where the tail begins.
    assert remaining[[0, -1]].tolist() == pytest.approx([1.0, 0.0])
    assert remaining[90] == pytest.approx((1.8 - 0.5) / 1.5)
    # Means over 1, 1, 2 and 2 steps.
    steep = np.concatenate([[4.0, 2.0, 1.0], np.zeros(97)])
    assert remaining_fall(steep)[:4].tolist() == pytest.approx([1.0, 0.5, 0.375, 0.125])


@pytest.mark.parametrize(("left", "steps"), [(0.5, 2), (0.05, 5), (0.0, 7)])
def test_steps_until_little_is_left(left: float, steps: int) -> None:
    # Powers of two, so that no rounding decides.
    curve = np.array([32.0, 16.0, 8.0, 4.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0])

    assert steps_to_fall(curve, left) == steps


@pytest.mark.parametrize("curve", [[1.0, 1.0], [1.0, 2.0, 3.0]])
def test_a_curve_that_does_not_fall_has_no_scale(curve: list[float]) -> None:
    assert np.isnan(remaining_fall(np.array(curve))).all()
    assert math.isnan(steps_to_fall(np.array(curve), 0.05))


@pytest.mark.parametrize(
    ("one", "other", "epochs"),
    [
        # The higher final value is 0.6, its curve fell by 0.6: a threshold of 0.6 + 0.03.
        ([1.0, 0.62, 0.5, 0.4], [1.2, 1.0, 0.8, 0.6], [2, 4]),
        ([1.2, 1.0, 0.8, 0.6], [1.0, 0.62, 0.5, 0.4], [4, 2]),
        # A curve that does not fall is where it ends from the start.
        ([0.5, 0.5], [0.1, 0.1], [1, 1]),
        ([0.5, 0.7], [1.0, 0.1], [1, 2]),
    ],
)
def test_epochs_to_a_common_threshold(
    one: list[float], other: list[float], epochs: list[int]
) -> None:
    first = {0: np.array(one), 1: np.array(one)}

    found = epochs_to_common(first, {1: np.array(other), 2: np.array(other)})

    assert found.index.tolist() == [1], "seeds that both have"
    assert found.loc[1].tolist() == epochs


def test_curves_are_compared_as_far_as_all_go() -> None:
    found = by_step({0: np.array([3.0, 2.0, 1.0]), 4: np.array([5.0, 4.0])})

    assert found.to_dict("list") == {1: [3.0, 5.0], 2: [2.0, 4.0]}
    assert by_step({}).empty
