"""The whole path on toy images: plan, train, features, sessions, store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fscil_bench as fb
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.request import Design, RunRequest, Wanted
from fscil_bench.running import runner
from fscil_bench.running.missing import make_missing
from fscil_bench.running.sessions import draw_outliers
from fscil_bench.running.tuning import checked_grid
from fscil_bench.store.tensors import load_tensors, save_tensors

FEW = {"unit_steps": 3, "unit_classes": 2}
"""Parameters of LDC that are quickly learnt."""


def test_a_run_stores_predictions_of_the_classes_seen(toy: Any) -> None:
    stored = toy.run()
    assert stored.predictions.shape == (4, 50)
    assert np.array_equal(np.bincount(stored.targets), [5] * 10)
    for session, seen in enumerate((4, 6, 8, 10)):
        scored = stored.targets < seen
        assert (stored.predictions[session, ~scored] == -1).all()
        assert stored.predictions[session, scored].max() < seen
    assert [s.state_bytes for s in stored.record.sessions] == [4 * 64 * c for c in (4, 6, 8, 10)]
    assert stored.accuracies[-1] > 0.9, "the patterns are easy"
    record = json.loads((stored.folder / "run.json").read_text())
    assert (record["spec"]["protocol"]["way"], record["train_images"]) == (2, [12, 12])
    arrays = np.load(stored.folder / "predictions.npz", allow_pickle=False)
    correct = arrays["predictions"][-1] == arrays["targets"]
    assert correct.mean() == stored.accuracies[-1]
    frame = fb.load_runs(toy.folder / "results")
    assert frame.loc[frame["key"] == stored.key, "accuracy"].tolist() == stored.accuracies


def test_a_finished_run_is_not_run_again(toy: Any) -> None:
    first = toy.run()
    stamp = (first.folder / "run.json").stat().st_mtime_ns
    assert toy.run().key == first.key
    assert (first.folder / "run.json").stat().st_mtime_ns == stamp
    again = toy.run(force=True)
    assert (first.folder / "run.json").stat().st_mtime_ns > stamp
    assert np.array_equal(again.predictions, first.predictions)


@pytest.mark.parametrize(
    ("method", "force"), [("finetune", False), ("fsll", False), ("fsll", True), ("ldc", False)]
)
def test_a_run_that_was_stopped_goes_on_after_its_last_session(
    new_toy: Any, tmp_path: Path, method: str, force: bool, monkeypatch: Any
) -> None:
    params = {"epochs": 1, **(FEW if method == "ldc" else {})}
    whole = new_toy.run(method, params=params, results=tmp_path / "whole")
    if force:  # so does the second attempt at a run that is stored
        new_toy.run(method, params=params)
    kind: Any = load_registry().get("method", method).value
    begun: list[int] = []

    def stopping(self: Any, session: Any) -> None:
        begun.append(session.index)
        if begun == [1, 2]:
            raise KeyboardInterrupt
        learn(self, session)

    monkeypatch.setattr(runner, "SAVED_EVERY", 0.0)
    learn = kind.learn_session
    monkeypatch.setattr(kind, "learn_session", stopping)
    with monkeypatch.context() as elsewhere, pytest.raises(KeyboardInterrupt):
        elsewhere.setattr("platform.platform", lambda: "another machine")
        new_toy.run(method, params=params, force=force)
    kept = method != "ldc"  # whose notes count over sessions
    assert len([*new_toy.folder.rglob("sessions/*/checkpoint.pt")]) == kept
    stored = new_toy.run(method, params=params, force=force)
    assert begun == ([1, 2, 2, 3] if kept else [1, 2, 1, 2, 3])
    before = [each["platform"] for each in stored.record.environment.get("before", ())]
    assert before == (["another machine"] if kept else [])
    assert np.array_equal(stored.predictions, whole.predictions)
    assert stored.record.notes == whole.record.notes
    assert [s.state_bytes for s in stored.record.sessions] == [
        s.state_bytes for s in whole.record.sessions
    ]
    assert not [*new_toy.folder.rglob("sessions/*/checkpoint.pt")]


def test_no_run_goes_on_from_a_stop_on_another_network(
    new_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders of results that share a cache may hold other weights of one specification."""
    new_toy.run()
    (weights,) = new_toy.folder.rglob("weights.safetensors")
    tensors, meta = load_tensors(weights)
    kind: Any = load_registry().get("method", "finetune").value
    learn = kind.learn_session

    def stopping(self: Any, session: Any) -> None:
        if session.index == 2:
            raise KeyboardInterrupt
        learn(self, session)

    monkeypatch.setattr(runner, "SAVED_EVERY", 0.0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(kind, "learn_session", stopping)
        new_toy.run("finetune", params={"epochs": 1})
    save_tensors(weights, {name: 2 * tensor for name, tensor in tensors.items()}, meta)
    begun: list[int] = []
    monkeypatch.setattr(kind, "learn_session", lambda _, session: begun.append(session.index))
    with pytest.raises(FscilError):  # as no session adds its classes
        new_toy.run("finetune", params={"epochs": 1})
    assert begun == [1]


@pytest.mark.parametrize("method", ["ncm", "ldc", "finetune"])
def test_two_runs_of_one_spec_predict_the_same(toy: Any, new_toy: Any, method: str) -> None:
    params = {"ncm": {}, "ldc": {"epochs": 3, **FEW}, "finetune": {"epochs": 3}}[method]
    one, two = (place.run(method, params=params) for place in (toy, new_toy))
    assert one.key == two.key
    assert np.array_equal(one.predictions, two.predictions)


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("adbs", {"lr": 1e38, "steps": 9}, "its scales of class 4 is not finite; steps = 9"),
        ("gkeal", {"width": 1e-200}, "not finite.*; width = 1e-200 .by default 0.5.: try values"),
    ],
)
def test_what_diverges_is_told_with_its_parameters(
    toy: Any, method: str, params: dict[str, Any], told: str
) -> None:
    with pytest.raises(FscilError, match=told):
        toy.run(method, params=params)


