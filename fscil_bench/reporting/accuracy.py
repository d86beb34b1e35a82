"""Accuracy in each session: the field's table, and its curve."""

from __future__ import annotations

import math
from typing import cast

import pandas as pd

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.report import Column
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.facts import numbers_text
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS, measure_columns

SUMMARY = (
    "average",
    "performance_drop",
    "performance_retention",
    "last_base",
    "last_new",
    "last_harmonic",
)
"""Measures that sum a run up in the field's table."""
NO_SESSION = Interval(math.nan, math.nan, 0)
"""Of a session that a row's protocol does not have."""
_SHARED = (
    "method",
    "params",
    "representation",
    "representation_params",
    "protocol",
    "split",
    "views",
)


def session_intervals(chosen: Chosen, column: str = "accuracy") -> dict[tuple[str, int], Interval]:
    """Return the interval of each row and session, in %.

    Args:
        chosen: the rows.
        column: of the results frame, a fraction: `accuracy`, `base`, `new`, `latest`, `harmonic`.
    """
    values = 100 * chosen.sessions.set_index(["label", "session"])[column]
    found: dict[tuple[str, int], Interval] = {}
    for key, own in values.groupby(["label", "session"], sort=False):
        label, session = cast("tuple[str, int]", key)
        found[label, session] = mean_interval(own.tolist())
    return found


def accuracy_columns(chosen: Chosen) -> list[Column]:
    """Return the columns of the field's table: a row's name and runs, sessions, and its summary."""
    count = chosen.sessions["session"].max() + 1
    group = "Accuracy in session (%)"
    sessions = [Column(f"session_{t}", str(t), group, best="highest") for t in range(count)]
    return [*ROW_COLUMNS, *sessions, *measure_columns(*SUMMARY)]


def accuracy_frame(chosen: Chosen) -> pd.DataFrame:
    """Return a line for each row: what identifies it and its runs, and the table's intervals."""
    grouped = chosen.frame.groupby("label", sort=False)
    runs = grouped.size().rename("runs")
    facts = grouped[list(_SHARED)].first()
    seeds = grouped["seed"].agg(numbers_text).rename("seeds")
    others = grouped["representation_seed"].agg(numbers_text).rename("representation_seeds")
    names = grouped[["row", "version"]].first()
    intervals = session_intervals(chosen)
    sessions = pd.DataFrame(index=runs.index)
    for t in range(chosen.sessions["session"].max() + 1):
        own = [intervals.get((str(label), t), NO_SESSION) for label in runs.index]
        sessions[f"session_{t}_mean"] = [each.mean for each in own]
        sessions[f"session_{t}_half_width"] = [each.half_width for each in own]
        sessions[f"session_{t}_n"] = [each.count for each in own]
    summary = aggregate(chosen.frame, "label", SUMMARY).drop(columns="runs")
    return pd.concat([runs, facts, seeds, others, names, sessions, summary], axis="columns")


def curve_numbers(chosen: Chosen) -> pd.DataFrame:
    """Return a line for each point of the rows' curves: mean and interval, in %.

    `low` and `high` are NaN where there is a single run.
    """
    seen = chosen.sessions.drop_duplicates(["label", "session"]).set_index(["label", "session"])
    return pd.DataFrame(
        [
            {
                "label": label,
                "session": session,
                "classes_seen": seen.loc[(label, session), "classes_seen"],
                "mean": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "n": interval.count,
            }
            for (label, session), interval in session_intervals(chosen).items()
        ]
    )
