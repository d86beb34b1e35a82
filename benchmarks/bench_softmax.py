"""`fit_logistic` beside scikit-learn's LogisticRegression, on what its users fit.

Free-Lunch fits samples of every class seen in single precision, `logistic` one mean or a few shots
a class in double. Both solvers minimise the same objective until no entry of its gradient exceeds
1e-5; times are of the processor, the less of two; `ratio` is scikit-learn's over ours.

    python benchmarks/bench_softmax.py [--dims 64 512] [--classes 60 100] [--penalty 10]
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression

fit_logistic = importlib.import_module("fscil_bench.methods._shared.softmax").fit_logistic

TOLERANCE = 1e-5
PER_CLASS = 200
"""Free-Lunch's samples of a class."""


def overlapping(classes: int, dim: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `count` non-negative samples of each class in Tukey space, and their labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(count)
    centres = torch.rand(classes, dim, generator=generator).square()
    noise = 3 * torch.randn(len(labels), dim, generator=generator) * (0.2 + centres[labels])
    return (centres[labels] + noise).clamp(min=0).sqrt(), labels


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the less of two processor times, in seconds, and what the work returns."""
    times = []
    for _ in range(2):
        started = time.process_time()
        found = work()
        times.append(time.process_time() - started)
    return min(times), found


def measure(x: torch.Tensor, y: torch.Tensor, penalty: float) -> str:
    """Return the columns of one problem."""
    ours, fit = timed(lambda: fit_logistic(x, y, int(y.max()) + 1, penalty, tolerance=TOLERANCE))
    # scikit-learn's tolerance is on the gradient of the mean loss as well.
    solver = LogisticRegression(C=1 / penalty, tol=TOLERANCE, max_iter=5000)
    theirs, other = timed(lambda: solver.fit(x.numpy(), y.numpy()))
    steps = int(other.n_iter_.max())
    return f"{ours:8.3f} {fit.steps:6d} {theirs:10.3f} {steps:6d} {theirs / ours:7.1f}"


def main() -> None:
    """Measure all sizes and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 512])
    parser.add_argument("--classes", type=int, nargs="+", default=[60, 100])
    parser.add_argument("--penalty", type=float, default=10.0, help="Free-Lunch's")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("problem       D    C   ours s  steps   theirs s  steps   ratio")
    for dim in options.dims:
        for classes in options.classes:
            x, y = overlapping(classes, dim, PER_CLASS)
            print(f"free_lunch {dim:4d} {classes:4d} {measure(x, y, options.penalty)}", flush=True)
            x, y = overlapping(classes, dim, 5)
            print(f"logistic   {dim:4d} {classes:4d} {measure(x.double(), y, 1.0)}", flush=True)


if __name__ == "__main__":
    main()
