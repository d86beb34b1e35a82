"""Error rates, forgetting and plasticity of rows of runs, as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.statistics import aggregate

from .counts import (
    RATES,
    classes_seen,
    confused_pairs,
    confusion_matrices,
    error_rates,
    forgetting,
    session_accuracy,
    session_blocks,
)

Matrices = Mapping[str, Sequence[np.ndarray]]
"""Confusion matrices after each session, by the key of the run."""


def matrices_of(chosen: Chosen) -> dict[str, list[np.ndarray]]:
    """Return the confusion matrices of all chosen runs."""
    runs = (run for label in chosen.labels for run in chosen.runs(label))
    return {run.key: confusion_matrices(run) for run in runs}


def session_frame(chosen: Chosen, matrices: Matrices) -> pd.DataFrame:
    """Return one line for each run and session, in %.

    `RATES` are of all test images after the session; `forgetting` and `plasticity` of those of
    the classes that it brought.
    """
    lines = []
    rows = ((label, run) for label in chosen.labels for run in chosen.runs(label))
    for label, run in rows:
        own, seen = matrices[run.key], classes_seen(run)
        for session, matrix in enumerate(own):
            since = session_accuracy(own, seen, session)
            found = error_rates(matrix, seen[0])
            found |= {"forgetting": forgetting(since), "plasticity": since[0]}
            percent = {name: 100 * value for name, value in found.items()}
            place = {"label": label, "key": run.key, "session": session}
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
    runs = sessions.groupby(["label", "key"], sort=False)
    wide = pd.DataFrame({run: own.set_index("session")[figure] for run, own in runs}).T
    wide = wide.dropna(axis="columns", how="all")
    shown = [int(session) for session in wide.columns]
    wide.columns = pd.Index([f"session_{session}" for session in shown])
    if mean_from is not None:
        late = [f"session_{session}" for session in shown if session >= mean_from]
        wide["mean"] = wide[late].mean(axis="columns")
    labelled = wide.assign(label=wide.index.get_level_values(0))
    return aggregate(labelled, "label", list(wide.columns)), shown


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
        for pair in confused_pairs([matrices[each.key][-1] for each in runs], count):
            own, other = (int(np.searchsorted(seen, c, "right")) for c in pair.classes)
            lines.append(
                {
                    "label": label,
                    "class": names[pair.true],
                    "class_id": pair.true,
                    "class_session": own,
                    "taken_for": names[pair.predicted],
                    "taken_for_id": pair.predicted,
                    "taken_for_session": other,
                    "images_mean": pair.images.mean,
                    "images_half_width": pair.images.half_width,
                    "percent_mean": pair.share.mean,
                    "percent_half_width": pair.share.half_width,
                    "n": pair.images.count,
                }
            )
    return pd.DataFrame(lines)
