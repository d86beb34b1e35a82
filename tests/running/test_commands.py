from __future__ import annotations

from pathlib import Path
from typing import Any

from fscil_bench.plugins.registry import FILE, Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.running.commands import command_for, default_params
from fscil_bench.running.pseudo import pseudo_incremental


def test_defaults_are_json_values(registry: Registry) -> None:
    assert default_params(registry, "method", "ldc") == {"steps": 8, "widths": [64, 32]}
    assert default_params(registry, "method", "unknown") == {}


def test_what_differs_is_named(factory: Any, registry: Registry, toy_protocol: Protocol) -> None:
    own = factory.spec("ldc", seed=2, params={"steps": 8, "widths": [64, 32]})
    assert command_for(own, registry) == (
        "fscil-bench run --method ldc --protocol toy --seeds 2 --precision fp32"
    )
    spec = factory.spec(
        "ldc",
        params={"steps": 3, "widths": [1], "flag": True, "text": "two words"},
        protocol=toy_protocol.override(epochs=7),
        split="canonical",
        representation={"name": "fact", "seed": 1, "params": {"virtual": 5}},
    )
    assert command_for(spec, registry) == (
        "fscil-bench run --method ldc --protocol toy --representation fact --split canonical "
        "--seeds 0 --representation-seed 1 --epochs 7 --precision fp32 --set steps=3 "
        "--set 'widths=[1]' --set flag=true --set 'text=two words' "
        "--set-representation virtual=5"
    )


def test_files_are_to_fill_in(factory: Any, registry: Registry, toy_protocol: Protocol) -> None:
    untrained = toy_protocol.override(epochs=0)
    given = {"pretraining": "my net.pth (sha256 0123456789ab)"}
    command = command_for(factory.spec(protocol=untrained, representation=given), registry)
    assert " --epochs 0 --weights 'PATH/TO/my net.pth' --precision fp32" in command
    protocol = toy_protocol.model_copy(update={"name": "mine"})
    command = command_for(factory.spec(protocol=protocol), registry)
    assert "--protocol PATH/TO/mine.toml" in command
    assert "--epochs 100 --way 1 --shot 5 --base-classes 4 --class-order dataset" in command


def test_the_file_of_an_unknown_method_is_to_be_filled_in(factory: Any, registry: Registry) -> None:
    command = command_for(factory.spec("theirs", params={"a": 1}), registry)
    assert "--plugin PATH/TO/theirs.py --method theirs" in command
    assert command.endswith("--set a=1")
    ldc = registry.get("method", "ldc").value
    registry.add(Plugin("method", "theirs", ldc, Path("folder/other.py"), FILE))
    assert "--plugin folder/other.py " in command_for(factory.spec("theirs"), registry)


def test_other_sessions_are_named(factory: Any, registry: Registry, toy_protocol: Protocol) -> None:
    larger = toy_protocol.override(classes=20, base_classes=12, sessions=8, way=1)
    registry.add(Plugin("protocol", "larger", larger.override(name="larger"), Path(), "test"))
    pseudo = factory.spec("ldc", protocol=pseudo_incremental(larger.override(name="larger")))
    assert command_for(pseudo, registry) == (
        "fscil-bench run --method ldc --protocol larger --pseudo-incremental --seeds 0 "
        "--precision fp32"
    )
    fewer = factory.spec("ldc", protocol=toy_protocol.override(sessions=1))
    assert command_for(fewer, registry) == (
        "fscil-bench run --method ldc --protocol toy --seeds 0 --sessions 1 --precision fp32"
    )
    way = factory.spec("ldc", protocol=toy_protocol.override(way=2))
    assert "--way 2 --precision" in command_for(way, registry), "one session follows from the way"
