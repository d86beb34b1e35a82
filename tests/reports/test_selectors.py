from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.reports._rows import Row, group_rows
from fscil_bench.reports._selectors import chosen_rows, parse_selector


@pytest.fixture
def rows(factory: Any, registry: Registry) -> list[Row]:
    """Return rows of two methods and two representations."""
    virtual = {"name": "fact", "params": {"virtual": 5}}
    for spec in (
        factory.spec("ncm"),
        factory.spec("ldc", params={"steps": 3, "widths": [64, 32]}),
        factory.spec("ldc", params={"steps": 3, "widths": [8]}),
        factory.spec("ldc", params={"steps": 5, "widths": [8]}, split="canonical"),
        factory.spec("ldc", params={"steps": 3, "widths": [8]}, representation=virtual),
    ):
        factory.write(spec)
    return group_rows(factory.store.runs()[0], registry)


def specs_of(rows: list[Row]) -> list[tuple[str, Any, str, str]]:
    specs = [row.spec for row in rows]
    return sorted(
        (s.method, str(s.params.get("widths")), s.split, s.representation.name) for s in specs
    )


def chosen(rows: list[Row], text: str, registry: Registry) -> list[tuple[str, Any, str, str]]:
    return specs_of(chosen_rows(rows, text, registry))


def test_nothing_chooses_all(rows: list[Row], registry: Registry) -> None:
    assert chosen(rows, " ", registry) == specs_of(rows)


def test_rows_by_method_values_and_representation(rows: list[Row], registry: Registry) -> None:
    ncm = ("ncm", "None", "seeded", "cosine")
    small, fact = ("ldc", "[8]", "seeded", "cosine"), ("ldc", "[8]", "seeded", "fact")
    other = ("ldc", "[8]", "canonical", "cosine")

    assert chosen(rows, "ncm", registry) == [ncm]
    assert chosen(rows, "ldc (split=canonical); ncm", registry) == [other, ncm]
    assert chosen(rows, "ldc (steps=3, widths=[8])", registry) == [small, fact]
    assert chosen(rows, "ldc [fact]", registry) == [fact]
    assert chosen(rows, "ldc [cosine] (steps=3,widths=[8])", registry) == [small]
    assert chosen(rows, "ldc [fact, virtual=5]", registry) == [fact]


def test_every_label_chooses_its_row(rows: list[Row], registry: Registry) -> None:
    for row in rows:
        (found,) = chosen_rows(rows, row.label, registry)
        assert found.spec == row.spec


def test_labels_are_as_short_as_the_choice_allows(rows: list[Row], registry: Registry) -> None:
    (found,) = chosen_rows(rows, "ldc (split=canonical)", registry)

    assert found.label == "ldc (steps=5, widths=[8])"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nmc", "no stored row is of method 'nmc'; did you mean 'ncm'"),
        ("ldc (stps=3)", "no row has a value 'stps'; did you mean 'steps'"),
        ("ldc [fact, vrtual=3]", "no row has a value 'vrtual'; did you mean 'virtual'"),
        ("ldc (steps=9)", "no stored row fits"),
        ("ldc (steps)", r"write METHOD \[REPRESENTATION\] \(name=value"),
        ("ldc (steps=3", "cannot read"),
    ],
)
def test_a_mistake_is_answered(
    rows: list[Row], registry: Registry, text: str, expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        chosen_rows(rows, text, registry)


def test_a_row_of_an_unset_parameter(factory: Any, registry: Registry) -> None:
    for params in ({}, {"a": 1}):
        factory.write(factory.spec("x", params=params))
    rows = group_rows(factory.store.runs()[0], registry)

    (found,) = chosen_rows(rows, "x (a=unset)", registry)

    assert found.spec.params == {}


def test_a_comma_in_a_list_ends_no_entry() -> None:
    selector = parse_selector("m (a=[1,2], b=3)")

    assert selector.values == {"a": "[1,2]", "b": "3"}
