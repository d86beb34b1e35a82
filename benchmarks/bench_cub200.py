"""CUB200 at full size: decoding once, starting again, training; each in a process of its own.

A copy of the data set's true layout is drawn by the program. Then are measured

1. the first start, which decodes it into the cache: seconds, and peak resident memory;
2. the second start: seconds from the start of the process to the data set being ready, and the
   memory that loading has added, mapped pages not counted;
3. training at 224 pixels with random resized crop and flip, and with AutoAugment on top of them,
   against the same step on tensors that are ready, taking turns; medians are printed.

    python benchmarks/bench_cub200.py [--images 11788] [--copy archive] [--folder DIR]
        [--device cuda] [--batches 4] [--batch-size 128] [--turns 5]

A folder that is given is kept, and the copy in it used again; else all is done in a temporary one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fscil_bench.data.reader import Dataset
from fscil_bench.options import Options
from fscil_bench.params import params_dict
from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Silent
from fscil_bench.running.workbench import Workbench
from fscil_bench.spec import RepresentationSpec
from fscil_bench.store.runs import Store
from fscil_bench.training.compute import (
    environment,
    faster_precision,
    peak_memory,
    resolve_device,
)
from fscil_bench.training.loop import BaseTraining, LabelledImages

PLAIN = ("resized_crop", "flip")
AUTO = (*PLAIN, "autoaugment_imagenet")
STATUS = Path("/proc/self/status")


def kibibytes(field: str) -> int | None:
    """Return a field of this process's status, where the system keeps one."""
    if not STATUS.exists():
        return None
    lines = (line.partition(":") for line in STATUS.read_text().splitlines())
    return next((int(rest.split()[0]) for name, _, rest in lines if name == field), None)


def peak() -> int:
    """Return the most bytes resident in this process so far.

    What the system reports at its end counts the process that started it too, hence its status.
    """
    high = kibibytes("VmHWM")
    return peak_memory() if high is None else 1024 * high


def loaded(folder: Path) -> Dataset:
    """Return the data set, through all that a run goes through."""
    options = Options(data_root=folder, unofficial_data=True)
    store = Store(folder / "results", folder / "cache")
    registry = load_registry()
    protocol, place = registry.protocol("cub200")
    bench = Workbench(store, registry, Silent(), options)
    return bench.data.of(protocol.override(shot=1), place)  # small copies have few images


def measure_build(folder: Path, _: argparse.Namespace) -> dict[str, Any]:
    """Decode everything; return the seconds, and the peak before and after."""
    load_registry()  # imports all plug-ins
    before, started = peak(), time.perf_counter()
    loaded(folder)
    return {"seconds": time.perf_counter() - started, "before": before, "peak": peak()}


def measure_start(folder: Path, _: argparse.Namespace) -> dict[str, Any]:
    """Load what is decoded; return when it was ready, the seconds of it, and bytes it added."""
    load_registry()
    before, started = kibibytes("RssAnon"), time.perf_counter()
    data = loaded(folder)
    ready, seconds, after = time.time(), time.perf_counter() - started, kibibytes("RssAnon")
    held = None if before is None or after is None else 1024 * (after - before)
    return {"ready": ready, "seconds": seconds, "held": held, "images": len(data.train)}


def training(data: Dataset, augment: tuple[str, ...], options: argparse.Namespace) -> BaseTraining:
    """Return the base training of the protocol, with other augmentation, on images yet to set."""
    registry, device = load_registry(), resolve_device(options.device)
    protocol = registry.protocol("cub200")[0]
    changes = {"augment": augment, "batch_size": options.batch_size, "epochs": 100}
    plugin, (backbone, _) = (
        registry.get("representation", "cosine"),
        registry.backbone(protocol.backbone),
    )
    params = plugin.value.Params()
    spec = RepresentationSpec(
        name="cosine",
        params=params_dict(params),
        seed=0,
        dataset=data.name,
        data_fingerprint=data.fingerprint,
        base_classes=protocol.base_classes,
        backbone=protocol.backbone,
        pretraining="none",
        images=protocol.images,
        recipe=protocol.override(**changes).recipe,
        precision=faster_precision(backbone, 224, device, Path(tempfile.mkdtemp()).joinpath),
        code="",
        engine="",
    )
    empty = drawn(data, 0, np.random.default_rng(0))
    return BaseTraining(spec, plugin.value(params), backbone, empty, empty, device)


