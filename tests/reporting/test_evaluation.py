"""What reports may read of a stored run's data, and what they are told when it is gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fscil_bench as fb
from fscil_bench.errors import StoreError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.store.runs import Store

TOY = Path(__file__).parents[1] / "toy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluation")


def run(folder: Path, **options: Any) -> fb.StoredRun:
    settings: dict[str, Any] = {
        "protocol": str(TOY / "toy.toml"),
        "plugins": [TOY / "toy_reader.py"],
        "results": folder / "results",
        "cache": folder / "cache",
        "precision": "fp32",
        **options,
    }
    return fb.run("ncm", **settings)


def evaluation(folder: Path) -> Evaluation:
    store = Store(folder / "results", folder / "cache")
    return Evaluation(store, load_registry((TOY / "toy_reader.py",)))


@pytest.mark.parametrize("changes", [{}, {"class_order": "seed:1"}, {"base_classes": 6}])
def test_labels_are_those_that_predictions_were_counted_by(
    folder: Path, changes: dict[str, Any]
) -> None:
    stored = run(folder, overrides=changes)
    found = evaluation(folder).features(stored)
    assert np.array_equal(found.test_labels, stored.targets)
    assert np.array_equal(np.bincount(found.train_labels), [12] * 10)
    assert found.class_names == stored.record.class_names
    assert (found.train.shape, found.test.shape) == ((120, 64), (50, 64))


def test_features_are_the_run_s_own(folder: Path) -> None:
    stored = run(folder)
    found = evaluation(folder).features(stored)
    means = np.stack([found.train[found.train_labels == c].mean(axis=0) for c in range(4)])
    base = found.test_labels < 4
    rows = found.test[base] / np.linalg.norm(found.test[base], axis=1, keepdims=True)
    nearest = (rows @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T).argmax(axis=1)
    assert np.array_equal(nearest, stored.predictions[0, base]), "class means predict as ncm does"


def test_a_pseudo_incremental_run_has_its_own_halves(folder: Path) -> None:
    from fscil_bench.options import Options
    from fscil_bench.progress import Silent
    from fscil_bench.request import RunRequest
    from fscil_bench.running.workbench import Workbench

    reader = load_registry((TOY / "toy_reader.py",))
    bench = Workbench(
        Store(folder / "results", folder / "cache"), reader, Silent(), Options(precision="fp32")
    )
    request = RunRequest("ncm", str(TOY / "toy.toml"), pseudo=True, overrides={"base_classes": 8})
    stored = bench.run(bench.plan(request))
    found = evaluation(folder).features(stored)
    assert np.array_equal(found.test_labels, stored.targets)
    assert len(found.train) + len(found.test) == 12 * stored.spec.protocol.classes_used


def test_nothing_can_be_changed_through_it(folder: Path) -> None:
    found = evaluation(folder).features(run(folder))
    for array in (found.train, found.train_labels, found.test, found.test_labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize("gone", ["features", "images"])
def test_caches_that_are_gone_are_made_again_by_the_command_given(
    tmp_path: Path, gone: str
) -> None:
    stored = run(tmp_path)
    shutil.rmtree(tmp_path / "cache" / gone)
    with pytest.raises(StoreError, match=r"holds no features") as caught:
        evaluation(tmp_path).features(stored)
    assert "fscil-bench run" in str(caught.value)
    assert str(caught.value).endswith("--force")
    run(tmp_path, force=True)
    assert len(evaluation(tmp_path).features(stored).test) == 50


def test_damaged_features_are_said_to_be(tmp_path: Path) -> None:
    stored = run(tmp_path)
    (path,) = (tmp_path / "cache" / "features").glob("*-test/features.npy")
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(StoreError, match="damaged"):
        evaluation(tmp_path).features(stored)
