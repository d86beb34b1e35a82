from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fscil_bench as fb
from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Silent
from fscil_bench.representation import TrainingBatch
from fscil_bench.request import RunRequest
from fscil_bench.running.workbench import Workbench
from fscil_bench.store.tensors import load_tensors
from fscil_bench.training import distributed
from fscil_bench.training.distributed import refuse_absent, share

PLUGINS = '''
from dataclasses import dataclass

from torch import distributed, nn

from fscil_bench.backbone import Backbone
from fscil_bench.methods._shared.cosine import CosineRepresentation


class Plain(Backbone):
    """Two layers, and nothing that looks at other images."""

    name = "plain"
    dim = 16

    def build(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 32), nn.ReLU(), nn.Linear(32, 16))


class Failing(CosineRepresentation):
    """Fails in the second process."""

    name = "failing"
    mean_over_images = True

    @dataclass(frozen=True)
    class Params:
        """As of cosine logits."""

        temperature: float = 16.0

    def loss(self, backbone, head, batch):
        if distributed.get_rank() == 1:
            raise ArithmeticError("no more numbers")
        return super().loss(backbone, head, batch)
'''


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "usable_cores", lambda: 2)


@pytest.fixture
def plugins(new_toy: Any, tmp_path: Path) -> tuple[Path, ...]:
    file = tmp_path / "brought.py"
    file.write_text(PLUGINS)
    return (*new_toy.plugins, file)


def weights(results: Path, run: Any) -> dict[str, torch.Tensor]:
    folder = results / "representations" / run.record.spec.representation.key
    return load_tensors(folder / "weights.safetensors")[0]


class InterruptedIn(Silent):
    """Interrupts what is under way, as Ctrl-C does, once so many epochs are done."""

    def __init__(self, epochs: float) -> None:
        self.epochs = epochs

    @contextmanager
    def task(self, title: str, total: float, kinds: Any = ()) -> Iterator[Any]:
        def update(done: float, _: str = "") -> None:
            if title.startswith("base training") and done > self.epochs:
                raise KeyboardInterrupt

        with super().task(title, total, kinds):
            yield SimpleNamespace(update=update)


def test_two_processes_take_the_steps_of_one(
    new_toy: Any, plugins: tuple[Path, ...], tmp_path: Path
) -> None:
    # 27 images in batches of 10, 10 and 7, the last of which is divided into 4 and 3.
    changed = {"backbone": "plain", "augment": (), "batch_size": 10, "holdout": 0.25}
    settings = {"plugins": plugins, "overrides": {**changed, "base_classes": 3}}
    one = new_toy.run(**settings)
    two = new_toy.run(**settings, devices=2)
    first, second = (weights(tmp_path / "results", run) for run in (one, two))
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-4, atol=1e-5)
    logs = [run.record.representation_log for run in (one, two)]
    assert logs[1]["losses"] == pytest.approx(logs[0]["losses"], rel=1e-5)
    assert logs[1]["heldout_accuracy"] == logs[0]["heldout_accuracy"]


def test_an_interrupted_training_ends_bit_identical(new_toy: Any, tmp_path: Path) -> None:
    whole = new_toy.run(devices=2)
    again = {"devices": 2, "results": tmp_path / "again"}
    with pytest.raises(KeyboardInterrupt):
        new_toy.run(**again, progress=InterruptedIn(1.4))
    assert not multiprocessing.active_children()
    key = whole.record.spec.representation.key
    assert (tmp_path / "again" / "representations" / key / "checkpoint.safetensors").exists()
    resumed = new_toy.run(**again)
    assert whole.record.network == resumed.record.network != ""
    log = resumed.record.representation_log
    assert log["losses"] == whole.record.representation_log["losses"]
    assert "devices: 2" in resumed.record.flags


def test_one_failure_ends_all_with_its_message(new_toy: Any, plugins: tuple[Path, ...]) -> None:
    settings = {"plugins": plugins, "representation": "failing"}
    told = r"'failing' failed in base training, in process 1: ArithmeticError: no more numbers"
    with pytest.raises(fb.FscilError, match=told):
        new_toy.run(**settings, overrides={"backbone": "plain"}, devices=2)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"devices": 3}, "batch of 16 images .* nearest number that works is 2"),
        ({"devices": 16}, "shares of 2 or more; the nearest number that works is 8"),
        ({"devices": 2, "representation": "closer"}, "'closer' is not said to be a mean"),
        ({"devices": 2, "representation": "savc"}, "'savc' is not said to be a mean"),
        ({"devices": 4}, "--devices 4: 2 cores can be used here"),
        ({"devices": 0}, "--devices 0: give a number from 1 on"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    new_toy: Any, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        new_toy.run(**options)


def test_more_gpus_than_present_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(fb.FscilError, match="--devices 4: 1 GPU can be used here"):
        refuse_absent(torch.device("cuda"), 4)
    with pytest.raises(fb.FscilError, match="write --device cuda or --device cpu, not cuda:0"):
        refuse_absent(torch.device("cuda:0"), 1)


def test_the_number_of_devices_is_part_of_a_network_and_one_is_none(new_toy: Any) -> None:
    def planned(**options: Any) -> Any:
        bench = Workbench.open(fb.Options(**{**places, **options}))
        return bench.plan(RunRequest(method="ncm", protocol=new_toy.toml)).spec

    settings = new_toy.settings()
    places = {name: settings[name] for name in ("plugins", "results", "cache", "precision")}
    usual, alone, two, four = planned(), *(planned(devices=n) for n in (1, 2, 4))
    assert usual == alone and "devices" not in usual.representation.model_dump()
    assert two.representation.devices == 2
    assert len({usual.representation.key, two.representation.key, four.representation.key}) == 3
    assert len({usual.row, two.row, four.row}) == 3


@pytest.mark.parametrize(
    ("count", "devices", "sizes"),
    [(8, 2, [4, 4]), (7, 2, [4, 3]), (3, 2, [3, 0]), (5, 4, [3, 2, 0, 0]), (1, 2, [1, 0])],
)
def test_shares_are_the_batch(count: int, devices: int, sizes: list[int]) -> None:
    batch = np.arange(count)
    shares = [share(batch, rank, devices) for rank in range(devices)]
    assert [weight for _, weight in shares] == pytest.approx([size / count for size in sizes])
    assert np.concatenate([own for own, weight in shares if weight]).tolist() == batch.tolist()
    assert all(len(own) >= min(2, count) for own, _ in shares), "batch normalisation needs two"


def test_losses_that_are_said_to_be_means_over_images_are() -> None:
    registry, network = load_registry(), nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    kinds = {n: registry.get("representation", n).value for n in registry.names("representation")}
    own = {name for name, kind in kinds.items() if distributed.averages(kind)}
    assert own == {"cosine", "pretrained", "rotation"}
    images, labels = torch.randn(6, 3, 2, 2), torch.arange(6) % 3
    for name in own:
        kind = kinds[name]
        made = kind(kind.Params(**({"turns": "all"} if name == "rotation" else {})))
        head = made.build_head(5, 3, torch.Generator().manual_seed(0))
        parts = [
            made.loss(network, head, TrainingBatch(x, y, 0, torch.clone, torch.Generator()))
            for x, y in [(images, labels), *zip(images.split(2), labels.split(2), strict=True)]
        ]
        torch.testing.assert_close(parts[0], torch.stack(parts[1:]).mean())
