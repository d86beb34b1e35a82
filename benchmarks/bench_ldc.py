"""Cost of LDC on features alone: its unit's training, a session, an episode; beside Free-Lunch.

Every row is a process of its own, so that its peak memory is that of one method (PyTorch and the
features included). Features are simulated: non-negative, clustered, 60 % of the classes base
classes with `--samples` each; a session brings all others but five, and the one that is timed the
last five, with five shots. Stored bytes are those of the tensors that would be saved.

    python benchmarks/bench_ldc.py [--dims 64 512] [--classes 100 200] [--threads 1]
        [--unit-steps 600] [--samples 100] [--clock cpu]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from fscil_bench.method import Method, MethodContext
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import Queries, Session
from fscil_bench.seeding import Randomness
from fscil_bench.training.compute import environment

WAY, SHOT, QUERIES = 5, 5, 75
METHODS = ("ldc", "free_lunch")


@dataclass(frozen=True)
class Case:
    """What one row measures."""

    method: str
    dim: int
    classes: int
    threads: int
    unit_steps: int
    samples: int
    clock: str


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What time is measured by; `cpu`, summed over threads, for a machine that others use too."""


def session(case: Case, index: int, first: int, last: int, count: int) -> Session:
    """Return `count` samples of each of the classes `first` … `last` − 1."""
    centres = torch.rand(case.classes, case.dim, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(first, last).repeat_interleave(count)
    noise = torch.randn(len(labels), case.dim, generator=torch.Generator().manual_seed(index + 1))
    features = (centres[labels].square() * (1 + 0.4 * noise)).abs()
    return Session(
        labels=labels,
        views={"plain": features},
        index=index,
        class_ids=tuple(range(first, last)),
        classes_seen=last,
    )


def seconds(clock: str, work: Callable[[], Any]) -> float:
    """Return how long work takes by a clock."""
    started = CLOCKS[clock]()
    work()
    return CLOCKS[clock]() - started


def episode(method: Method, shots: Session, queries: Queries, number: int) -> Callable[[], Any]:
    """Return the work of one few-shot episode."""
    return lambda: method.episode_scores(replace(shots, index=number), queries)


def measure(case: Case) -> str:
    """Return a case's row of the table."""
    torch.set_num_threads(case.threads)
    plugin = load_registry().get("method", case.method).value
    values = {"unit_steps": case.unit_steps} if case.method == "ldc" else {}
    randomness = Randomness(("benchmark",))
    context = MethodContext(case.dim, randomness, randomness, torch.device("cpu"))
    method: Method = plugin(parse_params(case.method, plugin.Params, values), context)
    base_classes = round(0.6 * case.classes)
    base = session(case, 0, 0, base_classes, case.samples)
    trained = 0.0
    if plugin.has_pretraining():
        trained = seconds(
            case.clock, lambda: method.load_pretrained(method.pretrain(base, lambda _: None))
        )
    method.learn_base(base)
    shots = session(case, 1, base_classes, base_classes + WAY, SHOT)
    queries = Queries({"plain": session(case, 2, 0, 1, QUERIES).features})
    episodes = [seconds(case.clock, episode(method, shots, queries, n)) for n in range(5)]
    method.learn_session(session(case, 1, base_classes, case.classes - WAY, SHOT))
    last = session(case, 2, case.classes - WAY, case.classes, SHOT)
    learnt = seconds(case.clock, lambda: method.learn_session(last))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{case.method:10s} {case.dim:4d} {case.classes:4d} {trained:10.1f} {learnt:10.2f} "
        f"{1000 * min(episodes):11.1f} {peak:9.2f} {method.state_bytes():13,d}"
    )


def main() -> None:
    """Measure all cases, one after the other, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--unit-steps", type=int, default=600)
    parser.add_argument("--samples", type=int, default=100, help="of a base class")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    known = [name for name in METHODS if name in load_registry().names("method")]
    processor = environment(torch.device("cpu"))["processor"]
    print(f"{processor}, {options.threads} threads, {options.clock} time")
    print("method        D    C     unit s  session s  episode ms  peak GiB  stored bytes")
    for dim in options.dims:
        for classes in options.classes:
            for name in known:
                case = Case(
                    name,
                    dim,
                    classes,
                    options.threads,
                    options.unit_steps,
                    options.samples,
                    options.clock,
                )
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.apply(measure, (case,)), flush=True)


if __name__ == "__main__":
    main()
