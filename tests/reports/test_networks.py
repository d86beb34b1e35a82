"""Results of two machines, each with a network of its own, copied into one folder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fscil_bench.episodes.store import EpisodesRecord, EpisodesSpec, write_episodes
from fscil_bench.errors import FscilError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.compare.report import Compare
from fscil_bench.reports.few_shot.report import FewShot
from fscil_bench.reports.ldc.shelf import Shelf
from fscil_bench.reports.ldc.variants import Variant
from fscil_bench.reports.main_table import MainTable
from fscil_bench.reports.site.report import Site
from fscil_bench.request import Design
from fscil_bench.store.runs import Store

SEEDS = range(6)
LEFT_OUT = "representation cosine, representation_seed 0, than the newest"


@pytest.fixture(autouse=True)
def two_machines(factory: Any) -> None:
    """Write ncm from one network, and later ldc with other base accuracy from another."""
    for seed in SEEDS:
        of_ncm = factory.spec("ncm", seed)
        factory.write(of_ncm, network="a" * 16, created="2024-01-01")
        better = [(40, 0), (40, 10), (30 + seed, 10)]
        of_ldc = factory.spec("ldc", seed, params={"steps": 8, "widths": [64, 32]})
        factory.write(of_ldc, better, network="b" * 16, created="2024-01-02")


def test_compare_pairs_no_runs_of_two_networks(make: Any) -> None:
    with pytest.raises(FscilError, match="6 runs of ncm left out"):
        make(Compare)


def test_compare_pairs_the_runs_of_the_newest(factory: Any, make: Any) -> None:
    for seed in SEEDS:
        factory.write(factory.spec("teen", seed), network="b" * 16, created="2024-01-03")

    made = make(Compare)

    assert set(made.tables["compare"]["first"]) == {"ldc"}
    assert set(made.tables["compare"]["second"]) == {"teen"}
    assert f"6 runs of ncm left out: made from another network of {LEFT_OUT}" in made.text


def test_the_main_table_pools_one_network(factory: Any, make: Any) -> None:
    for seed in SEEDS:
        newer = factory.spec("ncm", seed + 10)
        factory.write(newer, [(40, 0), (34, 6), (30, 10)], network="b" * 16, created="2024-01-03")

    made = make(MainTable)
    table = made.tables["main-table"].set_index("label")

    assert table.loc["ncm", ["runs", "session_0_mean", "session_0_half_width"]].tolist() == [
        6,
        100,
        0,
    ]
    assert "6 runs of ncm left out" in made.text


def test_a_site_shows_runs_of_other_networks_outside_of_rows(make: Any) -> None:
    made = make(Site, protocol=None)

    assert made.tables["data/leaderboard"]["method"].tolist() == ["ldc"]
    assert len(made.tables["data/runs"]) == 12
    assert "- 6 runs of ncm left out" in made.text


def test_studies_take_one_network(store: Store, registry: Registry, toy_protocol: Protocol) -> None:
    results = Results(registry, runs=tuple(store.runs()[0]))
    ncm, ldc = Variant("ncm", {}, tuple(SEEDS)), Variant("ldc", {}, tuple(SEEDS))

    shelf = Shelf(results, toy_protocol, {"ncm": ncm, "ldc": ldc})

    assert [len(shelf.runs(each)) for each in (ncm, ldc)] == [0, 6]
    assert (shelf.older, len(shelf.missing)) == (6, 6)


def test_episodes_of_two_networks_are_never_compared(factory: Any, store: Store, make: Any) -> None:
    for day, (method, network) in enumerate((("ncm", "a"), ("ldc", "b"))):
        spec = EpisodesSpec(run=factory.spec(method), design=Design(5, 1, 15, 4), engine="d1")
        record = EpisodesRecord(
            key=spec.key,
            spec=spec,
            train_images=(500, 500),
            test_images=(10, 10),
            network=network * 16,
            created=f"2024-01-0{day + 1}",
        )
        write_episodes(store, record, np.array([0.5, 0.6, 0.7, 0.8]))

    made = make(FewShot, methods=("ncm", "ldc"))

    assert made.tables["few-shot"]["label"].tolist() == ["ldc"]
    assert f"1 set of ncm left out: made from another network of {LEFT_OUT}" in made.text
    assert any("episodes --method ncm" in command for command in made.missing)
