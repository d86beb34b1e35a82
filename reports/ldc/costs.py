"""What stored runs cost: bytes of their state, seconds of learning, accuracy lost a class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import TypeVar

import numpy as np

from fscil_bench.store.runs import StoredRun

BUSY = 1.25
"""Load by core above which times are said to be too long: a run by itself makes about 1."""
FLOAT = 4
"""Bytes of a float32."""

Key = TypeVar("Key", bound=Hashable)


def drops(run: StoredRun) -> list[float]:
    """Return A_0 − A_t of every session, in points."""
    return [100 * (run.accuracies[0] - accuracy) for accuracy in run.accuracies]


def drop_slope(run: StoredRun) -> float:
    """Return the slope of A_0 − A_t against classes seen: least squares, in points a class."""
    seen = [session.classes_seen for session in run.record.sessions]
    return float(np.polyfit(seen, drops(run), 1)[0])


def class_bytes(run: StoredRun) -> list[float]:
    """Return, for each session after the base session, by how much a new class grows the state."""
    sessions = run.record.sessions
    return [
        (now.state_bytes - before.state_bytes) / (now.classes_seen - before.classes_seen)
        for before, now in pairwise(sessions)
    ]


def fixed_bytes(run: StoredRun) -> int:
    """Return the bytes of the state that would be left without what the classes seen take."""
    last = run.record.sessions[-1]
    return round(last.state_bytes - class_bytes(run)[-1] * last.classes_seen)


def learning_seconds(run: StoredRun) -> float:
    """Return the seconds of learning in all sessions after the base session."""
    return sum(session.learn_seconds for session in run.record.sessions[1:])


def unit_seconds(runs: Mapping[Key, StoredRun]) -> float:
    """Return the seconds of training LDC's unit, which the runs share.

    The least, if it was trained more than once: other work on the machine only adds to it.
    """
    return min(run.record.pretrain_seconds for run in runs.values())


def machine(run: StoredRun) -> tuple[object, ...]:
    """Return what tells the machine that a run was made on: times of others do not compare."""
    return tuple(run.record.environment.get(key) for key in ("processor", "device", "threads"))


def one_machine(runs: Mapping[str, Mapping[Key, StoredRun]]) -> dict[str, dict[Key, StoredRun]]:
    """Return the runs of the machine that made most of them, under the same names."""
    made = Counter(machine(run) for own in runs.values() for run in own.values())
    chosen = max(made, key=lambda each: made[each], default=())
    return {
        name: {key: run for key, run in own.items() if machine(run) == chosen}
        for name, own in runs.items()
    }


def busy_remarks(runs: Mapping[str, Mapping[Key, StoredRun]]) -> list[str]:
    """Say so if some of the runs were timed while the machine was doing other work."""
    loads = [run.record.load for own in runs.values() for run in own.values()]
    busy = [load for load in loads if load > BUSY]
    if not busy:
        return []
    return [
        f"{len(busy)} of {len(loads)} runs were timed on a busy machine (up to {max(busy):.1f} "
        "processes a core wanted to run): their seconds are too long, and differences between "
        "them are not told from that. `run --force` times a run again."
    ]
