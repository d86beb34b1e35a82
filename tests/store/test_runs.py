from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import fscil_bench.store.runs
from fscil_bench.errors import StoreError
from fscil_bench.protocol import Protocol
from fscil_bench.spec import digest_of
from fscil_bench.store.files import replaced_file, replaced_folder, write_text
from fscil_bench.store.runs import SCHEMA_VERSION, Store, StoredRun, read_run


@pytest.fixture
def stored(factory: Any) -> StoredRun:
    run: StoredRun = factory.write(factory.spec())
    return run


def entries(folder: Path) -> list[str]:
    """Return all names in a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_back(store: Store, stored: StoredRun) -> None:
    assert stored.folder == store.results / "runs" / "toy" / "ncm" / stored.key
    assert entries(stored.folder) == ["predictions.npz", "run.json"]
    found = store.find(stored.spec)
    assert found is not None
    assert (found.record, found.damage, found.artifacts()) == (stored.record, "", {})
    assert (found.predictions.dtype, found.predictions.shape) == (np.int16, (3, 60))
    assert found.targets.shape == (60,)
    assert found.accuracies == pytest.approx([36 / 40, 40 / 50, 40 / 60])
    assert (found.metrics[-1].base, found.metrics[-1].new) == (0.75, 0.5)


def test_artifacts_are_known_of_a_damaged_run_too(store: Store, stored: StoredRun) -> None:
    assert not store.has_artifacts(stored.spec)
    arrays = {"session1/loss": np.arange(3.0)}
    run = store.write(stored.record, stored.predictions, stored.targets, arrays)
    assert list(run.artifacts()) == ["session1/loss"]
    np.testing.assert_array_equal(run.artifacts()["session1/loss"], np.arange(3.0))
    path = run.folder / "artifacts.npz"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StoreError, match=r"artifacts\.npz"):
        run.artifacts()
    (run.folder / "run.json").unlink()
    assert store.has_artifacts(stored.spec)


def test_the_mark_of_the_end_is_written_last(factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[list[str]] = []

    def write_and_look(path: Path, text: str) -> None:
        before.append(entries(path.parent))
        write_text(path, text)

    monkeypatch.setattr(fscil_bench.store.runs, "write_text", write_and_look)
    factory.write(factory.spec())

    assert before == [["predictions.npz"]]


@pytest.mark.parametrize("failure", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_failing_write_leaves_nothing_and_keeps_the_old_run(
    factory: Any, stored: StoredRun, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fscil_bench.store.runs, "write_text", Mock(side_effect=failure))
        for spec in (stored.spec, factory.spec(seed=1)):
            with pytest.raises((StoreError, KeyboardInterrupt), match=r"No space left|^$"):
                factory.write(spec, [(0, 0)] * 3)
    assert entries(stored.folder.parent) == [stored.key]
    assert read_run(stored.folder).accuracies == stored.accuracies
    factory.write(stored.spec, [(40, 0), (40, 10), (40, 20)])
    assert read_run(stored.folder).accuracies == [1.0, 1.0, 1.0]
    assert entries(stored.folder.parent) == [stored.key]


def test_a_failing_exchange_keeps_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").touch()
    replace = Path.replace

    def fail_on_target(self: Path, other: Path) -> Path:
        if Path(other) == target and not (self / "old").exists():
            raise OSError(5, "Input/output error")
        return replace(self, other)

    monkeypatch.setattr(Path, "replace", fail_on_target)
    with pytest.raises(StoreError), replaced_folder(target) as new:
        (new / "new").touch()

    assert entries(target) == ["old"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"schema_version": 1, ', "not readable as JSON"),
        ("", "not readable as JSON"),
        ("[" * 200_000, "not readable as JSON"),
        ("[]", "damaged, it holds no record"),
        ('{"schema_version": 1, "key": "\\ud800"}', "damaged: Invalid JSON"),
        ("{}", "schema version None"),
        (f'{{"schema_version": {SCHEMA_VERSION}}}', "damaged at key"),
        ("\udcff\udcfe\0", "damaged"),
    ],
)
def test_a_damaged_record_is_named_with_remedy(stored: StoredRun, text: str, problem: str) -> None:
    (stored.folder / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError) as caught:
        read_run(stored.folder)
    message = str(caught.value)
    assert str(stored.folder / "run.json") in message
    assert problem in message
    assert f"remove the folder {stored.folder} and run it again" in message


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        ("class_names", ["a"], "it names 1 classes, the protocol has 6; remove the folder"),
        ("representation_log", {"seconds": "b"}, "seconds is 'b', no number; remove"),
        ("representation_log", {"best_epoch": [3]}, r"best_epoch is \[3\], no number; remove"),
        ("representation_log", {"seconds": 1e300}, r"seconds is 1e\+300, no number; remove"),
        ("sessions.1.state_bytes", -1, r"damaged at sessions\.1\.state_bytes"),
        ("sessions.1.state_bytes", 10**30, r"damaged at sessions\.1\.state_bytes"),
        ("sessions.1.learn_seconds", math.inf, r"damaged at sessions\.1\.learn_seconds"),
        ("sessions.1.index", 2, "its sessions are not the protocol's; remove the folder"),
        ("train_images", [-3, 5], r"damaged at train_images\.0"),
        ("load", math.nan, "damaged at load"),
        ("spec.rehearsal", 3, r"has spec\.rehearsal, which .*another version wrote it"),
        ("schema_version", SCHEMA_VERSION - 1, r"schema version \d, .*; remove the folder"),
        ("schema_version", SCHEMA_VERSION + 1, "; update fscil-bench, or remove the folder"),
    ],
)
def test_odd_values_are_refused(stored: StoredRun, place: str, value: object, problem: str) -> None:
    path = stored.folder / "run.json"
    data = json.loads(path.read_text("utf-8"))
    *above, last = place.split(".")
    inner = data
    for key in above:
        inner = inner[int(key) if key.isdigit() else key]
    inner[last] = value
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(StoreError, match=problem):
        read_run(stored.folder)


def test_a_record_without_what_later_versions_record_is_read(stored: StoredRun) -> None:
    path = stored.folder / "run.json"
    data = json.loads(path.read_text("utf-8"))
    for name in ("notes", "parameters", "peak_memory", "representation_log", "flags"):
        del data[name]
    path.write_text(json.dumps(data | {"from_a_later_version": [1]}), "utf-8")
    record = read_run(stored.folder).record
    assert (record.notes, record.parameters, record.peak_memory) == ({}, "", 0)
    del data["sessions"]
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(StoreError, match=r"damaged at sessions: Field required; remove"):
        read_run(stored.folder)


def test_a_run_of_a_version_that_knew_fewer_fields_is_read(stored: StoredRun) -> None:
    path = stored.folder / "run.json"
    data = json.loads(path.read_text())
    del data["spec"]["protocol"]["test_from_train"]
    data["key"] = digest_of(data["spec"])
    older = stored.folder.rename(stored.folder.with_name(data["key"]))
    (older / "run.json").write_text(json.dumps(data))
    assert read_run(older).accuracies == StoredRun(stored.record, older).accuracies
    other = shutil.copytree(older, older.with_name("0" * 16))
    with pytest.raises(StoreError, match="0" * 16):
        read_run(other)
    data["spec"]["seed"] = 7
    (older / "run.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match="does not belong to its folder's key"):
        read_run(older)


@pytest.mark.parametrize("keep", [0, 100, None])
def test_truncated_and_missing_predictions_are_named(stored: StoredRun, keep: int | None) -> None:
    path = stored.folder / "predictions.npz"
    content = path.read_bytes()
    path.unlink()
    if keep is not None:
        path.write_bytes(content[:keep])
    with pytest.raises(StoreError, match=rf"{path}: damaged.*remove the folder"):
        _ = read_run(stored.folder).metrics


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda p, t: (p.astype(float) * np.nan, t), "predictions are float64"),
        (lambda p, t: (p[:, :-1], t), r"predictions are \(3, 59\)"),
        (lambda p, t: (p[:1], t), r"predictions are \(1, 60\)"),
        (lambda p, t: (p[:, :-1], t[:-1]), "not the test images"),
        (lambda p, t: (p, np.roll(t, 1) % 3), "not the test images"),
        (lambda p, t: (np.where(p == 0, 5, p), t), "not seen yet"),
        (lambda p, t: (np.where(p == 0, -1, p), t), "lack test images"),
        (lambda p, t: (p, t.reshape(2, -1)), "targets"),
        (lambda p, t: (p, np.where(t == 5, 3 * 10**16, t.astype(int))), "are no classes"),
        (lambda p, t: (np.where(p < 0, -2, p), t), "are no classes"),
    ],
)
def test_odd_arrays_are_damage(store: Store, stored: StoredRun, change: Any, problem: str) -> None:
    predictions, targets = change(stored.predictions, stored.targets)
    np.savez(stored.folder / "predictions.npz", predictions=predictions, targets=targets)
    with pytest.raises(StoreError, match=problem):
        _ = read_run(stored.folder).metrics
    assert "remove the folder" in read_run(stored.folder).damage
    with pytest.warns(UserWarning, match=rf"damaged \(.*{problem}.*made again"):
        assert store.find(stored.spec) is None


def test_runs_are_sorted_by_time_and_damaged_ones_reported(factory: Any, store: Store) -> None:
    assert store.runs() == ([], [])
    late = factory.write(factory.spec(seed=0), created="2024-03-01T00:00:00+00:00")
    early = factory.write(factory.spec(seed=1), created="2024-02-01T00:00:00+00:00")
    damaged, emptied, linked = (factory.write(factory.spec("ldc", seed)) for seed in range(3))
    (damaged.folder / "run.json").write_text("{", "utf-8")
    (emptied.folder / "run.json").unlink()
    shutil.rmtree(linked.folder)
    linked.folder.symlink_to("nowhere")
    shutil.copytree(late.folder, late.folder.with_name(f".{late.key}.abc123"))  # interrupted
    late.folder.with_name("notes.txt").touch()
    runs, problems = store.runs()
    assert [run.key for run in runs] == [early.key, late.key]
    named = {str(problem).partition(": ")[0] for problem in problems}
    assert named == {str(run.folder / "run.json") for run in (damaged, emptied, linked)}
    assert store.find(emptied.spec) is None, "without the mark it is no run"


def test_a_run_on_a_backbone_that_is_not_installed_is_read(
    factory: Any, store: Store, toy_protocol: Protocol
) -> None:
    foreign = factory.write(factory.spec(protocol=toy_protocol.override(backbone="mine:large")))
    (run,), problems = store.runs()
    assert (run.key, problems) == (foreign.key, [])
    assert list(fscil_bench.load_runs(store.results, by="run")["backbone"]) == ["mine:large"]


def test_a_notebook_shows_a_small_table(factory: Any) -> None:
    run = factory.write(factory.spec("<b>", split="outlier:0.5"))
    shown = run._repr_html_()
    assert "<caption>&lt;b&gt; on toy, cosine, outlier:0.5, seed 0, representation seed 0" in shown
    assert "<th>classes</th><td>4</td><td>5</td><td>6</td>" in shown
    assert "<th>accuracy</th><td>90.00</td><td>80.00</td><td>66.67</td>" in shown
    assert "<th>new</th><td>–</td><td>60.00</td><td>50.00</td>" in shown
    (run.folder / "predictions.npz").unlink()
    assert "predictions.npz: damaged" in read_run(run.folder)._repr_html_()


def test_a_place_that_cannot_be_written_is_named(factory: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    there = type(factory)(Store(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"file.*cannot be written.*choose another folder"):
        there.write(factory.spec())


def test_a_full_disk_is_named_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("results"), tmp_path / "results"):
        path, told = folder / "a.txt", r"a\.txt: cannot be written \(No space left.*make room"
        for file in (None, str(path)):
            with pytest.raises(StoreError, match=told), replaced_file(path):
                raise OSError(28, "No space left on device", file)
        with (
            pytest.raises(StoreError, match=r"results.*cannot be written.*make room"),
            replaced_folder(folder / "run") as new,
        ):
            raise OSError(28, "No space left on device", str(new / "predictions.npz"))
    with pytest.raises(StoreError, match=r"data\.zip: cannot be read"), replaced_file(Path("a/b")):
        (tmp_path / "elsewhere" / "data.zip").read_bytes()


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Access is denied"), OSError(39, "Not empty")]
)
def test_a_folder_that_another_process_put_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    # Windows denies access where Linux finds the folder not empty.
    target, replace = tmp_path / "run", Path.replace

    def quicker(self: Path, place: Path) -> Path:
        if place != target:
            return replace(self, place)
        (target / "theirs").mkdir(parents=True)
        raise error

    (target / "older").mkdir(parents=True)
    monkeypatch.setattr(Path, "replace", quicker)
    with replaced_folder(target) as new:
        (new / "ours").mkdir()
    assert entries(target) == ["theirs"]
    assert entries(tmp_path) == ["run"], "and nothing is left over"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.txt"
    write_text(path, "old ±")
    write_text(path, "new ±")
    with pytest.raises(RuntimeError), replaced_file(path) as new:
        new.write_text("half of the n")
        raise RuntimeError
    assert path.read_text("utf-8") == "new ±"
    assert entries(path.parent) == ["a.txt"]


def test_folders_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_BENCH_RESULTS", str(tmp_path / "r"))
    monkeypatch.setenv("FSCIL_BENCH_CACHE", str(tmp_path / "c"))
    assert (Store().results, Store().cache) == (tmp_path / "r", tmp_path / "c")
    assert Store(tmp_path / "x").results == tmp_path / "x"
    monkeypatch.setenv("FSCIL_BENCH_RESULTS", "")
    assert Store().results == Path("results"), "an empty variable is no folder"