def test_every_choice_moves_the_key(toy: Any) -> None:
    runs = [
        toy.run(),
        toy.run(seed=1),
        toy.run(split="canonical"),
        toy.run(params={"space": "tukey"}),
        toy.run(overrides={"epochs": 1}),
        toy.run(overrides={"way": 3}),
        toy.run(overrides={"shot": 2}),
        toy.run(overrides={"class_order": "seed:1"}),
        toy.run(representation_params={"temperature": 8}),
        toy.run(representation_seed=1),
        toy.run(precision="bf16"),
    ]
    assert len({stored.key for stored in runs}) == len(runs)
    assert len({stored.spec.row for stored in runs}) == len(runs) - 3, "but for seeds and precision"
    own, seed, *_, other, precise = (stored.spec.representation.key for stored in runs)
    assert own == seed != other != precise, "seeds share a representation"
    assert toy.run(split="outlier:.250").key == toy.run(split="outlier:0.25").key
    assert toy.run(precision="auto").spec.representation.precision in ("fp32", "bf16"), "resolved"


def test_a_file_counts_by_its_content_wherever_it_lies(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("words.npy", np.eye(10))
    (tmp_path / "others.npy").write_bytes((tmp_path / "words.npy").read_bytes())
    np.save("different.npy", 2 + np.eye(10))
    bench, keys = toy.bench(), []
    for file in ("words.npy", str(tmp_path / "others.npy"), "different.npy"):
        spec = bench.plan(RunRequest("sfms", toy.toml, params={"vectors": file})).spec
        assert str(tmp_path) not in spec.model_dump_json()
        keys.append(spec.key)
    assert keys[0] == keys[1] != keys[2]
    grid = checked_grid(bench.registry, RunRequest("sfms", toy.toml), {"vectors": ["words.npy"]})
    assert grid == {"vectors": [str(tmp_path / "words.npy")]}, "a choice is good from anywhere"


def test_held_out_images_choose_the_epoch(toy: Any) -> None:
    log = toy.run(overrides={"holdout": 0.25, "checkpoint": "best"}).record.representation_log
    assert len(log["heldout_accuracy"]) == 2 and log["best_epoch"] in (1, 2)


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
        ({"seed": 10**5000}, "seed an integer of 16610 bits: a seed is a whole number"),
        ({"results": "a\0b"}, r"'a\\x00b': a path holds no NUL character"),
        ({"plugins": ["a\0b.py"]}, r"'a\\x00b\.py': a path holds no NUL"),
        ({"protocol": "a\0.toml"}, r"a\0\.toml: "),
        ({"params": {"space": 10**5000}}, "space = an integer of 16610 bits"),
    ],
)
def test_a_bad_request_is_answered(toy: Any, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        toy.run(**options)


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


def test_a_users_own_lists_choose_the_shots(toy: Any, tmp_path: Path) -> None:
    one = toy.run(index_list=lists(tmp_path))
    other = toy.run(index_list=lists(tmp_path, "train/6/9 train/6/1 train/6/2"))
    assert one.spec.split == other.spec.split == "listed"
    assert one.key != other.key
    assert one.spec.row == other.spec.row


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (
            "train/6/0 train/6/1",
            r"session_3.txt: class 'toy 6' has 2 shots .* the protocol needs 3",
        ),
        ("train/3/0 train/3/1 train/3/2", r"session_3.txt: lists class 'toy 3' for session 2"),
        ("train/6/99 train/6/1 train/6/2", r"session_3.txt:1: train/6/99 is no image"),
    ],
)
def test_lists_of_others_are_refused(toy: Any, tmp_path: Path, second: str, expected: str) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        toy.run(index_list=lists(tmp_path, second))


