"""A base network from a file: `--epochs 0 --weights FILE`."""

from __future__ import annotations

import argparse
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
from fscil_bench.store.runs import StoredRun
from fscil_bench.store.tensors import load_tensors
from fscil_bench.training.given import base_rows, class_means

BASE, CLASSES = 4, 10
EPOCHS = 10
"""Until the classifier's rows know the classes."""
Tensors = dict[str, torch.Tensor]


def run(toy: Any, method: str = "ncm", **options: Any) -> StoredRun:
    stored: StoredRun = toy.run(method, **{"overrides": {"epochs": EPOCHS}, **options})
    return stored


@pytest.fixture(scope="module")
def trained(toy: Any) -> Tensors:
    """Return the tensors of a network that was trained here, and leave its run there."""
    key = run(toy).spec.representation.key
    tensors, _ = load_tensors(*(toy.folder / "results").glob(f"**/{key}/weights.safetensors"))
    return tensors


def network(trained: Tensors, prefix: str) -> Tensors:
    """Return a backbone's tensors as released code names them."""
    return {
        prefix + name.removeprefix("backbone.").replace(".shortcut.", ".downsample."): tensor
        for name, tensor in trained.items()
        if name.startswith("backbone.")
    }


def save_released(trained: Tensors, path: Path) -> None:
    others = torch.rand(CLASSES - BASE, 64, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([trained["head.weight"], others])
    beside = {"module.fc.weight": rows, "module.slf_attn.fc.weight": torch.ones(64, 64)}
    torch.save({"params": {**network(trained, "module.encoder."), **beside}}, path)


def save_bare(trained: Tensors, path: Path) -> None:
    torch.save({**network(trained, ""), "fc.weight": trained["head.weight"]}, path)


def save_with_arguments(trained: Tensors, path: Path) -> None:
    content = {"model": network(trained, "backbone."), "best": np.float64(0.5)}
    torch.save({**content, "args": argparse.Namespace(lr=0.1, accuracies=np.arange(3.0))}, path)


FORMS: dict[str, Callable[[Tensors, Path], None]] = {
    "params.pth": save_released,
    "model.pt": save_with_arguments,
    "bare.pth": save_bare,
    "safe.safetensors": lambda trained, path: save_file(network(trained, "encoder."), path),
}


def call(toy: Any, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, *toy.words()])


@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_each_form_runs(toy: Any, tmp_path: Path, trained: Tensors, name: str) -> None:
    FORMS[name](trained, tmp_path / name)
    words = ["--epochs", "0", "--weights", str(tmp_path / name), "--set", "ldc.unit_steps=2"]
    done = call(toy, "run", "--method", "ncm,ldc", *words)
    assert done.exit_code == 0, done.output
    given = run(toy, overrides={"epochs": 0}, weights=tmp_path / name)
    assert np.array_equal(given.predictions, run(toy).predictions), "it is the same network"
    rows_of = {"params.pth": "module.fc.weight of the file", "bare.pth": "fc.weight of the file"}
    log = given.record.representation_log
    assert log["classifier"] == rows_of.get(name, "class means")
    assert log["left_out"] == ["module.slf_attn.fc.weight"] * (name == "params.pth")
    assert given.record.flags == (
        f"base network from a file: {given.spec.representation.pretraining}, no base training here",
    )
    assert given.spec.representation.pretraining.startswith(f"{name} (sha256 ")


@pytest.mark.parametrize("method", ["finetune", "icarl"])
def test_methods_train_on_from_it(toy: Any, tmp_path: Path, trained: Tensors, method: str) -> None:
    save_released(trained, tmp_path / "net.pth")
    given, own = (
        run(toy, method, params={"epochs": 2}, **options)
        for options in ({"overrides": {"epochs": 0}, "weights": tmp_path / "net.pth"}, {})
    )
    assert given.key != own.key
    assert np.array_equal(given.predictions, own.predictions), "backbone and rows are the same"


def test_the_content_moves_the_key_and_row(toy: Any, tmp_path: Path, trained: Tensors) -> None:
    path, runs = tmp_path / "net.pth", []
    for factor in (1.0, 2.0):
        tensors = network(trained, "")
        tensors["conv1.weight"] = factor * tensors["conv1.weight"]
        torch.save(tensors, path)
        runs.append(run(toy, overrides={"epochs": 0}, weights=path))
    assert len({each.key for each in runs}) == len({each.spec.row for each in runs}) == 2
    assert runs[0].record.network != runs[1].record.network
    table = call(toy, "report", "main-table", "--method", "ncm", "--set", "all=true")
    assert "no base training here" in table.output
    assert "net.pth (sha256" in table.output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, r"recipe.epochs = 0 trains nothing: give .* --weights FILE, or .* --epochs 1 or more"),
        ({"weights": "none"}, "recipe.epochs = 0 trains nothing"),
        ({"weights": "net", "representation": "alice"}, "nothing of representation 'alice' is"),
        ({"weights": "net", "overrides": {"epochs": 0, "holdout": 0.2}}, "holdout = 0.2 has no"),
    ],
)
def test_what_no_base_training_cannot_mean_is_refused(
    toy: Any, tmp_path: Path, trained: Tensors, options: dict[str, Any], expected: str
) -> None:
    save_bare(trained, tmp_path / "net")
    if options.get("weights") == "net":
        options = {**options, "weights": tmp_path / "net"}
    with pytest.raises(fb.FscilError, match=expected):
        run(toy, **{"overrides": {"epochs": 0}, **options})


def test_parameters_are_not_chosen_on_it(toy: Any, tmp_path: Path, trained: Tensors) -> None:
    save_bare(trained, tmp_path / "net")
    words = ["--epochs", "0", "--weights", str(tmp_path / "net"), "--pseudo-incremental"]
    done = call(toy, "run", "--method", "ncm", *words)
    assert done.exit_code == 2
    assert "has not seen the classes that play new ones" in " ".join(done.output.split())


def test_another_network_stores_nothing(toy: Any, tmp_path: Path, trained: Tensors) -> None:
    tensors = {k: v for k, v in network(trained, "encoder.").items() if "layer3" not in k}
    torch.save({"params": tensors}, tmp_path / "net.pth")
    with pytest.raises(fb.FscilError, match=r"is not the backbone ResNet20 .* missing: 'layer3"):
        run(toy, overrides={"epochs": 0}, weights=tmp_path / "net.pth")
    assert not list((toy.folder / "results").glob("**/*.partial"))


def test_class_means_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 2.0], [0.0, 5.0]])
    means = class_means(features, torch.tensor([1, 1, 0]), 2)
    assert means.tolist() == [[0.0, 5.0], [2.0, 1.0]]


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        (torch.cat([10 * torch.eye(3), torch.full((2, 3), torch.nan)]), True),
        (torch.eye(3)[[0, 1, 1]], True),  # two of three
        (torch.eye(3)[[0, 2, 1]], False),  # one of three
        (torch.eye(3)[[1, 2, 0]], False),  # another order
        (torch.eye(3)[:2], False),  # too few
        (torch.ones(3, 2), False),  # of another network
        (torch.zeros(3, 3), False),
        (torch.full((3, 3), torch.nan), False),
        (None, False),
    ],
)
def test_rows_that_know_the_class_means_are_taken(rows: torch.Tensor | None, taken: bool) -> None:
    found = base_rows(rows, torch.tensor([[4.0, 1.0, 1.0], [1.0, 4.0, 1.0], [1.0, 1.0, 4.0]]))
    assert (found is not None) == taken
    assert found is None or rows is None or torch.equal(found, rows[:3])
