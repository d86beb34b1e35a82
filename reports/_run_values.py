"""Figures of single runs, averaged over seeds or paired by them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from fscil_bench.metrics import (
    Interval,
    average_accuracy,
    mean_interval,
    performance_drop,
    performance_retention,
)
from fscil_bench.store.runs import StoredRun

from ._paired import paired_interval

Key = TypeVar("Key", bound=Hashable)
Value = Callable[[StoredRun], float]


def last_accuracy(run: StoredRun) -> float:
    """Return the accuracy after the last session, in %."""
    return 100 * run.accuracies[-1]


def average(run: StoredRun) -> float:
    """Return the mean accuracy of all sessions, in %."""
    return 100 * average_accuracy(run.accuracies)


def drop(run: StoredRun) -> float:
    """Return PD, in points."""
    return 100 * performance_drop(run.accuracies)


def retention(run: StoredRun) -> float:
    """Return PR, in %."""
    return 100 * performance_retention(run.accuracies)


def last_base(run: StoredRun) -> float:
    """Return the last session's accuracy on base classes, in %."""
    return 100 * run.metrics[-1].base


def last_new(run: StoredRun) -> float:
    """Return the last session's accuracy on all later classes, in %."""
    return 100 * run.metrics[-1].new


def last_harmonic(run: StoredRun) -> float:
    """Return the harmonic mean of the last session's base and new accuracy, in %."""
    return 100 * run.metrics[-1].harmonic


def over_runs(runs: Mapping[Key, StoredRun], value: Value) -> Interval:
    """Return mean and 95 % interval of a figure over runs."""
    return mean_interval([value(run) for run in runs.values()])


def difference(
    ours: Mapping[Key, StoredRun], theirs: Mapping[Key, StoredRun], value: Value
) -> Interval:
    """Return mean and 95 % interval of ours − theirs, paired by key."""
    first, second = ({key: value(run) for key, run in runs.items()} for runs in (ours, theirs))
    return paired_interval(first, second)
