"""Slopes, bytes and seconds, on runs made by hand: 4 + 2 × 1 classes of 10 images each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fscil_bench.reports.ldc.claims import cost

LAST = [(30, 3), (32, 3), (34, 3)] * 2  # 33, 35 and 37 of 60


def test_slopes_of_the_accuracy_drop(claims: Any) -> None:
    setup = claims.setup
    # 36 of 40, 40 of 50, then 40 or 30 of 60: drops 0, 10, 23.33 or 40, against 4, 5, 6 classes.
    claims.write(setup.ldc(), [(36, 4)] * 6)
    claims.write(setup.budgeted("full"), [(28, 2)] * 6)
    claims.write(setup.budgeted("low_rank"), [(36, 4)] * 6)

    claim = claims.claim(cost.scalability_claim)

    full, low_rank = claim.parts
    assert (full.name, low_rank.name) == ("full", "low_rank")
    assert full.interval.mean == pytest.approx(20 - 35 / 3)
    assert (full.verdict, low_rank.verdict) == ("holds", "does not hold")
    assert "16,384 bytes" in claim.rule, "one covariance of 64 dimensions in float32"


SIGMA, UNIT = 4 * 64 * 64, 4 * 100
STATES = {
    "prototypes": [512 * c + SIGMA + UNIT for c in (4, 5, 6)],
    "classifier": [256 * c + SIGMA + UNIT for c in (4, 5, 6)],
    "growing": [256 * c + c * SIGMA + UNIT for c in (4, 5, 6)],
    "wider": [512 * c + SIGMA + 4 * 3000 for c in (4, 5, 6)],
}


@pytest.mark.parametrize(
    ("state", "verdicts"),
    [
        ("prototypes", ("holds", "holds")),
        ("classifier", ("holds", "holds")),
        ("growing", ("does not hold", "holds")),
        ("wider", ("holds", "does not hold")),
    ],
)
def test_memory(claims: Any, state: str, verdicts: tuple[str, str]) -> None:
    complete, without = (claims.setup.ablation[name] for name in ("+ recurrent", "+ sampler"))
    claims.write(complete, LAST, sessions=claims.sessions(STATES[state]))
    # 1 % of a ResNet-20 is 2,718 numbers.
    extra = 3000 if state == "wider" else 100
    bare = [b - 4 * extra for b in STATES[state]]
    claims.write(without, LAST, sessions=claims.sessions(bare))

    claim = claims.claim(cost.memory_claim)

    assert tuple(part.verdict for part in claim.parts) == verdicts
    assert f"{extra:,} numbers beside 271,824 parameters of resnet20" in claim.parts[1].detail
    if state == "prototypes":
        assert claim.parts[0].detail == (
            f"512 bytes a new class (D = 64), {SIGMA + UNIT:,} bytes beside them after every "
            "session"
        )


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ((2.0, 2.0, 2.0) * 2, "holds"),
        ((2.8, 3.0, 3.2) * 2, "cannot be told"),
        ((4.0, 4.2, 4.4) * 2, "does not hold"),
        ((2.0, 2.0, 2.0), "cannot be told"),
    ],
)
def test_time_ratio(claims: Any, seconds: tuple[float, ...], verdict: str) -> None:
    setup, state = claims.setup, [1, 2, 3]
    for seed, learn in enumerate(seconds):
        one = {"seeds": (seed,)}
        records = claims.sessions(state, learn)
        claims.write(setup.ldc(**one), [LAST[seed]], sessions=records, pretrain_seconds=80.0)
        claims.write(setup.free_lunch(**one), [LAST[seed]], sessions=claims.sessions(state, 2.0))

    (part,) = claims.claim(cost.time_claim).parts

    assert part.interval.mean == pytest.approx(np.mean(seconds) / 2)
    assert part.verdict == verdict
    assert part.detail.endswith("against 4.00 seconds; unit 80"), (
        "two sessions; scoring is not in it"
    )


def test_a_busy_machine_is_said_beside_the_times(claims: Any) -> None:
    records = claims.sessions([1, 2, 3], 2.0)
    claims.write(claims.setup.ldc(), LAST, sessions=records, load=2.0)
    claims.write(claims.setup.free_lunch(), LAST, sessions=records)

    (part,) = claims.claim(cost.time_claim).parts

    assert part.detail.endswith("; timed on a busy machine")


def test_times_of_different_machines_are_not_compared(claims: Any) -> None:
    for name, make in (("one", claims.setup.ldc), ("two", claims.setup.free_lunch)):
        claims.write(make(), LAST, environment={"processor": name})

    (part,) = claims.claim(cost.time_claim).parts

    assert (part.verdict, part.detail) == (
        "not tested",
        "no runs of both on one machine are stored",
    )
