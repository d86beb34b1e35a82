from __future__ import annotations

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.reports.ldc.tsne.calibration import named_classes, spread_classes

NAMES = ("cat", "dog", "7", "bird", "fish", "frog")


@pytest.mark.parametrize(
    ("seen", "base", "new", "expected"),
    [
        ([60, 65, 70], 3, 3, [0, 30, 59, 60, 64, 69]),
        ([4, 5, 6], 3, 3, [0, 2, 3, 4, 5]),
        ([4, 5, 6], 1, 0, [0]),
        ([4], 2, 3, [0, 3]),
    ],
)
def test_classes_are_spread_evenly(
    seen: list[int], base: int, new: int, expected: list[int]
) -> None:
    assert spread_classes(seen, base, new) == expected


def test_classes_by_id_or_name_each_once() -> None:
    assert named_classes("3, cat,0 ,dog", NAMES, seen=6) == [3, 0, 1]
    # A name that is a number is the class of that name.
    assert named_classes("7", NAMES, seen=6) == [2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brd", "no class 'brd': give ids or names; did you mean 'bird'"),
        ("99", "no class '99'"),
        ("-1", "no class '-1'"),
        ("frog", "class 'frog' has not been seen .* classes 0 to 3"),
    ],
)
def test_a_class_that_is_not_there_is_answered(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        named_classes(text, NAMES, seen=4)
