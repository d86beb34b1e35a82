"""What studies compare of runs: the usual measures, sessions, slopes, bytes and seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.reporting.facts import busy_lines
from fscil_bench.reporting.frame import run_frame
from fscil_bench.reporting.statistics import differences as paired_differences
from fscil_bench.store.runs import StoredRun

FLOAT = 4
"""Bytes of a float32."""

_SECONDS = r"^(learning|last_learning|pretrain_seconds|learn_\d+)$"
_BY_SESSION = {"session": "accuracy", "learn": "learn_seconds", "state": "state_bytes"}
_MACHINE = ("processor", "device", "threads")


def run_values(sessions: pd.DataFrame, runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return one row a run, by key: the columns of `run_frame`, and what studies need more.

    session_{t}, learn_{t}, state_{t}: accuracy in %, seconds of learning, bytes kept, by session;
    drop_slope: of A_0 − A_t against the classes seen, least squares, in points a class; learning,
    last_learning: seconds in all sessions after the base session, and in the last; class_bytes: by
    which a class of the last session grew what is kept, fixed_bytes: what is left of that without
    as much for every class seen; load, machine: how busy the machine was, and what tells it from
    others, whose times do not compare.

    Args:
        sessions: a row a run and session, as `results_frame` gives them.
        runs: the stored runs, of which some may have no rows.
    """
    values = run_frame(sessions)
    for name, column in _BY_SESSION.items():
        wide = sessions.pivot_table(index="key", columns="session", values=column)
        values = values.join(wide.mul(100 if name == "session" else 1).add_prefix(f"{name}_"))
    grouped = sessions.sort_values("session").groupby("key")
    last, before = grouped.nth(-1).set_index("key"), grouped.nth(-2).set_index("key")
    growth = (last["state_bytes"] - before["state_bytes"]) / last["way"]
    later = sessions[sessions["session"] > 0].groupby("key")["learn_seconds"]
    loads, machines = {}, {}
    for run in (run for run in runs if run.key in values.index):
        loads[run.key] = run.record.load
        own = run.record.environment
        made = [*own.get("before", ()), own]
        machines[run.key] = " / ".join(
            "; ".join(str(each.get(name)) for name in _MACHINE) for each in made
        )
    return values.assign(
        drop_slope=pd.Series({key: _drop_slope(own) for key, own in grouped}, dtype=float),
        learning=later.sum(),
        last_learning=later.last(),
        class_bytes=growth,
        fixed_bytes=(last["state_bytes"] - growth * last["classes_seen"]).round(),
        load=pd.Series(loads, dtype=float),
        machine=pd.Series(machines, dtype=object),
    )


def interval(runs: pd.DataFrame, key: str) -> Interval:
    """Return mean and 95 % interval over the runs that have a value."""
    return mean_interval(runs[key].dropna().tolist())


def apart(first: pd.DataFrame, second: pd.DataFrame, keys: Iterable[str]) -> pd.DataFrame:
    """Return first − second for the runs that both have, paired by the frames' index."""
    shared = first.index.intersection(second.index, sort=False)
    pairs = {key: (first.loc[shared, key], second.loc[shared, key]) for key in keys}
    cells = {k: paired_differences(a.tolist(), b.tolist()) for k, (a, b) in pairs.items()}
    return pd.DataFrame(cells, shared)


def gaps(
    runs: Mapping[str, pd.DataFrame], pairs: Iterable[tuple[str, str]], keys: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Return the same of pairs of names, by `first − second`."""
    return {f"{one} − {two}": apart(runs[one], runs[two], keys) for one, two in pairs}


def difference(first: pd.DataFrame, second: pd.DataFrame, key: str) -> Interval:
    """Return mean and 95 % interval of first − second."""
    return interval(apart(first, second, [key]), key)


def once(runs: pd.DataFrame, value: float) -> pd.Series:
    """Return a column of a value that all runs share, in the first alone: it has no interval."""
    return pd.Series([value] * min(1, len(runs)), runs.index[:1], dtype=float)


def means(runs: Mapping[str, pd.DataFrame], keys: Sequence[str]) -> pd.DataFrame:
    """Return a row for each name that has runs: how many, and intervals as `aggregate` has them.

    A run without a value counts in the other columns alone.
    """
    lines: dict[str, dict[str, float]] = {}
    for name, own in runs.items():
        if len(own):
            lines[name] = {"runs": len(own)}
            for key, found in ((key, interval(own, key)) for key in keys):
                cells = {"mean": found.mean, "half_width": found.half_width, "n": found.count}
                lines[name] |= {f"{key}_{part}": value for part, value in cells.items()}
    return pd.DataFrame(list(lines.values()), pd.Index(lines, name="label"))


def points(
    runs: Mapping[str, pd.DataFrame | Mapping[Any, pd.Series]],
    keys: Mapping[Any, Any] | None = None,
) -> pd.DataFrame:
    """Return the numbers of a panel: by label and position an interval, if any run has a value.

    Args:
        runs: columns of values, by label.
        keys: which of the columns, by position; without, all, and each is called by its position.
    """
    columns = ["label", "x", "mean", "low", "high", "n"]
    lines = [
        (label, x, found.mean, found.low, found.high, found.count)
        for label, own in runs.items()
        for x, key in (keys or {x: x for x in own}).items()
        if (found := mean_interval(own[key].dropna().tolist())).count
    ]
    return pd.DataFrame(lines, columns=columns)


def one_machine(runs: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the runs without the times of any machine but the one that made most of them."""
    machines = pd.concat([own["machine"] for own in runs.values()])
    most = machines.value_counts(sort=False).idxmax() if len(machines) else ""
    found = {name: own.copy() for name, own in runs.items()}
    for own in found.values():
        own.loc[own["machine"] != most, own.filter(regex=_SECONDS).columns] = np.nan
    return found


def busy_remarks(runs: Mapping[str, pd.DataFrame]) -> list[str]:
    """Say so if some of the runs were timed while the machine was doing other work."""
    loads = pd.concat([own.loc[own["learning"].notna(), "load"] for own in runs.values()])
    return busy_lines(loads.tolist())


def _drop_slope(own: pd.DataFrame) -> float:
    if len(own) < 2:
        return np.nan
    drops = 100 * (own["accuracy"].iloc[0] - own["accuracy"])
    return float(np.polyfit(own["classes_seen"], drops, 1)[0])