def drawn(data: Dataset, count: int, random: np.random.Generator) -> LabelledImages:
    """Return some of the training images, any class counting as one of the base session's."""
    members = random.choice(len(data.train), count, replace=count > len(data.train))
    return LabelledImages(data.train.images, members, data.train.labels[members] % 100)


def measure_training(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the median images per second of the three steps, and where they were measured."""
    from bench_training import ready_batch, timed

    data, random = loaded(folder), np.random.default_rng(0)
    count: int = options.batches * options.batch_size
    jobs = {"plain": training(data, PLAIN, options), "auto": training(data, AUTO, options)}
    ready_job = training(data, PLAIN, options)
    device, size = ready_job.device, ready_job.spec.images.size
    states = {name: job.fresh_state() for name, job in (*jobs.items(), ("ready", ready_job))}
    pixels = torch.randn(options.batch_size, 3, size, size)
    labels = torch.from_numpy(random.integers(0, 100, options.batch_size))
    batch = ready_batch(pixels, labels, device, channels_last=True)

    def ready() -> int:
        for _ in range(options.batches):
            ready_job.step(states["ready"], batch)
        return count

    def epoch(name: str) -> int:
        with Silent().task("", 1) as task:
            jobs[name].train_epoch(states[name], task)
        return count

    turns: dict[str, Callable[[], int]] = {
        "plain": lambda: epoch("plain"),
        "ready": ready,
        "auto": lambda: epoch("auto"),
    }
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(options.turns + 1):
        for job in jobs.values():
            job.base = drawn(data, count, random)
        for name, work in turns.items():
            rate = timed(work, device)
            if turn:  # the first builds kernels: not counted
                rates[name].append(rate)
    medians = {name: statistics.median(found) for name, found in rates.items()}
    return medians | environment(device) | {"precision": ready_job.spec.precision}


MEASURES = {"build": measure_build, "start": measure_start, "training": measure_training}


def measured(what: str, folder: Path) -> dict[str, Any]:
    """Run one measure in a fresh process; `process` is the time from its start, where it says."""
    words = [sys.executable, __file__, *sys.argv[1:], "--measure", what, "--folder", str(folder)]
    started = time.time()
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"process": found.get("ready", started) - started}


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--images", type=int, default=11_788, help="400 or more")
    parser.add_argument("--copy", choices=["archive", "folder"], default="archive")
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batches", type=int, default=4, help="batches a turn")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--measure", choices=list(MEASURES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 400 <= options.images <= 11_788:
        parser.error("--images must be between 400, two a class, and 11788")
    return options


def main() -> None:
    """Make the copy, take the three measures and print them."""
    options = parsed()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.folder, options)))
        return
    from cub200_copy import make_copy

    with ExitStack() as stack:
        given = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = (given / f"{options.images}-{options.copy}").resolve()
        started = time.perf_counter()
        copy = make_copy(folder, options.images, options.copy)
        print(f"copy: {options.images} images, {copy.name}, {time.perf_counter() - started:.0f} s")
        shutil.rmtree(folder / "cache", ignore_errors=True)
        report(*(measured(what, folder) for what in MEASURES))


def report(build: dict[str, Any], start: dict[str, Any], train: dict[str, Any]) -> None:
    """Print the figures."""
    gib, mib = 2**30, 2**20
    held = "not known here" if start["held"] is None else f"{start['held'] / mib:.1f} MiB"
    print(f"{train['processor']}, {train['threads']} threads, {train['device']}")
    print(f"first start, decoding        {build['seconds']:8.1f} s")
    print(f"  peak resident memory       {build['peak'] / gib:8.2f} GiB", end="")
    print(f" ({build['before'] / gib:.2f} before loading)")
    print(f"second start, from process   {start['process']:8.2f} s")
    print(f"  of which after imports     {start['seconds']:8.2f} s, holding {held}")
    print(f"crop and flip                {train['plain']:8.1f} images/s, {train['precision']}")
    print(f"the same and AutoAugment     {train['auto']:8.1f} images/s")
    print(f"same step on ready tensors   {train['ready']:8.1f} images/s")
    plain, auto = train["plain"] / train["ready"], train["auto"] / train["ready"]
    print(f"crop and flip / ready {plain:.3f}   with AutoAugment / ready {auto:.3f}")


if __name__ == "__main__":
    main()
