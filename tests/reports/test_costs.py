from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.reports._costs import (
    class_bytes,
    drops,
    fixed_bytes,
    learning_seconds,
    one_machine,
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
