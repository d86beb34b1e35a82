"""What each objective of base training costs, beside cross-entropy on the same images.

An objective may show the network more views of an image, or go through it more often; that is its
price. What it takes beyond that is overhead: its time over `cosine`'s, divided by its operations
over `cosine`'s (forward and backward, as `torch.utils.flop_counter` counts them). The objectives
take turns, and medians are printed.

    python benchmarks/bench_objectives.py [--device cuda] [--batches 10] [--turns 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
from bench_training import BATCH, CLASSES, SIZE, timed, training
from torch.utils.flop_counter import FlopCounterMode

from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Silent
from fscil_bench.training.compute import environment, faster_precision, resolve_device

BASELINE = "cosine"


def main() -> None:
    """Measure and print a line an objective."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batches", type=int, default=10, help="batches a turn")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    device, registry = resolve_device(options.device), load_registry()
    backbone, _ = registry.backbone("resnet20")
    precision = faster_precision(backbone, SIZE, device, Path(tempfile.mkdtemp()).joinpath)
    random = np.random.default_rng(0)
    count: int = options.batches * BATCH
    images = random.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    labels = np.arange(count) % CLASSES
    names = [n for n in registry.names("representation") if n != "pretrained"]
    names.sort(key=lambda name: name != BASELINE)
    jobs = {name: training(images, labels, device, precision, name) for name in names}
    states = {name: job.fresh_state() for name, job in jobs.items()}

    def turn(name: str) -> int:
        with Silent().task("", 1) as task:
            jobs[name].train_epoch(states[name], task)
        return count

    flops: dict[str, int] = {}
    for name in names:  # the first steps build kernels too
        with FlopCounterMode(display=False) as counter:
            turn(name)
        flops[name] = counter.get_total_flops()
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.turns):
        for name in names:
            rates[name].append(timed(lambda: turn(name), device))  # noqa: B023
    where = environment(device)
    print(f"{where['processor']}, {where['threads']} threads, {where['device']}, {precision}")
    print(f"{'':12}  images/s  time  operations  time / operations")
    median = {name: statistics.median(rates[name]) for name in names}
    for name in names:
        time, work = median[BASELINE] / median[name], flops[name] / flops[BASELINE]
        print(f"{name:12}  {median[name]:8.0f}  {time:4.2f}  {work:10.2f}  {time / work:17.2f}")


if __name__ == "__main__":
    main()
