from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.data.pixels import Images
from fscil_bench.errors import FscilError, StoreError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Silent
from fscil_bench.protocol import ImageSpec, Recipe
from fscil_bench.representation import TrainedRepresentation
from fscil_bench.spec import RepresentationSpec
from fscil_bench.store.tensors import load_tensors, save_tensors
from fscil_bench.training.loop import BaseTraining, LabelledImages, epoch_batches, learning_rate

CPU = torch.device("cpu")
COSINE: Any = load_registry().get("representation", "cosine").value


def images(per_class: int, seed: int) -> LabelledImages:
    random = np.random.default_rng(seed)
    patterns = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3))
    labels = np.repeat(np.arange(3), per_class)
    noisy = patterns[labels] + random.normal(0, 30, (len(labels), 8, 8, 3))
    stored = Images.from_block(np.clip(noisy, 0, 255).astype(np.uint8))
    return LabelledImages(stored, np.arange(len(labels)), labels)


def training(heldout: bool = False, precision: str = "fp32", **recipe: Any) -> BaseTraining:
    settings = {"epochs": 4, "batch_size": 8, "lr": 0.05, "schedule": "cosine", **recipe}
    spec = RepresentationSpec(
        name="cosine",
        params={},
        seed=0,
        code="",
        engine="",
        dataset="test",
        data_fingerprint="",
        base_classes=3,
        backbone="resnet20",
        pretraining="none",
        precision=precision,
        images=ImageSpec(size=8, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
        recipe=Recipe(**settings),
    )
    kept_out = images(4 if heldout else 0, 2)
    return BaseTraining(
        spec, COSINE(COSINE.Params()), ResNet20Backbone(), images(9, 1), kept_out, CPU
    )


def equal(one: TrainedRepresentation, two: TrainedRepresentation) -> bool:
    first, second = one.backbone.state_dict(), two.backbone.state_dict()
    same = all(map(torch.equal, first.values(), second.values()))
    return same and torch.equal(one.classifier, two.classifier)


class InterruptedAfter(Silent):
    """Stops the training, as Ctrl-C does, once so many epochs are done."""

    def __init__(self, epochs: float) -> None:
        self.epochs = epochs

    @contextmanager
    def task(self, title: str, total: float) -> Iterator[Any]:
        with super().task(title, total) as task:

            def update(done: float, note: str = "") -> None:
                task.update(done, note)
                if done > self.epochs:
                    raise KeyboardInterrupt

            yield SimpleNamespace(update=update)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_interrupted_training_ends_bit_identical(tmp_path: Path, precision: str) -> None:
    whole = training(precision=precision).run(tmp_path / "whole", Silent())
    with pytest.raises(KeyboardInterrupt):
        training(precision=precision).run(tmp_path / "cut", InterruptedAfter(2.4))
    checkpoint = tmp_path / "cut" / "checkpoint.safetensors"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(b"half of it")
    with pytest.raises(StoreError, match=r"checkpoint.safetensors: damaged .* remove this file"):
        training(precision=precision).run(tmp_path / "cut", Silent())
    checkpoint.write_bytes(content)
    resumed = training(precision=precision).run(tmp_path / "cut", Silent())
    assert equal(whole, resumed)
    assert whole.log["losses"] == resumed.log["losses"]
    assert not checkpoint.exists()


def test_a_finished_training_is_loaded_not_repeated(tmp_path: Path) -> None:
    first = training(epochs=8).run(tmp_path, Silent())
    assert len(first.log["losses"]) == len(first.log["rates"]) == 8
    assert first.log["losses"][-1] < 0.5 * first.log["losses"][0], "it learns"
    weights = tmp_path / "weights.safetensors"
    stamp = weights.stat().st_mtime_ns
    again = training(epochs=8).run(tmp_path, InterruptedAfter(0))
    assert equal(first, again)
    assert weights.stat().st_mtime_ns == stamp
    tensors, log = load_tensors(weights)
    tensors["backbone.conv1.weight"][0] = torch.nan
    save_tensors(weights, tensors, log)
    with pytest.raises(StoreError, match=r"weights.safetensors: .* not finite; remove the folder"):
        training(epochs=8).run(tmp_path, Silent())


class BrokenAtTheEnd(COSINE):  # type: ignore[misc]
    """Has a finite loss whose gradient is not: the last step alone spoils the weights."""

    def loss(self, backbone: Any, head: Any, batch: Any) -> torch.Tensor:
        value: torch.Tensor = super().loss(backbone, head, batch)
        return value if batch.epoch == 0 else (value - value.detach()).abs().sqrt()


def test_weights_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(FscilError, match=r"loss of epoch \d is nan.*lower the recipe's lr"):
        training(lr=1e30, schedule="constant").run(tmp_path / "first", Silent())
    broken = training(epochs=2, batch_size=32)  # one step an epoch
    broken.representation = BrokenAtTheEnd(COSINE.Params())
    with pytest.raises(FscilError, match=r"after epoch 2 the weights .* are not finite; lower"):
        broken.run(tmp_path, Silent())
    assert not (tmp_path / "weights.safetensors").exists()


def test_the_best_epoch_is_chosen_on_held_out_images(tmp_path: Path) -> None:
    job = training(heldout=True, checkpoint="best", holdout=0.3, epochs=5)
    trained = job.run(tmp_path, Silent())
    measured = trained.log["heldout_accuracy"]
    assert len(measured) == 5
    assert trained.log["best_epoch"] == 1 + measured.index(max(measured))
    last = training(heldout=True, checkpoint="last", holdout=0.3, epochs=5)
    kept = last.run(tmp_path / "last", Silent())
    assert kept.log["heldout_accuracy"] == measured, "choosing does not change the training"
    if trained.log["best_epoch"] != 5:
        assert not equal(trained, kept)


def test_step_and_cosine_schedules() -> None:
    step = Recipe(epochs=10, lr=0.1, schedule="step", milestones=(6, 7))
    assert [learning_rate(step, e) for e in (0, 5, 6, 7)] == pytest.approx([0.1, 0.1, 0.01, 0.001])
    cosine = Recipe(epochs=10, lr=0.2, schedule="cosine")
    assert learning_rate(cosine, 0) == pytest.approx(0.2)
    assert learning_rate(cosine, 5) == pytest.approx(0.1)
    assert 0 < learning_rate(cosine, 9) < 0.01
    assert learning_rate(Recipe(epochs=10, lr=0.2, schedule="constant"), 9) == 0.2


@pytest.mark.parametrize(("count", "sizes"), [(10, [4, 4, 2]), (9, [4, 5]), (8, [4, 4]), (1, [1])])
def test_an_epoch_is_every_image_once(count: int, sizes: list[int]) -> None:
    batches = list(epoch_batches(count, 4, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == sizes
    assert sorted(np.concatenate(batches)) == list(range(count))


def test_a_batch_draws_episodes_and_views_by_other_operations() -> None:
    job, generator = training(augment=("flip",)), torch.Generator().manual_seed(0)
    batch = job._batch(np.arange(4), 0, generator)
    assert batch.episode is not None
    shots, classes = batch.episode(2, 5)
    assert shots.shape == (10, 3, 8, 8) and len(set(classes.tolist())) == 2
    plain = {c: job._view(np.flatnonzero(job.base.labels == c), (), generator) for c in range(3)}
    for number, image in enumerate(shots):
        own = plain[int(classes[number // 5])]
        assert bool(((own == image) | (own == image.flip(2))).flatten(1).all(dim=1).any())
    assert batch.episode(8, 20)[0].shape == (27, 3, 8, 8), "no more than there is"
    assert torch.equal(batch.augment(()), job._view(np.arange(4), (), generator))


class CopiesTheBackbone(COSINE):  # type: ignore[misc]
    """Keeps the backbone as it was at the start."""

    def begin(self, backbone: Any, head: Any) -> None:
        head.copy = copy.deepcopy(backbone).requires_grad_(False)


def test_what_is_set_up_at_the_beginning_survives_an_interruption(tmp_path: Path) -> None:
    def made() -> BaseTraining:
        job = training()
        job.representation = CopiesTheBackbone(COSINE.Params())
        return job

    with pytest.raises(KeyboardInterrupt):
        made().run(tmp_path, InterruptedAfter(1.4))
    made().run(tmp_path, Silent())
    tensors, _ = load_tensors(tmp_path / "weights.safetensors")
    start = training().fresh_state().backbone.state_dict()["conv1.weight"]
    assert torch.equal(tensors["head.copy.conv1.weight"], start)
    assert not torch.equal(tensors["backbone.conv1.weight"], start)
