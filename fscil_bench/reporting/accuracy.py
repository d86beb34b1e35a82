"""Accuracy in each session: the field's table, and its curve."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from fscil_bench.report import Column
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.facts import numbers_text
from fscil_bench.reporting.measures import PERCENT
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
_SHARED = (
    "method",
    "params",
    "representation",
    "representation_params",
    "protocol",
    "split",
    "views",
)


def accuracy_columns(chosen: Chosen, summary: Sequence[str] = SUMMARY) -> list[Column]:
    """Return the columns of the field's table: a row's name and runs, sessions, and measures."""
    count = chosen.sessions["session"].max() + 1
    group = "Accuracy in session (%)"
    session = partial(Column, group=group, best="highest", limits=PERCENT)
    sessions = [session(f"session_{t}", str(t)) for t in range(count)]
    return [*ROW_COLUMNS, *sessions, *measure_columns(*summary)]


def accuracy_frame(chosen: Chosen, summary: Sequence[str] = SUMMARY) -> pd.DataFrame:
    """Return a line for each row: what identifies it and its runs, and the table's intervals."""
    grouped = chosen.frame.groupby("label", sort=False)
    runs = grouped.size().rename("runs")
    facts = grouped[list(_SHARED)].first()
    chance = grouped.agg(
        seeds=("seed", numbers_text), representation_seeds=("representation_seed", numbers_text)
    )
    names = grouped[["row", "version"]].first()
    parts = _by_session(chosen).unstack("session").reindex(runs.index)  # noqa: PD010
    parts["n"] = parts["n"].fillna(0).astype(int)  # of a session that a row's protocol has not
    sessions = pd.DataFrame(
        {
            f"session_{t}_{part}": parts[part, t]
            for t in range(chosen.sessions["session"].max() + 1)
            for part in ("mean", "half_width", "n")
        }
    )
    sums = aggregate(chosen.frame, "label", summary).drop(columns="runs")
    return pd.concat([runs, facts, chance, names, sessions, sums], axis="columns")


def curve_numbers(chosen: Chosen) -> pd.DataFrame:
    """Return a line for each point of the rows' curves: mean and interval, in %.

    `low` and `high` are NaN where there is a single run.
    """
    points = _by_session(chosen)
    seen = chosen.sessions.groupby(["label", "session"])["classes_seen"].first()
    half = points.pop("half_width")
    bounds = {"low": points["mean"] - half, "high": points["mean"] + half, "n": points.pop("n")}
    points.insert(0, "classes_seen", seen)
    return points.assign(**bounds).reset_index()


def _by_session(chosen: Chosen) -> pd.DataFrame:
    """Return mean, half-width (in %) and n of the accuracy, by label and session."""
    percent = chosen.sessions.assign(all=100 * chosen.sessions["accuracy"])
    found = aggregate(percent, ["label", "session"], ["all"]).drop(columns="runs")
    return found.rename(columns=lambda name: name.removeprefix("all_"))
