"""Time and memory of every method on frozen features at a large dimension and many classes.

Every row is a process of its own, so that its peak memory is that of one method (PyTorch and the
features included). Features are simulated: non-negative and clustered, half of the classes base
classes with `--samples` each, the others in sessions of ten classes with five shots. `base` is the
time of what is learnt from the base session, pre-training included, `sessions` of all the others
together, `scores` of 2,000 queries after the last one. Stored bytes are those of the tensors that
would be saved.

    python benchmarks/bench_dimension.py [--dim 1280] [--classes 200] [--samples 30] [--threads 1]
        [--methods ncm ranpac] [--set ldc.unit_steps=6] [--set ranpac.projections=2000]
        [--clock cpu]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fscil_bench.method import Method, MethodContext, Needs, Terms
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import Queries, Session
from fscil_bench.seeding import Randomness
from fscil_bench.training.compute import environment

WAY, SHOT, QUERIES = 10, 5, 2000


@dataclass(frozen=True)
class Case:
    """What one row measures."""

    method: str
    values: dict[str, str]
    dim: int
    classes: int
    samples: int
    threads: int
    clock: str


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What time is measured by; `cpu`, summed over threads, for a machine that others use too."""


def features(case: Case, labels: torch.Tensor, seed: int) -> torch.Tensor:
    """Return features (n, D) of samples with labels (n,)."""
    centres = torch.rand(case.classes, case.dim, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(len(labels), case.dim, generator=torch.Generator().manual_seed(seed))
    return (centres[labels].square() * (1 + 0.4 * noise)).abs()


def session(case: Case, needs: Needs, index: int) -> Session:
    """Return a session: the base session, or one of the few-shot ones."""
    base = case.classes // 2
    first, last = (0, base) if not index else (base + WAY * (index - 1), base + WAY * index)
    labels = torch.arange(first, last).repeat_interleave(SHOT if index else case.samples)
    names = ("plain", *needs.features, *(() if index else needs.base_views))
    views = {name: features(case, labels, 100 * index + k + 1) for k, name in enumerate(names)}
    ids = tuple(range(first, last))
    return Session(labels, views, index=index, class_ids=ids, classes_seen=last)


def built(case: Case, plugin: type[Method]) -> Method:
    """Return a method with its parameters, checked, and random extras of a representation."""
    randomness, base = Randomness(("benchmark",)), case.classes // 2
    params = parse_params(case.method, plugin.Params, case.values)
    plugin.check(params, Terms(case.dim, base, case.classes, SHOT, case.samples, heldout=False))
    extras = {name: torch.rand(case.classes - base, case.dim) for name in plugin.needs.extras}
    context = MethodContext(
        case.dim,
        randomness,
        randomness,
        torch.device("cpu"),
        extras=extras,
        final_class_count=case.classes if plugin.needs.final_class_count else None,
    )
    return plugin(params, context)


def seconds(clock: str, work: Callable[[], Any]) -> float:
    """Return how long work takes by a clock."""
    started = CLOCKS[clock]()
    work()
    return CLOCKS[clock]() - started


def measure(case: Case) -> str:
    """Return a case's row of the table."""
    torch.set_num_threads(case.threads)
    plugin = load_registry().get("method", case.method).value
    method = built(case, plugin)
    first = session(case, plugin.needs, 0)
    base = 0.0
    if plugin.has_pretraining():
        base = seconds(
            case.clock, lambda: method.load_pretrained(method.pretrain(first, lambda _: None))
        )
    base += seconds(case.clock, lambda: method.learn_base(first))
    later = [session(case, plugin.needs, t) for t in range(1, case.classes // 2 // WAY + 1)]
    learnt = seconds(case.clock, lambda: [method.learn_session(each) for each in later])
    labels = torch.arange(QUERIES) % case.classes
    queries = Queries({name: features(case, labels, 7) for name in plugin.needs.features})
    scored = seconds(case.clock, lambda: method.scores(queries))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{case.method:18s} {base:8.2f} {learnt:10.2f} {scored:8.2f} {peak:9.2f} "
        f"{method.state_bytes():14,d}"
    )


def main() -> None:
    """Measure all methods, one after the other, and print a table."""
    registry = load_registry()
    frozen = [
        n for n in registry.names("method") if not registry.get("method", n).value.needs.images
    ]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--samples", type=int, default=30, help="of a base class")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=frozen, default=frozen)
    parser.add_argument("--set", action="append", default=[], metavar="METHOD.NAME=VALUE")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    o = parser.parse_args()
    processor = environment(torch.device("cpu"))["processor"]
    print(f"{processor}, {o.threads} threads, {o.clock} time; D {o.dim}, {o.classes} classes,")
    print(f"{o.samples} samples of a base class {' '.join(o.set)}")
    print("method               base s sessions s scores s  peak GiB   stored bytes")
    for name in o.methods:
        own = [each.removeprefix(f"{name}.") for each in o.set if each.startswith(f"{name}.")]
        values = dict(each.split("=", 1) for each in own)
        case = Case(name, values, o.dim, o.classes, o.samples, o.threads, o.clock)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(measure, (case,)), flush=True)


if __name__ == "__main__":
    main()
