"""Who is taken for whom: errors between base and new classes, blocks, pairs, forgetting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fscil_bench.metrics import Interval, accuracy, mean_interval
from fscil_bench.store.runs import StoredRun

from ._rows import Row

RATES = ("base_right", "base_to_base", "base_to_new", "new_right", "new_to_new", "new_to_base")
"""What test images of base and of new classes are taken for: their class, another of the same
kind, one of the other kind."""


@dataclass(frozen=True)
class ConfusedPair:
    """A class and what its test images are taken for after the last session.

    Attributes:
        true: global id of the class.
        predicted: global id of the class that its images are taken for.
        images: how many a run, over a row's runs.
        share: the same in % of the class's test images.
    """

    true: int
    predicted: int
    images: Interval
    share: Interval


def error_rates(run: StoredRun, session: int) -> dict[str, float]:
    """Return the fractions `RATES` of test images after a session; NaN where there are none.

    Those of base images add up to 1, and so do those of new ones.
    """
    seen, base = _seen(run)[session], _seen(run)[0]
    targets, predicted = run.targets, run.predictions[session]
    found: dict[str, float] = {}
    for kind, other, low, high in (("base", "new", 0, base), ("new", "base", base, seen)):
        own = (targets >= low) & (targets < high)
        guesses, right = predicted[own], predicted[own] == targets[own]
        inside = (guesses >= low) & (guesses < high)
        found[f"{kind}_right"] = _share(right)
        found[f"{kind}_to_{kind}"] = _share(inside & ~right)
        found[f"{kind}_to_{other}"] = _share(~inside)
    return {name: found[name] for name in RATES}


def session_blocks(run: StoredRun) -> np.ndarray:
    """Return which session's classes the test images are taken for, after the last session.

    Returns:
        (sessions, sessions): entry (i, j) is the fraction of the test images of session i's
        classes that are taken for a class of session j; the rows add up to 1. A row without test
        images is NaN.
    """
    seen = _seen(run)
    shown = run.targets < seen[-1]
    true, guessed = (
        np.searchsorted(seen, ids[shown], side="right")
        for ids in (run.targets, run.predictions[-1])
    )
    counts = np.zeros((len(seen), len(seen)))
    np.add.at(counts, (true, guessed), 1)
    with np.errstate(invalid="ignore"):
        blocks: np.ndarray = counts / counts.sum(axis=1, keepdims=True)
    return blocks


def session_accuracy(run: StoredRun, learnt: int, now: int) -> float:
    """Return a_{now,learnt}: accuracy after session `now` on the classes of session `learnt`.

    Over the joint label space of all classes seen by then.
    """
    seen = [0, *_seen(run)]
    own = (run.targets >= seen[learnt]) & (run.targets < seen[learnt + 1])
    return accuracy(run.predictions[now][own], run.targets[own])


def forgetting(run: StoredRun, learnt: int) -> float:
    """Return how much of the accuracy on a session's classes is lost by the last session T.

    f_j = max over j <= l < T of a_{l,j}, minus a_{T,j} (Chaudhry et al., Riemannian walk, ECCV
    2018, eq. 3); negative where accuracy rose. NaN for the last session, which nothing follows.
    """
    last = len(run.record.sessions) - 1
    if learnt >= last:
        return math.nan
    best = max(session_accuracy(run, learnt, now) for now in range(learnt, last))
    return best - session_accuracy(run, learnt, last)


def plasticity(run: StoredRun, learnt: int) -> float:
    """Return a_{j,j}: accuracy on the classes of session j right after they were learnt."""
    return session_accuracy(run, learnt, learnt)


def confused_pairs(row: Row, count: int) -> list[ConfusedPair]:
    """Return the classes most often taken for another after the last session, most images first.

    A row's runs have the same classes and test images; the images are averaged over the runs.
    """
    matrices = [_confusion_matrix(run) for run in row.runs]
    mean = np.mean(matrices, axis=0)
    sizes = mean.sum(axis=1)
    off = mean - np.diag(np.diag(mean))
    order = np.argsort(-off, axis=None, kind="stable")[:count]
    pairs = [divmod(int(index), len(off)) for index in order if off.flat[index] > 0]
    found = []
    for true, predicted in pairs:
        images = mean_interval([float(matrix[true, predicted]) for matrix in matrices])
        found.append(ConfusedPair(true, predicted, images, scaled(images, 100 / sizes[true])))
    return found


def percent(row: Row, value: Callable[[StoredRun], float]) -> Interval:
    """Return mean and interval of a fraction over a row's runs, in %."""
    return scaled(row.interval(value), 100)


def scaled(interval: Interval, factor: float) -> Interval:
    """Return an interval in another unit."""
    return replace(interval, mean=factor * interval.mean, half_width=factor * interval.half_width)


def session_of(seen: Sequence[int], class_id: int) -> int:
    """Return the session that a class came with; `seen` counts the classes after each."""
    return int(np.searchsorted(seen, class_id, side="right"))


def _confusion_matrix(run: StoredRun) -> np.ndarray:
    """Return how often each class (row) is taken for each class (column) after the last session."""
    classes = _seen(run)[-1]
    shown = run.targets < classes  # a run may end before the data set's last class
    counts = np.zeros((classes, classes))
    np.add.at(counts, (run.targets[shown], run.predictions[-1][shown]), 1)
    return counts


def _seen(run: StoredRun) -> list[int]:
    return [session.classes_seen for session in run.record.sessions]


def _share(chosen: np.ndarray) -> float:
    return float(np.mean(chosen)) if len(chosen) else math.nan
