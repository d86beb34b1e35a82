from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fscil_bench.reporting.frame import results_frame, run_frame
from fscil_bench.running.scores import recorded


def test_scores_by_hand() -> None:
    told = iter([[[2.0, 1.0, 0.0]], [[0.0, 0.0, 5.0]], [[1.0, 3.0]]])
    method: Any = SimpleNamespace(
        name="toy", scores=lambda _: torch.tensor(next(told)), artifacts=lambda: {"x": np.ones(1)}
    )
    own = recorded(method, base_classes=2)
    own.scores(SimpleNamespace())  # type: ignore[arg-type]
    own.scores(SimpleNamespace())  # type: ignore[arg-type]
    found = own.artifacts()

    assert own.name == "toy" and set(found) == {"x", "scores/confidence", "scores/own"}
    assert found["scores/own"].tolist() == [[0, 0], [2, 2]]
    e = np.exp
    expected = [e(2) / (e(2) + e(1) + 1), e(5) / (e(5) + 2)]
    assert found["scores/confidence"] == pytest.approx(expected)
    own.scores(SimpleNamespace())  # type: ignore[arg-type]
    assert own.artifacts()["scores/own"].tolist() == [[1], [-1]]


def test_measures_of_scores(factory: Any) -> None:
    run = factory.write(factory.spec(), [(36, 0), (34, 6), (30, 10)])
    own = np.zeros((2, 60), np.int16)
    own[1] = 4  # right for the 10 images of class 4, wrong for the 10 of class 5
    arrays = {"session2/scores/own": own, "session2/scores/confidence": np.full(60, 0.5, "f4")}
    np.savez_compressed(run.folder / "artifacts.npz", **arrays)

    measured = run_frame(results_frame([run])).loc[run.key]

    assert measured["new_own_labels"] == 50
    # 40 of 60 are right: 2/3 - 1/2.
    assert measured["ece"] == pytest.approx(100 / 6)
    assert np.isnan(run.own_labels(1))
