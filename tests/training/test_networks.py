"""Networks trained elsewhere: exported to a file, listed, and taken with `--network`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

import fscil_bench as fb
from fscil_bench.cli.app import app
from fscil_bench.plugins.registry import load_registry
from fscil_bench.running.commands import command_for
from fscil_bench.spec import digest_of
from fscil_bench.store.runs import StoredRun
from fscil_bench.store.tensors import load_tensors, save_tensors
from fscil_bench.training import networks
from fscil_bench.training.networks import read_network

EPOCHS = 3
"""One more than the toy protocol's own, so that the network's recipe is another."""
Changes = dict[str, Any]


def run(toy: Any, method: str = "ncm", **options: Any) -> StoredRun:
    stored: StoredRun = toy.run(method, **options)
    return stored


def trained_run(toy: Any, method: str = "ncm", **options: Any) -> StoredRun:
    return run(toy, method, overrides={"epochs": EPOCHS}, **options)


def call(toy: Any, *words: str, **left_out: bool) -> Result:
    own = toy.words()
    for name in left_out:
        place = own.index(f"--{name}")
        own = own[:place] + own[place + 2 :]
    return CliRunner().invoke(app, [*words, *own])


def said(result: Result) -> str:
    return " ".join(result.output.split())


def export(toy: Any, path: Path, *words: str) -> Path:
    places = ["--results", str(toy.folder / "results"), "--plugin", str(toy.plugins[0])]
    asked = ["networks", "export", str(path), "--protocol", "toy", *places, *words]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    return path


def rewritten(path: Path, target: Path, tensors: Changes | None = None, **card: Any) -> Path:
    """Write a network file as another version or a careless hand would, with digests that fit."""
    own, meta = load_tensors(path)
    content = {**meta["card"], **card}
    save_tensors(
        target, own | (tensors or {}), {"card": content, "card_digest": digest_of(content)}
    )
    return target


@pytest.fixture(scope="module")
def network(toy: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a network that was trained here, and leave its run there."""
    trained_run(toy)
    return export(toy, tmp_path_factory.mktemp("files") / "net.safetensors")


