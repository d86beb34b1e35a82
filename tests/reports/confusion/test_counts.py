from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reports._confusions import (
    confused_pairs,
    error_rates,
    forgetting,
    plasticity,
    session_accuracy,
    session_blocks,
    session_of,
)
from fscil_bench.reports._rows import group_rows
from fscil_bench.store.runs import StoredRun


@pytest.fixture
def run(factory: Any) -> StoredRun:
    """Return a run in which a wrong image of class c is taken for class c + 1, the last's for 0.

    Of 40 base images 36, 34 and 30 are right, of class 4 six, then ten, of class 5 none.
    """
    made: StoredRun = factory.write(factory.spec())
    return made


def test_rates_by_hand(run: StoredRun) -> None:
    # Session 0: 4 images of class 3 are taken for 0. Later they are taken for class 4, a new one.
    assert error_rates(run, 0) == pytest.approx(
        {
            "base_right": 0.9,
            "base_to_base": 0.1,
            "base_to_new": 0.0,
            "new_right": math.nan,
            "new_to_new": math.nan,
            "new_to_base": math.nan,
        },
        nan_ok=True,
    )
    # Session 1: 6 base images taken for class 4, of whose 10 images 4 are taken for class 0.
    assert error_rates(run, 1) == pytest.approx(
        {
            "base_right": 0.85,
            "base_to_base": 0.0,
            "base_to_new": 0.15,
            "new_right": 0.6,
            "new_to_new": 0.0,
            "new_to_base": 0.4,
        }
    )
    assert error_rates(run, 2)["new_to_base"] == 0.5


@pytest.mark.parametrize("session", [1, 2])
def test_rates_add_up_and_agree_with_the_metrics(run: StoredRun, session: int) -> None:
    rates = error_rates(run, session)

    for kind, accuracy in (("base", run.metrics[session].base), ("new", run.metrics[session].new)):
        own = [value for name, value in rates.items() if name.startswith(kind)]
        assert sum(own) == pytest.approx(1)
        assert rates[f"{kind}_right"] == accuracy


def test_blocks_by_hand(run: StoredRun) -> None:
    # Class 3's ten images are taken for class 4 of session 1, class 5's for class 0.
    expected = [[0.75, 0.25, 0], [0, 1, 0], [1, 0, 0]]

    np.testing.assert_allclose(session_blocks(run), expected)


def test_a_protocol_of_one_session_is_one_block(factory: Any, toy_protocol: Protocol) -> None:
    run = factory.write(factory.spec(protocol=toy_protocol.override(sessions=0)), [(36, 0)])

    np.testing.assert_allclose(session_blocks(run), [[1.0]])
    assert math.isnan(forgetting(run, 0))
    assert plasticity(run, 0) == 0.9


def test_forgetting_and_plasticity_by_hand(run: StoredRun) -> None:
    table = [[session_accuracy(run, j, t) for j in range(t + 1)] for t in range(3)]

    assert table == [[0.9], [0.85, 0.6], [0.75, 1.0, 0.0]]
    # max(0.9, 0.85) − 0.75, and 0.6 − 1.0: class 4 is known better than when it was new.
    assert forgetting(run, 0) == pytest.approx(0.15)
    assert forgetting(run, 1) == pytest.approx(-0.4)
    assert math.isnan(forgetting(run, 2))
    assert [plasticity(run, j) for j in range(3)] == [0.9, 0.6, 0.0]


def test_pairs_are_averaged_over_runs(factory: Any, registry: Registry) -> None:
    for seed, base in enumerate((30, 34)):
        factory.write(factory.spec(seed=seed), [(36, 0), (34, 6), (base, 10)])
    (row,) = group_rows(factory.store.runs()[0], registry)

    first, second = confused_pairs(row, 5)

    # All of class 5 are taken for 0; of class 3 ten images in one run and six in the other for 4.
    assert (first.true, first.predicted, first.images.mean, first.share.mean) == (5, 0, 10, 100)
    assert first.images.half_width == 0
    assert (second.true, second.predicted, second.images.mean) == (3, 4, 8)
    assert second.share.mean == 80
    # s = 2√2, t(0.975, 1) = 12.7062: t·s/√2 images, of ten.
    assert second.share.half_width == pytest.approx(12.7062047 * 20, rel=1e-6)
    assert [pair.true for pair in confused_pairs(row, 1)] == [5]


def test_nothing_is_confused_where_all_is_right(factory: Any, registry: Registry) -> None:
    factory.write(factory.spec(), [(40, 0), (40, 10), (40, 20)])
    (row,) = group_rows(factory.store.runs()[0], registry)

    assert confused_pairs(row, 5) == []


def test_which_session_a_class_came_with() -> None:
    assert [session_of([4, 5, 6], c) for c in range(6)] == [0, 0, 0, 0, 1, 2]


def test_images_of_classes_that_no_session_brings_are_left_out(
    run: StoredRun, registry: Registry
) -> None:
    cut = StoredRun(run.record, run.folder)
    more = np.concatenate([run.targets, [6, 9]])
    unseen = np.full((len(run.predictions), 2), -1)
    predictions = np.concatenate([run.predictions, unseen], axis=1)
    cut.__dict__["_arrays"] = {"targets": more, "predictions": predictions}
    assert len(cut.targets) == len(run.targets) + 2
    assert np.array_equal(session_blocks(cut), session_blocks(run))
    whole, shorter = (group_rows([each], registry)[0] for each in (run, cut))
    found, expected = (
        [(pair.true, pair.predicted, pair.images.mean) for pair in confused_pairs(row, 3)]
        for row in (shorter, whole)
    )
    assert found == expected
