"""The whole path on toy images: plan, train, features, sessions, store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fscil_bench as fb
from fscil_bench.errors import UsageError
from fscil_bench.options import Options
from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Silent
from fscil_bench.request import RunRequest
from fscil_bench.running.sessions import draw_outliers
from fscil_bench.running.workbench import Workbench
from fscil_bench.store.runs import Store
from fscil_bench.store.tensors import load_tensors, save_tensors

TOY = Path(__file__).parents[1] / "toy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workbench")


def run(folder: Path, method: str | list[str] = "ncm", **options: Any) -> Any:
    settings: dict[str, Any] = {
        "protocol": str(TOY / "toy.toml"),
        "plugins": [TOY / "toy_reader.py"],
        "results": folder / "results",
        "cache": folder / "cache",
        "precision": "fp32",
        **options,
    }
    return fb.run(method, **settings)


def test_a_run_stores_predictions_of_the_classes_seen(folder: Path) -> None:
    stored = run(folder)
    assert stored.predictions.shape == (4, 50)
    assert np.array_equal(np.bincount(stored.targets), [5] * 10)
    for session, seen in enumerate((4, 6, 8, 10)):
        scored = stored.targets < seen
        assert (stored.predictions[session, ~scored] == -1).all()
        assert stored.predictions[session, scored].max() < seen
    assert [s.state_bytes for s in stored.record.sessions] == [4 * 64 * c for c in (4, 6, 8, 10)]
    assert stored.accuracies[-1] > 0.9, "the patterns are easy"
    assert stored.record.train_images == (12, 12)


def test_what_is_stored_is_readable_with_numpy_and_pandas_alone(folder: Path) -> None:
    import json

    stored = run(folder)
    record = json.loads((stored.folder / "run.json").read_text())
    arrays = np.load(stored.folder / "predictions.npz", allow_pickle=False)
    correct = arrays["predictions"][-1] == arrays["targets"]
    assert correct.mean() == stored.accuracies[-1]
    assert record["spec"]["protocol"]["way"] == 2
    frame = fb.load_runs(folder / "results")
    assert frame.loc[frame["key"] == stored.key, "accuracy"].tolist() == stored.accuracies


def test_a_finished_run_is_not_run_again(folder: Path) -> None:
    first = run(folder)
    stamp = (first.folder / "run.json").stat().st_mtime_ns
    assert run(folder).key == first.key
    assert (first.folder / "run.json").stat().st_mtime_ns == stamp
    again = run(folder, force=True)
    assert (first.folder / "run.json").stat().st_mtime_ns > stamp
    assert np.array_equal(again.predictions, first.predictions)


@pytest.mark.parametrize("method", ["ncm", "ldc", "finetune"])
def test_two_runs_of_one_spec_predict_the_same(folder: Path, tmp_path: Path, method: str) -> None:
    params = {} if method == "ncm" else {"epochs": 3}
    one, two = (run(place, method, params=params) for place in (folder, tmp_path))
    assert one.key == two.key
    assert np.array_equal(one.predictions, two.predictions)


def test_seeds_share_one_representation(folder: Path) -> None:
    keys = {run(folder, seed=seed).spec.representation.key for seed in (0, 1)}
    assert len(keys) == 1
    other = run(folder, representation_seed=1)
    assert other.spec.representation.key not in keys


def test_every_choice_moves_the_key(folder: Path) -> None:
    runs = [
        run(folder),
        run(folder, seed=1),
        run(folder, split="canonical"),
        run(folder, params={"space": "tukey"}),
        run(folder, overrides={"epochs": 1}),
        run(folder, overrides={"way": 3}),
        run(folder, overrides={"shot": 2}),
        run(folder, overrides={"class_order": "seed:1"}),
        run(folder, representation_params={"temperature": 8}),
        run(folder, representation_seed=1),
        run(folder, precision="bf16"),
    ]
    assert len({stored.key for stored in runs}) == len(runs)
    assert len({stored.spec.row for stored in runs}) == len(runs) - 2, "but for the two seeds"


def test_what_is_learnt_from_base_data_is_made_once(folder: Path) -> None:
    one, two = (run(folder, "ldc", seed=seed, params={"epochs": 1}) for seed in (0, 1))
    assert one.record.pretrain_seconds == two.record.pretrain_seconds > 0


def test_held_out_images_are_not_trained_on(folder: Path) -> None:
    bench = Workbench(
        Store(folder / "results", folder / "cache"),
        load_registry((TOY / "toy_reader.py",)),
        Silent(),
        Options(precision="fp32"),
    )
    changes = {"holdout": 0.25, "checkpoint": "best"}
    plan = bench.plan(RunRequest("ncm", str(TOY / "toy.toml"), overrides=changes))
    stored = bench.run(plan)
    assert len(stored.record.representation_log["heldout_accuracy"]) == 2
    assert stored.record.representation_log["best_epoch"] in (1, 2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"method": "nmc"}, "unknown method 'nmc'; did you mean 'ncm'"),
        ({"protocol": "glyfs"}, "unknown protocol 'glyfs'; did you mean 'glyphs'"),
        ({"representation": "cosin"}, "unknown representation 'cosin'; did you mean 'cosine'"),
        ({"params": {"spase": "raw"}}, "no parameter 'spase'; did you mean 'space'"),
        ({"split": "random"}, "unknown split 'random'; known: canonical, seeded"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"overrides": {"epochs": 0}}, "recipe.epochs = 0"),
    ],
)
def test_a_bad_request_is_answered(folder: Path, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        run(folder, **options)


def lists(folder: Path, second: str = "train/6/0 train/6/1 train/6/2") -> Path:
    """Write lists of the toy protocol's shots by path, three a class."""
    chosen = {
        2: "train/4/3 train/4/1 train/4/2 train/5/0 train/5/1 train/5/2",
        3: f"{second} train/7/5 train/7/6 train/7/7",
        4: "train/8/0 train/8/1 train/8/2 train/9/0 train/9/1 train/9/2",
    }
    for number, paths in chosen.items():
        (folder / f"session_{number}.txt").write_text("\r\n".join(paths.split()) + "\r\n\r\n")
    return folder


