from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fscil_bench as fb
from fscil_bench.errors import FscilError, StoreError, UsageError
from fscil_bench.report import ReportOutput
from fscil_bench.reporting.evaluation import EvaluationFeatures
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.ldc.tsne.calibration import TsneParams
from fscil_bench.reports.ldc.tsne.report import CalibrationTsne
from fscil_bench.reports.ldc.variants import Variant
from fscil_bench.request import Selection
from fscil_bench.store.runs import StoredRun

ONE = Variant("ldc", {"recurrent_steps": 1}, (0,), "seeded")


@pytest.fixture
def run(claims: Any, generated: Any) -> StoredRun:
    """Return a run whose one recurrent step halves the distance to the real features."""
    (made,) = claims.write(ONE)
    steps = {f"generated_step{r}": generated(2.0 - r) for r in range(2)}
    claims.add_artifacts(made, 2, feature_power=np.array(0.5), **steps)
    written: StoredRun = made
    return written


@pytest.fixture
def make(claims: Any, study: Any, real_features: Any) -> Any:
    """Return a function that makes the report of all stored runs into `out`."""

    def build(
        features: Any = None, asked: dict[str, Any] | None = None, draw: bool = False, **params: Any
    ) -> ReportOutput:
        reader = SimpleNamespace(features=features or (lambda _: real_features()))
        claims.given["evaluation"] = None if features == "none" else reader
        chosen = {"seeds": (), **(asked or {})}
        return study(CalibrationTsne, {"steps": 1, "images": 6, **params}, draw, **chosen)

    return build


def table_of(output: ReportOutput) -> dict[str, list[float]]:
    path = next(file for file in output.files if file.name == "calibration-tsne.csv")
    table = pd.read_csv(path, index_col="label")
    rows = table[[f"{key}_mean" for key in ("step_0", "step_1", "floor")]]
    return {str(label): values.tolist() for label, values in rows.iterrows()}


@pytest.mark.usefixtures("run")
def test_the_kl_of_each_step_stands_beside_it(make: Any) -> None:
    output = make(draw=True)
    table = table_of(output)

    assert list(table) == [
        *("class 0 (base)", "class 2 (base)", "class 3 (base)"),
        *("class 4 (new)", "class 5 (new)"),
        *("shown base classes", "shown new classes", "all base classes", "all new classes"),
    ]
    for before, after, floor in table.values():
        assert before > after > floor > 0
    mean = np.mean([table[f"class {c} (base)"] for c in (0, 2, 3)], axis=0)
    assert table["shown base classes"] == pytest.approx(list(mean))

    by_name = {file.name: file for file in output.files}
    kinds = {"calibration-tsne.md", "calibration-tsne.csv", "calibration-tsne.tex"}
    figure = {f"tsne.{kind}" for kind in ("png", "pdf", "csv")}
    assert set(by_name) == kinds | figure | {"calibration-tsne-alone.tex"}
    text = by_name["calibration-tsne.tex"].read_text("ascii")
    assert "U+" not in text
    assert "Generated features of ldc after session 2" in text
    # 5 classes: 6 real, 6 generated in each of two steps, and three means.
    points = pd.read_csv(by_name["tsne.csv"])
    assert len(points) == 5 * (3 * 6 + 3)
    assert points["step"].fillna(-1).unique().tolist() == [-1, 0, 1], "real features have none"
    assert "105 points at perplexity 30, so" in output.text
    assert "features to the power of 0.5" in output.text


@pytest.mark.usefixtures("run")
def test_chosen_classes_and_a_perplexity_that_fits(make: Any) -> None:
    reported = make(classes="5,class 1", images=4)

    shown = [label for label in table_of(reported) if "class " in label]
    assert shown == ["class 5 (new)", "class 1 (base)"]
    # Two classes of three times four samples and three means: (30 − 1) / 3.
    assert "30 points at perplexity 9.66667 (lowered from 30 to fit them)" in reported.text


def test_an_earlier_session_knows_fewer_classes(
    run: StoredRun, claims: Any, make: Any, generated: Any
) -> None:
    steps = {f"generated_step{r}": generated(2.0 - r, classes=5) for r in range(2)}
    claims.add_artifacts(run, 1, feature_power=np.array(0.5), **steps)

    reported = make(session=1)

    assert "after session 1" in reported.text
    assert "class 5" not in reported.text
    with pytest.raises(UsageError, match="class '5' has not been seen"):
        make(session=1, classes="5")


