"""Error rates, forgetting and plasticity of rows of runs, as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fscil_bench.metrics import mean_interval
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
