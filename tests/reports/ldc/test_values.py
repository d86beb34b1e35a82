from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from fscil_bench.reporting.frame import results_frame
from fscil_bench.reports.ldc.values import (
    apart,
    busy_remarks,
    difference,
    interval,
    means,
    one_machine,
    run_values,
)

KEYS = ("a", "b")


def values_of(*runs: Any) -> pd.DataFrame:
    return run_values(results_frame(runs), runs).reset_index(drop=True)


def test_bytes_and_seconds_of_a_run(factory: Any, claims: Any) -> None:
    # 100 bytes a class and 30 beside them, for 4, 5 and 6 classes.
    records = claims.sessions([430, 530, 630], learn=2.0)

    run = values_of(factory.write(factory.spec(), sessions=records)).loc[0]

    assert (run["class_bytes"], run["fixed_bytes"]) == (100, 30)
    assert run[["state_0", "state_1", "bytes"]].tolist() == [430, 530, 630]
    assert run["learning"] == 4.0, "the base session is not in it"
    assert run["last_learning"] == 2.0


def test_what_is_lost_since_the_base_session(factory: Any) -> None:
    run = values_of(factory.write(factory.spec(), [(36, 0), (34, 6), (30, 6)])).loc[0]

    assert run[["session_0", "session_1", "session_2"]].tolist() == pytest.approx([90, 80, 60])
    # Drops of 0, 10 and 30 points at 4, 5 and 6 classes.
    assert run["drop_slope"] == pytest.approx(15)


def test_a_run_of_the_base_session_alone_has_no_slope(factory: Any, toy_protocol: Any) -> None:
    alone = factory.spec(protocol=toy_protocol.override(sessions=0))

    run = values_of(factory.write(alone, [(36, 0)])).loc[0]

    assert run[["drop_slope", "class_bytes", "learning"]].isna().all()
    assert run["session_0"] == pytest.approx(90)


def test_differences_are_paired_by_index() -> None:
    first = pd.DataFrame({"a": [5.0, 7.0, 9.0], "b": [1.0, 1.0, 1.0]}, [0, 1, 2])
    second = pd.DataFrame({"a": [4.0, 5.0, 0.0], "b": [1.0, np.nan, 1.0]}, [1, 2, 7])

    assert apart(first, second, KEYS)["a"].to_dict() == {1: 3.0, 2: 4.0}
    assert difference(first, second, "a").mean == 3.5
    assert interval(apart(first, second, KEYS), "b").count == 1, "a missing value is no pair"
    assert difference(first.loc[[0]], second, "a").count == 0


def test_a_row_for_each_name_that_has_runs() -> None:
    runs = {
        "one": pd.DataFrame({"a": [1.0, 3.0], "b": [np.nan, np.nan]}),
        "none": pd.DataFrame({"a": [], "b": []}),
        "two": pd.DataFrame({"a": [5.0], "b": [6.0]}),
    }

    table = means(runs, KEYS)

    assert table["runs"].to_dict() == {"one": 2, "two": 1}
    # t(0.975, 1) · s / √2 with s = √2.
    assert table.loc["one", ["a_mean", "a_half_width", "a_n"]].tolist() == pytest.approx(
        [2, 12.7062047, 2]
    )
    assert table.loc["one", "b_n"] == 0
    assert np.isnan(table.loc["one", "b_mean"])
    assert means({}, KEYS).empty


def test_the_machine_of_most_runs_is_chosen(factory: Any) -> None:
    made = [("one", 0), ("two", 1), ("two", 0)]
    runs = values_of(
        *(
            factory.write(
                factory.spec("ncm", seed, params={"n": n}), environment={"processor": name}
            )
            for n, (name, seed) in enumerate(made)
        )
    )

    kept = one_machine({"a": runs.iloc[:2], "b": runs.iloc[2:]})

    assert {name: own["learning"].isna().tolist() for name, own in kept.items()} == {
        "a": [True, False],
        "b": [False],
    }
    assert kept["a"]["learn_1"].isna().tolist() == [True, False]
    assert kept["a"]["last"].notna().all()
    assert one_machine({"a": runs.iloc[:0]})["a"].empty


def test_times_from_a_busy_machine_are_said_to_be(factory: Any) -> None:
    loads = (0.0, 1.0, 1.5, 2.54)
    runs = values_of(*(factory.write(factory.spec(seed=s), load=x) for s, x in enumerate(loads)))

    (remark,) = busy_remarks({"ldc": runs})

    assert remark.startswith("2 of 4 runs were timed on a busy machine (up to 2.5 processes a core")
    assert busy_remarks({"ldc": runs.iloc[:2], "none": runs.iloc[:0]}) == []
