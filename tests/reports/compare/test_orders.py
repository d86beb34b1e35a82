from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reports._orders import order_commands, rankings
from fscil_bench.reports._rows import Row, group_rows


@pytest.fixture
def write(factory: Any, toy_protocol: Protocol) -> Any:
    """Return a function that writes a method's runs under a class order."""

    def runs(order: str, method: str, last: Sequence[int], **changes: Any) -> None:
        protocol = toy_protocol.override(class_order=order)
        brought = {"class_order": order, "data_fingerprint": order}
        for seed, base in enumerate(last):
            spec = factory.spec(method, seed, protocol, brought, **changes)
            factory.write(spec, [(36, 0), (34, 6), (base, 10)])

    return runs


def rows_of(factory: Any, registry: Registry) -> list[Row]:
    return group_rows(factory.store.runs()[0], registry)


def test_an_order_that_survives(factory: Any, write: Any, registry: Registry) -> None:
    for order, shift in (("dataset", 0), ("seed:1", 3)):
        for method, base in (("a", 20), ("b", 24), ("c", 28)):
            write(order, method, [base + shift] * 2)

    (found,) = rankings(rows_of(factory, registry), registry)
    (pair,) = found.pairs()

    assert set(found.rows) == {"a", "b", "c"}
    assert (set(pair.orders), pair.rows) == ({"dataset", "seed:1"}, 3)
    assert (pair.tau, pair.swaps) == (1.0, ())


def test_rows_that_change_places(factory: Any, write: Any, registry: Registry) -> None:
    last = {
        "dataset": {"a": [28, 29, 30], "b": [24, 25, 26], "c": [20, 21, 22]},
        "seed:1": {"a": [24, 25, 26], "b": [28, 29, 30], "c": [20, 21, 22]},
    }
    for order, methods in last.items():
        for method, bases in methods.items():
            write(order, method, bases)

    (found,) = rankings(rows_of(factory, registry), registry)
    (pair,) = found.pairs()
    (swap,) = pair.swaps

    # Of three pairs of rows two agree and one does not.
    assert pair.tau == pytest.approx(1 / 3)
    assert {swap.first, swap.second} == {"a", "b"}
    assert abs(swap.before.mean) == abs(swap.after.mean) == pytest.approx(20 / 3)
    assert swap.certain


def test_a_change_within_chance_is_not_certain(
    factory: Any, write: Any, registry: Registry
) -> None:
    for order, last in (("dataset", [20, 30, 25]), ("seed:1", [20, 30, 22])):
        write(order, "a", [25, 25, 24])
        write(order, "b", last)

    (found,) = rankings(rows_of(factory, registry), registry)

    (swap,) = found.pairs()[0].swaps
    assert not swap.certain


def test_one_order_has_no_ranking(factory: Any, write: Any, registry: Registry) -> None:
    write("dataset", "a", [20])
    write("dataset", "b", [21])

    assert rankings(rows_of(factory, registry), registry) == []


def test_other_splits_are_ranked_apart(factory: Any, write: Any, registry: Registry) -> None:
    for order in ("dataset", "seed:1"):
        for method in ("a", "b"):
            write(order, method, [20])
            write(order, method, [20], split="outlier:0.2")

    found = rankings(rows_of(factory, registry), registry)

    assert [len(each.rows) for each in found] == [2, 2]


def test_commands_for_other_orders_have_all_seeds(
    factory: Any, write: Any, registry: Registry
) -> None:
    write("dataset", "ncm", [20, 21, 22])

    assert order_commands(rows_of(factory, registry), registry) == [
        f"fscil-bench run --method ncm --protocol toy --seeds 0-2 --class-order seed:{n} "
        "--precision fp32"
        for n in (1, 2)
    ]
