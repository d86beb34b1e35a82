from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fscil_bench.protocol import Protocol
from fscil_bench.reports.confusion.counts import (
    RATES,
    confusion_matrices,
    error_rates,
    forgetting,
    session_accuracy,
    session_blocks,
)
from fscil_bench.store.runs import StoredRun

SEEN = [4, 5, 6]


@pytest.fixture
def run(factory: Any) -> StoredRun:
    """Return a run in which a wrong image of class c is taken for class c + 1, the last's for 0.

    Of 40 base images 36, 34 and 30 are right, of class 4 six, then ten, of class 5 none.
    """
    made: StoredRun = factory.write(factory.spec())
    return made


def test_matrices_by_hand(run: StoredRun) -> None:
    first, second, _ = confusion_matrices(run)

    # Four images of class 3 are taken for 0; then six for 4, of whose own four for 0.
    assert first.tolist() == [[10, 0, 0, 0], [0, 10, 0, 0], [0, 0, 10, 0], [4, 0, 0, 6]]
    assert second[3:].tolist() == [[0, 0, 0, 4, 6], [4, 0, 0, 0, 6]]


def test_rates_by_hand(run: StoredRun) -> None:
    rates = [error_rates(matrix, base=4) for matrix in confusion_matrices(run)]

    found = [[each[name] for name in RATES] for each in rates]
    nan = math.nan
    assert found[0] == pytest.approx([0.9, 0.1, 0.0, nan, nan, nan], nan_ok=True)
    assert found[1] == pytest.approx([0.85, 0.0, 0.15, 0.6, 0.0, 0.4])
    assert rates[2]["new_to_base"] == 0.5


def test_rates_add_up_and_agree_with_the_metrics(run: StoredRun) -> None:
    matrix = confusion_matrices(run)[-1]
    rates, metrics = error_rates(matrix, base=4), run.metrics[-1]

    for kind, accuracy in (("base", metrics.base), ("new", metrics.new)):
        own = [value for name, value in rates.items() if name.startswith(kind)]
        assert sum(own) == pytest.approx(1)
        assert rates[f"{kind}_right"] == accuracy


def test_blocks_by_hand(run: StoredRun) -> None:
    # Class 3's ten images are taken for class 4 of session 1, class 5's for class 0.
    expected = [[0.75, 0.25, 0], [0, 1, 0], [1, 0, 0]]

    np.testing.assert_allclose(session_blocks(confusion_matrices(run)[-1], SEEN), expected)


def test_a_protocol_of_one_session_is_one_block(factory: Any, toy_protocol: Protocol) -> None:
    run = factory.write(factory.spec(protocol=toy_protocol.override(sessions=0)), [(36, 0)])
    matrices = confusion_matrices(run)

    np.testing.assert_allclose(session_blocks(matrices[-1], [4]), [[1.0]])
    assert session_accuracy(matrices, [4], 0) == [0.9]
    assert math.isnan(forgetting([0.9]))


def test_accuracy_and_forgetting_by_hand(run: StoredRun) -> None:
    matrices = confusion_matrices(run)

    table = [session_accuracy(matrices, SEEN, learnt) for learnt in range(3)]

    assert table == [[0.9, 0.85, 0.75], [0.6, 1.0], [0.0]]
    # max(0.9, 0.85) − 0.75, and 0.6 − 1.0: class 4 is known better than when it was new.
    assert forgetting(table[0]) == pytest.approx(0.15)
    assert forgetting(table[1]) == pytest.approx(-0.4)


def test_images_of_classes_that_no_session_brings_are_left_out(run: StoredRun) -> None:
    cut = StoredRun(run.record, run.folder)
    more = np.concatenate([run.targets, [6, 9]])
    unseen = np.full((len(run.predictions), 2), -1)
    predictions = np.concatenate([run.predictions, unseen], axis=1)
    cut.__dict__["_arrays"] = {"targets": more, "predictions": predictions}
    assert len(cut.targets) == len(run.targets) + 2

    for shorter, whole in zip(confusion_matrices(cut), confusion_matrices(run), strict=True):
        np.testing.assert_array_equal(shorter, whole)
