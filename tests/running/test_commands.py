from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.options import Options
from fscil_bench.plugins.registry import FILE, Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.request import RunRequest, Wanted
from fscil_bench.running.commands import (
    changes,
    command_for,
    default_params,
    for_copies,
    override_words,
    wanted_commands,
)
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


def test_a_command_for_an_unofficial_copy_takes_it(registry: Registry) -> None:
    plain = "fscil-bench run --method ldc --protocol toy"
    dataset = registry.protocol("toy")[0].dataset
    taking = f"{plain} --unofficial-data"
    assert for_copies(plain, registry, {dataset}) == taking
    assert for_copies(taking, registry, {dataset}) == taking
    assert for_copies(plain, registry, {"another"}) == plain
    unknown = "fscil-bench run --protocol PATH/TO/mine.toml"
    assert for_copies(unknown, registry, {dataset}) == unknown


def test_files_are_to_fill_in(factory: Any, registry: Registry, toy_protocol: Protocol) -> None:
    untrained = toy_protocol.override(epochs=0)
    given = {"pretraining": "my net.pth (sha256 0123456789ab)"}
    command = command_for(factory.spec(protocol=untrained, representation=given), registry)
    assert " --epochs 0 --weights 'PATH/TO/my net.pth' --precision fp32" in command
    words = {"words": "sha256-0123456789ab"}  # as parameters that name a file are recorded
    command = command_for(factory.spec("ldc", params=words), registry)
    assert command.endswith("--set words=PATH/TO/sha256-0123456789ab")
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


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"batch_size": 32, "lr": 0.02}, "--recipe batch_size=32 --recipe lr=0.02"),
        ({"epochs": 50}, "--epochs 50"),
        ({"epochs": 50, "milestones": (10, 20)}, "--epochs 50 --recipe milestones=10,20"),
        ({"schedule": "cosine", "milestones": ()}, "--recipe schedule=cosine --recipe milestones="),
        ({"augment": ("crop",), "sessions": 1}, "--sessions 1 --recipe augment=crop"),
        ({"way": (1, 1)}, "--way 1,1"),
        ({"checkpoint": "best", "holdout": 0.1}, "--recipe checkpoint=best --recipe holdout=0.1"),
    ],
)
def test_a_command_gives_back_every_override(
    factory: Any, toy_protocol: Protocol, overrides: dict[str, Any], words: str
) -> None:
    usual = toy_protocol.override(milestones=(60, 70))
    registry = Registry()
    registry.add(Plugin("protocol", "toy", usual, Path(__file__), "test"))
    changed = usual.override(**overrides)
    assert usual.override(**changes(changed, registry)) == changed
    assert shlex.join(override_words(changes(changed, registry))) == words
    assert f"--seeds 0 {words} --precision" in command_for(factory.spec(protocol=changed), registry)


def test_overrides_of_the_recipe_are_in_commands_of_what_is_wanted(registry: Registry) -> None:
    request = RunRequest("ldc", "toy", overrides={"shot": 1, "batch_size": 32, "epochs": 7})
    assert wanted_commands([Wanted(request)], registry) == [
        "fscil-bench run --method ldc --protocol toy --shot 1 --recipe batch_size=32 --epochs 7 "
        "--seeds 0"
    ]


def test_one_command_asks_for_methods_and_representations_of_which_the_same_is_wanted(
    registry: Registry,
) -> None:
    both = [
        Wanted(RunRequest(method, "toy", representation, seed=seed))
        for method in ("ncm", "ldc")
        for representation in ("cosine", "fact")
        for seed in (0, 1)
    ]
    alone = [
        Wanted(RunRequest("ncm", "toy", "fact", params={"space": "tukey"}, seed=0)),
        Wanted(RunRequest("ncm", "toy", "fact", seed=2)),
    ]
    run = "fscil-bench run --method"
    assert wanted_commands(both, registry) == [
        f"{run} ncm,ldc --protocol toy --representation cosine,fact --seeds 0-1"
    ]
    assert wanted_commands([*both, *alone], registry) == [
        f"{run} ncm,ldc --protocol toy --seeds 0-1",
        f"{run} ncm --protocol toy --representation fact --seeds 0-2",
        f"{run} ldc --protocol toy --representation fact --seeds 0-1",
        f"{run} ncm --protocol toy --representation fact --set space=tukey --seeds 0",
    ]


def test_options_come_along_with_a_command() -> None:
    options = Options(results="my runs", plugins=["a.py", "b.py"], unofficial_data=True)
    assert options.command("run") == (
        "fscil-bench run --unofficial-data --results 'my runs' --plugin a.py --plugin b.py"
    )
    assert options.command("report", only=("results", "cache")) == (
        "fscil-bench report --results 'my runs'"
    )
    assert Options().command("list", "runs") == "fscil-bench list runs"
    given = "fscil-bench run --unofficial-data"
    assert options.completed(given) == f"{given} --results 'my runs'"
    assert options.completed(options.completed(given)) == f"{given} --results 'my runs'"
