from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fscil_bench.reports.ldc.matching_loss import MatchingLoss

SECONDS = {"kl": 10.0, "emd": 40.0, "js": 20.0, "hellinger": 15.0}
FALLING = np.array([32.0, 16.0, 8.0, 4.0, 1.0, 0.8, 0.0, 0.0, 0.0, 0.0])


@pytest.fixture
def written(claims: Any) -> dict[str, list[Any]]:
    """Write runs of each loss; emd has one image more than the others."""
    return {
        loss: claims.write(
            claims.setup.complete(loss=loss),
            [(30 + (loss == "emd"), 3)] * 6,
            pretrain_seconds=seconds,
            sessions=claims.sessions(learn=seconds / 10),
        )
        for loss, seconds in SECONDS.items()
    }


@pytest.mark.usefixtures("written")
def test_accuracy_and_time_of_each_loss(study: Any, numbers: Any) -> None:
    text = study(MatchingLoss).text

    assert "- kl has a lower accuracy after the last session than emd, by 1.67 " in text
    assert "- kl and js have the same accuracy after the last session in every pair" in text
    assert (
        "Training the unit took 10 seconds with kl, the fastest, and 40 with emd, the slowest: "
        "4.0 times as many"
    ) in text
    rows = numbers("matching-loss")
    assert list(rows.index) == list(SECONDS)
    assert rows.loc["emd", "minus_mean"] == pytest.approx(100 / 60)
    assert rows.loc["kl", ["minus_mean", "minus_n"]].fillna(-1).tolist() == [-1, 0]
    # Two sessions after the base session; the unit is trained once, whatever the seeds.
    assert rows.loc["js", "learning_mean"] == pytest.approx(4.0)
    assert rows.loc["js", ["unit_mean", "unit_n"]].tolist() == [20, 1]


def test_convergence_is_read_from_the_curves(
    written: dict[str, list[Any]], study: Any, numbers: Any
) -> None:
    for loss, runs in written.items():
        arrays: dict[str, Any] = {"session2/classifier_loss": 3 * FALLING + 1}
        if loss != "emd":
            arrays["session0/unit_loss"] = 2 * FALLING
        np.savez(runs[0].folder / "artifacts.npz", **arrays)

    output = study(MatchingLoss)

    rows = numbers("matching-loss")
    assert rows.loc["kl", ["epochs_mean", "unit_steps_mean"]].tolist() == [5, 5]
    assert np.isnan(rows.loc["emd", "unit_steps_mean"])
    assert output.missing == ()
    drawn = numbers("loss-curves")
    assert set(drawn[drawn["panel"] == "a"].index) == {"kl", "js", "hellinger"}
    of_kl = drawn[drawn["panel"] == "b"].loc["kl", "mean"].tolist()
    assert of_kl == pytest.approx([1, 0.5, 0.25, 0.125, 0.03125, 0.025, 0, 0, 0, 0])


@pytest.mark.usefixtures("written")
def test_curves_are_wanted_of_so_many_seeds(study: Any) -> None:
    output = study(MatchingLoss, {"curves": 2})

    assert "fscil-bench run --method ldc --protocol toy --artifacts --seeds 0-1" in output.missing
    assert "no curve is stored" in output.text
    assert not any("loss-curves" in file.name for file in output.files)


def test_times_of_another_machine_do_not_count(claims: Any, study: Any, numbers: Any) -> None:
    for seed, name in enumerate(("one", "two", "one")):
        claims.write(
            claims.setup.complete(loss="kl", seeds=(seed,)),
            [(30, 3)],
            environment={"processor": name},
            sessions=claims.sessions(learn=9.0 if name == "two" else 1.0),
        )

    study(MatchingLoss)

    row = numbers("matching-loss").loc["kl"]
    assert row[["learning_mean", "learning_n", "runs"]].tolist() == [2, 2, 3]
