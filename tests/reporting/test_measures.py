from __future__ import annotations

import math
import re
from typing import Any

import pytest

from fscil_bench.reporting.frame import results_frame, run_frame
from fscil_bench.reporting.measures import MEASURES, formulas, generalised, plain
from fscil_bench.store.runs import SessionRecord


def test_measures_by_hand(factory: Any) -> None:
    # Right of 40 base and 0, 10, 20 new images: 36/40, 40/50, 45/60.
    counts = [(36, 0), (38, 2), (30, 15)]
    run = factory.write(factory.spec(), counts, peak_memory=3_500_000)

    measured = run_frame(results_frame([run])).loc[run.key]

    assert {key: measured[key] for key in MEASURES} == pytest.approx(
        {
            "first": 90,
            "last": 75,
            "average": (90 + 80 + 75) / 3,
            "performance_drop": 15,
            "performance_retention": 100 * 75 / 90,
            "last_base": 75,
            "last_new": 75,
            "last_harmonic": 75,
            "last_harmonic_classes": 75,
            "base_forgetting": 95 - 75,
            # Session 1's class falls from 2 of 10 to 10 of 10: it gains.
            "average_forgetting": (95 - 75 + 20 - 100) / 2,
            # Base 90, 95, 75; sessions' classes after them: none; 20; 100 and 50.
            "gacc_1": (90 + (95 + 20) / 2 + (75 + 100 + 50) / 3) / 3,
            # What the authors' code gives for [[90], [95, 20], [75, 100, 50]], at 0 to 4 / 1.
            "gacc_area": 72.39583333333335,
            "seconds": 0.6,
            "learn_seconds": 0.3,
            "score_seconds": 0.3,
            "memory": 3.5,
            # Stored with --artifacts alone.
            "new_own_labels": math.nan,
            "ece": math.nan,
            "bytes": 3 * 2048,
        },
        nan_ok=True,
    )


def test_what_cannot_be_counted_is_nan(factory: Any, toy_protocol: Any) -> None:
    alone = factory.spec(protocol=toy_protocol.override(sessions=0))
    runs = [factory.write(alone, [(36, 0)]), factory.write(factory.spec("ldc"), [(0, 0)] * 3)]

    first, nothing = (run_frame(results_frame(runs)).loc[run.key] for run in runs)

    assert (first["performance_drop"], first["base_forgetting"]) == (0, 0)
    nans = ["last_new", "last_harmonic", "last_harmonic_classes", "gacc_area"]
    assert first[nans].isna().all()
    assert (first["gacc_1"], first["average_forgetting"]) == (90, 0)
    assert nothing["last_harmonic"] == 0
    # The factory's runs record no memory.
    unknown = {"performance_retention", "memory", "new_own_labels", "ece"}
    assert unknown == set(nothing.index[nothing.isna()]) & set(MEASURES)


def test_generalised_accuracy_by_its_weight(factory: Any) -> None:
    frame = results_frame([factory.write(factory.spec(), [(36, 0), (38, 2), (30, 15)])])

    # As the authors' code has it, the base session alone is 0 where it has no weight.
    theirs = {0: 31.666666666666668, 2: 78.33333333333333, 4: 81.66666666666667}
    assert {a: 100 * generalised(frame, a).item() for a in theirs} == pytest.approx(theirs)


def test_seconds_and_bytes_are_the_sessions(factory: Any) -> None:
    sessions = tuple(
        SessionRecord(
            index=t, classes_seen=4 + t, learn_seconds=t, score_seconds=1, state_bytes=9 - t
        )
        for t in range(3)
    )
    run = factory.write(factory.spec(), sessions=sessions)

    measured = run_frame(results_frame([run]))

    assert (measured["seconds"].item(), measured["bytes"].item()) == (0 + 1 + 2 + 3, 7)


def test_a_formula_has_one_source() -> None:
    assert MEASURES["average"].formula == "Avg = (A_0 + … + A_T) / (T + 1)."
    assert MEASURES["last_harmonic"].formula == "HM = 2 · Base · New / (Base + New)."
    assert plain(r"95\,\% of $t \cdot s / \sqrt{n}$, $a - b$") == "95 % of t · s / √n, a − b"
    for text in formulas(*MEASURES):
        assert not re.search(r"[\\${}]", plain(text)), text
        assert text.count("$") % 2 == 0
