from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fscil_bench.errors import StoreError
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.evaluation import EvaluationFeatures
from fscil_bench.reports.ldc.claims.claim import Claim
from fscil_bench.reports.ldc.claims.divergence import (
    divergence_claim,
    divergence_table,
    divergences,
)

CLASSES = 8
CENTRES = np.arange(CLASSES, dtype=np.float64)[:, None] + 4


@pytest.fixture(autouse=True)
def wide(claims: Any, toy_protocol: Protocol) -> None:
    """Give the protocol six base classes, which are as many pairs as a verdict takes."""
    protocol = toy_protocol.model_copy(update={"classes": CLASSES, "base_classes": 6})
    claims.setup = replace(claims.setup, protocol=protocol)


def features_of(rng: np.random.Generator, images: int = 60) -> EvaluationFeatures:
    labels = np.repeat(np.arange(CLASSES), images)
    # Squares, so that the power ½ brings them to N(centre, 1) in the space of what is generated.
    test = np.square(CENTRES[labels] + rng.standard_normal((len(labels), 4)))
    return EvaluationFeatures(test[:0], labels[:0], test, labels, tuple("abcdefgh"))


def write_generated(claims: Any, rng: np.random.Generator, *shifts: float) -> Any:
    """Write a run whose generated features lie so far off after each step."""
    (run,) = claims.write(claims.setup.generated["recurrent"], [(30, 3)])
    steps = {
        f"generated_step{r}": CENTRES[:, None] + shift + rng.standard_normal((CLASSES, 100, 4))
        for r, shift in enumerate(shifts)
    }
    claims.add_artifacts(run, 2, feature_power=np.array(0.5), **steps)
    return run


def judged(claims: Any, evaluation: Any) -> tuple[Claim, pd.DataFrame]:
    """Return the claim and the table that it stands beside."""
    claims.given["evaluation"] = evaluation
    shelf = claims.shelf()
    found = divergences(claims.setup, shelf)
    claims.problems = shelf.problems
    return divergence_claim(claims.setup, shelf, found), divergence_table(claims.setup, found).frame


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(2.0, 0.5, "holds"), (0.5, 2.0, "does not hold")]
)
def test_kl_from_step_to_step(claims: Any, before: float, after: float, verdict: str) -> None:
    rng = np.random.default_rng(0)
    write_generated(claims, rng, before, after)

    claim, table = judged(claims, SimpleNamespace(features=lambda _: features_of(rng)))

    base, new = claim.parts
    assert (base.name, new.name) == ("base, step 1", "new, step 1")
    assert (base.verdict, new.verdict) == (verdict, "cannot be told"), "of two new classes"
    assert (base.interval.mean < 0) == (new.interval.mean < 0) == (after < before)
    assert (base.interval.count, new.interval.count) == (6, 2)
    steps = ["recurrent, step 0", "recurrent, step 1"]
    assert table.index.tolist() == [*steps, "floor: real to real"]
    assert 0 < table["base_mean"].iloc[-1] < table.loc[steps, "base_mean"].min()


def test_kl_leaves_out_classes_with_too_few_images(claims: Any) -> None:
    rng = np.random.default_rng(0)
    write_generated(claims, rng, 1.0, 0.5)

    claim, table = judged(claims, SimpleNamespace(features=lambda _: features_of(rng, images=3)))

    assert claim.verdict == "not tested"
    assert table.empty


@pytest.mark.parametrize("damage", ["artifacts", "caches", "nothing to read with"])
def test_kl_without_what_it_needs_is_not_tested(claims: Any, damage: str) -> None:
    rng = np.random.default_rng(0)
    run = write_generated(claims, rng, 1.0, 1.0)
    evaluation: Any = SimpleNamespace(features=lambda _: features_of(rng))
    if damage == "artifacts":
        (run.folder / "artifacts.npz").write_bytes(b"PK")
    elif damage == "caches":
        evaluation.features = _gone
    else:
        evaluation = None

    claim, table = judged(claims, evaluation)

    assert claim.verdict == "not tested"
    assert table.empty
    assert len(claims.problems) == 1


def _gone(run: Any) -> EvaluationFeatures:
    raise StoreError(f"no features of {run.key}")