@pytest.mark.usefixtures("run")
def test_features_that_are_not_finite_are_skipped_with_a_note(
    make: Any, real_features: Any
) -> None:
    damaged = real_features()
    damaged.test[:2, 0] = np.nan
    damaged.test[100:118] = np.inf

    reported = make(lambda _: damaged)

    assert "- 20 features with values that are not finite were skipped." in reported.text
    assert "- Class class 5 is not shown: fewer than 4 finite" in reported.text
    assert not np.isnan(list(table_of(reported).values())).any()


def test_constant_dimensions_are_left_out_with_a_note(
    run: StoredRun, claims: Any, make: Any, generated: Any, real_features: Any
) -> None:
    wider = ((0, 0), (0, 0), (0, 2))
    steps = {f"generated_step{r}": np.pad(generated(2.0 - r), wider) for r in range(2)}
    claims.add_artifacts(run, 2, feature_power=np.array(0.5), **steps)
    own = real_features()
    test = np.pad(own.test, wider[1:])
    padded = EvaluationFeatures(test[:0], own.train_labels, test, own.test_labels, own.class_names)

    assert "- 2 feature dimensions are the same for all points" in make(lambda _: padded).text


@pytest.mark.parametrize("write", [False, True])
def test_without_generated_features_the_command_is_given(
    claims: Any, make: Any, write: bool
) -> None:
    if write:
        claims.write(ONE)

    with pytest.raises(FscilError) as caught:
        make()

    assert str(caught.value) == (
        "the run that calibration-tsne draws is not stored with its generated features; "
        "--run-missing makes it, or: fscil-bench run --method ldc --protocol toy "
        "--artifacts --seeds 0"
    )


def test_what_is_not_at_hand_is_named(
    run: StoredRun, claims: Any, make: Any, real_features: Any
) -> None:
    def gone(_: StoredRun) -> EvaluationFeatures:
        raise StoreError("no features there")

    with pytest.raises(StoreError, match="no features there"):
        make(gone)
    with pytest.raises(FscilError, match="name --cache"):
        make("none")
    with pytest.raises(FscilError, match="none of the classes 0, 2, 3, 4, 5 has 4 finite"):
        make(lambda _: real_features(images=3))
    claims.add_artifacts(run, 2, feature_power=np.array(0.5))
    with pytest.raises(FscilError, match="generated no features in session 2"):
        make()


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("asked", "params", "expected"),
    [
        ({"protocol": None}, {}, "name it with --protocol"),
        ({"methods": ("ncm",)}, {}, "leave --method away"),
        ({"seeds": (0, 1)}, {}, "at most one --representation and one --seed"),
        ({}, {"session": 3}, "sessions 0 to 2"),
        ({}, {"session": -4}, "sessions 0 to 2"),
        ({}, {"ldc_set": "recurrent_step=2"}, "did you mean 'recurrent_steps'"),
    ],
)
def test_a_mistake_is_answered(
    make: Any, asked: dict[str, Any], params: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        make(asked=asked, **params)


def test_it_wants_one_run_with_its_features(claims: Any) -> None:
    selection = Selection("toy", seeds=(4,), split="outlier:0.2")
    report = CalibrationTsne(Results(claims.registry, selection))

    (wanted,) = report.requests(TsneParams(steps=2, ldc_set="loss=js"))

    assert wanted.artifacts
    assert wanted.request.params == {"loss": "js", "recurrent_steps": 2}
    assert (wanted.request.seed, wanted.request.split) == (4, "outlier:0.2")
    assert (wanted.request.method, wanted.request.protocol) == ("ldc", "toy")


def test_run_missing_makes_the_run_that_is_drawn(trained: dict[str, Any]) -> None:
    small = "epochs=2,unit_steps=2,unit_classes=2,simulated_shots=3"
    options = {**trained, "params": {"steps": 1, "ldc_set": small, "images": 4}}

    output = fb.make_report("calibration-tsne", run_missing=True, **options)

    assert (output.failures, output.warnings) == ((), ())
    assert "recurrent_steps 1" in output.text
    assert not np.isnan(list(table_of(output).values())).any()
    assert fb.make_report("calibration-tsne", **options).text == output.text
