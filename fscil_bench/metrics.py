"""Metrics, computed on read: pure functions of stored predictions and targets.

Accuracy is always correct / total, top-1, over the joint label space of all classes seen so far;
fractions in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NOT_SCORED = -1
"""Stored in place of a prediction where a test sample's class has not been seen yet."""
CONFIDENCE, OWN = "scores/confidence", "scores/own"
"""Names of a session's arrays that say more of its scores than predictions do."""
BINS = 15
"""Of confidence, equally wide."""


@dataclass(frozen=True)
class SessionMetrics:
    """The metrics of one session; NaN where there is nothing to count.

    Attributes:
        accuracy: correct / total over the test samples of every class seen.
        base: the same over base-class samples only (still over the joint label space).
        new: over samples of all classes that came after the base session.
        latest: over samples of the classes that came in this session.
        harmonic: 2·base·new / (base + new), of accuracies over samples.
        harmonic_classes: the same of means over classes of each class's accuracy.
        new_sessions: the mean over later sessions of `latest` as it is now.
        forgetting: the mean over earlier sessions of what is lost of each one's accuracy.
        images: number of test samples scored.
        classes: number of classes seen.
    """

    accuracy: float
    base: float
    new: float
    latest: float
    harmonic: float
    harmonic_classes: float
    new_sessions: float
    forgetting: float
    images: int
    classes: int

    @property
    def hardly_above_chance(self) -> bool:
        """Whether a guess is about as good: less than a fiftieth of what is above it is reached."""
        return self.accuracy * self.classes - 1 < 0.02 * (self.classes - 1)


def accuracy(predictions: np.ndarray, targets: np.ndarray) -> float:
    """Return correct / total; NaN for no samples. `predictions`, `targets`: (n,) integers."""
    return float(np.mean(predictions == targets)) if len(targets) else math.nan


def harmonic_mean(base: float, new: float) -> float:
    """Return 2·base·new / (base + new), 0 if both are 0.

    Of means over classes it is the measure of generalised zero-shot learning (Xian et al., 2017,
    eq. 4) and of TEEN (Wang et al., 2023). Of accuracies over samples it weighs a class by its test
    images; the two are one where all classes have equally many, as those of CIFAR100 and
    mini-ImageNet have.
    """
    if math.isnan(base) or math.isnan(new):
        return math.nan
    return 2 * base * new / (base + new) if base + new > 0 else 0.0


def session_metrics(
    predictions: np.ndarray, targets: np.ndarray, classes_seen: Sequence[int]
) -> list[SessionMetrics]:
    """Return the metrics of every session.

    Args:
        predictions: (sessions, n) global class ids; ignored where the target is not seen yet.
        targets: (n,) global class ids.
        classes_seen: classes seen after each session; the first entry counts the base classes.
    """
    base_classes, classes = classes_seen[0], classes_seen[-1]
    edges = [0, *classes_seen]
    sessions: list[list[float]] = []
    labels = targets.astype(np.intp)
    images = _below(labels, np.ones(len(labels)), classes)
    each = np.diff(images)
    result = []
    for session, seen in enumerate(classes_seen):
        correct = _below(labels, predictions[session] == targets, classes)
        with np.errstate(invalid="ignore"):
            by_class = np.diff(correct) / each

        def part(low: int, high: int, correct: list[int] = correct) -> float:
            count = images[high] - images[low]
            return (correct[high] - correct[low]) / count if count else math.nan

        base, new = part(0, base_classes), part(base_classes, seen)
        sessions.append([part(edges[own], edges[own + 1]) for own in range(session + 1)])
        result.append(
            SessionMetrics(
                accuracy=part(0, seen),
                base=base,
                new=new,
                latest=sessions[-1][-1],
                harmonic=harmonic_mean(base, new),
                harmonic_classes=harmonic_mean(
                    _mean(by_class[:base_classes]), _mean(by_class[base_classes:seen])
                ),
                new_sessions=_mean(np.array(sessions[-1][1:])),
                forgetting=average_forgetting(sessions),
                images=images[seen],
                classes=seen,
            )
        )
    return result


def _below(labels: np.ndarray, counted: np.ndarray, classes: int) -> list[int]:
    """Return for each number from 0 to `classes` how many counted labels are below it."""
    each = np.bincount(labels, weights=counted, minlength=classes)[:classes]
    # Sums of ones are exact in float64.
    return [0, *each.cumsum().astype(np.intp).tolist()]


def _mean(accuracies: np.ndarray) -> float:
    """Return the mean over the classes that have test samples; NaN where none has."""
    there = accuracies[~np.isnan(accuracies)]
    return float(there.mean()) if len(there) else math.nan


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the expected calibration error (Guo et al., ICML 2017, eq. 3) over `BINS` bins.

    Args:
        confidence: (n,) in [0, 1].
        correct: (n,) bool.
    """
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    # n cancels: a bin's share of the samples times the gap of its means.
    gaps = np.bincount(bins, weights=correct - confidence.astype(np.float64), minlength=BINS)
    return float(np.abs(gaps).sum() / len(bins)) if len(bins) else math.nan


def average_accuracy(accuracies: Sequence[float]) -> float:
    """Return the mean of the session accuracies, base session included.

    Not the last session's accuracy, with which tables sometimes confuse it.
    """
    return float(np.mean(accuracies))


def performance_drop(accuracies: Sequence[float]) -> float:
    """Return PD = A_0 − A_T, first minus last session's accuracy (Zhang et al., CEC, 2021)."""
    return accuracies[0] - accuracies[-1]


def performance_retention(accuracies: Sequence[float]) -> float:
    """Return PR = A_T / A_0, the fraction of the first accuracy that is left (Liu et al., LDC)."""
    return accuracies[-1] / accuracies[0] if accuracies[0] else math.nan


def average_forgetting(accuracies: Sequence[Sequence[float]]) -> float:
    """Return the mean over all sessions but the last of what is lost of their accuracy.

    F = 1/T Σ_j max_{j <= l < T} a_{l,j} − a_{T,j} (Chaudhry et al., Riemannian walk, ECCV 2018,
    eq. 3), 0 after the base session; sessions without test samples do not count.

    Args:
        accuracies: a_{l,j}, on session j's classes after session l, for j = 0 … l.
    """
    *before, last = accuracies
    if not before:
        return 0.0
    return _mean(np.array([max(a[j] for a in before[j:]) - last[j] for j in range(len(before))]))


def base_forgetting(sessions: Sequence[SessionMetrics]) -> float:
    """Return how much base-class accuracy is lost: its best over earlier sessions minus the last.

    The forgetting measure of Chaudhry et al. (2018, eq. 3) for the base classes as one task.
    """
    if len(sessions) < 2:
        return 0.0
    return max(session.base for session in sessions[:-1]) - sessions[-1].base


@dataclass(frozen=True)
class Interval:
    """A mean with the half-width of its confidence interval (NaN for a single value)."""

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        """The lower bound; NaN where there is none."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper bound; NaN where there is none."""
        return self.mean + self.half_width


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the mean and its two-sided Student-t interval's half-width, t·s/√n.

    `s` is the sample standard deviation (n − 1). Values that are all alike have half-width 0.
    """
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return Interval(float(data.mean()) if len(data) else math.nan, math.nan, len(data))
    if data.max() == data.min():
        return Interval(float(data[0]), 0.0, len(data))
    from scipy.special import stdtrit  # slow to load, and not every command needs it

    t = float(stdtrit(len(data) - 1, (1 + confidence) / 2))
    half = t * float(data.std(ddof=1)) / math.sqrt(len(data))
    return Interval(float(data.mean()), half, len(data))