@pytest.fixture
def packaged(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the network come along, as `toy-cosine-0`."""
    monkeypatch.setattr(networks, "PACKAGED", tmp_path)
    (tmp_path / "toy-cosine-0.safetensors").write_bytes(network.read_bytes())
    return tmp_path


@pytest.mark.parametrize("method", ["ncm", "ldc", "cec", "finetune", "icarl", "joint_balanced"])
def test_predictions_are_those_of_the_run_that_trained_it(
    toy: Any, network: Path, method: str
) -> None:
    short = {"ldc": {"unit_steps": 2}, "cec": {"episodes": 2}}.get(method, {"epochs": 1})
    params = {} if method == "ncm" else short
    own = trained_run(toy, method, params=params)
    taken = run(toy, method, params=params, network=network)
    assert np.array_equal(own.predictions, taken.predictions)
    assert own.key != taken.key and own.spec.row != taken.spec.row
    assert taken.record.flags == (
        *own.record.flags,
        "released network: toy cosine, no base training here",
    )


def test_its_extra_tensors_come_with_it(toy: Any, tmp_path: Path) -> None:
    own = trained_run(toy, "fact", representation="fact")
    path = export(toy, tmp_path / "fact.safetensors", "--representation", "fact")
    taken = run(toy, "fact", representation="fact", network=path)
    assert np.array_equal(own.predictions, taken.predictions)
    with pytest.raises(fb.FscilError, match="is of representation fact, cosine was asked for"):
        run(toy, network=path)


def test_few_shot_episodes_take_it_too(toy: Any, network: Path) -> None:
    design = {"way": 3, "shot": 2, "queries": 2, "episodes": 4}
    own, taken = (
        fb.run_episodes("ncm", **toy.settings(**design, **options))
        for options in ({"overrides": {"epochs": EPOCHS}}, {"network": network})
    )
    assert np.array_equal(own.accuracies, taken.accuracies) and own.record.key != taken.record.key
    assert taken.record.flags[-1] == "released network: toy cosine, no base training here"


def test_recipe_log_and_precision_are_the_networks(toy: Any, network: Path) -> None:
    own, taken = trained_run(toy), run(toy, network=network, precision="auto")
    spec = taken.spec.representation
    assert taken.spec.protocol.recipe == spec.recipe == own.spec.protocol.recipe
    assert spec.recipe.epochs == EPOCHS and spec.precision == "fp32"
    log = taken.record.representation_log
    assert {name: log[name] for name in own.record.representation_log} == (
        own.record.representation_log
    )
    assert log["trained_with"] == own.record.environment
    assert (
        spec.network == f"toy cosine (sha256 {read_network(network, load_registry()).digest[:12]})"
    )


def test_networks_of_several_seeds_share_a_row(toy: Any, network: Path, tmp_path: Path) -> None:
    trained_run(toy, representation_seed=1)
    other = export(toy, tmp_path / "other.safetensors", "--representation-seed", "1")
    runs = [
        run(toy, network=file, representation_seed=seed)
        for seed, file in enumerate((network, other))
    ]
    assert len({each.key for each in runs}) == 2
    assert len({(each.spec.row, each.spec.version) for each in runs}) == 1


def test_a_table_tells_it_from_the_same_recipe_trained_here(toy: Any, network: Path) -> None:
    run(toy, network=network)
    table = call(toy, "report", "main-table", "--method", "ncm", "--set", "all=true")
    assert "network=toy cosine" in table.output and "network=unset" in table.output
    assert "flags: released network: toy cosine, no base training here" in table.output


def test_its_digest_is_in_the_key(toy: Any, network: Path, tmp_path: Path) -> None:
    tensors, _ = load_tensors(network)
    other = rewritten(
        network, tmp_path / "net.safetensors", {"classifier": 2 * tensors["classifier"]}
    )
    keys = {run(toy, network=file).spec.representation.key for file in (network, other)}
    assert len(keys) == 2


@pytest.mark.usefixtures("packaged")
def test_released_is_found_by_protocol_representation_and_seed(toy: Any) -> None:
    run_words = ["run", "--method", "ncm", "--network"]
    found = call(toy, *run_words, "released")
    assert found.exit_code == 0, found.output
    assert run(toy, network="toy-cosine-0").key == run(toy, network="released").key
    with pytest.raises(
        fb.FscilError, match=r"representation seed 1; there are: toy-cosine-0; without"
    ):
        run(toy, network="released", representation_seed=1)
    with pytest.raises(fb.FscilError, match="did you mean 'toy-cosine-0'"):
        run(toy, network="toy-cosin-0")
    with pytest.raises(fb.FscilError, match=r"net/none.safetensors: no such file$"):
        run(toy, network="net/none.safetensors")


def test_a_command_names_it(toy: Any, packaged: Path, network: Path) -> None:
    bench = toy.bench()
    command = command_for(run(toy, network="released").spec, bench.registry)
    assert "--network toy-cosine-0" in command and "--epochs" not in command
    for each in packaged.iterdir():
        each.unlink()
    command = command_for(run(toy, network=network).spec, bench.registry)
    assert "--network PATH/TO/NETWORK.safetensors" in command


@pytest.mark.usefixtures("packaged")
def test_networks_are_listed_and_shown(toy: Any, network: Path) -> None:
    own, file = trained_run(toy), read_network(network, load_registry())
    done = CliRunner().invoke(app, ["networks", "list", "--results", str(toy.folder / "results")])
    own_training, *lines = done.output.splitlines()
    assert own_training.startswith("trained by this suite, not by the papers' authors")
    assert lines[0].split(None, 1)[0] == "toy-cosine-0"
    told = f"toy, cosine, representation seed 0, {EPOCHS} epochs, fp32"
    assert f"toy cosine: {told}, sha256 {file.digest[:12]}, 1.1 MiB" in lines[0]
    (stored,) = (line for line in lines if own.spec.representation.key in line)
    assert f"{told}, weights {own.record.network}, 1.1 MiB" in stored
    assert not any(run(toy, network=network).spec.representation.key in line for line in lines)
    for name in ("toy-cosine-0", str(network)):
        shown = CliRunner().invoke(app, ["networks", "show", name])
        facts = dict(line.split(None, 1) for line in shown.output.splitlines())
        assert facts["sha256"] == file.digest
        assert facts["license"] == "not stated"
        assert facts["recipe"].startswith(f"epochs={EPOCHS}, batch_size=16")
        assert facts["classes"].startswith("4: ")


def test_what_data_check_says_of_those_that_come_along(
    toy: Any, packaged: Path, network: Path
) -> None:
    words = ["data", "check", toy.toml, "--plugin", str(toy.plugins[0])]
    words += ["--cache", str(toy.folder / "cache")]
    rewritten(network, packaged / "toy-other-0.safetensors", classes=["z", "y", "x", "w"])
    lines = CliRunner().invoke(app, words).output.splitlines()
    told = [line.removeprefix("network").strip() for line in lines if line.startswith("network")]
    assert told[0] == f"toy-cosine-0 (sha256 {read_network(network, load_registry()).digest[:12]})"
    assert told[1].startswith("not for these data: ") and "base class 0 is 'z'" in told[1]


def test_another_copy_of_the_data_is_said(toy: Any, network: Path, tmp_path: Path) -> None:
    spec = {**load_tensors(network)[1]["card"]["spec"], "data_fingerprint": "0" * 16}
    flag = "unofficial data (rows in another order)"
    file = rewritten(network, tmp_path / "net.safetensors", spec=spec, copy_flags=[flag])
    taken = run(toy, network=file)
    assert taken.record.flags == (
        "released network: toy cosine, no base training here",
        "network trained on another copy of the data, unofficial copy",
    )
    assert taken.spec.representation.data_fingerprint == (
        trained_run(toy).spec.representation.data_fingerprint
    )


def damaged(network: Path, path: Path) -> None:
    content = bytearray(network.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def cut(network: Path, path: Path) -> None:
    path.write_bytes(network.read_bytes()[:-100])


def pickled(network: Path, path: Path) -> None:
    torch.save(load_tensors(network)[0], path)


def bare(network: Path, path: Path) -> None:
    save_file(load_tensors(network)[0], path)


def without_card(network: Path, path: Path) -> None:
    save_tensors(path, load_tensors(network)[0], {"losses": []})


def forged(network: Path, path: Path) -> None:
    tensors, meta = load_tensors(network)
    meta["card"]["scale"] *= 2
    save_tensors(path, tensors, meta)


def lacking(network: Path, path: Path) -> None:
    tensors, meta = load_tensors(network)
    del meta["card"]["scale"]
    save_tensors(path, tensors, {**meta, "card_digest": digest_of(meta["card"])})


def other_shape(network: Path, path: Path) -> None:
    rewritten(network, path, {"backbone.conv1.weight": torch.ones(8, 3, 3, 3)})


def other_rows(network: Path, path: Path) -> None:
    rewritten(network, path, {"classifier": torch.ones(5, 64)})


def not_finite(network: Path, path: Path) -> None:
    rewritten(network, path, {"classifier": torch.full((4, 64), torch.nan)})


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (damaged, "its tensors are not as they were written"),
        (cut, "damaged, or none that `fscil-bench networks export` wrote"),
        (pickled, "take weights of other code with --weights FILE --epochs 0"),
        (bare, "it has no card that says how its network was trained"),
        (without_card, "has no card that says how its network was trained"),
        (forged, "damaged, its card is not as it was written"),
        (lacking, "its card cannot be read: scale: Field required"),
        (other_shape, r"1 of another shape: 'conv1.weight' \(8×3×3×3\), expected \(16×3×3×3\)"),
        (other_rows, r"its classifier has the shape \(5, 64\).* expected are rows \(4, 64\)"),
        (not_finite, "the values of 'classifier' are not finite"),
    ],
)
def test_a_bad_file_is_refused(
    toy: Any, network: Path, tmp_path: Path, spoil: Callable[[Path, Path], None], expected: str
) -> None:
    spoil(network, tmp_path / "net.safetensors")
    with pytest.raises(fb.FscilError, match=expected):
        run(toy, network=tmp_path / "net.safetensors")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"overrides": {"epochs": 3}}, "is trained already; its epochs cannot be set"),
        (
            {"representation_params": {"temperature": 2.0}},
            "its representation's temperature cannot be set",
        ),
        ({"overrides": {"base_classes": 6}}, "base_classes is 4, here 6"),
        ({"overrides": {"class_order": "seed:1"}}, "of other classes, or of another order"),
        ({"representation": "alice"}, "is of representation cosine, alice was asked for"),
        ({"representation_seed": 1}, "give --representation-seed 0"),
        ({"precision": "bf16"}, "was trained in fp32; leave --precision out"),
        ({"weights": "none"}, "--weights and --network: .*; give one of them"),
    ],
)
def test_what_it_cannot_answer_is_refused(
    toy: Any, network: Path, options: Changes, expected: str
) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        run(toy, network=network, **options)


def other_toml(toy: Any, folder: Path, text: str = "") -> str:
    (folder / "other.toml").write_text(f'inherits = "{toy.toml}"\nname = "other"\n{text}')
    return str(folder / "other.toml")


def test_a_protocol_of_another_recipe_is_not_its_own(
    toy: Any, network: Path, tmp_path: Path
) -> None:
    with pytest.raises(fb.FscilError, match=r"which is not that of 'other'; give --protocol toy"):
        run(toy, network=network, protocol=other_toml(toy, tmp_path))


def test_a_protocol_that_differs_in_its_sessions_alone_takes_it(
    toy: Any, network: Path, tmp_path: Path
) -> None:
    protocol = other_toml(toy, tmp_path, f"way = 1\nsessions = 6\n[recipe]\nepochs = {EPOCHS}\n")
    assert len(run(toy, network=network, protocol=protocol).accuracies) == 7


def test_images_held_out_of_another_copy_are_not_known(
    toy: Any, network: Path, tmp_path: Path
) -> None:
    spec = load_tensors(network)[1]["card"]["spec"]
    held = {**spec, "recipe": {**spec["recipe"], "holdout": 0.2}, "data_fingerprint": "0" * 16}
    file = rewritten(network, tmp_path / "net.safetensors", spec=held)
    with pytest.raises(fb.FscilError, match="which ones they are here is not known"):
        run(toy, network=file)


def test_parameters_are_chosen_in_front_of_a_network_of_the_same_recipe(
    toy: Any, network: Path
) -> None:
    words = ["--method", "ncm", "--network", str(network)]
    refused = call(toy, "tune", *words, "--grid", "space=raw,tukey")
    assert refused.exit_code == 2
    assert "has not seen the classes that play new ones" in said(refused)
    run_words = ("run", *words, "--tuned")
    assert "--network" not in said(call(toy, *run_words)).partition("tune --method")[2]
    tune = ["tune", "--method", "ncm", "--grid", "space=raw,tukey", "--seeds", "0"]
    assert call(toy, *tune).exit_code == 0
    assert "chosen on other terms" in said(call(toy, *run_words))
    assert call(toy, *tune, "--epochs", str(EPOCHS)).exit_code == 0
    done = call(toy, *run_words)
    assert done.exit_code == 0, done.output
    assert "tuned: ncm space=" in done.output


def test_several_that_fit_are_told_apart_by_their_key(new_toy: Any, tmp_path: Path) -> None:
    runs = [run(new_toy), trained_run(new_toy)]
    words = ["networks", "export", str(tmp_path / "net.safetensors"), "--protocol", "toy"]
    words += ["--results", str(new_toy.folder / "results")]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert all(each.spec.representation.key in refused.output for each in runs)
    chosen = runs[1].spec.representation
    terms = ["--title", "Ours", "--license", "CC0"]
    path = export(new_toy, tmp_path / "net.safetensors", "--key", chosen.key[:9], *terms)
    card = read_network(path, load_registry()).card
    assert (card.title, card.license, card.spec) == ("Ours", "CC0", chosen)
    by_file = ["--protocol", str(new_toy.toml), "--cache", str(new_toy.folder / "cache")]
    export(new_toy, path, "--key", chosen.key, *by_file, "--force")
    again = CliRunner().invoke(app, [*words, "--key", chosen.key])
    assert again.exit_code == 2 and "--force replaces it" in again.output


@pytest.mark.usefixtures("network")
def test_none_to_export_names_what_is_stored(toy: Any, tmp_path: Path) -> None:
    words = ["networks", "export", str(tmp_path / "net.safetensors"), "--protocol", "cub200"]
    places = ["--results", str(toy.folder / "results"), "--cache", str(tmp_path / "cache")]
    refused = CliRunner().invoke(app, [*words, *places])
    assert refused.exit_code == 1
    make = f"run --method ncm --protocol cub200 .*{' '.join(places)}` makes one"
    assert re.search(make, said(refused))
    assert "toy, cosine, representation seed 0, 3 epochs" in said(refused)


def test_networks_that_come_along_can_be_read() -> None:
    for file in networks.packaged_networks(load_registry()):
        card = file.card
        assert file.name == f"{card.protocol}-{card.spec.name}-{card.spec.seed}"
        assert card.license and json.dumps(card.log)
        assert len(card.log["losses"]) == card.spec.recipe.epochs
