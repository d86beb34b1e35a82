"""What each method takes: seconds of training and learning, memory, bytes that it keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fscil_bench.report import Column, Document, Notes, Report, Table
from fscil_bench.reporting.choice import Chosen, meant_rows, own_rows
from fscil_bench.reporting.facts import busy_lines, note_lines
from fscil_bench.reporting.lacks import lacking_runs
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.store.runs import StoredRun

COLUMNS = (
    Column("training", "Base training (s)", kind="number"),
    Column("once", "Method, once (s)", kind="number"),
    Column("learning", "Sessions (s)", kind="number"),
    Column("scoring", "Inference (s)", kind="number"),
    Column("memory", "Memory (MB)", kind="number"),
    Column("kept", "Kept (MB)", kind="number", decimals=3),
)
MEANING = (
    "Base training is of the representation, once for all methods on it, on whatever machine and "
    "however busy (of a network that was taken, as its file tells); Method, once is what a method "
    "learns from base data alone, once for all seeds; Sessions is its learning in all sessions, "
    "the base one included; Inference is the scoring of all test images of all sessions. The "
    "features of a frozen network are computed before, and stand in no column. Seconds are the "
    "least of a row's runs, as other work only adds to them. Memory is the most that the process "
    "had in the sessions (elsewhere than on Linux: until they ended), with all that it had loaded, "
    "and Kept what the method keeps after the last session (MB of 10⁶ bytes)."
)


class Resources(Report):
    """One row a method: seconds of base training, learning and inference, memory, bytes kept."""

    name = "resources"
    title = "Seconds of training, learning and inference, memory, and bytes that are kept"

    @dataclass(frozen=True)
    class Params:
        """`rows`: of these rows alone, `ncm; sppr [sppr]`; `all`: also those on other terms."""

        rows: str = ""
        all: bool = False

    def build(self, frame: pd.DataFrame, params: Params) -> Document:
        """Return the table, the quickest of each representation first."""
        del frame
        found = meant_rows(self.results, self.name, params.rows, params.all, own_rows)
        taken = pd.DataFrame.from_dict(
            {label: _taken(found.runs(label)) for label in found.labels}, "index"
        )
        taken["learnt"] = taken["once"].fillna(0) + taken["learning"]
        taken = taken.sort_values(["training", "learnt"], kind="stable")
        rows = found.keep(taken.index)
        grouped = rows.frame.groupby("label", sort=False)
        names = grouped[["method", "representation", "row", "version"]].first()
        table = names.assign(runs=grouped.size()).join(taken)
        protocol = rows.spec(rows.labels[0]).protocol
        return Document(
            f"{protocol.title} ({protocol.name}): time, memory and bytes",
            [
                Table(self.name, table, [*ROW_COLUMNS, *COLUMNS], notes=[MEANING]),
                Notes([*_machines(rows), *note_lines(rows)]),
            ],
            lacking_runs(rows),
            found.problems,
        )


def _taken(runs: Sequence[StoredRun]) -> Mapping[str, float]:
    """Return what a row's runs took: the least seconds, and MB of memory and of what is kept."""
    records = [run.record for run in runs]
    trained = [
        r.representation_log["seconds"] for r in records if "seconds" in r.representation_log
    ]
    once = [r.pretrain_seconds for r in records if r.pretrain_seconds]
    peaks = [r.peak_memory for r in records if r.peak_memory]
    return {
        "training": min(trained, default=math.nan),
        "once": min(once, default=math.nan),
        "learning": min(sum(s.learn_seconds for s in r.sessions) for r in records),
        "scoring": min(sum(s.score_seconds for s in r.sessions) for r in records),
        "memory": max(peaks, default=math.nan) / 1e6,
        "kept": max(r.sessions[-1].state_bytes for r in records) / 1e6,
    }


def _machines(rows: Chosen) -> list[str]:
    """Say on what runs and taken networks were made, and how many runs on a busy machine."""
    records = [run.record for label in rows.labels for run in rows.runs(label)]
    logs = [record.representation_log for record in records]
    made = [part for r in records for part in (r.environment, *r.environment.get("before", ()))]
    trained = [log["trained_with"] for log in logs if log.get("trained_with")]
    machines = dict.fromkeys(map(_machine, [*made, *trained]))
    lines = [f"Made on {'; '.join(machines)}."]
    if len(machines) > 1:
        lines.append("Seconds of several machines cannot be compared.")
    return [*lines, *busy_lines([r.load for r in records])]


def _machine(environment: Mapping[str, Any]) -> str:
    told = (environment.get(name) for name in ("device", "processor"))
    words = [str(each) for each in told if each]
    threads = environment.get("threads")
    return (
        ", ".join([*words, *([f"threads: {threads}"] if threads else [])]) or "an unknown machine"
    )
