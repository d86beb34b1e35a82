from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

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


def edit(run: StoredRun, **changes: Any) -> None:
    """Change fields of a stored run.json."""
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def test_what_was_written_is_read_back(store: Store, stored: StoredRun) -> None:
    found = store.find(stored.spec)

    assert found is not None
    assert found.record == stored.record
    assert found.predictions.dtype == np.int16
    assert found.predictions.shape == (3, 60)
    assert found.targets.shape == (60,)
    assert found.accuracies == pytest.approx([36 / 40, 40 / 50, 40 / 60])
    assert (found.metrics[-1].base, found.metrics[-1].new) == (0.75, 0.5)
    assert found.artifacts() == {}


def test_a_run_has_a_folder_by_protocol_method_and_key(store: Store, stored: StoredRun) -> None:
    assert stored.folder == store.results / "runs" / "toy" / "ncm" / stored.key
    assert entries(stored.folder) == ["predictions.npz", "run.json"]


def test_artifacts_are_read_back(store: Store, stored: StoredRun) -> None:
    arrays = {"session1/loss": np.arange(3.0)}

    run = store.write(stored.record, stored.predictions, stored.targets, arrays)

    assert list(run.artifacts()) == ["session1/loss"]
    np.testing.assert_array_equal(run.artifacts()["session1/loss"], np.arange(3.0))


def test_what_was_never_written_is_not_found(factory: Any, store: Store) -> None:
    assert store.find(factory.spec()) is None
    assert store.runs() == ([], [])


def test_the_mark_of_a_finished_run_is_written_last(
    factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[list[str]] = []

    def write_and_look(path: Path, text: str) -> None:
        before.append(entries(path.parent))
        write_text(path, text)

    monkeypatch.setattr(fscil_bench.store.runs, "write_text", write_and_look)
    factory.write(factory.spec())

    assert before == [["predictions.npz"]]


@pytest.mark.parametrize("failure", [OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_failing_write_leaves_nothing(
    factory: Any, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    spec = factory.spec()

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(fscil_bench.store.runs, "write_text", fail)
    with pytest.raises((StoreError, KeyboardInterrupt)):
        factory.write(spec)

    folder = factory.store.run_folder(spec)
    assert not folder.exists()
    assert entries(folder.parent) == []


def test_a_failing_write_keeps_the_old_run(
    factory: Any, stored: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fscil_bench.store.runs, "write_text", fail)
    with pytest.raises(StoreError, match="No space left on device"):
        factory.write(stored.spec, [(0, 0)] * 3)

    assert read_run(stored.folder).accuracies == stored.accuracies
    assert entries(stored.folder.parent) == [stored.key]


def test_a_repeated_run_takes_the_place_of_the_old(factory: Any, stored: StoredRun) -> None:
    factory.write(stored.spec, [(40, 0), (40, 10), (40, 20)])

    assert read_run(stored.folder).accuracies == [1.0, 1.0, 1.0]
    assert entries(stored.folder.parent) == [stored.key]


def test_a_failing_exchange_of_folders_keeps_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    ],
)
def test_a_damaged_record_is_named_with_a_remedy(
    stored: StoredRun, text: str, problem: str
) -> None:
    (stored.folder / "run.json").write_text(text, "utf-8")

    with pytest.raises(StoreError) as caught:
        read_run(stored.folder)

    message = str(caught.value)
    assert str(stored.folder / "run.json") in message
    assert problem in message
    assert f"remove the folder {stored.folder} and run it again" in message


def test_a_record_that_is_no_text_is_damaged(stored: StoredRun) -> None:
    (stored.folder / "run.json").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(StoreError, match="damaged"):
        read_run(stored.folder)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"class_names": ["a"]}, "it names 1 classes, the protocol has 6"),
        ({"representation_log": {"seconds": "b"}}, "seconds is 'b', no number"),
        ({"representation_log": {"best_epoch": [3]}}, r"best_epoch is \[3\], no number"),
    ],
)
def test_values_that_reports_count_on_are_checked(
    stored: StoredRun, changes: dict[str, Any], problem: str
) -> None:
    edit(stored, **changes)

    with pytest.raises(StoreError, match=f"{problem}; remove the folder"):
        read_run(stored.folder)


def test_a_session_keeps_no_negative_number_of_bytes(stored: StoredRun) -> None:
    sessions = [session.model_dump() for session in stored.record.sessions]
    sessions[1]["state_bytes"] = -1
    edit(stored, sessions=sessions)

    with pytest.raises(StoreError, match=r"damaged at sessions\.1\.state_bytes"):
        read_run(stored.folder)


def test_another_schema_version_is_not_guessed_at(store: Store, stored: StoredRun) -> None:
    edit(stored, schema_version=SCHEMA_VERSION + 1)

    with pytest.raises(StoreError, match=rf"schema version {SCHEMA_VERSION + 1}.*remove"):
        store.find(stored.spec)


