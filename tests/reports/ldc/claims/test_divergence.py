from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fscil_bench.errors import StoreError
from fscil_bench.protocol import Protocol
from fscil_bench.reports.ldc.claims.claim import Claim
from fscil_bench.reports.ldc.claims.divergence import (
    divergence_claim,
    divergence_table,
    divergences,
)


@pytest.fixture
def judged(claims: Any, toy_protocol: Protocol, generated: Any) -> Any:
    """Return a function that judges a run whose features lie so far off before and after a step.

    It returns the claim, the table that it stands beside and the run. The protocol has six base
    classes, which are as many pairs as a verdict takes, and two more.
    """
    protocol = toy_protocol.model_copy(update={"classes": 8, "base_classes": 6})
    claims.setup = replace(claims.setup, protocol=protocol)

    def judge(
        shifts: tuple[float, float], features: Any, damage: bool = False
    ) -> tuple[Claim, pd.DataFrame]:
        (run,) = claims.write(claims.setup.generated["recurrent"])
        steps = {f"generated_step{r}": generated(shift, 8) for r, shift in enumerate(shifts)}
        claims.add_artifacts(run, 2, feature_power=np.array(0.5), **steps)
        if damage:
            (run.folder / "artifacts.npz").write_bytes(b"PK")
        claims.given["evaluation"] = features and SimpleNamespace(features=features)
        shelf = claims.shelf()
        found = divergences(claims.setup, shelf)
        claims.problems = shelf.problems
        claim = divergence_claim(claims.setup, shelf, found)
        return claim, divergence_table(claims.setup, found).frame

    return judge


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(2.0, 0.5, "holds"), (0.5, 2.0, "does not hold")]
)
def test_kl_from_step_to_step(
    judged: Any, real_features: Any, before: float, after: float, verdict: str
) -> None:
    claim, table = judged((before, after), lambda _: real_features(60, 8))

    base, new = claim.parts
    assert (base.name, new.name) == ("base, step 1", "new, step 1")
    assert (base.verdict, new.verdict) == (verdict, "cannot be told"), "of two new classes"
    assert (base.interval.mean < 0) == (new.interval.mean < 0) == (after < before)
    assert (base.interval.count, new.interval.count) == (6, 2)
    steps = ["recurrent, step 0", "recurrent, step 1"]
    assert table.index.tolist() == [*steps, "floor: real to real"]
    assert 0 < table["base_mean"].iloc[-1] < table.loc[steps, "base_mean"].min()


def _gone(run: Any) -> None:
    raise StoreError(f"no features of {run.key}")


@pytest.mark.parametrize("lack", ["images", "artifacts", "caches", "nothing to read with"])
def test_kl_without_what_it_needs_is_not_tested(
    claims: Any, judged: Any, real_features: Any, lack: str
) -> None:
    images = 3 if lack == "images" else 60
    features = {"caches": _gone, "nothing to read with": None}.get(
        lack, lambda _: real_features(images, 8)
    )

    claim, table = judged((1.0, 0.5), features, damage=lack == "artifacts")

    assert claim.verdict == "not tested"
    assert table.empty
    assert len(claims.problems) == (lack != "images")
