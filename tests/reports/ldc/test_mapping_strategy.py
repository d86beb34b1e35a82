from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fscil_bench.errors import StoreError
from fscil_bench.reporting.evaluation import EvaluationFeatures
from fscil_bench.reports.ldc.mapping_strategy import MappingStrategy

CURVES = {"mapped": [1.0, 0.62, 0.5, 0.4], "empirical": [1.2, 1.0, 0.8, 0.6]}
UNSEEN = {"unseen": 2}
CLASSES, DIM = 6, 8


@pytest.fixture
def written(claims: Any) -> None:
    """Write six seeds of each covariance, with loss curves and generated features.

    Those of the mapped covariance have the spread of real features, the others twice that.
    """
    rng = np.random.default_rng(0)
    for covariance, curve in CURVES.items():
        right = (30, 12 if covariance == "mapped" else 9)
        spread = 1.0 if covariance == "mapped" else 2.0
        for run in claims.write(claims.setup.unseen(covariance), [right] * 6):
            drawn = spread * rng.standard_normal((CLASSES, 100, DIM))
            arrays = {"classifier_loss": np.array(curve), "feature_power": np.array(1.0)}
            claims.add_artifacts(run, 1, generated_step0=drawn, generated_step1=drawn, **arrays)


def real_features() -> EvaluationFeatures:
    labels = np.arange(CLASSES).repeat(100)
    test = np.random.default_rng(1).standard_normal((len(labels), DIM))
    return EvaluationFeatures(test[:0], labels[:0], test, labels, ())


@pytest.mark.usefixtures("written")
def test_convergence_and_unseen_classes(study: Any, numbers: Any) -> None:
    text = study(MappingStrategy, UNSEEN).text

    named = "covariance=mapped has a {} {} than covariance=empirical, by {} "
    assert named.format("lower", "number of epochs to the common threshold", 2.0) in text.replace(
        "2.00 [2.00, 2.00]", "2.0"
    )
    assert named.format("higher", "accuracy on unseen classes", "15.00 [15.00, 15.00]") in text
    assert "Their final training losses are 0.40 and 0.60" in text
    rows = numbers("mapping-strategy")
    assert rows.loc[list(CURVES), "epochs_mean"].tolist() == [2, 4]
    assert np.isnan(rows.loc["mapped", "kl_new_mean"]), "features are not at hand"
    apart = numbers("mapping-differences").loc["mapped − empirical"]
    assert apart[["last_new_mean", "last_mean"]].tolist() == pytest.approx([15, 5])


@pytest.mark.usefixtures("written")
def test_generated_features_are_compared_with_real_ones(
    claims: Any, study: Any, numbers: Any
) -> None:
    claims.given["evaluation"] = SimpleNamespace(features=lambda _: real_features())

    text = study(MappingStrategy, UNSEEN).text

    rows = numbers("mapping-strategy")
    # Twice the spread: KL = ½(log ¼ + 4 − 1) = 807 thousandths of a nat, and what sampling adds.
    assert 807 < rows.loc["empirical", "kl_new_mean"] < 1200
    assert rows.loc["mapped", "kl_base_mean"] < 80
    assert "has a lower KL of generated to real features of unseen classes" in text


@pytest.mark.usefixtures("written")
def test_features_that_are_gone_are_warned_of_once(claims: Any, study: Any) -> None:
    def gone(_: Any) -> None:
        raise StoreError("cache: holds no features; run it again")

    claims.given["evaluation"] = SimpleNamespace(features=gone)

    output = study(MappingStrategy, UNSEEN)

    assert output.warnings == ("cache: holds no features; run it again",)
    assert "KL of generated" not in " ".join(
        x for x in output.text.splitlines() if x.startswith("- ")
    )


@pytest.mark.usefixtures("written")
def test_what_is_drawn(study: Any, numbers: Any) -> None:
    study(MappingStrategy, UNSEEN)

    drawn = numbers("mapping-curves")
    losses = drawn[drawn["panel"] == "a"].loc["mapped"].set_index("x")["mean"]
    assert losses.to_dict() == dict(enumerate(CURVES["mapped"], start=1))
    apart = drawn[drawn["panel"] == "c"].set_index("x_name")["mean"]
    assert apart["new"] == pytest.approx(15)


def test_runs_with_curves_are_wanted(claims: Any, study: Any) -> None:
    claims.write(claims.setup.unseen("mapped"), [(30, 9)] * 6)  # without artifacts
    for run in claims.write(claims.setup.unseen("empirical"), [(30, 9)] * 6):
        claims.add_artifacts(run, 1, classifier_loss=np.array([1.0, 0.5]))

    assert study(MappingStrategy, UNSEEN).missing == (
        "fscil-bench run --method ldc --protocol toy --way 2 --sessions 1 --artifacts --seeds 0-5",
    )
