from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.reporting.selectors import fitting
from fscil_bench.spec import RunSpec

Row = tuple[str, Any, str, str]


@pytest.fixture
def specs(factory: Any, rows: Any) -> Mapping[str, RunSpec]:
    """Return rows of two methods and two representations, by label."""
    virtual = {"name": "fact", "params": {"virtual": 5}}
    found = (
        factory.spec("ncm"),
        factory.spec("ldc", params={"steps": 3, "widths": [64, 32]}),
        factory.spec("ldc", params={"steps": 3, "widths": [8]}),
        factory.spec("ldc", params={"steps": 5, "widths": [8]}, split="canonical"),
        factory.spec("ldc", params={"steps": 3, "widths": [8]}, representation=virtual),
    )
    specs: Mapping[str, RunSpec] = rows(*map(factory.write, found)).specs
    return specs


def chosen(specs: Mapping[str, RunSpec], text: str) -> list[Row]:
    found = [specs[label] for label in fitting(text, specs)]
    return sorted(
        (s.method, str(s.params.get("widths")), s.split, s.representation.name) for s in found
    )


def test_nothing_chooses_all(specs: Mapping[str, RunSpec]) -> None:
    assert fitting(" ", specs) == list(specs)


def test_rows_by_method_values_and_representation(specs: Mapping[str, RunSpec]) -> None:
    ncm = ("ncm", "None", "seeded", "cosine")
    small, fact = ("ldc", "[8]", "seeded", "cosine"), ("ldc", "[8]", "seeded", "fact")
    other = ("ldc", "[8]", "canonical", "cosine")

    assert chosen(specs, "ncm") == [ncm]
    assert chosen(specs, "ldc (split=canonical); ncm") == [other, ncm]
    assert chosen(specs, "ldc (steps=3, widths=[8])") == [small, fact]
    assert len(chosen(specs, "ldc (widths=[64,32], steps=3)")) == 1
    assert chosen(specs, "ldc [fact]") == [fact]
    assert chosen(specs, "ldc [cosine] (steps=3,widths=[8])") == [small]
    assert chosen(specs, "ldc [fact, virtual=5]") == [fact]


def test_every_label_chooses_its_row(specs: Mapping[str, RunSpec]) -> None:
    assert [fitting(label, specs) for label in specs] == [[label] for label in specs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nmc", "no row here is of method 'nmc'; did you mean 'ncm'"),
        ("ldc (stps=3)", "no row has a value 'stps'; did you mean 'steps'"),
        ("ldc [fact, vrtual=3]", "no row has a value 'vrtual'; did you mean 'virtual'"),
        ("ldc (steps=9)", "no stored row fits"),
        ("ldc (steps)", r"write METHOD \[REPRESENTATION\] \(name=value"),
        ("ldc (steps=3", "cannot read"),
    ],
)
def test_a_mistake_is_answered(specs: Mapping[str, RunSpec], text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        fitting(text, specs)


def test_a_row_of_an_unset_parameter(factory: Any) -> None:
    specs = {"x (a=1)": factory.spec("x", params={"a": 1}), "other": factory.spec("x")}

    assert fitting("x (a=unset)", specs) == ["other"]
