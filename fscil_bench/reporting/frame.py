"""Stored results as one tidy frame: a row for each run and session."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.reporting.measures import MEASURES
from fscil_bench.request import Selection
from fscil_bench.store.runs import StoredRun

SESSION_COLUMNS = (
    "session",
    "classes_seen",
    "accuracy",
    "base",
    "new",
    "latest",
    "harmonic",
    "images",
    "learn_seconds",
    "score_seconds",
    "state_bytes",
)
"""Columns that differ from session to session; all others say the same of a whole run."""
UNOFFICIAL = "unofficial data"
"""How the flag begins that a run with another copy of the data has."""


@dataclass(frozen=True)
class Results:
    """What a report draws from.

    Attributes:
        registry: tells the defaults of plug-ins, for labels and commands.
        selection: what was asked for.
        runs: all stored runs with a readable record, oldest first.
        episodes: all stored few-shot episodes, likewise.
        evaluation: reads features and true labels, where there are caches to read.
        unread_runs: what of the selection's protocol has a record that cannot be read, in words.
        unread_episodes: the same of episodes.
    """

    registry: Registry
    selection: Selection = field(default_factory=Selection)
    runs: tuple[StoredRun, ...] = ()
    episodes: tuple[StoredEpisodes, ...] = ()
    evaluation: Evaluation | None = None
    unread_runs: tuple[str, ...] = ()
    unread_episodes: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The runs of the selection's protocol, or all if it names none, as `results_frame`.

        Runs whose predictions cannot be read are left out; `damaged` has them.
        """
        return results_frame(run for run in self._asked if run.key not in self.damaged)

    @cached_property
    def damaged(self) -> dict[str, str]:
        """Runs of the protocol whose predictions cannot be read, by key: what is wrong."""
        return {run.key: f"left out: {run.damage}" for run in self._asked if run.damage}

    @property
    def problems(self) -> tuple[str, ...]:
        """What is stored for the protocol and cannot be read, in words."""
        return (*self.unread_runs, *self.damaged.values())

    def run(self, key: str) -> StoredRun:
        """Return the run with that key, for its predictions, named arrays and specification."""
        return self._by_key[key]

    @cached_property
    def _by_key(self) -> dict[str, StoredRun]:
        return {run.key: run for run in self.runs}

    @property
    def _asked(self) -> list[StoredRun]:
        asked = self.selection.protocol
        return [run for run in self.runs if asked in (None, run.spec.protocol.name)]


def results_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return one row for each run and session; accuracies are fractions.

    `params` and `representation_params` are JSON, `parameters` says how they came about, `official`
    whether the data are the published ones. Only runs of one `row` and `version` may be averaged:
    they differ in their seeds alone.

    Raises:
        StoreError: the predictions of a run cannot be read.
    """
    return pd.DataFrame([line for run in runs for line in _lines(run)])


def run_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run of a results frame, indexed by `key`, in order of appearance.

    Its columns are those that say something of a whole run, and every measure of `MEASURES`.
    """
    runs = frame.drop(columns=list(SESSION_COLUMNS)).drop_duplicates("key").set_index("key")
    sessions = frame.sort_values("session", kind="stable")
    measured = {key: measure.of(sessions) for key, measure in MEASURES.items()}
    return runs.assign(**measured)


def _lines(run: StoredRun) -> list[dict[str, Any]]:
    spec, record = run.spec, run.record
    protocol, brought = spec.protocol, spec.representation
    shared = {
        "key": run.key,
        "protocol": protocol.name,
        "method": spec.method,
        "params": json.dumps(spec.params, sort_keys=True),
        "representation": brought.name,
        "representation_params": json.dumps(brought.params, sort_keys=True),
        "representation_seed": brought.seed,
        "seed": spec.seed,
        "split": spec.split,
        "views": spec.views,
        "way": protocol.way,
        "shot": protocol.shot,
        "base_classes": protocol.base_classes,
        "sessions": protocol.sessions,
        "class_order": protocol.class_order,
        "backbone": brought.backbone,
        "pretraining": brought.pretraining,
        "epochs": protocol.recipe.epochs,
        "precision": brought.precision,
        "parameters": record.parameters,
        "official": not any(flag.startswith(UNOFFICIAL) for flag in record.flags),
        "flags": "; ".join(record.flags),
        "train_images": record.train_images[1],
        "test_images": record.test_images[1],
        "data_fingerprint": brought.data_fingerprint,
        "row": spec.row,
        "version": spec.version,
        "pretrain_seconds": record.pretrain_seconds,
        "peak_memory": record.peak_memory,
        "created": record.created,
        "folder": str(run.folder),
    }
    return [
        shared
        | {
            "session": cost.index,
            "classes_seen": cost.classes_seen,
            "accuracy": measured.accuracy,
            "base": measured.base,
            "new": measured.new,
            "latest": measured.latest,
            "harmonic": measured.harmonic,
            "images": measured.images,
            "learn_seconds": cost.learn_seconds,
            "score_seconds": cost.score_seconds,
            "state_bytes": cost.state_bytes,
        }
        for cost, measured in zip(record.sessions, run.metrics, strict=True)
    ]
