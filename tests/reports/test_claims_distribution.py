from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fscil_bench.errors import StoreError
from fscil_bench.report import ReportInput
from fscil_bench.reporting.evaluation import EvaluationFeatures
from fscil_bench.reports._claims_distribution import KlStudy, measured_divergences
from fscil_bench.request import Selection

LAST = [(30, 3), (32, 3), (34, 3)]  # 33, 35 and 37 of 60


CENTRES = np.arange(6, dtype=np.float64)[:, None] + 4


def features_of(rng: np.random.Generator, images: int = 20) -> EvaluationFeatures:
    labels = np.repeat(np.arange(6), images)
    # Squares, so that the power ½ brings them to N(centre, 1) in the space of what is generated.
    test = np.square(CENTRES[labels] + rng.standard_normal((len(labels), 4)))
    return EvaluationFeatures(test[:0], labels[:0], test, labels, tuple("abcdef"))


def generated(rng: np.random.Generator, shift: float) -> np.ndarray:
    return CENTRES[:, None] + shift + rng.standard_normal((6, 100, 4))


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(2.0, 0.5, "holds"), (0.5, 2.0, "does not hold")]
)
def test_kl_from_step_to_step(claims: Any, before: float, after: float, verdict: str) -> None:
    rng = np.random.default_rng(0)
    (run,) = claims.write(claims.setup.generated["recurrent"], LAST)
    steps = {"generated_step0": generated(rng, before), "generated_step1": generated(rng, after)}
    claims.add_artifacts(run, 2, feature_power=np.array(0.5), **steps)

    study = study_of(claims, SimpleNamespace(features=lambda _: features_of(rng)))

    base, new = study.claim().parts
    assert (base.name, new.name) == ("base, step 1", "new, step 1")
    # Two new classes are too few to tell anything by, in this protocol.
    assert (base.verdict, new.verdict) == (verdict, "cannot be told")
    assert (base.interval.mean < 0) == (new.interval.mean < 0) == (after < before)
    assert (base.interval.count, new.interval.count) == (4, 2)
    columns, rows = study.table()
    assert [row.label for row in rows] == [
        "recurrent, step 0",
        "recurrent, step 1",
        "floor: real to real",
    ]
    floor = rows[-1].cell(columns[0]).mean
    assert 0 < floor < min(row.cell(columns[0]).mean for row in rows[:-1])


def test_kl_leaves_out_classes_with_too_few_images() -> None:
    rng = np.random.default_rng(0)
    features = features_of(rng, images=3)

    found = measured_divergences([generated(rng, 0)], features, 0.5, base_classes=4)

    assert (found.steps, found.floor) == (({},), {})


@pytest.mark.parametrize("damage", ["artifacts", "caches", "nothing to read with"])
def test_kl_without_what_it_needs_is_not_tested(claims: Any, damage: str) -> None:
    rng = np.random.default_rng(0)
    (run,) = claims.write(claims.setup.generated["recurrent"], LAST)
    steps = {f"generated_step{r}": generated(rng, 1.0) for r in range(2)}
    claims.add_artifacts(run, 2, feature_power=np.array(0.5), **steps)
    evaluation: Any = SimpleNamespace(features=lambda _: features_of(rng))
    if damage == "artifacts":
        (run.folder / "artifacts.npz").write_bytes(b"PK")
    elif damage == "caches":
        evaluation.features = _gone
    else:
        evaluation = None

    study = study_of(claims, evaluation)

    assert study.claim().verdict == "not tested"
    assert study.table()[1] == []
    assert bool(claims.problems) == (evaluation is not None)


def _gone(run: Any) -> EvaluationFeatures:
    raise StoreError(f"no features of {run.key}")


def study_of(claims: Any, evaluation: Any) -> KlStudy:
    shelf = claims.shelf()
    given = ReportInput(Selection("toy"), (), shelf, claims.registry, (), evaluation)
    study = KlStudy(claims.setup, shelf, given)
    claims.problems = shelf.problems
    return study
