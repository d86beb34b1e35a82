"""Training speed of base sessions, side by side in one process.

1. our loop: uint8 batches, crop and flip, the precision and memory format that `auto` chooses;
2. its limit: the same step on tensors that are ready;
3. the field's plain loop: PIL images, torchvision transforms one by one, a DataLoader with two
   workers, float32, default memory format.

The three take turns, and the median of the turns is printed, so that a machine whose speed drifts
does not favour one of them.

    python benchmarks/bench_training.py [--device cuda] [--batches 20] [--turns 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from fscil_bench.data.pixels import Images
from fscil_bench.params import params_dict
from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Silent
from fscil_bench.protocol import ImageSpec, Recipe
from fscil_bench.representation import TrainingBatch
from fscil_bench.spec import Precision, RepresentationSpec
from fscil_bench.training.compute import environment, faster_precision, resolve_device
from fscil_bench.training.loop import BaseTraining, LabelledImages, TrainingState

CLASSES, SIZE, BATCH = 60, 32, 128
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


class PlainImages(Dataset[tuple[torch.Tensor, int]]):
    """Images one by one through PIL, as the released code of most FSCIL methods does."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(SIZE, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.images[index])
        return self.transform(image), int(self.labels[index])


def training(
    images: np.ndarray,
    labels: np.ndarray,
    device: torch.device,
    precision: Precision,
    name: str = "cosine",
) -> BaseTraining:
    """Return the suite's base training of a representation on these images."""
    registry = load_registry()
    plugin, (backbone, _) = registry.get("representation", name), registry.backbone("resnet20")
    params = plugin.value.Params()
    spec = RepresentationSpec(
        name=name,
        params=params_dict(params),
        seed=0,
        dataset="benchmark",
        data_fingerprint="",
        base_classes=CLASSES,
        backbone="resnet20",
        pretraining="none",
        images=ImageSpec(size=SIZE, mean=MEAN, std=STD),
        recipe=Recipe(epochs=1, batch_size=BATCH),
        precision=precision,
        code="",
        engine="",
    )
    stored, members = Images.from_block(images), np.arange(len(images))
    base = LabelledImages(stored, members, labels)
    empty = LabelledImages(stored, members[:0], labels[:0])
    return BaseTraining(spec, plugin.value(params), backbone, base, empty, device)


def ready_batch(
    pixels: torch.Tensor, labels: torch.Tensor, device: torch.device, channels_last: bool
) -> TrainingBatch:
    """Return a batch whose tensors are on the device in the layout that the loop uses."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    pixels = pixels.to(device).contiguous(memory_format=layout)
    return TrainingBatch(pixels, labels.to(device), 0, lambda: pixels, torch.Generator())


def timed(work: Callable[[], int], device: torch.device) -> float:
    """Return images per second of work that returns how many images it trained on."""
    started = time.perf_counter()
    count = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return count / (time.perf_counter() - started)


def plain_steps(
    state: TrainingState, job: BaseTraining, loader: Iterator[list[torch.Tensor]], count: int
) -> int:
    """Train on the next batches of a plain loader; return the number of images."""
    seen = 0
    for pixels, labels in islice(loader, count):
        job.step(state, ready_batch(pixels, labels, job.device, channels_last=False))
        seen += len(labels)
    return seen


def main() -> None:
    """Measure and print the three figures and their ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batches", type=int, default=20, help="batches a turn")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    device = resolve_device(options.device)
    folder = Path(tempfile.mkdtemp())
    backbone, _ = load_registry().backbone("resnet20")
    precision = faster_precision(backbone, SIZE, device, folder.joinpath)
    random = np.random.default_rng(0)
    count: int = options.batches * BATCH
    images = random.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    labels = random.integers(0, CLASSES, count)

    ours, plain = (
        training(images, labels, device, precision),
        training(images, labels, device, "fp32"),
    )
    state, ready_state, plain_state = ours.fresh_state(), ours.fresh_state(), plain.fresh_state()
    plain_state.backbone.to(memory_format=torch.contiguous_format)
    some = torch.randn(BATCH, 3, SIZE, SIZE)
    ready = ready_batch(some, torch.from_numpy(labels[:BATCH]), device, channels_last=True)
    loader = DataLoader(PlainImages(images, labels), BATCH, shuffle=True, num_workers=2)

    def our_turn() -> int:
        with Silent().task("", 1) as task:
            ours.train_epoch(state, task)
        return count

    def ready_turn() -> int:
        for _ in range(options.batches):
            ours.step(ready_state, ready)
        return count

    batches = iter(loader)
    for work in (our_turn, ready_turn, lambda: plain_steps(plain_state, plain, batches, 2)):
        work()  # the first steps build kernels and start workers: not counted
    del batches
    rates: dict[str, list[float]] = {"ours": [], "ready": [], "plain": []}
    for _ in range(options.turns):
        rates["ours"].append(timed(our_turn, device))
        rates["ready"].append(timed(ready_turn, device))
        batches = iter(loader)
        plain_steps(plain_state, plain, batches, 1)  # workers have started
        rest = options.batches - 1
        rates["plain"].append(
            timed(lambda: plain_steps(plain_state, plain, batches, rest), device)  # noqa: B023
        )
    ours_rate, ready_rate, plain_rate = (statistics.median(rates[k]) for k in rates)
    where = environment(device)
    print(f"{where['processor']}, {where['threads']} threads, {where['device']}, {precision}")
    print(f"our loop, crop and flip      {ours_rate:8.0f} images/s")
    print(f"same step on ready tensors   {ready_rate:8.0f} images/s")
    print(f"the field's plain loop       {plain_rate:8.0f} images/s")
    print(f"ours / ready {ours_rate / ready_rate:.3f}   ours / plain {ours_rate / plain_rate:.2f}")


if __name__ == "__main__":
    main()
