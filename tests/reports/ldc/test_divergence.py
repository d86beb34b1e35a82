from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fscil_bench.reports.ldc.divergence import (
    class_divergences,
    finite_class,
    halves_kl,
    sliced_kl,
    unit_directions,
)


def exact(mean: float, deviation: float, count: int = 4001) -> np.ndarray:
    """Return (count, 1) samples with just that mean and deviation."""
    grid = stats.norm.ppf((np.arange(count) + 0.5) / count)
    return (mean + deviation * grid / grid.std(ddof=1))[:, None]


NO_DIRECTIONS = np.empty((1, 0))


@pytest.mark.parametrize(("m1", "s1", "m2", "s2"), [(0, 1, 0, 1), (1, 1, 0, 1), (2, 0.5, -1, 3)])
def test_one_axis_is_the_closed_form(m1: float, s1: float, m2: float, s2: float) -> None:
    found = sliced_kl(exact(m1, s1), exact(m2, s2), NO_DIRECTIONS)

    # KL(N(m1, v1)‖N(m2, v2)), with the ridge of 1 % of v2 on both variances.
    v1, v2 = s1**2 + 0.01 * s2**2, 1.01 * s2**2
    assert found == pytest.approx(0.5 * (np.log(v2 / v1) + (v1 + (m1 - m2) ** 2) / v2 - 1))


def test_it_is_zero_for_identical_samples_and_finite_for_constant_ones() -> None:
    rng = np.random.default_rng(0)
    samples, directions = rng.standard_normal((20, 8)), unit_directions(8)

    assert sliced_kl(samples, samples, directions) == pytest.approx(0, abs=1e-12)
    assert np.isfinite(sliced_kl(samples, np.ones((20, 8)), directions))
    assert sliced_kl(np.ones((5, 8)), np.ones((7, 8)), directions) == pytest.approx(0, abs=1e-9)


def test_directions_see_a_correlation_that_axes_do_not() -> None:
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((4000, 2))
    mixed = plain @ np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]]).T
    diagonal = np.array([[1.0], [1.0]]) / np.sqrt(2)

    assert sliced_kl(mixed, plain, np.empty((2, 0))) < 0.005
    assert sliced_kl(mixed, plain, diagonal) > 0.03


def test_samples_of_the_real_distribution_lie_at_the_floor() -> None:
    rng = np.random.default_rng(1)
    pairs = [
        halves_kl(rng.normal(2, 3, (100, 6)), rng.normal(2, 3, (50, 6)), unit_directions(6))
        for _ in range(200)
    ]
    apart, floor = np.mean(pairs, axis=0)

    assert apart == pytest.approx(floor, rel=0.1)
    assert floor > 0.02, "25 samples do not fix a distribution"


def test_what_is_not_the_real_distribution_lies_above_the_floor() -> None:
    rng = np.random.default_rng(1)

    apart, floor = halves_kl(
        rng.normal(0.5, 1, (100, 6)), rng.normal(0, 1, (50, 6)), unit_directions(6)
    )

    assert apart > 1.5 * floor


def test_the_step_that_comes_closer_has_the_lower_kl() -> None:
    rng = np.random.default_rng(0)
    real, far, near = (rng.normal(mean, 1, (200, 4)) for mean in (5, 7, 6))

    found = class_divergences(
        [finite_class(5, real, [far, near]), finite_class(6, real[:3], [near])]
    )

    assert found.index.tolist() == [5], "three features cannot be halved"
    before, after, floor = found.loc[5]

    # Of N(m + s, I) against N(m, I) on every axis and direction, ½·s² on average over them.
    assert before > after > floor > 0
    assert floor < 0.1
    assert before / after == pytest.approx(4, rel=0.3)
