from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fscil_bench.plugins.registry import Plugin, Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.choice import Chosen, chosen, own_rows, usual_rows
from fscil_bench.reporting.frame import Results
from fscil_bench.reporting.usual import (
    alike,
    on_own_terms,
    usual_params,
    usual_representation,
    usual_run,
)

DEFAULTS = {"steps": 8, "widths": [64, 32]}


@pytest.mark.parametrize(
    ("changes", "usual"),
    [
        ({}, True),
        ({"params": DEFAULTS | {"steps": 3}}, False),
        ({"params": {"steps": 8}}, False),
        ({"split": "outlier:0.2"}, False),
        ({"views": "flip"}, False),
        ({"representation": {"name": "fact", "params": {"virtual": 3}}}, False),
        ({"representation": {"name": "fact", "params": {"virtual": 20}}}, True),
        ({"method": "unknown", "params": {"a": 1}}, True),
    ],
)
def test_the_usual_run(
    factory: Any, registry: Registry, changes: dict[str, Any], usual: bool
) -> None:
    spec = factory.spec(**({"method": "ldc", "params": DEFAULTS} | changes))

    assert usual_run(spec, registry) is usual


def test_other_epochs_are_not_usual_but_of_the_same_shape(
    factory: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    longer = factory.spec("ncm", protocol=toy_protocol.override(epochs=5))
    wider = factory.spec("ncm", protocol=toy_protocol.override(way=2))

    assert not usual_run(longer, registry)
    assert on_own_terms(longer, registry, "recipe")
    assert not on_own_terms(longer, registry)
    assert not on_own_terms(wider, registry, "recipe")


def test_what_a_paper_states_for_the_protocol_is_usual(factory: Any, registry: Registry) -> None:
    ldc = registry.get("method", "ldc").value
    ldc.published = {"toy": {"steps": 3}}
    try:
        for steps, usual in ((3, True), (8, True), (4, False)):
            spec = factory.spec("ldc", params=DEFAULTS | {"steps": steps})
            assert usual_params(spec, registry) is usual
    finally:
        del ldc.published


def test_a_representation_s_parameters(factory: Any, registry: Registry) -> None:
    for virtual, usual in ((20, True), (3, False)):
        brought = {"name": "fact", "params": {"virtual": virtual}}
        assert usual_representation(factory.spec(representation=brought), registry) is usual


def test_where_the_data_lie_makes_no_other_protocol(
    factory: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    elsewhere = toy_protocol.model_copy(update={"data": "/some/where"})

    assert alike(elsewhere, toy_protocol)
    assert on_own_terms(factory.spec("ncm", protocol=elsewhere), registry)
    assert not alike(toy_protocol.override(epochs=5), toy_protocol)
    assert alike(toy_protocol.override(epochs=5), toy_protocol, "recipe")


def test_rows_that_are_meant_where_only_methods_are_named(
    factory: Any, toy_protocol: Protocol
) -> None:
    registry = load_registry()
    registry.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    teen, ncm = {"alpha": 0.1, "kappa": 16.0}, {"space": "raw", "mean": "raw"}
    assert usual_params(factory.spec("teen", params=teen), registry)
    specs = {
        "usual": factory.spec("teen", params=teen),
        "set": factory.spec("teen", params=teen | {"alpha": 0.3}),
        "outliers": factory.spec("teen", params=teen, split="outlier:0.5"),
        "reordered": factory.spec(
            "teen", params=teen, protocol=toy_protocol.override(class_order="seed:1")
        ),
        "ruler": factory.spec("ncm", params=ncm),
        "stronger": factory.spec("ncm", params=ncm | {"space": "tukey"}),
        "unit": factory.spec("ncm", params=ncm | {"mean": "unit"}),
        "brief": factory.spec("ncm", params=ncm, protocol=toy_protocol.override(epochs=9)),
    }
    runs = tuple(factory.write(spec) for spec in specs.values())
    rows = chosen(Results(registry, runs=runs))

    def kept(choose: Any, found: Chosen = rows) -> list[str]:
        keys = [spec.key for spec in choose(found).specs.values()]
        return [name for name, spec in specs.items() if spec.key in keys]

    assert kept(usual_rows) == ["usual", "ruler", "stronger"]
    assert kept(lambda found: usual_rows(found, "class_order")) == [
        "usual",
        "reordered",
        "ruler",
        "stronger",
    ]
    assert kept(usual_rows, rows.keep(rows.labels[1:3])) == ["set", "outliers"]


def test_where_no_row_is_on_the_published_shots_drawn_ones_are_meant(
    factory: Any, toy_protocol: Protocol
) -> None:
    registry = load_registry()
    published = toy_protocol.model_copy(update={"split": "canonical", "canonical_shots": "s.csv"})
    registry.add(Plugin("protocol", "toy", published, Path(__file__), "test"))
    params = {"alpha": 0.1, "kappa": 16.0}

    def meant(*splits: str) -> list[list[str]]:
        specs = [
            factory.spec("teen", params=params | changed, protocol=published, split=split)
            for split in splits
            for changed in ({}, {"alpha": 0.3})
        ]
        found = chosen(Results(registry, runs=tuple(map(factory.write, specs))))
        kept = [choose(found).specs.values() for choose in (usual_rows, own_rows)]
        return [[f"{spec.split} {spec.params['alpha']}" for spec in each] for each in kept]

    assert meant("seeded", "outlier:0.5") == [["seeded 0.1"], ["seeded 0.1", "seeded 0.3"]]
    assert meant("canonical", "seeded") == [["canonical 0.1"], ["canonical 0.1", "canonical 0.3"]]
