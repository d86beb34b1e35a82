"""Stored work, found by the variants that a study asks for, and what of these is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.errors import StoreError
from fscil_bench.protocol import Protocol
from fscil_bench.report import Lack
from fscil_bench.reporting.choice import Chosen, of_one_network
from fscil_bench.reporting.frame import Results
from fscil_bench.request import Design, Wanted, seeds_text
from fscil_bench.running.commands import wanted_commands
from fscil_bench.spec import RunSpec
from fscil_bench.store.runs import StoredRun

from .values import run_values
from .variants import Variant, identity_of, wanted_runs

Key = tuple[str, Design | None, int]
Made = TypeVar("Made", StoredRun, StoredEpisodes)


class Current:
    """The code and the network of the newest work.

    Runs are compared only if what they share is the same: the engine, the trained representation
    (and with it data and precision), the published shots, and of one method its code.
    """

    def __init__(self, made: Iterable[tuple[str, RunSpec]]) -> None:
        """Take what was made, each with the time at which it was."""
        self._known: dict[str, str | None] = {}
        for _, spec in sorted(made, key=lambda pair: pair[0], reverse=True):
            if self.fits(spec):
                self._known |= _shared(spec)

    def fits(self, spec: RunSpec) -> bool:
        """Whether a run agrees with the newest in all that they share."""
        shared = _shared(spec).items()
        return all(self._known.get(name, value) == value for name, value in shared)


def _shared(spec: RunSpec) -> dict[str, str | None]:
    return {
        "engine": spec.engine,
        # Another order of classes is another base session, and so another network.
        f"representation {spec.representation.name} {spec.protocol.class_order}": (
            spec.representation.key
        ),
        f"method {spec.method}": spec.code,
        f"shots {spec.split}": spec.shots,
    }


class Shelf:
    """The runs and episodes of some variants on one protocol, by seed.

    Attributes:
        variants: by the names that a study has for them.
        problems: what is wrong with runs and episodes that are left out, in words.
        older: how many were left out because earlier code, or another network, made them.
        missing: what is not stored, as requests.
    """

    def __init__(
        self, results: Results, protocol: Protocol, variants: Mapping[Any, Variant]
    ) -> None:
        self.results, self.protocol, self.registry = results, protocol, results.registry
        self.variants, self.problems = variants, list[str]()
        wanted = wanted_runs(variants.values(), protocol, results.registry)
        runs = [run for run in results.runs if _run_key(run) in wanted]
        episodes = [each for each in results.episodes if _episodes_key(each) in wanted]
        both: list[StoredRun | StoredEpisodes] = [*runs, *episodes]
        kept, left = of_one_network(both)
        runs = [run for run in kept if isinstance(run, StoredRun)]
        episodes = [each for each in kept if not isinstance(each, StoredRun)]
        made = [(run.record.created, run.spec) for run in runs]
        made += [(each.record.created, each.spec.run) for each in episodes]
        current = Current(made)
        self.older = len(left) + sum(not current.fits(spec) for _, spec in made)
        # Later entries replace earlier ones: of two with one key the newest stays.
        self._runs = {_run_key(r): r for r in self._whole(runs) if current.fits(r.spec)}
        drawn = self._whole(episodes)
        self._episodes = {_episodes_key(e): e for e in drawn if current.fits(e.spec.run)}
        self.missing = [each for key, each in wanted.items() if not self._has(key, each)]
        shown = {run.key for run in self._runs.values()}
        sessions = results.frame[results.frame["key"].isin(shown)]
        self._values = run_values(sessions, self._runs.values())

    @property
    def empty(self) -> bool:
        """Whether nothing of what was asked for is stored."""
        return not self._runs and not self._episodes

    def stored(self, variant: Variant) -> dict[int, StoredRun]:
        """Return the readable runs of a variant by seed, with artifacts if it needs them."""
        identity = variant.identity(self.protocol, self.registry)
        keyed = {seed: self._runs.get((identity, None, seed)) for seed in variant.seeds}
        return {
            seed: run
            for seed, run in keyed.items()
            if run is not None and (run.has_artifacts or not variant.artifacts)
        }

    def runs(self, variant: Variant) -> pd.DataFrame:
        """Return the same runs as a frame by seed: their `key` and the columns of `run_values`."""
        found = self.stored(variant)
        values = self._values.loc[[run.key for run in found.values()]]
        return values.reset_index().set_axis(pd.Index(list(found), dtype=int))

    def named(self) -> dict[Any, pd.DataFrame]:
        """Return the frames of all variants, by their names."""
        return {name: self.runs(variant) for name, variant in self.variants.items()}

    def chosen(self, rows: Mapping[str, pd.DataFrame]) -> Chosen:
        """Return some frames of runs as rows of a table; those without runs are left out."""
        made = {label: own for label, own in rows.items() if len(own)}
        frame = pd.concat(made, names=["label"]).reset_index("label").set_index("key")
        return Chosen(self.results, frame.assign(older=0, repeated=0))

    def episodes(self, variant: Variant) -> dict[int, StoredEpisodes]:
        """Return the readable few-shot episodes of a variant by seed."""
        identity = variant.identity(self.protocol, self.registry)
        keyed = {s: self._episodes.get((identity, variant.episodes, s)) for s in variant.seeds}
        return {seed: each for seed, each in keyed.items() if each is not None}

    def artifacts(self, run: StoredRun, *names: str) -> dict[str, np.ndarray]:
        """Return some of a run's named arrays; damaged ones are a problem, and not returned."""
        try:
            return run.artifacts(*names)
        except StoreError as error:
            self.problems.append(f"left out: {error}")
            return {}

    def lacks(self) -> list[Lack]:
        """Return what is missing, with the commands that make it."""
        alike: dict[str, list[Wanted]] = {}
        for each in self.missing:
            alike.setdefault(_in_words(each), []).append(each)
        lacks = []
        for what, own in alike.items():
            seeds = seeds_text([each.request.seed for each in own])
            (command,) = wanted_commands(own, self.registry)
            lacks.append(Lack(f"{what}, seed{'s' * (len(own) > 1)} {seeds}", command))
        return lacks

    def _has(self, key: Key, wanted: Wanted) -> bool:
        run = self._runs.get(key)
        if run is None:
            return key in self._episodes
        return run.has_artifacts or not wanted.artifacts

    def _whole(self, made: Iterable[Made]) -> list[Made]:
        good = []
        for each in sorted(made, key=lambda each: each.record.created):
            if each.damage:
                self.problems.append(f"left out: {each.damage}")
            else:
                good.append(each)
        return good


def _run_key(run: StoredRun) -> Key:
    return identity_of(run.spec), None, run.spec.seed


def _episodes_key(each: StoredEpisodes) -> Key:
    return identity_of(each.spec.run), each.spec.design, each.spec.run.seed


def _in_words(wanted: Wanted) -> str:
    """Return what is wanted but for the seed; two that differ have other words."""
    request, design = wanted.request, wanted.episodes
    changed = {**request.params, **request.overrides}
    if design is None:
        changed["split"] = request.split
    words = [request.method, *(f"{name}={value}" for name, value in changed.items())]
    words += [f"{design.title} episodes"] if design else []
    words += ["with its arrays"] if wanted.artifacts else []
    return ", ".join(words)
