"""Stored results as one tidy frame: a row for each run and session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.reporting.measures import MEASURES
from fscil_bench.request import Selection
from fscil_bench.running.commands import FEATURE_FILE, Standing, standings_of
from fscil_bench.running.sessions import LISTED
from fscil_bench.spec import UNMATCHED, brought_title, features_name
from fscil_bench.store.runs import StoredRun

UNOFFICIAL = ("unofficial data", UNMATCHED)
"""How flags begin of runs on data that are not, or not known to be, the published ones."""

_RUN: Mapping[str, Callable[[StoredRun], Any]] = {
    "key": lambda run: run.key,
    "protocol": lambda run: run.spec.protocol.name,
    "method": lambda run: run.spec.method,
    "params": lambda run: json.dumps(run.spec.params, sort_keys=True),
    "representation": lambda run: brought_title(run.spec.representation),
    "features": lambda run: _file(run),
    "representation_params": lambda run: json.dumps(_brought_params(run), sort_keys=True),
    "representation_seed": lambda run: run.spec.representation.seed,
    "seed": lambda run: run.spec.seed,
    "split": lambda run: run.spec.split,
    "views": lambda run: run.spec.views,
    "way": lambda run: _way(run.spec.protocol),
    "shot": lambda run: run.spec.protocol.shot,
    "base_classes": lambda run: run.spec.protocol.base_classes,
    "sessions": lambda run: run.spec.protocol.sessions,
    "class_order": lambda run: run.spec.protocol.class_order,
    "backbone": lambda run: run.spec.representation.backbone,
    "pretraining": lambda run: run.spec.representation.pretraining,
    "epochs": lambda run: 0 if _file(run) else run.spec.protocol.recipe.epochs,
    "precision": lambda run: run.spec.representation.precision,
    "devices": lambda run: run.spec.representation.devices,
    "parameters": lambda run: run.record.parameters,
    "official": lambda run: not any(flag.startswith(UNOFFICIAL) for flag in run.record.flags),
    "flags": lambda run: "; ".join(run.record.flags),
    "train_images": lambda run: run.record.train_images[1],
    "test_images": lambda run: run.record.test_images[1],
    "network": lambda run: run.record.network,
    "data_fingerprint": lambda run: run.spec.representation.data_fingerprint,
    "row": lambda run: run.spec.row,
    "version": lambda run: run.spec.version,
    "pretrain_seconds": lambda run: run.record.pretrain_seconds,
    "peak_memory": lambda run: run.record.peak_memory,
    "own_labels": lambda run: run.own_labels(-1),
    "calibration_error": lambda run: run.calibration_error(-1),
    "created": lambda run: run.record.created,
    "folder": lambda run: str(run.folder),
}
_COSTS = ("learn_seconds", "score_seconds", "state_bytes")
_METRICS = (
    *("accuracy", "base", "new", "latest", "harmonic", "harmonic_classes", "new_sessions"),
    *("forgetting", "images"),
)
SESSION_COLUMNS = ("session", "classes_seen", *_METRICS, *_COSTS)
"""Columns that differ from session to session; all others say the same of a whole run."""


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

    @cached_property
    def test_images(self) -> int | None:
        """The fewest of a class of the selection's protocol, as the newest result knows them."""
        asked = self.selection.protocol
        made: list[StoredRun | StoredEpisodes] = list(self._asked)
        made += [each for each in self.episodes if asked in (None, each.spec.run.protocol.name)]
        newest = max(made, key=lambda each: each.record.created, default=None)
        return None if newest is None else newest.record.test_images[0]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is stored for the protocol and cannot be read, in words."""
        return (*self.unread_runs, *self.damaged.values())

    @cached_property
    def copies(self) -> set[str]:
        """The data sets of which some run is on an unofficial copy."""
        unofficial = (run for run in self.runs if "unofficial copy" in run.record.told_flags)
        return {str(run.spec.protocol.dataset) for run in unofficial}

    def drawn_split(self, protocol: Protocol) -> str | None:
        """Return `seeded` where a protocol's shots are published and all stored on its data drawn.

        A copy of the data may have no published ones. None leaves the protocol its own split.
        """
        whole = (run.spec for run in self.runs if run.spec.protocol.test_from_train is None)
        stored = {spec.split for spec in whole if spec.protocol.dataset == protocol.dataset}
        drawn = stored - {LISTED} and "canonical" not in stored
        return "seeded" if drawn and protocol.split == "canonical" else None

    def standing(self, protocol: str, representation: str) -> Standing:
        """Return what all stored runs of these stand on; features count where nothing else does."""
        specs = [run.spec for run in self.runs if run.spec.protocol.name == protocol]
        found = standings_of(specs, self.registry).get(representation, [])
        networks = [each for each in found if FEATURE_FILE not in each.words] or found
        return networks[0] if len(networks) == 1 else Standing()

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
    whether the data are known to be the published ones. Where features are from a file, `features`
    is its name, the representation is called `features NAME`, and no epochs trained it. Only
    runs of one `row` and `version` may be averaged: they differ in their seeds alone.

    Raises:
        StoreError: the predictions of a run cannot be read.
    """
    lines: list[dict[str, Any]] = []
    for run in runs:
        whole = {name: of(run) for name, of in _RUN.items()}
        for cost, measured in zip(run.record.sessions, run.metrics, strict=True):
            metrics = {name: getattr(measured, name) for name in _METRICS}
            costs = {name: getattr(cost, name) for name in _COSTS}
            place = {"session": cost.index, "classes_seen": cost.classes_seen}
            lines.append(whole | place | metrics | costs)
    return pd.DataFrame(lines, columns=[*_RUN, *SESSION_COLUMNS])


def run_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each run of a results frame, indexed by `key`, in order of appearance.

    Its columns are those that say something of a whole run, and every measure of `MEASURES`.
    """
    runs = frame.drop(columns=list(SESSION_COLUMNS)).drop_duplicates("key").set_index("key")
    sessions = frame.sort_values("session", kind="stable")
    measured = {key: measure.of(sessions) for key, measure in MEASURES.items()}
    return runs.assign(**measured)


def _file(run: StoredRun) -> str:
    return features_name(run.spec.representation)


def _brought_params(run: StoredRun) -> dict[str, Any]:
    return {} if _file(run) else run.spec.representation.params


def _way(protocol: Protocol) -> int | str:
    """Return how many classes a session brings; where that differs, each number in a text."""
    return protocol.way if isinstance(protocol.way, int) else protocol.way_text