def test_an_older_schema_is_refused_and_a_newer_one_asks_for_an_update(stored: StoredRun) -> None:
    edit(stored, schema_version=SCHEMA_VERSION - 1)
    with pytest.raises(StoreError, match=rf"version {SCHEMA_VERSION - 1}, .*; remove the folder"):
        read_run(stored.folder)
    edit(stored, schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(StoreError, match=r"; update fscil-bench, or remove the folder"):
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


def test_a_specification_of_another_version_is_refused_with_the_field(stored: StoredRun) -> None:
    path = stored.folder / "run.json"
    data = json.loads(path.read_text("utf-8"))
    data["spec"]["rehearsal"] = 3
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(StoreError, match=r"has spec\.rehearsal, which .*another version wrote it"):
        read_run(stored.folder)


def test_a_run_on_an_unknown_backbone_is_a_problem_of_its_own(
    factory: Any, store: Store, toy_protocol: Protocol
) -> None:
    known = factory.write(factory.spec())
    foreign = factory.write(factory.spec(protocol=toy_protocol.override(backbone="resnet21")))

    runs, (problem,) = store.runs()

    assert [run.key for run in runs] == [known.key]
    assert f"{foreign.folder / 'run.json'}: unknown backbone 'resnet21'" in str(problem)
    assert "did you mean 'resnet20'" in str(problem)
    with pytest.warns(UserWarning, match="unknown backbone 'resnet21'"):
        assert list(fscil_bench.load_runs(store.results, by="run").index) == [known.key]


def test_a_notebook_shows_a_small_table(factory: Any) -> None:
    run = factory.write(factory.spec("<b>", split="outlier:0.5"))
    shown = run._repr_html_()
    assert "<caption>&lt;b&gt; on toy, cosine, outlier:0.5, seed 0, representation seed 0" in shown
    assert "<th>classes</th><td>4</td><td>5</td><td>6</td>" in shown
    assert "<th>accuracy</th><td>90.00</td><td>80.00</td><td>66.67</td>" in shown
    assert "<th>new</th><td>–</td><td>60.00</td><td>50.00</td>" in shown
    (run.folder / "predictions.npz").unlink()
    assert "predictions.npz: damaged" in read_run(run.folder)._repr_html_()


def test_a_run_in_the_folder_of_another_is_refused(stored: StoredRun) -> None:
    other = stored.folder.with_name("0" * 16)
    shutil.copytree(stored.folder, other)

    with pytest.raises(StoreError, match="0" * 16):
        read_run(other)


def test_a_run_of_a_version_that_knew_fewer_fields_is_read(stored: StoredRun) -> None:
    path = stored.folder / "run.json"
    data = json.loads(path.read_text())
    del data["spec"]["protocol"]["test_from_train"]
    data["key"] = digest_of(data["spec"])
    older = stored.folder.rename(stored.folder.with_name(data["key"]))
    (older / "run.json").write_text(json.dumps(data))
    assert read_run(older).accuracies == StoredRun(stored.record, older).accuracies
    data["spec"]["seed"] = 7
    (older / "run.json").write_text(json.dumps(data))
    with pytest.raises(StoreError, match="does not belong to its folder's key"):
        read_run(older)


@pytest.mark.parametrize("keep", [0, 100])
def test_truncated_predictions_are_named_with_a_remedy(stored: StoredRun, keep: int) -> None:
    path = stored.folder / "predictions.npz"
    path.write_bytes(path.read_bytes()[:keep])

    with pytest.raises(StoreError) as caught:
        _ = read_run(stored.folder).metrics

    assert str(path) in str(caught.value)
    assert "remove the folder" in str(caught.value)


def test_missing_predictions_are_damage(stored: StoredRun) -> None:
    (stored.folder / "predictions.npz").unlink()

    with pytest.raises(StoreError, match=r"predictions\.npz: damaged"):
        _ = read_run(stored.folder).predictions


def test_predictions_of_another_shape_are_damage(stored: StoredRun) -> None:
    np.savez(
        stored.folder / "predictions.npz",
        predictions=stored.predictions[:1],
        targets=stored.targets,
    )

    with pytest.raises(StoreError, match="predictions"):
        _ = read_run(stored.folder).metrics


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda p, t: (p.astype(float) * np.nan, t), "predictions are float64"),
        (lambda p, t: (p[:, :-1], t), r"predictions are \(3, 59\)"),
        (lambda p, t: (p[:, :-1], t[:-1]), "not the test images"),
        (lambda p, t: (p, np.roll(t, 1) % 3), "not the test images"),
        (lambda p, t: (np.where(p == 0, 5, p), t), "not seen yet"),
        (lambda p, t: (np.where(p == 0, -1, p), t), "lack test images"),
        (lambda p, t: (p, t.reshape(2, -1)), "targets"),
    ],
)
def test_arrays_that_are_not_the_runs_are_damage(
    store: Store, stored: StoredRun, change: Any, problem: str
) -> None:
    predictions, targets = change(stored.predictions, stored.targets)
    np.savez(stored.folder / "predictions.npz", predictions=predictions, targets=targets)

    with pytest.raises(StoreError, match=problem):
        _ = read_run(stored.folder).metrics
    assert "remove the folder" in read_run(stored.folder).damage
    with pytest.warns(UserWarning, match=rf"damaged \(.*{problem}.*made again"):
        assert store.find(stored.spec) is None


