"""Results of several folders in one, packed, taken in, and removed, by the command line."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from fscil_bench.cli.app import app
from fscil_bench.store.runs import SCHEMA_VERSION, Store
from fscil_bench.store.tensors import load_tensors, save_tensors
from fscil_bench.store.transfer import merge

CORRECT, OTHER = ((36, 0), (34, 6), (30, 10)), ((36, 0), (34, 6), (31, 10))


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["results", *map(str, words)])


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def labs(factory: Any, tmp_path: Path) -> list[Store]:
    """Two folders: both have seed 0, the first seed 1, the second method ldc."""
    found = []
    for name, specs in {
        "a": [factory.spec(), factory.spec(seed=1)],
        "b": [factory.spec(), factory.spec("ldc", params={"steps": 8})],
    }.items():
        store = Store(tmp_path / name, tmp_path / "cache")
        for spec in specs:
            type(factory)(store).write(spec, CORRECT)
        found.append(store)
    return found


def test_what_two_labs_made_lies_in_one_folder(labs: list[Store], tmp_path: Path) -> None:
    done = call("merge", labs[0].results, labs[1].results, "--out", tmp_path / "c")
    assert (done.exit_code, done.output) == (0, f"3 runs into {tmp_path / 'c'}\n")
    whole = tree(tmp_path / "c")
    assert whole == tree(labs[1].results) | tree(labs[0].results)
    assert len(Store(tmp_path / "c").runs()[0]) == 3
    again = call("merge", labs[0].results, "--out", tmp_path / "c")
    assert again.output == "nothing new: all 2 were there already\n"
    call("merge", labs[1].results, "--out", tmp_path / "d")
    third = call("merge", labs[0].results, "--out", tmp_path / "d")
    assert third.output == f"1 run into {tmp_path / 'd'}; 1 was there already\n"


def test_one_key_and_two_predictions_are_an_error_that_names_both(
    labs: list[Store], factory: Any, tmp_path: Path
) -> None:
    a, b = labs
    spec = factory.spec()
    type(factory)(b).write(spec, OTHER)
    done = call("merge", a.results, b.results, "--out", tmp_path / "c")
    assert done.exit_code == 1
    told = " ".join(done.output.split())
    assert f"runs/toy/ncm/{spec.key} of {a.results} and of {b.results}" in told
    assert not (tmp_path / "c").exists(), "nothing is written before all is compared"


def test_named_arrays_come_along_and_the_first_network_stays(
    labs: list[Store], factory: Any, tmp_path: Path
) -> None:
    a, b = labs
    spec = factory.spec()
    run = b.find(spec)
    assert run is not None
    b.write(run.record, run.predictions, run.targets, {"session1/loss": np.arange(3.0)})
    for store, value in ((a, 1.0), (b, 2.0)):
        file = store.representation_folder("0" * 16) / "weights.safetensors"
        save_tensors(file, {"w": torch.full((2,), value)}, {})
    (b.representation_folder("0" * 16) / "checkpoint.safetensors").write_bytes(b"half")
    moved = merge({"A": a.results, "B": b.results}, tmp_path / "c")
    assert moved.told("into C") == "3 runs and 1 network into C"
    assert moved.remarks == [
        f"representations/{'0' * 16} of A and of B differ; that of A is kept",
    ]
    merged = Store(tmp_path / "c")
    found = merged.find(spec)
    assert found is not None
    assert found.artifacts()["session1/loss"].tolist() == [0, 1, 2]
    folder = merged.representation_folder("0" * 16)
    assert [path.name for path in folder.iterdir()] == ["weights.safetensors"]
    assert load_tensors(folder / "weights.safetensors")[0]["w"].tolist() == [1, 1]


def test_a_damaged_run_is_left_out_and_named(labs: list[Store], tmp_path: Path) -> None:
    broken = next(labs[0].results.glob("runs/toy/ncm/*/predictions.npz"))
    broken.write_bytes(b"")
    done = call("merge", labs[0].results, "--out", tmp_path / "c")
    assert done.exit_code == 0
    assert f"left out: {broken}: damaged" in " ".join(done.output.split())
    assert len(Store(tmp_path / "c").runs()[0]) == 1


def test_an_archive_gives_back_what_was_packed(labs: list[Store], tmp_path: Path) -> None:
    a, b = labs
    file = tmp_path / "supplement.zip"
    words = ("export", file, "--results", b.results)
    done = call(*words, "--where", "method=ldc", "--where", "steps=8")
    assert (done.exit_code, done.output) == (0, f"1 run in {file}\n")
    first = file.read_bytes()
    assert call(*words).exit_code == 2, "it is there already"
    call(*words, "--where", "method=ldc", "--force")
    assert file.read_bytes() == first, "the same results make the same archive"
    call("import", file, "--results", a.results)
    assert {run.spec.method for run in a.runs()[0]} == {"ncm", "ldc"}
    assert len(a.runs()[0]) == 3


@pytest.mark.parametrize("name", ["../evil", "runs/../../evil/0123456789abcdef/run.json", "notes"])
def test_an_archive_with_anything_else_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "x")
    done = call("import", tmp_path / "a.zip", "--results", tmp_path / "results")
    assert done.exit_code == 1
    assert "which is no part of results" in " ".join(done.output.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip"]


def test_runs_are_removed_by_their_values(labs: list[Store]) -> None:
    a, b = labs
    words = ("remove", "--results", a.results, "--where", "seed=1-5")
    dry = call(*words, "--dry-run")
    assert dry.output.startswith("would remove")
    assert len(a.runs()[0]) == 2
    call(*words)
    assert [run.spec.seed for run in a.runs()[0]] == [0]
    assert call(*words).exit_code == 2, "there are none any more"
    wrong = call("remove", "--results", b.results, "--where", "step=8")
    assert "did you mean 'steps'" in " ".join(wrong.output.split())
    call("remove", "--results", b.results, "--where", "method=ldc")
    assert not (b.results / "runs/toy/ldc").exists()


@pytest.mark.parametrize("value", ["clip", "ab12" * 3, "ab12" * 16, "other,clip"])
def test_runs_on_one_file_of_features_are_removed(
    labs: list[Store], factory: Any, value: str
) -> None:
    store = labs[0]
    for name, digest in (("clip", "ab12" * 3), ("dino", "cd34" * 3)):
        brought = {"backbone": "features", "pretraining": f"{name} (sha256 {digest}), D = 8"}
        type(factory)(store).write(factory.spec(representation=brought), CORRECT)
    done = call("remove", "--results", store.results, "--where", f"features={value}")
    assert done.exit_code == 0 and len(done.output.splitlines()) == 1
    left = sorted(run.spec.representation.pretraining[:4] for run in store.runs()[0])
    assert len(left) == 3 and "dino" in left and "clip" not in left


def test_a_run_in_another_methods_folder_is_left_out(labs: list[Store], tmp_path: Path) -> None:
    own = labs[0].results / "runs" / "toy"
    shutil.copytree(own / "ncm", own / "elsewhere")
    done = call("merge", labs[0].results, "--out", tmp_path / "c")
    assert "is no place for runs/toy/ncm" in " ".join(done.output.split())
    assert not (tmp_path / "c" / "runs" / "toy" / "elsewhere").exists()


def test_work_of_a_newer_version_is_never_replaced(labs: list[Store], tmp_path: Path) -> None:
    target = tmp_path / "c"
    call("merge", labs[0].results, "--out", target)
    record = next(target.glob("runs/toy/ncm/*/run.json"))
    newer = json.dumps(json.loads(record.read_text()) | {"schema_version": SCHEMA_VERSION + 1})
    record.write_text(newer)
    done = call("merge", labs[0].results, "--out", target)
    assert "left as it is" in done.output
    assert record.read_text() == newer


def test_a_methods_own_parameter_goes_by_its_name(labs: list[Store], factory: Any) -> None:
    store = labs[0]
    for epochs in (0, 1):
        type(factory)(store).write(factory.spec("ldc", params={"epochs": epochs}), CORRECT)
    call("remove", "--results", store.results, "--where", "method=ldc", "--where", "epochs=0")
    (left,) = store.results.glob("runs/toy/ldc/*/run.json")
    assert json.loads(left.read_text())["spec"]["params"]["epochs"] == 1


def packed(file: Path, labs: list[Store]) -> bytes:
    assert call("export", file, "--results", labs[0].results).exit_code == 0
    return file.read_bytes()


def test_a_damaged_archive_is_named_with_its_part(labs: list[Store], tmp_path: Path) -> None:
    file, whole = tmp_path / "a.zip", packed(tmp_path / "a.zip", labs)
    with zipfile.ZipFile(file) as archive:
        first = archive.infolist()[0]
    start = first.header_offset + 30 + len(first.filename)
    for text in (
        whole[: len(whole) // 2],
        whole[: start + 8] + b"\xff" * 8 + whole[start + 16 :],
        # A flag says that its parts are encrypted.
        whole.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"),
    ):
        file.write_bytes(text)
        done = call("import", file, "--results", tmp_path / "c")
        assert done.exit_code == 1
        assert done.output.startswith(f"error: {file}: "), done.output
        assert "zip archive" in done.output
        assert not (tmp_path / "c").exists()


def test_a_folder_is_no_archive_and_an_archive_no_folder(labs: list[Store], tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    packed(file, labs)
    done = call("import", labs[1].results, "--results", tmp_path / "c")
    told = " ".join(done.output.split())
    assert done.exit_code == 2
    assert f"{labs[1].results}: a folder, not a file" in told
    assert f"`results merge FOLDER... --out {tmp_path / 'c'}` folders of results" in told
    done = call("merge", file, "--out", tmp_path / "c")
    assert "no folder of results; `results import` takes archives" in " ".join(done.output.split())


def test_a_damaged_part_of_an_archive_is_named_where_it_is(
    labs: list[Store], tmp_path: Path
) -> None:
    file, store = tmp_path / "a.zip", labs[0]
    first, second = sorted(store.results.glob("runs/toy/ncm/*"))
    (first / "predictions.npz").write_bytes(b"")
    (second / "run.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    network = store.representation_folder("0" * 16) / "weights.safetensors"
    network.parent.mkdir(parents=True)
    network.write_bytes(b"no tensors")
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in tree(store.results).items():
            archive.writestr(name, content)
    done = call("import", file, "--results", tmp_path / "c")
    runs = {
        each: f"left out: {file}: {each.relative_to(store.results)}" for each in (first, second)
    }
    lines = done.output.splitlines()
    assert f"warning: {runs[first]}/predictions.npz: damaged (No data left in file)" in lines
    assert lines[1].startswith(f"warning: {runs[second]}/run.json: has schema version")
    assert lines[1].endswith("; update fscil-bench")
    assert "nothing into" in lines[-1] and "remove" not in done.output


def test_networks_and_choices_are_read_before_they_are_taken(
    labs: list[Store], tmp_path: Path
) -> None:
    own = labs[0].results
    network = own / "representations" / "0123456789abcdef" / "weights.safetensors"
    choice = own / "tuned" / "toy" / "cosine" / "ldc.json"
    for path, text in ((network, b"no tensors"), (choice, b"[1, 2]")):
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    done = call("merge", own, "--out", tmp_path / "c")
    assert done.exit_code == 0
    assert f"warning: left out: {network}: damaged" in done.output
    assert f"warning: left out: {choice}: no choice of parameters" in done.output
    assert {path.split("/")[0] for path in tree(tmp_path / "c")} == {"runs"}


def test_a_removal_goes_on_where_one_was_interrupted(labs: list[Store], tmp_path: Path) -> None:
    first, second = sorted(path for path in (labs[0].results / "runs").glob("*/*/*"))
    left = first.with_name(f".{first.name}.removed")
    shutil.copytree(first, left)
    elsewhere = tmp_path / "elsewhere"
    second.rename(elsewhere)
    second.symlink_to(elsewhere)
    done = call("remove", "--where", "method=ncm", "--results", labs[0].results)
    assert done.output.splitlines() == [f"removed {first}", f"removed {second}"]
    assert list(elsewhere.iterdir()), "the link goes, not what it leads to"
    assert tree(labs[0].results) == {}
