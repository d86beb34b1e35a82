"""Whether the order of methods survives another order of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fscil_bench.protocol import Protocol
from fscil_bench.reports.compare.report import Compare

Write = Callable[..., None]
SIX = 6
"""Seeds: with fewer nothing is told from chance."""


@pytest.fixture
def write(write_last: Any, toy_protocol: Protocol) -> Write:
    """Return a function that writes a method's runs under a class order."""

    def runs(order: str, method: str, last: Sequence[int], **changes: Any) -> None:
        protocol = toy_protocol.override(class_order=order)
        brought = {"class_order": order, "data_fingerprint": order}
        write_last(method, last, protocol=protocol, representation=brought, **changes)

    return runs


def test_an_order_that_survives(write: Write, make: Any) -> None:
    for order, shift in (("dataset", 0), ("seed:1", 3)):
        for method, base in (("a", 20), ("b", 24), ("c", 28)):
            write(order, method, [base + shift] * 2)

    text = make(Compare).text

    assert "The order of the rows is the same in all 2 class orders." in text
    assert "Kendall's tau 1.00 over 3 rows." in text


def test_rows_that_change_places(write: Write, make: Any) -> None:
    last = {"dataset": {"a": 28, "b": 24, "c": 20}, "seed:1": {"a": 24, "b": 28, "c": 20}}
    for order, methods in last.items():
        for method, base in methods.items():
            write(order, method, [base + seed for seed in range(SIX)])

    made = make(Compare)

    # Of three pairs of rows two agree and one does not: (2 − 1) / 3. Four of 60 images.
    assert "Kendall's tau 0.33 over 3 rows; changed places: " in made.text
    assert "−6.67 [−6.67, −6.67]" in made.text
    assert "+6.67 [+6.67, +6.67]" in made.text
    assert "changes in 1 of 1 pairs of class orders; 1 of the changes are told" in made.text
    (row,) = made.tables["class-orders"].query("label == 'a'").to_dict("records")
    # Last sessions: 28 to 33 and 24 to 29 base images, 10 new ones, of 60.
    assert row["dataset_mean"] == pytest.approx(100 * (30.5 + 10) / 60)
    assert row["seed:1_mean"] == pytest.approx(100 * (26.5 + 10) / 60)


@pytest.mark.parametrize(
    "last", [[24, 25, 26], [20, 30, 26, 20, 30, 29]], ids=["too few pairs", "within chance"]
)
def test_a_change_within_chance_is_not_certain(write: Write, make: Any, last: list[int]) -> None:
    for order, sign in (("dataset", 1), ("seed:1", -1)):
        write(order, "a", [25 + sign for _ in last])
        write(order, "b", [25 + sign * (value - 26) // 2 for value in last])

    assert "0 of the changes are told from chance" in make(Compare).text


def test_other_splits_are_ranked_apart(write: Write, make: Any) -> None:
    for order in ("dataset", "seed:1"):
        for method in ("a", "b"):
            write(order, method, [20])
            write(order, method, [20], split="outlier:0.2")

    tables = make(Compare, {"all": True}).tables

    assert [len(tables[f"class-orders-{n}"]) for n in (1, 2)] == [2, 2]


def test_one_class_order_is_told_and_others_are_not_asked_for(write: Write, make: Any) -> None:
    write("dataset", "ldc", [30, 31, 32])
    write("dataset", "ncm", [20, 21, 22])

    made = make(Compare)

    assert "the same runs with --class-order seed:1 are of one." in made.text
    assert made.missing == []