def test_a_users_own_lists_choose_the_shots(folder: Path, tmp_path: Path) -> None:
    one = run(folder, index_list=lists(tmp_path))
    other = run(folder, index_list=lists(tmp_path, "train/6/9 train/6/1 train/6/2"))
    assert one.spec.split == other.spec.split == "listed"
    assert one.key != other.key
    assert one.spec.row == other.spec.row


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (
            "train/6/0 train/6/1",
            "session_3.txt: class 'toy 6' has 2 shots .on line 1, 2., the protocol needs 3",
        ),
        ("train/3/0 train/3/1 train/3/2", r"session_3.txt: lists class 'toy 3' for session 2"),
        ("test/6/0 train/6/1 train/6/2", "test images are among the shots"),
        ("train/4/0 train/4/1 train/4/2", r"'?toy 4'?.*session_2.txt, session_3.txt"),
        ("train/6/99 train/6/1 train/6/2", r"session_3.txt:1: train/6/99 is no image"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    folder: Path, tmp_path: Path, second: str, expected: str
) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        run(folder, index_list=lists(tmp_path, second))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": 10**5000}, "seed an integer of 16610 bits: a seed is a whole number"),
        ({"results": "a\0b"}, r"'a\\x00b': a path holds no NUL character"),
        ({"plugins": ["a\0b.py"]}, r"'a\\x00b\.py': a path holds no NUL"),
        ({"protocol": "a\0.toml"}, r"a\0\.toml: "),
        ({"params": {"space": 10**5000}}, "space = an integer of 16610 bits"),
    ],
)
def test_values_that_nothing_can_hold_are_refused(
    folder: Path, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        run(folder, **changes)


def test_outlier_shots_come_from_the_runs_own_representation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, given = run(folder, split="seeded"), []

    def watched(*arguments: Any) -> Any:
        given.append(arguments)
        return draw_outliers(*arguments)

    monkeypatch.setattr("fscil_bench.running.workbench.draw_outliers", watched)
    outliers = run(folder, split="outlier:0.25", seed=3)
    ((_, _, features, fraction, seed),) = given
    assert (fraction, seed) == (0.25, 3)
    key = plain.spec.representation.key
    (cached,) = (folder / "cache" / "features").glob(f"{key}-*-plain-train/features.npy")
    assert np.array_equal(features, np.load(cached))
    assert outliers.spec.split == "outlier:0.25"
    assert outliers.spec.representation.key == plain.spec.representation.key
    assert outliers.accuracies[0] == plain.accuracies[0], "the base session draws no shots"


def test_a_data_set_without_reader_is_named_with_its_protocol(folder: Path) -> None:
    toml = folder / "mine.toml"
    text = (TOY / "toy.toml").read_text().replace('name = "toy"', 'name = "mine"')
    toml.write_text(text.replace('dataset = "toy"', 'dataset = "toi"'))
    with pytest.raises(UsageError, match=r"protocol 'mine' in .*: dataset = 'toi': unknown .*toy"):
        run(folder, protocol=str(toml))


def test_an_outlier_split_is_one_however_it_is_written(folder: Path) -> None:
    assert run(folder, split="outlier:.250").key == run(folder, split="outlier:0.25").key


def test_a_shared_cache_keeps_the_features_of_other_weights_apart(
    folder: Path, tmp_path: Path
) -> None:
    first = run(folder, params={"space": "tukey"})
    key = first.spec.representation.key
    shutil.copytree(folder / "results" / "representations", tmp_path / "representations")
    weights = tmp_path / "representations" / key / "weights.safetensors"
    tensors, meta = load_tensors(weights)
    # As another machine would have trained it: the same specification, other numbers.
    noise = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and "running" not in name:
            tensors[name] = torch.randn(tensor.shape, generator=noise)
    save_tensors(weights, tensors, meta)
    second = run(folder, params={"space": "tukey"}, results=tmp_path)
    assert second.key == first.key
    assert not np.array_equal(second.predictions, first.predictions)


def test_a_method_sized_by_the_final_class_count_learns_anew_for_another(folder: Path) -> None:
    small = {"base_epochs": 1, "session_steps": "1", "dim": 16}
    whole = run(folder, method="nc_fscil", params=small)
    cut = run(folder, method="nc_fscil", params=small, overrides={"sessions": 1})
    assert [len(each.accuracies) for each in (whole, cut)] == [4, 2]
    assert "knows the final class count" in cut.record.flags


def test_what_is_learnt_from_base_data_belongs_to_the_views_it_was_learnt_from(
    folder: Path,
) -> None:
    params = {"unit_steps": 3, "epochs": 1}
    cached = folder / "cache" / "pretrained"

    def learnt() -> set[str]:
        return {path.name for path in cached.iterdir()} if cached.exists() else set()

    before = learnt()
    run(folder, method="ldc", params=params)
    plain = learnt()
    run(folder, method="ldc", params=params, seed=1)
    assert len(plain - before) == 1 and learnt() == plain, "seeds share it"
    flipped = run(folder, method="ldc", params=params, views="flip")
    assert len(learnt() - plain) == 1
    assert any("mirror image" in flag for flag in flipped.record.flags)


def test_a_run_of_another_network_is_made_again(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert len(first.record.network) == 16
    (weights,) = tmp_path.glob("results/representations/*/weights.safetensors")
    tensors, log = load_tensors(weights)
    tensors["head.weight"] = -tensors["head.weight"]
    tensors["backbone.conv1.weight"] = tensors["backbone.conv1.weight"].flip(0)
    save_tensors(weights, tensors, log)
    again = run(tmp_path)
    assert again.key == first.key
    assert again.record.network != first.record.network
    weights.unlink()
    assert run(tmp_path).record.network == again.record.network, "it stands where none is stored"


def test_lists_of_methods_and_seeds_give_lists_of_runs(folder: Path) -> None:
    made = run(folder, ["ncm", "teen"], seed="0-1")
    assert [(each.spec.method, each.spec.seed) for each in made] == [
        ("ncm", 0),
        ("ncm", 1),
        ("teen", 0),
        ("teen", 1),
    ]
    assert [each.key for each in run(folder, "ncm,teen", seed=range(2))] == [e.key for e in made]
    assert run(folder, "ncm", seed=1).key == made[1].key
    for seed in (-2, "0-2x", 1.5, True, [0, -1]):
        with pytest.raises(UsageError, match="seed"):
            run(folder, seed=seed)
    with pytest.raises(UsageError, match="unknown option 'resluts'; did you mean 'results'"):
        run(folder, resluts="x")