def test_a_whole_run_has_no_damage(stored: StoredRun) -> None:
    assert read_run(stored.folder).damage == ""


def test_whether_arrays_were_stored_is_known_of_a_damaged_run_too(
    store: Store, stored: StoredRun
) -> None:
    assert not store.has_artifacts(stored.spec)
    store.write(stored.record, stored.predictions, stored.targets, {"a": np.ones(1)})
    (stored.folder / "run.json").unlink()
    assert store.has_artifacts(stored.spec)


def test_truncated_artifacts_are_named_with_a_remedy(store: Store, stored: StoredRun) -> None:
    run = store.write(stored.record, stored.predictions, stored.targets, {"a": np.ones(9)})
    path = run.folder / "artifacts.npz"
    path.write_bytes(path.read_bytes()[:50])

    with pytest.raises(StoreError, match=r"artifacts\.npz"):
        run.artifacts()


def test_runs_are_sorted_by_time_and_damaged_ones_reported(factory: Any, store: Store) -> None:
    late = factory.write(factory.spec(seed=0), created="2024-03-01T00:00:00+00:00")
    early = factory.write(factory.spec(seed=1), created="2024-02-01T00:00:00+00:00")
    damaged = factory.write(factory.spec("ldc"))
    (damaged.folder / "run.json").write_text("{", "utf-8")

    runs, problems = store.runs()

    assert [run.key for run in runs] == [early.key, late.key]
    assert len(problems) == 1
    assert str(damaged.folder) in str(problems[0])


def test_a_run_that_has_lost_its_record_is_named(factory: Any, store: Store) -> None:
    whole = factory.write(factory.spec("ncm"))
    emptied, linked = (factory.write(factory.spec("ldc", seed)) for seed in range(2))
    (emptied.folder / "run.json").unlink()
    shutil.rmtree(linked.folder)
    linked.folder.symlink_to("nowhere")

    runs, problems = store.runs()

    assert [run.key for run in runs] == [whole.key]
    assert {str(problem).partition(": is missing")[0] for problem in problems} == {
        str(run.folder / "run.json") for run in (emptied, linked)
    }


def test_leftovers_of_interrupted_writes_are_ignored(store: Store, stored: StoredRun) -> None:
    shutil.copytree(stored.folder, stored.folder.with_name(f".{stored.key}.abc123"))
    stored.folder.with_name("notes.txt").touch()

    runs, problems = store.runs()

    assert [run.key for run in runs] == [stored.key]
    assert problems == []


def test_a_folder_without_the_mark_is_no_run(store: Store, stored: StoredRun) -> None:
    (stored.folder / "run.json").unlink()

    assert store.find(stored.spec) is None


def test_a_place_that_cannot_be_written_is_named(factory: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    spec = factory.spec()
    there = type(factory)(Store(blocked))

    with pytest.raises(StoreError, match=r"file.*cannot be written.*choose another folder"):
        there.write(spec)


@pytest.mark.parametrize("place", ["relative", "absolute"])
def test_a_full_disk_is_named_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = (Path() if place == "relative" else tmp_path) / "results" / "a.txt"

    for full in (OSError(28, "No space left on device"), OSError(28, "No space left", str(path))):
        with (
            pytest.raises(
                StoreError, match=r"a\.txt: cannot be written \(No space left.*make room"
            ),
            replaced_file(path),
        ):
            raise full
        with (
            pytest.raises(StoreError, match=r"results.*cannot be written.*make room"),
            replaced_folder(path.parent / "run") as new,
        ):
            raise OSError(28, "No space left on device", str(new / "predictions.npz"))


def test_what_is_read_from_elsewhere_is_not_taken_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"data\.zip: cannot be read"), replaced_file(Path("a/b")):
        (tmp_path / "elsewhere" / "data.zip").read_bytes()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)

    with pytest.raises(StoreError, match=r"closed.*cannot be written"):
        write_text(folder / "a.txt", "a")


def test_replaced_file_keeps_the_old_text_when_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    with pytest.raises(RuntimeError), replaced_file(path) as new:
        new.write_text("half of the n")
        raise RuntimeError

    assert path.read_text() == "old"
    assert entries(tmp_path) == ["a.txt"]


def test_write_text_makes_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.txt"

    write_text(path, "old ±")
    write_text(path, "new ±")

    assert path.read_text("utf-8") == "new ±"
    assert entries(path.parent) == ["a.txt"]


def test_folders_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_BENCH_RESULTS", str(tmp_path / "r"))
    monkeypatch.setenv("FSCIL_BENCH_CACHE", str(tmp_path / "c"))

    store = Store()

    assert (store.results, store.cache) == (tmp_path / "r", tmp_path / "c")
    assert Store(tmp_path / "x").results == tmp_path / "x"


def test_an_empty_variable_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_BENCH_RESULTS", "")

    assert Store().results == Path("results")
