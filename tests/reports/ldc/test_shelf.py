from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fscil_bench.episodes.store import EpisodesRecord, EpisodesSpec, stored_episodes, write_episodes
from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.ldc.shelf import Shelf
from fscil_bench.reports.ldc.variants import Variant, settings, wanted_runs
from fscil_bench.request import Design, Selection
from fscil_bench.store.runs import Store

PLAIN = Variant("ncm", {}, (0, 1))
RAW = {"space": "raw"}


@pytest.fixture
def shelve(store: Store, claims_registry: Registry, toy_protocol: Protocol) -> Any:
    """Return a function that puts all that is stored on a shelf of variants."""

    def put(*variants: Variant) -> Shelf:
        episodes = tuple(stored_episodes(store)[0])
        results = Results(claims_registry, Selection(), tuple(store.runs()[0]), episodes)
        return Shelf(results, toy_protocol, dict(enumerate(variants)))

    return put


def test_runs_are_found_by_what_was_set(factory: Any, claims: Any, shelve: Any) -> None:
    variants = {
        "default": (PLAIN, [0]),
        "tukey": (Variant("ncm", {"space": "tukey"}, (0, 1)), [1]),
        "short": (Variant("ncm", {}, (0, 1), overrides={"sessions": 1}), [0]),
        "outlier": (Variant("ncm", {}, (0, 1), split="outlier:0.2"), [0]),
        "never": (Variant("ncm", {"space": "other"}, (0, 1)), []),
    }
    for variant, seeds in variants.values():
        for seed in seeds:
            own = Variant(variant.method, variant.params, (seed,), variant.split, variant.overrides)
            claims.write(own)
    # Of a network and a seed that nobody asked for.
    factory.write(factory.spec("ncm", params=RAW, representation={"seed": 1}))
    factory.write(factory.spec("ncm", 2, params=RAW))

    shelf = shelve(*(variant for variant, _ in variants.values()))

    found = {name: shelf.runs(variant).index.tolist() for name, (variant, _) in variants.items()}
    assert found == {name: seeds for name, (_, seeds) in variants.items()}
    assert len(shelf.missing) == 2 * len(variants) - 4
    assert shelf.older == 0


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
        factory.write(factory.spec("ncm", seed, params=RAW), created="2024-01-01")
    newest = factory.spec("ncm", 1, params=RAW, **changes)
    factory.write(newest, created="2024-01-02")

    shelf = shelve(PLAIN)

    assert {seed: run.spec for seed, run in shelf.stored(PLAIN).items()} == {1: newest}
    assert shelf.older == 2
    assert [each.request.seed for each in shelf.missing] == [0]


def test_damaged_episodes_are_a_problem_and_missing(
    factory: Any, shelve: Any, store: Store
) -> None:
    drawn = Variant("ncm", {}, (0, 1), episodes=Design(way=2, queries=1, episodes=2))
    for seed in drawn.seeds:
        run = factory.spec("ncm", seed, params=RAW)
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
    factory.write(factory.spec("ncm", 0, params=RAW))
    with_artifacts = Variant("ncm", {}, (0,), artifacts=True)

    shelf = shelve(PLAIN, with_artifacts)

    assert shelf.runs(PLAIN).index.tolist() == [0]
    assert shelf.runs(with_artifacts).empty
    missing = [(each.request.seed, each.artifacts) for each in shelf.missing]
    assert missing == [(0, True), (1, False)]


def test_a_run_that_two_variants_need_is_wanted_once(
    claims_registry: Registry, toy_protocol: Protocol
) -> None:
    same = Variant("ncm", RAW, (1, 2), artifacts=True)

    wanted = wanted_runs([PLAIN, same, PLAIN], toy_protocol, claims_registry).values()

    found = [(each.request.seed, each.artifacts) for each in wanted]
    assert found == [(0, False), (1, True), (2, True)]
    with pytest.raises(UsageError, match="no parameter 'spce'; did you mean 'space'"):
        wanted_runs([Variant("ncm", {"spce": 1}, (0,))], toy_protocol, claims_registry)


def test_settings_are_read_from_one_text() -> None:
    assert settings(" steps=2, lr=0.5 ,") == {"steps": "2", "lr": "0.5"}
    with pytest.raises(UsageError, match="'steps' in 'lr=1,steps': write name=value,name=value"):
        settings("lr=1,steps")
    with pytest.raises(UsageError, match=r"'lr=0\.1, lr =0\.2' sets 'lr' twice"):
        settings("lr=0.1, lr =0.2")
