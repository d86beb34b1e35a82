from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fscil_bench.reports.ldc.claims.claim import Part
from fscil_bench.reports.ldc.claims.mapping import mapping_claim


def figures(part: Part) -> tuple[float, float, int]:
    return part.interval.mean, part.interval.half_width, part.interval.count


def test_mapping_against_empirical(claims: Any) -> None:
    curves = {"mapped": [1.0, 0.62, 0.5, 0.4], "empirical": [1.2, 1.0, 0.8, 0.6]}
    for covariance, curve in curves.items():
        new = 12 if covariance == "mapped" else 9
        variant = claims.setup.unseen(covariance)
        assert variant.overrides == {"way": 2, "sessions": 1}
        for run in claims.write(variant, [(30, new)] * 6):
            claims.add_artifacts(run, 1, classifier_loss=np.array(curve))

    epochs, new_classes = claims.claim(mapping_claim).parts

    assert figures(epochs) == (2.0, 0.0, 6)
    assert epochs.detail == "4.00 against 2.00; final losses 0.60 against 0.40"
    assert figures(new_classes) == pytest.approx((15.0, 0.0, 6)), "3 of 20 new images"


def test_a_damaged_curve_costs_its_own_pair_alone(claims: Any) -> None:
    for covariance in ("mapped", "empirical"):
        for run in claims.write(claims.setup.unseen(covariance), [(30, 9)] * 6):
            claims.add_artifacts(run, 1, classifier_loss=np.array([1.0, 0.5]))
    (run.folder / "artifacts.npz").write_bytes(b"PK")

    epochs, new_classes = claims.claim(mapping_claim).parts

    assert (epochs.interval.count, new_classes.interval.count) == (5, 6)
    assert any(str(run.folder) in problem for problem in claims.problems)
