from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fscil_bench.errors import StoreError
from fscil_bench.reports.ldc.mapping_strategy import MappingStrategy

CURVES = {"mapped": [1.0, 0.62, 0.5, 0.4], "empirical": [1.2, 1.0, 0.8, 0.6]}
UNSEEN = {"unseen": 2}


@pytest.fixture
def written(claims: Any, generated: Any) -> None:
    """Write six seeds of each covariance, with loss curves and generated features.

    Those of the mapped covariance are like the real ones, the others lie 2 off on every axis.
    """
    for covariance, curve in CURVES.items():
        right = (30, 12 if covariance == "mapped" else 9)
        drawn = generated(0.0 if covariance == "mapped" else 2.0)
        for run in claims.write(claims.setup.unseen(covariance), [right] * 6):
            arrays = {"classifier_loss": np.array(curve), "feature_power": np.array(0.5)}
            claims.add_artifacts(run, 1, generated_step0=drawn, generated_step1=drawn, **arrays)


@pytest.mark.usefixtures("written")
def test_convergence_and_unseen_classes(study: Any, numbers: Any) -> None:
    text = study(MappingStrategy, UNSEEN).text

    named = "covariance=mapped has a {} {} than covariance=empirical, by {} "
    steps = ("lower", "number of epochs to the common threshold", "2.00 [2.00, 2.00]")
    assert named.format(*steps) in text
    assert named.format("higher", "accuracy on unseen classes", "15.00 [15.00, 15.00]") in text
    assert "Their final training losses are 0.40 and 0.60" in text
    rows = numbers("mapping-strategy")
    assert rows.loc[list(CURVES), "epochs_mean"].tolist() == [2, 4]
    assert np.isnan(rows.loc["mapped", "kl_new_mean"]), "features are not at hand"
    apart = numbers("mapping-differences").loc["mapped − empirical"]
    assert apart[["last_new_mean", "last_mean"]].tolist() == pytest.approx([15, 5])
    drawn = numbers("mapping-curves")
    losses = drawn[drawn["panel"] == "a"].loc["mapped"].set_index("x")["mean"]
    assert losses.to_dict() == dict(enumerate(CURVES["mapped"], start=1))
    gained = drawn[drawn["panel"] == "c"].set_index("x_name")["mean"]
    assert gained["new"] == pytest.approx(15)


@pytest.mark.usefixtures("written")
def test_generated_features_are_compared_with_real_ones(
    claims: Any, study: Any, numbers: Any, real_features: Any
) -> None:
    claims.given["evaluation"] = SimpleNamespace(features=lambda _: real_features(100))

    text = study(MappingStrategy, UNSEEN).text

    rows = numbers("mapping-strategy")
    # 2 off on each axis: ½·2² nats, on every direction on average too, and what sampling changes.
    assert rows.loc["empirical", "kl_new_mean"] == pytest.approx(2000, rel=0.4)
    assert rows.loc["mapped", "kl_base_mean"] < 200
    assert "has a lower KL of generated to real features of unseen classes" in text


@pytest.mark.usefixtures("written")
def test_features_that_are_gone_are_warned_of_once(claims: Any, study: Any) -> None:
    def gone(_: Any) -> None:
        raise StoreError("cache: holds no features; run it again")

    claims.given["evaluation"] = SimpleNamespace(features=gone)

    assert study(MappingStrategy, UNSEEN).warnings == ("cache: holds no features; run it again",)


def test_runs_with_curves_are_wanted(claims: Any, study: Any) -> None:
    claims.write(claims.setup.unseen("mapped"))  # without artifacts
    for run in claims.write(claims.setup.unseen("empirical")):
        claims.add_artifacts(run, 1, classifier_loss=np.array([1.0, 0.5]))

    assert study(MappingStrategy, UNSEEN).missing == (
        "fscil-bench run --method ldc --protocol toy --way 2 --sessions 1 --artifacts --seeds 0-5",
    )
