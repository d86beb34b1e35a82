"""Grids on two workers beside one process, and how fast a large grid is planned.

`python benchmarks/bench_grid.py --runs 200` makes so many runs of frozen methods on a network that
is trained before, serially and on `--jobs` workers, and compares them. What it should give on two
free cores: at least 1.7 times faster, and under 50 ms of overhead a run. `--plan 100000` plans so
many runs, of which none is made: in under 30 s and 1 GiB.

`possible` is what the machine allows: the serial time over that of as many plain processes, each
with its share of the seeds, side by side. Cores that share a core's units or memory give less than
their number.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import fscil_bench as fb
from fscil_bench.grids.graph import graph_of, rows_of
from fscil_bench.grids.times import Times
from fscil_bench.options import Options
from fscil_bench.request import words
from fscil_bench.running.series import requested
from fscil_bench.running.workbench import Workbench
from fscil_bench.training.compute import peak_memory

METHODS = ("ncm", "teen", "mahalanobis", "free_lunch")
PROTOCOL: dict[str, Any] = {
    "protocol": "glyphs",
    "overrides": {"epochs": 1, "base_classes": 20},
    "precision": "fp32",
}


def compared(methods: Sequence[str], runs: int, jobs: int, folder: Path) -> dict[str, float | bool]:
    """Return the seconds of `runs` runs, serially and on workers, and whether both agree.

    The start of workers is told apart: it does not grow with the grid.
    """
    seeds = range(max(1, runs // len(methods)))
    ready = folder / "ready"
    made_in(ready, methods, [max(seeds) + 1])  # trains the network, and computes its features
    seconds, made = {}, {}
    for name, workers in (("serial", fb.Workers()), ("grid", fb.Workers(jobs=jobs))):
        linked(folder / name, ready)
        started = time.perf_counter()
        made[name] = made_in(folder / name, methods, seeds, workers=workers)
        seconds[name] = time.perf_counter() - started
    started = time.perf_counter()
    made_in(folder / "grid", methods[:1], [0], workers=fb.Workers(jobs=jobs), force=True)
    start = time.perf_counter() - started
    pairs = zip(made["serial"], made["grid"], strict=True)
    working = seconds["grid"] - start
    return {
        "runs": len(made["grid"]),
        "serial_s": seconds["serial"],
        "grid_s": seconds["grid"],
        "start_of_workers_s": start,
        "faster": seconds["serial"] / seconds["grid"],
        "possible": seconds["serial"] / apart(methods, seeds, jobs, folder),
        "faster_without_start": seconds["serial"] / working,
        "overhead_ms_a_run": 1000 * (jobs * working - seconds["serial"]) / len(made["grid"]),
        "equal": all(np.array_equal(a.predictions, b.predictions) for a, b in pairs),
    }


def apart(methods: Sequence[str], seeds: range, jobs: int, folder: Path) -> float:
    """Return the seconds of the same runs in plain processes that share nothing but the machine."""
    with ExitStack() as stack:
        alone = [ProcessPoolExecutor(1, get_context("spawn")) for _ in range(jobs)]
        pools = [stack.enter_context(pool) for pool in alone]
        places = [linked(folder / f"apart-{number}", folder / "ready") for number in range(jobs)]
        for pool, place in zip(pools, places, strict=True):  # what is loaded once
            pool.submit(made_in, place, methods, [max(seeds) + 1]).result()
        started = time.perf_counter()
        waits = [
            pool.submit(made_in, place, methods, seeds[number::jobs])
            for number, (pool, place) in enumerate(zip(pools, places, strict=True))
        ]
        for wait in waits:
            wait.result()
        return time.perf_counter() - started


def linked(results: Path, ready: Path) -> Path:
    """Return a new folder of results that has the network of another."""
    results.mkdir()
    (results / "representations").symlink_to(ready / "representations")
    return results


def made_in(
    results: Path, methods: Sequence[str], seeds: Sequence[int], **asked: Any
) -> list[fb.StoredRun]:
    """Make runs in one of the folders, with one thread."""
    cache = results.parent / "cache"
    return fb.run(methods, seed=seeds, results=results, cache=cache, threads=1, **PROTOCOL, **asked)


def planned(runs: int, folder: Path) -> dict[str, float]:
    """Return the seconds and the most memory in which a grid of so many runs is planned."""
    options = Options(results=folder / "results", cache=folder / "cache", precision="fp32")
    bench = Workbench.open(options)
    networks, methods = 10, len(METHODS)
    seeds = f"0-{max(1, runs // (networks * methods)) - 1}"
    started, worked = time.perf_counter(), time.process_time()
    own = {name: value for name, value in PROTOCOL.items() if name == "overrides"}
    requests = requested(bench, METHODS, "glyphs", seed=seeds, representation_seed="0-9", **own)
    graph = graph_of(bench.store, rows_of(bench, requests), Times(bench.store), workers=64)
    return {
        "runs": graph.missing,
        "nodes": len(graph.nodes),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
        "peak_gib": peak_memory() / 2**30,
    }


def main() -> None:
    """Measure what the options ask for, and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=0, help="runs to make twice; 200 are usual")
    parser.add_argument("--methods", default=",".join(METHODS), help="on frozen features")
    parser.add_argument("--jobs", type=int, default=2, help="workers")
    parser.add_argument("--plan", type=int, default=0, help="runs to plan; 100000 are usual")
    asked = parser.parse_args()
    if not asked.runs and not asked.plan:
        sys.exit("--runs or --plan: say what to measure")
    with TemporaryDirectory() as folder:
        if asked.runs:
            print(
                json.dumps(
                    compared(words(asked.methods), asked.runs, asked.jobs, Path(folder)), indent=1
                )
            )
        if asked.plan:
            print(json.dumps(planned(asked.plan, Path(folder)), indent=1))


if __name__ == "__main__":
    main()
