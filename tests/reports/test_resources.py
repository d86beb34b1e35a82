"""What methods take: the least seconds of their runs, memory, and bytes that they keep."""

from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.reports.resources import Resources

MACHINE = {"device": "cpu", "processor": "P", "threads": 1}


@pytest.fixture
def stored(factory: Any) -> None:
    """Store two runs of a method that learns once from base data, and one of class means.

    A session of every run takes 0.1 s to learn and 0.1 s to score, and keeps 2,048 bytes more.
    """
    whole = {"environment": MACHINE, "load": 1.0, "peak_memory": 3_000_000}
    trained = {"representation_log": {"seconds": 50.0}}
    for seed, once in enumerate((7.0, 5.0)):
        spec = factory.spec("ldc", seed, params={"steps": 8, "widths": [64, 32]})
        factory.write(spec, pretrain_seconds=once, **whole, **trained)
    factory.write(factory.spec("ncm"), **(whole | {"load": 3.5}), **trained)


@pytest.mark.usefixtures("stored")
def test_seconds_are_the_least_and_what_takes_less_comes_first(make: Any) -> None:
    table = make(Resources).tables["resources"].set_index("label")
    assert list(table.index) == ["ncm", "ldc"]
    assert table.loc["ldc", "once"] == 5.0
    assert table["once"].isna().tolist() == [True, False]
    assert table["training"].tolist() == [50.0, 50.0]
    # Three sessions.
    assert table["learning"].tolist() == pytest.approx([0.3, 0.3])
    assert table["scoring"].tolist() == pytest.approx([0.3, 0.3])
    assert table["memory"].tolist() == [3.0, 3.0]
    assert table["kept"].tolist() == [6144 / 1e6, 6144 / 1e6]


@pytest.mark.usefixtures("stored")
def test_busy_and_several_machines_are_told(make: Any, factory: Any) -> None:
    text = make(Resources).text
    assert "Made on cpu, P, threads: 1." in text
    assert "1 of 3 runs were timed on a busy machine (up to 3.5 processes a core" in text
    assert "several machines" not in text
    factory.write(factory.spec("ncm", 1), environment={"device": "cuda"})
    text = make(Resources).text
    assert "Made on cpu, P, threads: 1; cuda." in text
    assert "Seconds of several machines cannot be compared." in text


@pytest.mark.usefixtures("stored")
def test_machines_of_base_training_and_from_before_a_stop_are_told(make: Any, factory: Any) -> None:
    log = {"seconds": 50.0, "trained_with": {"device": "H200"}}
    begun = {"environment": MACHINE | {"before": [MACHINE | {"threads": 2}]}}
    factory.write(factory.spec("ncm", 1), representation_log=log, **begun)
    text = make(Resources).text
    assert "Made on cpu, P, threads: 1; cpu, P, threads: 2; H200." in text
