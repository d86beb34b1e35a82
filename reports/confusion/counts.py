"""Who is taken for whom: functions of one run's confusion matrices, then frames of rows of runs.

`matrix` is (seen, seen): how many test images of class i (row) are taken for class j (column)
after a session; `seen` holds the number of classes after each session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fscil_bench.metrics import mean_interval
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.store.runs import StoredRun

RATES = ("base_right", "base_to_base", "base_to_new", "new_right", "new_to_new", "new_to_base")
"""What test images of base and of new classes are taken for: their class, another of the same
kind, one of the other kind."""
Matrices = Mapping[str, Sequence[np.ndarray]]
"""Confusion matrices after each session, by the key of the run."""


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


def matrices_of(chosen: Chosen) -> dict[str, list[np.ndarray]]:
    """Return the confusion matrices of all chosen runs."""
    keys = map(str, chosen.frame.index)
    return {key: confusion_matrices(chosen.results.run(key)) for key in keys}


def session_frame(chosen: Chosen, matrices: Matrices) -> pd.DataFrame:
    """Return one line for each run and session, in %.

    `RATES` are of all test images after the session; `forgetting` and `plasticity` of those of
    the classes that it brought.
    """
    lines = []
    for key, label in chosen.frame["label"].items():
        own, seen = matrices[str(key)], classes_seen(chosen.results.run(str(key)))
        for session, matrix in enumerate(own):
            since = session_accuracy(own, seen, session)
            found = error_rates(matrix, seen[0])
            found |= {"forgetting": forgetting(since), "plasticity": since[0]}
            percent = {name: 100 * value for name, value in found.items()}
            place = {"label": label, "key": key, "session": session}
            lines.append({**place, "classes_seen": seen[session], **percent})
    return pd.DataFrame(lines)


def last_rates(sessions: pd.DataFrame) -> pd.DataFrame:
    """Return the error rates after each run's last session, averaged over a row's runs."""
    return aggregate(sessions.groupby("key", sort=False).tail(1), "label", RATES)


def drawn_rates(sessions: pd.DataFrame) -> pd.DataFrame:
    """Return the error rates of each row and session, as they are drawn."""
    found = aggregate(sessions, ["label", "session", "classes_seen"], RATES)
    found = found.drop(columns=[f"{name}_n" for name in RATES]).rename(columns={"runs": "n"})
    return found.reset_index()


def by_session(
    sessions: pd.DataFrame, figure: str, mean_from: int | None = None
) -> tuple[pd.DataFrame, list[int]]:
    """Return a figure with a column for each session that has it, averaged over a row's runs.

    And these sessions. With `mean_from` the last column is the mean over those from that one on,
    run by run.
    """
    keys = sessions[["label", "key"]].drop_duplicates()
    wide = sessions.pivot_table(figure, "key", "session", dropna=False).loc[keys["key"]]
    wide = wide.dropna(axis="columns", how="all")
    shown = [int(session) for session in wide.columns]
    wide.columns = pd.Index([f"session_{session}" for session in shown])
    if mean_from is not None:
        late = [f"session_{session}" for session in shown if session >= mean_from]
        wide["mean"] = wide[late].mean(axis="columns")
    measures = list(wide.columns)
    return aggregate(wide.assign(label=keys["label"].to_numpy()), "label", measures), shown


def mean_blocks(chosen: Chosen, label: str, matrices: Matrices) -> np.ndarray:
    """Return a row's `session_blocks` after the last session in %, averaged over its runs."""
    each = [session_blocks(matrices[r.key][-1], classes_seen(r)) for r in chosen.runs(label)]
    mean: np.ndarray = 100 * np.mean(each, axis=0)
    return mean


def pairs_frame(chosen: Chosen, matrices: Matrices, count: int) -> pd.DataFrame:
    """Return the most confused classes of each row after the last session, one line a pair."""
    lines = []
    for label in chosen.labels:
        run, *_ = runs = chosen.runs(label)
        names, seen = run.record.class_names, classes_seen(run)
        last = np.stack([matrices[each.key][-1] for each in runs])
        sizes = last.mean(axis=0).sum(axis=1)
        for true, predicted in confused_pairs(last.mean(axis=0), count):
            images = mean_interval(last[:, true, predicted].astype(float).tolist())
            own, other = (int(np.searchsorted(seen, c, "right")) for c in (true, predicted))
            lines.append(
                {
                    "label": label,
                    "class": names[true],
                    "class_id": true,
                    "class_session": own,
                    "taken_for": names[predicted],
                    "taken_for_id": predicted,
                    "taken_for_session": other,
                    "images_mean": images.mean,
                    "images_half_width": images.half_width,
                    "percent_mean": 100 / sizes[true] * images.mean,
                    "percent_half_width": 100 / sizes[true] * images.half_width,
                    "n": images.count,
                }
            )
    return pd.DataFrame(lines)


def _trace(matrix: np.ndarray, own: slice) -> int:
    return int(np.trace(matrix[own, own]))


def _fraction(count: int, total: int) -> float:
    return float(count / total) if total else math.nan
