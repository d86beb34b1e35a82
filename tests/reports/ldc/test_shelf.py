from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscil_bench.episodes.store import EpisodesRecord, EpisodesSpec, stored_episodes, write_episodes
from fscil_bench.errors import UsageError
from fscil_bench.params import NoParams
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.ldc.shelf import Shelf
from fscil_bench.reports.ldc.variants import Variant, settings, wanted_runs
from fscil_bench.request import Design, Selection
from fscil_bench.store.runs import Store


@dataclass(frozen=True)
class Parts:
    steps: int = 8
    widths: tuple[int, ...] = (64, 32)


class Method:
    Params = Parts


class Plain:
    Params = NoParams


PLAIN = Variant("method", {}, (0, 1))
DEFAULTS = {"steps": 8, "widths": [64, 32]}


@pytest.fixture
def registry(toy_protocol: Protocol) -> Registry:
    registry = Registry()
    registry.add(Plugin("method", "method", Method, Path(__file__), "test"))
    registry.add(Plugin("representation", "cosine", Plain, Path(__file__), "test"))
    registry.add(Plugin("representation", "other", Plain, Path(__file__), "test"))
    registry.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    return registry


@pytest.fixture
def shelve(store: Store, registry: Registry, toy_protocol: Protocol) -> Any:
    """Return a function that puts all that is stored on a shelf of variants."""

    def put(*variants: Variant) -> Shelf:
        episodes = tuple(stored_episodes(store)[0])
        results = Results(registry, Selection(), tuple(store.runs()[0]), episodes)
        return Shelf(results, toy_protocol, dict(enumerate(variants)))

    return put


def test_runs_are_found_by_what_was_set(factory: Any, shelve: Any, toy_protocol: Protocol) -> None:
    factory.write(factory.spec("method", seed=0, params=DEFAULTS))
    factory.write(factory.spec("method", seed=1, params={**DEFAULTS, "steps": 2}))
    short = toy_protocol.override(sessions=1)
    factory.write(factory.spec("method", params=DEFAULTS, protocol=short), [(36, 0), (34, 6)])
    factory.write(factory.spec("method", params=DEFAULTS, representation={"name": "other"}))
    factory.write(factory.spec("method", params=DEFAULTS, split="outlier:0.2"))
    variants = {
        "default": PLAIN,
        "steps": Variant("method", {"steps": "2"}, (0, 1)),
        "short": Variant("method", {}, (0, 1), overrides={"sessions": 1}),
        "other": Variant("method", {}, (0, 1), representation="other"),
        "outlier": Variant("method", {}, (0, 1), split="outlier:0.2"),
        "never": Variant("method", {"steps": 5}, (0, 1)),
    }
    shelf = shelve(*variants.values())

    found = {name: list(shelf.stored(variant)) for name, variant in variants.items()}

    seed_0 = dict.fromkeys(("default", "short", "other", "outlier"), [0])
    assert found == {**seed_0, "steps": [1], "never": []}
    assert len(shelf.missing) == 2 * len(variants) - 5


def test_seeds_and_networks_that_were_not_asked_for_are_not_taken(
    factory: Any, shelve: Any
) -> None:
    for seed in range(3):
        factory.write(factory.spec("method", seed=seed, params=DEFAULTS))
    factory.write(factory.spec("method", params=DEFAULTS, representation={"seed": 1}))

    shelf = shelve(PLAIN)

    assert shelf.runs(PLAIN).index.tolist() == [0, 1]
    assert set(shelf.runs(PLAIN)["representation_seed"]) == {0}
    assert (shelf.older, shelf.missing) == (0, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "m2"},
        {"engine": "e2"},
        {"representation": {"data_fingerprint": "0" * 16}},
        {"representation": {"precision": "bf16"}},
    ],
)
def test_work_that_is_not_like_the_newest_is_left_out(
    factory: Any, shelve: Any, changes: dict[str, Any]
) -> None:
    for seed in range(2):
        factory.write(factory.spec("method", seed, params=DEFAULTS), created="2024-01-01")
    newest = factory.spec("method", 1, params=DEFAULTS, **changes)
    factory.write(newest, created="2024-01-02")

    shelf = shelve(PLAIN)

    assert {seed: run.spec for seed, run in shelf.stored(PLAIN).items()} == {1: newest}
    assert shelf.older == 2
    assert [each.request.seed for each in shelf.missing] == [0]


def test_damaged_episodes_are_a_problem_and_missing(
    factory: Any, shelve: Any, store: Store
) -> None:
    drawn = Variant("method", {}, (0, 1), episodes=Design(way=2, queries=1, episodes=2))
    for seed in drawn.seeds:
        run = factory.spec("method", seed, params=DEFAULTS)
        spec = EpisodesSpec(run=run, design=drawn.episodes, engine="e1")
        record = EpisodesRecord(key=spec.key, spec=spec, train_images=(5, 5), test_images=(5, 5))
        written = write_episodes(store, record, np.array([0.5, 1.0]))
    damaged = written.folder / "accuracies.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])

    shelf = shelve(drawn)

    found = shelf.episodes(drawn)
    assert {seed: each.accuracies.tolist() for seed, each in found.items()} == {0: [0.5, 1.0]}
    (problem,) = shelf.problems
    assert problem.startswith(f"left out: {damaged}: damaged")
    assert [each.request.seed for each in shelf.missing] == [1]


def test_a_run_without_artifacts_lacks_them(factory: Any, shelve: Any) -> None:
    factory.write(factory.spec("method", 0, params=DEFAULTS))
    with_artifacts = Variant("method", {}, (0,), artifacts=True)

    shelf = shelve(PLAIN, with_artifacts)

    assert shelf.runs(PLAIN).index.tolist() == [0]
    assert shelf.runs(with_artifacts).empty
    assert [(each.request.seed, each.artifacts) for each in shelf.missing] == [
        (0, True),
        (1, False),
    ]


def test_a_run_that_two_variants_need_is_wanted_once(
    registry: Registry, toy_protocol: Protocol
) -> None:
    same = Variant("method", {"steps": "8"}, (1, 2), artifacts=True)

    wanted = list(wanted_runs([PLAIN, same, PLAIN], toy_protocol, registry).values())

    assert [(each.request.seed, each.artifacts) for each in wanted] == [
        (0, False),
        (1, True),
        (2, True),
    ]


def test_a_wrong_parameter_is_refused(registry: Registry, toy_protocol: Protocol) -> None:
    with pytest.raises(UsageError, match="no parameter 'stps'; did you mean 'steps'"):
        wanted_runs([Variant("method", {"stps": 1}, (0,))], toy_protocol, registry)


def test_settings_are_read_from_one_text() -> None:
    assert settings(" steps=2, lr=0.5 ,") == {"steps": "2", "lr": "0.5"}
    with pytest.raises(UsageError, match="'steps' in 'lr=1,steps': write name=value,name=value"):
        settings("lr=1,steps")
    with pytest.raises(UsageError, match=r"'lr=0\.1, lr =0\.2' sets 'lr' twice"):
        settings("lr=0.1, lr =0.2")
