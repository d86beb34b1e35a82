from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.labels import changed_params, differing_settings, row_labels
from fscil_bench.running.commands import default_params

DEFAULTS = {"steps": 8, "widths": [64, 32]}


def test_a_method_alone_is_its_name(factory: Any, registry: Registry) -> None:
    assert row_labels([factory.spec("ncm"), factory.spec("ldc", params=DEFAULTS)], registry) == [
        "ncm",
        "ldc",
    ]


def test_what_is_not_the_default_is_shown(factory: Any, registry: Registry) -> None:
    spec = factory.spec("ldc", params=DEFAULTS | {"steps": 3})

    assert row_labels([spec], registry) == ["ldc (steps=3)"]


def test_rows_of_one_method_show_what_differs_alone(factory: Any, registry: Registry) -> None:
    specs = [factory.spec("ldc", params=DEFAULTS | {"steps": steps}) for steps in (3, 8)]

    assert row_labels(specs, registry) == ["ldc (steps=3)", "ldc (steps=8)"]


def test_where_rows_differ_in_much_defaults_go_without_saying(
    factory: Any, registry: Registry
) -> None:
    changes = ({}, {"steps": 3}, {"widths": [8]}, {"steps": 3, "widths": [8]})
    specs = [factory.spec("ldc", params=DEFAULTS | each) for each in changes]
    specs.append(factory.spec("ldc", params={"widths": [8]}))

    assert row_labels(specs, registry) == [
        "ldc",
        "ldc (steps=3)",
        "ldc (widths=[8])",
        "ldc (steps=3, widths=[8])",
        "ldc (widths=[8], steps=unset)",
    ]


def test_an_unknown_method_shows_what_differs(factory: Any, registry: Registry) -> None:
    specs = [factory.spec("mine", params={"a": a, "b": True}) for a in (1, 2)]

    assert row_labels(specs, registry) == ["mine (a=1)", "mine (a=2)"]
    assert row_labels(specs[:1], registry) == ["mine"]


def test_a_parameter_that_one_row_lacks_is_said_to_be_unset(
    factory: Any, registry: Registry
) -> None:
    specs = [factory.spec("mine", params=params) for params in ({"a": 1}, {})]

    assert row_labels(specs, registry) == ["mine (a=1)", "mine (a=unset)"]


def test_another_representation_stands_in_brackets(factory: Any, registry: Registry) -> None:
    specs = [factory.spec("ncm"), factory.spec("ncm", representation={"name": "tukey"})]

    assert row_labels(specs, registry) == ["ncm", "ncm [tukey]"]


def test_a_representation_shows_its_unusual_parameters(factory: Any, registry: Registry) -> None:
    def spec(virtual: int) -> Any:
        return factory.spec("ncm", representation={"name": "fact", "params": {"virtual": virtual}})

    assert row_labels([spec(20)], registry) == ["ncm [fact]"]
    assert row_labels([spec(5)], registry) == ["ncm [fact, virtual=5]"]
    assert row_labels([spec(5), spec(20)], registry) == [
        "ncm [fact, virtual=5]",
        "ncm [fact, virtual=20]",
    ]


def test_settings_tell_rows_of_one_method_apart(
    factory: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    short = toy_protocol.override(epochs=5)
    specs = [
        factory.spec("ncm"),
        factory.spec("ncm", protocol=short),
        factory.spec("ncm", split="canonical"),
        factory.spec("ldc", params=DEFAULTS),
    ]

    assert row_labels(specs, registry) == [
        "ncm (split=seeded, epochs=100)",
        "ncm (split=seeded, epochs=5)",
        "ncm (split=canonical, epochs=100)",
        "ldc",
    ]


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("data_fingerprint", "0" * 16, "data fingerprint=0000000000000000"),
        ("backbone", "resnet18", "representation's backbone=resnet18"),
    ],
)
def test_a_representation_made_otherwise_is_told_apart(
    factory: Any, registry: Registry, field: str, value: str, expected: str
) -> None:
    labels = row_labels([factory.spec(), factory.spec(representation={field: value})], registry)

    assert labels[1] == f"ncm ({expected})"
    assert labels[0] != labels[1]


def test_features_from_a_file_are_told_beside_networks(factory: Any, registry: Registry) -> None:
    given = {"backbone": "features", "pretraining": "mine (sha256 ab)"}
    file = factory.spec("ldc", params=DEFAULTS, representation=given)
    assert row_labels([factory.spec("ncm"), file], registry) == [
        "ncm",
        "ldc (features=mine (sha256 ab))",
    ]
    assert row_labels([file], registry) == ["ldc"]
    another = factory.spec("ncm", representation=given | {"pretraining": "yours (sha256 cd)"})
    assert row_labels([another, file], registry)[0] == "ncm (features=yours (sha256 cd))"


def test_a_network_that_was_taken_is_told_beside_others_for_its_representation(
    factory: Any, registry: Registry
) -> None:
    taken = factory.spec("ldc", params=DEFAULTS, representation={"network": "net"})
    assert row_labels([factory.spec("ncm"), taken], registry) == ["ncm", "ldc (network=net)"]
    assert row_labels([taken], registry) == ["ldc"]


def test_every_row_has_its_own_label(
    factory: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    protocols = [
        toy_protocol,
        toy_protocol.override(title="Other"),
        toy_protocol.override(lr=0.5),
        toy_protocol.override(split="canonical", canonical_shots="a.csv"),
    ]
    specs = [factory.spec(protocol=protocol, split="seeded") for protocol in protocols]

    assert len({spec.row for spec in specs}) == 4
    assert len(set(row_labels(specs, registry))) == 4


def test_differing_settings_lists_each_value_once(factory: Any, toy_protocol: Protocol) -> None:
    specs = [
        factory.spec("ncm", params={"a": 1}),
        factory.spec("ncm", params={"a": 2}),
        factory.spec("ldc", protocol=toy_protocol.override(epochs=5)),
    ]

    assert differing_settings(specs) == {"epochs": ["100", "5"]}


def test_defaults_are_json_values(registry: Registry) -> None:
    assert default_params(registry, "method", "ldc") == DEFAULTS
    assert default_params(registry, "method", "unknown") == {}


def test_changed_params_of_an_unknown_plugin_are_none(registry: Registry) -> None:
    assert changed_params(registry, "method", "ldc", {"steps": 1, "widths": [64, 32]}) == {
        "steps": 1
    }
    assert changed_params(registry, "method", "unknown", {"steps": 1}) == {}


def test_averaged_views_are_always_said(factory: Any, registry: Registry) -> None:
    flipped = factory.spec("ncm", views="flip")

    assert row_labels([flipped], registry) == ["ncm (views=flip)"]
    assert row_labels([factory.spec("ncm"), flipped], registry) == [
        "ncm (views=plain)",
        "ncm (views=flip)",
    ]
    assert differing_settings([factory.spec("ncm"), flipped]) == {"views": ["plain", "flip"]}