def test_outliers_are_of_the_representation(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, given = toy.run(split="seeded"), []

    def watched(*arguments: Any) -> Any:
        given.append(arguments)
        return draw_outliers(*arguments)

    monkeypatch.setattr("fscil_bench.running.workbench.draw_outliers", watched)
    outliers = toy.run(split="outlier:0.25", seed=3)
    ((_, _, features, fraction, seed),) = given
    assert (fraction, seed) == (0.25, 3)
    key = plain.spec.representation.key
    (cached,) = (toy.folder / "cache" / "features").glob(f"{key}-*-plain-train/features.npy")
    assert np.array_equal(features, np.load(cached))
    assert outliers.spec.split == "outlier:0.25"
    assert outliers.spec.representation.key == plain.spec.representation.key
    assert outliers.accuracies[0] == plain.accuracies[0], "the base session draws no shots"


def test_a_data_set_without_reader_is_named_with_its_protocol(toy: Any) -> None:
    toml = toy.folder / "mine.toml"
    text = Path(toy.toml).read_text().replace('name = "toy"', 'name = "mine"')
    toml.write_text(text.replace('dataset = "toy"', 'dataset = "toi"'))
    with pytest.raises(UsageError, match=r"protocol 'mine' in .*: dataset = 'toi': unknown .*toy"):
        toy.run(protocol=str(toml))


def test_a_method_sized_by_the_final_class_count_learns_anew_for_another(toy: Any) -> None:
    small = {"base_epochs": 1, "session_steps": "1", "dim": 16}
    whole = toy.run("nc_fscil", params=small)
    cut = toy.run("nc_fscil", params=small, overrides={"sessions": 1})
    assert [len(each.accuracies) for each in (whole, cut)] == [4, 2]
    assert "knows the final class count" in cut.record.flags


def test_what_is_learnt_from_base_data_belongs_to_the_views_it_was_learnt_from(toy: Any) -> None:
    params = {"epochs": 1, **FEW, "unit_steps": 2}
    cached = toy.folder / "cache" / "pretrained"

    def learnt() -> set[str]:
        return {path.name for path in cached.iterdir()} if cached.exists() else set()

    before = learnt()
    one = toy.run("ldc", params=params)
    plain = learnt()
    two = toy.run("ldc", params=params, seed=1)
    assert len(plain - before) == 1 and learnt() == plain, "seeds share it"
    assert one.record.pretrain_seconds == two.record.pretrain_seconds > 0
    flipped = toy.run("ldc", params=params, views="flip")
    assert len(learnt() - plain) == 1
    assert any("mirror image" in flag for flag in flipped.record.flags)


def retrained(results: Path) -> Path:
    """Give the one network of some results other weights, as another machine would have."""
    (weights,) = results.glob("representations/*/weights.safetensors")
    tensors, log = load_tensors(weights)
    tensors["head.weight"] = -tensors["head.weight"]
    tensors["backbone.conv1.weight"] = torch.randn(
        tensors["backbone.conv1.weight"].shape, generator=torch.Generator().manual_seed(0)
    )
    save_tensors(weights, tensors, log)
    return weights


@pytest.mark.filterwarnings("ignore:.*made again, as its network:UserWarning")
def test_what_another_network_gave_is_made_again(new_toy: Any) -> None:
    design = Design(way=2, shot=1, queries=2, episodes=4)
    ncm = RunRequest("ncm", new_toy.toml)
    wanted = [Wanted(ncm), Wanted(ncm, episodes=design)]

    def stored() -> tuple[Any, Any]:
        assert make_missing(new_toy.bench(), wanted) == ()
        return new_toy.run(), fb.run_episodes("ncm", **new_toy.settings(**vars(design)))

    first, drawn = stored()
    assert len(first.record.network) == 16 and first.record.network == drawn.record.network
    weights = retrained(new_toy.folder / "results")
    again, redrawn = stored()
    assert (again.key, redrawn.record.key) == (first.key, drawn.record.key)
    assert again.record.network == redrawn.record.network != first.record.network
    assert not np.array_equal(again.predictions, first.predictions)
    weights.unlink()
    assert new_toy.run().record.network == again.record.network, "it stands where none is stored"


def test_lists_of_methods_and_seeds_give_lists_of_runs(toy: Any) -> None:
    made = toy.run(["ncm", "teen"], seed="0-1")
    names = [f"{each.spec.method} {each.spec.seed}" for each in made]
    assert names == ["ncm 0", "ncm 1", "teen 0", "teen 1"]
    assert [each.key for each in toy.run("ncm,teen", seed=range(2))] == [e.key for e in made]
    assert toy.run("ncm", seed=1).key == made[1].key
    for seed in (-2, "0-2x", 1.5, True, [0, -1]):
        with pytest.raises(UsageError, match="seed"):
            toy.run(seed=seed)
    with pytest.raises(UsageError, match="unknown option 'resluts'; did you mean 'results'"):
        toy.run(resluts="x")
    with pytest.raises(
        UsageError,
        match=r"run and tune change a protocol.s field by overrides=\{'epochs': \.\.\.\}",
    ):
        toy.run(epochs=1)


def test_auto_precision_is_that_of_the_network_that_is_there(
    new_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = "fscil_bench.running.origins.faster_precision"
    monkeypatch.setattr(faster, lambda *_: "bf16")
    first = new_toy.run(precision="fp32")
    assert new_toy.run(precision="auto").key == first.key, "no measurement makes another network"
    other = new_toy.run(precision="bf16")
    assert new_toy.run(precision="auto").key == other.key, "of both, the one that is faster"
    monkeypatch.setattr(faster, lambda *_: "fp32")
    assert new_toy.run(precision="auto").key == first.key


def test_threads_are_taken_from_python_too(toy: Any) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        toy.run(threads=1)
        assert torch.get_num_threads() == 1
        toy.run()
        assert torch.get_num_threads() == 1, "unasked nothing is changed"
        with pytest.raises(UsageError, match="threads 0"):
            toy.run(threads=0)
    finally:
        torch.set_num_threads(before)
