from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.reports._costs import (
    busy_remarks,
    class_bytes,
    drops,
    fixed_bytes,
    learning_seconds,
    one_machine,
    unit_seconds,
)


def test_bytes_and_seconds_of_a_run(factory: Any, claims: Any) -> None:
    # 100 bytes a class and 30 beside them, for 4, 5 and 6 classes.
    records = claims.sessions([430, 530, 630], learn=2.0)
    run = factory.write(factory.spec(), sessions=records)

    assert class_bytes(run) == [100, 100]
    assert fixed_bytes(run) == 30
    assert learning_seconds(run) == 4.0, "the base session is not in it"


def test_what_is_lost_since_the_base_session(factory: Any) -> None:
    run = factory.write(factory.spec(), [(36, 0), (34, 6), (30, 6)])

    assert drops(run) == pytest.approx([0, 90 - 80, 90 - 60])


def test_the_machine_of_most_runs_is_chosen(factory: Any) -> None:
    def made(name: str, seed: int) -> Any:
        spec = factory.spec("ncm", seed, params={"made": name})
        return factory.write(spec, environment={"processor": name})

    runs = {"a": {0: made("one", 0), 1: made("two", 1)}, "b": {0: made("two", 0)}}

    kept = one_machine(runs)

    assert {name: list(own) for name, own in kept.items()} == {"a": [1], "b": [0]}
    assert one_machine({"a": {}}) == {"a": {}}


def test_the_unit_s_time_is_the_least(factory: Any) -> None:
    runs = [
        factory.write(factory.spec(seed=s), pretrain_seconds=t) for s, t in ((0, 9.0), (1, 4.0))
    ]

    assert unit_seconds(dict(enumerate(runs))) == 4.0


def test_times_from_a_busy_machine_are_said_to_be(factory: Any) -> None:
    loads = (0.0, 1.0, 1.5, 2.54)
    runs = {
        seed: factory.write(factory.spec(seed=seed), load=load) for seed, load in enumerate(loads)
    }

    (remark,) = busy_remarks({"ldc": runs})

    assert remark.startswith("2 of 4 runs were timed on a busy machine (up to 2.5 processes a core")
    assert busy_remarks({"ldc": {0: runs[0], 1: runs[1]}, "none": {}}) == []
