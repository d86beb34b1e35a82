from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fscil_bench.reporting.frame import results_frame
from fscil_bench.reports.ldc.values import busy_remarks, means, one_machine, run_values


def values_of(*runs: Any) -> pd.DataFrame:
    return run_values(results_frame(runs), runs).reset_index(drop=True)


def test_bytes_seconds_and_what_is_lost_since_the_base_session(factory: Any, claims: Any) -> None:
    # 100 bytes a class and 30 beside them, for 4, 5 and 6 classes.
    records = claims.sessions([430, 530, 630], learn=2.0)
    right = [(36, 0), (34, 6), (30, 6)]

    run = values_of(factory.write(factory.spec(), right, sessions=records)).loc[0]

    assert (run["class_bytes"], run["fixed_bytes"]) == (100, 30)
    assert run[["state_0", "state_1", "bytes"]].tolist() == [430, 530, 630]
    assert run["learning"] == 4.0, "the base session is not in it"
    assert run["last_learning"] == 2.0
    assert run[["session_0", "session_1", "session_2"]].tolist() == pytest.approx([90, 80, 60])
    # Drops of 0, 10 and 30 points at 4, 5 and 6 classes.
    assert run["drop_slope"] == pytest.approx(15)


def test_a_run_of_the_base_session_alone_has_no_slope(factory: Any, toy_protocol: Any) -> None:
    alone = factory.spec(protocol=toy_protocol.override(sessions=0))

    run = values_of(factory.write(alone, [(36, 0)])).loc[0]

    assert run[["drop_slope", "class_bytes", "learning"]].isna().all()


def test_a_row_for_each_name_that_has_runs() -> None:
    one, none = pd.DataFrame({"a": [1.0, 3.0], "b": [None, 4.0]}), pd.DataFrame({"a": [], "b": []})

    table = means({"one": one, "none": none}, ("a", "b"))

    assert table["runs"].to_dict() == {"one": 2}
    # t(0.975, 1) · s / √2 with s = √2.
    cells = table.loc["one", ["a_mean", "a_half_width", "a_n"]].tolist()
    assert cells == pytest.approx([2, 12.7062047, 2])
    assert table.loc["one", ["b_mean", "b_n"]].tolist() == [4, 1], "a missing value is no pair"


def test_the_machine_of_most_runs_is_chosen(factory: Any) -> None:
    made = [("one", 0), ("two", 1), ("two", 0)]
    specs = [factory.spec("ncm", seed, params={"n": n}) for n, (_, seed) in enumerate(made)]
    places = [{"processor": name} for name, _ in made]
    written = [factory.write(s, environment=e) for s, e in zip(specs, places, strict=True)]
    runs = values_of(*written)

    kept = one_machine({"a": runs.iloc[:2], "b": runs.iloc[2:]})

    assert {name: own["learning"].isna().tolist() for name, own in kept.items()} == {
        "a": [True, False],
        "b": [False],
    }
    assert kept["a"]["learn_1"].isna().tolist() == [True, False]
    assert kept["a"]["last"].notna().all()


def test_times_from_a_busy_machine_are_said_to_be(factory: Any) -> None:
    loads = (0.0, 1.0, 1.5, 2.54)
    runs = values_of(*(factory.write(factory.spec(seed=s), load=x) for s, x in enumerate(loads)))

    (remark,) = busy_remarks({"ldc": runs})

    assert remark.startswith("2 of 4 runs were timed on a busy machine (up to 2.5 processes a core")
    assert busy_remarks({"ldc": runs.iloc[:2], "none": runs.iloc[:0]}) == []
