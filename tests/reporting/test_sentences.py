from __future__ import annotations

import math

import pytest

from fscil_bench.metrics import Interval
from fscil_bench.reporting.sentences import difference_sentence, number, signed


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [
        (
            Interval(2.0, 0.5, 10),
            "ldc has a higher accuracy than ncm, by 2.00 [1.50, 2.50] points (n = 10 seeds).",
        ),
        (
            Interval(-2.0, 0.5, 10),
            "ldc has a lower accuracy than ncm, by 2.00 [1.50, 2.50] points (n = 10 seeds).",
        ),
        (
            Interval(0.2, 0.5, 10),
            "ldc and ncm cannot be told apart in accuracy: +0.20 [−0.30, +0.70] points "
            "(n = 10 seeds); the smallest that could have shown: 0.50.",
        ),
        # A bound at 0 is on neither side of it.
        (
            Interval(-0.5, 0.5, 10),
            "ldc and ncm cannot be told apart in accuracy: −0.50 [−1.00, 0.00] points "
            "(n = 10 seeds); the smallest that could have shown: 0.50.",
        ),
        (
            Interval(0.0, 0.0, 10),
            "ldc and ncm have the same accuracy in every pair (n = 10 seeds).",
        ),
        (
            Interval(2.0, 0.1, 5),
            "ldc against ncm, accuracy: +2.00 points (n = 5 seeds), too few pairs to tell.",
        ),
        (
            Interval(-2.0, math.nan, 1),
            "ldc against ncm, accuracy: −2.00 points (n = 1 seed), too few pairs to tell.",
        ),
        (
            Interval(math.nan, math.nan, 0),
            "ldc and ncm cannot be compared in accuracy: no pair of runs is stored.",
        ),
    ],
)
def test_what_is_said_follows_from_the_interval(interval: Interval, sentence: str) -> None:
    assert difference_sentence("ldc", "ncm", "accuracy", interval) == sentence


def test_unit_and_pairs_are_named() -> None:
    sentence = difference_sentence("a", "b", "time", Interval(3.0, 1.0, 6), "seconds", "classes")

    assert sentence == "a has a higher time than b, by 3.00 [2.00, 4.00] seconds (n = 6 classes)."


def test_what_rounding_leaves_of_zero_is_zero() -> None:
    assert [number(v) for v in (-1.7e-18, 0.0, 0.004, -0.31)] == ["0.00", "0.00", "0.004", "−0.31"]
    assert [signed(v) for v in (1.7e-18, 0.004, -0.31)] == ["0.00", "+0.004", "−0.31"]
