"""Who is taken for whom, as pure functions of one run's confusion matrices.

`matrix` is (seen, seen): how many test images of class i (row) are taken for class j (column)
after a session; `seen` holds the number of classes after each session.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fscil_bench.store.runs import StoredRun

RATES = ("base_right", "base_to_base", "base_to_new", "new_right", "new_to_new", "new_to_base")
"""What test images of base and of new classes are taken for: their class, another of the same
kind, one of the other kind."""


def classes_seen(run: StoredRun) -> list[int]:
    """Return the number of classes after each session."""
    return [session.classes_seen for session in run.record.sessions]


def confusion_matrices(run: StoredRun) -> list[np.ndarray]:
    """Return the matrix after each session; images of classes not seen by then are left out."""
    from sklearn.metrics import confusion_matrix

    return [
        confusion_matrix(run.targets, predicted, labels=range(seen))
        for seen, predicted in zip(classes_seen(run), run.predictions, strict=True)
    ]


def error_rates(matrix: np.ndarray, base: int) -> dict[str, float]:
    """Return the fractions `RATES` of test images; NaN where there are none.

    Those of base images add up to 1, and so do those of new ones; `base` counts base classes.
    """
    found: dict[str, float] = {}
    kinds = {"base": slice(0, base), "new": slice(base, None)}
    for (kind, own), other in zip(kinds.items(), ("new", "base"), strict=True):
        images, inside, right = matrix[own].sum(), matrix[own, own].sum(), _trace(matrix, own)
        found[f"{kind}_right"] = _fraction(right, images)
        found[f"{kind}_to_{kind}"] = _fraction(inside - right, images)
        found[f"{kind}_to_{other}"] = _fraction(images - inside, images)
    return found


def session_blocks(matrix: np.ndarray, seen: Sequence[int]) -> np.ndarray:
    """Return (sessions, sessions): of which session's classes images are taken for those of which.

    Entry (i, j) is a fraction of the test images of session i's classes, so that rows add up to 1;
    a row without test images is NaN.
    """
    starts = [0, *seen[:-1]]
    counts = np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
    with np.errstate(invalid="ignore"):
        blocks: np.ndarray = counts / counts.sum(axis=1, keepdims=True)
    return blocks


def session_accuracy(
    matrices: Sequence[np.ndarray], seen: Sequence[int], learnt: int
) -> list[float]:
    """Return a_{l,j} for l = j … T: accuracy on session j = `learnt`'s classes after session l.

    Over the joint label space of all classes seen by then.
    """
    own = slice([0, *seen][learnt], seen[learnt])
    return [_fraction(_trace(matrix, own), matrix[own].sum()) for matrix in matrices[learnt:]]


def forgetting(accuracies: Sequence[float]) -> float:
    """Return how much of the accuracy on a session's classes is lost by the last session T.

    f_j = max over j <= l < T of a_{l,j}, minus a_{T,j} (Chaudhry et al., Riemannian walk, ECCV
    2018, eq. 3), of `accuracies` a_{j,j} … a_{T,j}; negative where accuracy rose. NaN for the last
    session, which nothing follows.
    """
    *before, last = accuracies
    return max(before) - last if before else math.nan


def confused_pairs(mean: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the classes (true, predicted) most often confused, most images first.

    `mean` is a matrix averaged over runs that have the same classes and test images.
    """
    off = mean - np.diag(np.diag(mean))
    order = np.argsort(-off, axis=None, kind="stable")[:count]
    return [divmod(int(index), len(off)) for index in order if off.flat[index] > 0]


def _trace(matrix: np.ndarray, own: slice) -> int:
    return int(np.trace(matrix[own, own]))


def _fraction(count: int, total: int) -> float:
    return float(count / total) if total else math.nan
