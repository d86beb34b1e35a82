from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.reports.ldc.cost import Cost

SIGMA, BASE = 4 * 64 * 64, 4


@pytest.fixture
def written(claims: Any) -> None:
    """Write LDC with 0 to 2 recurrent steps, whose unit takes 100 bytes a step, and Free-Lunch."""
    for steps in range(3):
        state = [512 * c + SIGMA + 100 * steps for c in (4, 5, 6)]
        records = claims.sessions(state, learn=1.0 + steps)
        variant = claims.setup.complete(recurrent_steps=steps)
        claims.write(variant, sessions=records, pretrain_seconds=7.0)
    state = [300 * c + BASE * SIGMA for c in (4, 5, 6)]
    claims.write(claims.setup.free_lunch(), sessions=claims.sessions(state, learn=0.5))


@pytest.mark.usefixtures("written")
def test_bytes_and_seconds(study: Any, numbers: Any) -> None:
    output = study(Cost, {"steps": 2})

    for sentence in (
        "- Covariances take 16.00 KiB (16,384 bytes) in ldc, however many classes were seen, and "
        "64.00 KiB (65,536 bytes) in free_lunch: 4.00 times as many.",
        "what ldc stores beside its classes grows by 200 bytes.",
        "- ldc, R = 1 has a higher learning time over all sessions than free_lunch, by 3.00 ",
        "- ldc, R = 2 has a higher learning time over all sessions than ldc, R = 0, by 4.00 ",
    ):
        assert sentence in output.text
    rows = numbers("cost")
    ldc, rival = rows.loc["ldc, R = 1"], rows.loc["free_lunch"]
    assert [row["covariance_mean"] for row in (ldc, rival)] == [16, 64]
    assert ldc["state_last_mean"] == (512 * 6 + SIGMA + 100) / 1024
    assert rival["class_bytes_mean"] == 300 / 1024
    assert (ldc["unit_mean"], rival["unit_n"]) == (7, 0)
    assert ldc[["last_learning_mean", "learning_mean"]].tolist() == [2, 4]
    assert output.missing == ()
    assert study(Cost, {"steps": 3}).missing == (
        "fscil-bench run --method ldc --protocol toy --set recurrent_steps=3 --seeds 0-5",
    )


@pytest.mark.usefixtures("written")
def test_what_is_drawn(study: Any, numbers: Any) -> None:
    study(Cost, {"steps": 2})

    points = numbers("cost-curves").set_index(["panel", "x"], append=True)["mean"]
    assert [points["ldc", "a", r] * 1024 for r in range(3)] == pytest.approx(
        [SIGMA, SIGMA + 100, SIGMA + 200]
    )
    assert points["ldc", "b", 6] == 16
    assert points["a covariance a class", "b", 6] == 96
    assert points["free_lunch, whole state", "b", 6] * 1024 == 300 * 6 + BASE * SIGMA
    assert [points["ldc", "c", r] for r in range(3)] == [2, 4, 6]
    assert points["free_lunch", "c", 2] == 1
    assert points["ldc", "d", 5] == 2, "LDC as it is set, R = 1"
    assert ("ldc", "d", 4) not in points, "the base session is no few-shot session"


def test_a_budget_bounds_the_covariances(claims: Any, study: Any, numbers: Any) -> None:
    claims.write(claims.setup.free_lunch(byte_budget=20_480))

    study(Cost, {"free_lunch_set": "byte_budget=20480"})

    assert numbers("cost").loc["free_lunch", "covariance_mean"] == 20
