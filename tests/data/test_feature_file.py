"""Files of features: four forms of one content, and what is refused."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from fscil_bench.cli.app import app
from fscil_bench.data.feature_file import (
    FeatureFile,
    FeatureHalf,
    copied_rows,
    read_feature_file,
    write_feature_file,
)
from fscil_bench.errors import DataError, FscilError, UsageError

DAMAGED = r"cannot be read as \.\w+ \(.*\): damaged or cut short: copy it again$"
FORMS = (".npz", ".pt", ".safetensors", ".parquet")


def half(labels: list[int], start: int = 0, named: bool = True) -> FeatureHalf:
    count = len(labels)
    features = np.arange(start, start + 3 * count, dtype=np.float32).reshape(count, 3)
    names = tuple(f"{start}/{number}.png" for number in range(count)) if named else ()
    numbers = np.arange(start, start + count) if named else None
    return FeatureHalf(features, np.array(labels), names, numbers)


def full() -> FeatureFile:
    names = ("ant", "bee")
    return FeatureFile("f", half([0, 1, 1, 0]), half([1, 0], 100), names, ("n1", "n2"))


def arrays(**changes: Any) -> dict[str, Any]:
    """Return the arrays of a good file, some changed, those that are None left out."""
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    known = {
        "train_features": features,
        "train_labels": np.array([0, 1, 1, 0]),
        "test_features": features[:2] + 1,
        "test_labels": np.array([1, 0]),
    }
    return {name: value for name, value in (known | changes).items() if value is not None}


def saved(folder: Path, **changes: Any) -> Path:
    np.savez(folder / "f.npz", **arrays(**changes))
    return folder / "f.npz"


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_back_what_was_written(tmp_path: Path, form: str) -> None:
    if form == ".parquet":
        pytest.importorskip("pyarrow")
    file = full()
    write_feature_file(tmp_path / f"f{form}", file)
    read = read_feature_file(tmp_path / f"f{form}")
    assert (read.class_names, read.class_keys, read.remarks) == (("ant", "bee"), ("n1", "n2"), ())
    for one, two in ((read.train, file.train), (read.test, file.test)):
        assert one.features.dtype == np.float32 and np.array_equal(one.features, two.features)
        assert one.labels.tolist() == two.labels.tolist() and one.names == two.names
        assert one.numbers is not None and two.numbers is not None
        assert one.numbers.tolist() == two.numbers.tolist()
    assert read.digest == file.digest
    assert read.title == f"f (sha256 {file.digest[:12]}), D = 3"


def test_the_digest_tells_every_content_apart() -> None:
    file = full()
    swapped = replace(file.train, features=file.train.features[::-1])
    others = [
        replace(file, train=swapped),
        replace(file, train=replace(file.train, labels=1 - file.train.labels)),
        replace(file, train=replace(file.train, names=file.train.names[::-1])),
        replace(file, train=replace(file.train, numbers=None)),
        replace(file, class_names=("ant", "cow")),
        replace(file, class_keys=()),
    ]
    assert len({each.digest for each in [file, *others]}) == 1 + len(others)
    assert replace(file, name="g", remarks=("?",)).digest == file.digest


@pytest.mark.parametrize(
    "kind", [np.float16, np.float64, np.int32, torch.bfloat16, torch.float16], ids=str
)
def test_other_numbers_are_converted_and_told(tmp_path: Path, kind: Any) -> None:
    given = arrays()
    if isinstance(kind, torch.dtype):
        path = tmp_path / "f.safetensors"
        tensors = {name: torch.from_numpy(value) for name, value in given.items()}
        tensors["train_features"] = tensors["train_features"].to(kind)
        save_file(tensors, path)
    else:
        path = saved(tmp_path, train_features=given["train_features"].astype(kind))
    read = read_feature_file(path)
    assert np.array_equal(read.train.features, given["train_features"])
    (remark,) = read.remarks
    name = str(kind).removeprefix("torch.") if isinstance(kind, torch.dtype) else kind.__name__
    assert remark == f"{path.name}: features converted from {name} to float32"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"train_labels": None}, "lacks train_labels; it holds test_features, test_labels"),
        ({"test_features": np.zeros((2, 4))}, "train_features have D = 3, test_features D = 4"),
        ({"train_features": np.zeros((3, 3))}, "has 3 rows, train_labels has 4"),
        ({"train_features": np.zeros((0, 3)), "train_labels": np.zeros(0, int)}, "(0, 3)"),
        ({"train_features": np.zeros(4)}, "shape (4,), expected (rows, D)"),
        ({"train_features": np.array([["a"] * 3] * 4)}, "not numbers"),
        ({"train_features": np.ones((4, 3)) * 1e300}, "row 0, of class 0, holds NaN or infinity"),
        ({"train_labels": np.array([0.0, 1, 1, 0])}, "expected integers"),
        ({"train_labels": np.array([0, 10**12, 1, 0])}, "no row has label 2, and 999999999998 of"),
        ({"train_labels": np.array([0, 2**63, 1, 0], dtype=np.uint64)}, "9223372036854775808 is"),
        ({"class_names": np.array([b"\xff", b"b"])}, "cannot be read as .npz"),
        (
            {"train_labels": np.array([0, 2, 2, 0])},
            "no row has label 1, and 1 of 0 … 2 are missing",
        ),
        ({"train_labels": np.array([0, -1, 1, 0])}, "row 1 has label -1, outside 0 … 1"),
        ({"test_labels": np.array([0, 5])}, "test_labels: row 1 has label 5, outside 0 … 1"),
        ({"class_names": np.array(["ant"])}, "names 1 classes, train_labels go from 0 to 1"),
        ({"train_names": np.array(["a", "b", "a", "c"])}, "'a' stands in rows 0 and 2"),
        ({"class_names": np.array(["ant", "ant"])}, "'ant' stands in rows 0 and 1; class_keys"),
        ({"test_names": np.array(["a"])}, "has 2 rows, test_names has 1"),
        ({"test_names": np.array([1, 2])}, "entry 0 is 1, not a text"),
        ({"train_features": np.array([[None] * 3] * 4)}, "pickled objects are refused"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, changes: Any, told: str) -> None:
    path = saved(tmp_path, **changes)
    with pytest.raises(DataError) as error:
        read_feature_file(path)
    assert str(path) in str(error.value) and told in str(error.value)


@pytest.mark.parametrize(("scale", "unit"), [(1e30, "1e+31"), (1e-30, "1e-29"), (1e-60, "1e-59")])
def test_features_that_float32_cannot_compute_with_are_refused(
    tmp_path: Path, scale: float, unit: str
) -> None:
    given = arrays()["train_features"].astype(float) + 1
    given[0] = 0
    path = saved(tmp_path, train_features=given * scale)
    with pytest.raises(DataError) as error:
        read_feature_file(path)
    told = str(error.value)
    assert "train_features: row 1, of class 1, has the length 8.77e" in told
    assert "and 2 more rows are so" in told and told.endswith(f"by one number, such as {unit}")
    assert not read_feature_file(saved(tmp_path, train_features=given)).train.features[0].any()


def test_classes_without_test_rows_and_of_one_name(tmp_path: Path) -> None:
    twice = {"class_names": np.array(["ant", "ant"]), "class_keys": np.array(["n1", "n2"])}
    found = read_feature_file(saved(tmp_path, test_labels=np.array([1, 1]), **twice))
    assert found.remarks == ("f.npz: no test row is of class 'ant': no run can use them",)


def test_rows_that_are_not_finite_are_named_and_counted(tmp_path: Path) -> None:
    features = arrays()["train_features"]
    features[2, 1], features[3, 0] = np.nan, -np.inf
    path = saved(tmp_path, train_features=features, train_names=np.array(["a", "b", "c", "d"]))
    with pytest.raises(DataError, match=r"row 2 \(c\), of class 1, .*; 2 rows do"):
        read_feature_file(path)


def test_copies_and_rows_without_a_value_are_remarked(tmp_path: Path) -> None:
    features = arrays()["train_features"]
    features[2] = 0
    test = np.array([features[2], features[3]])
    read = read_feature_file(saved(tmp_path, train_features=features, test_features=test))
    assert read.remarks == (
        "f.npz: train_features: 1 row is 0, first row 2, of class 1",
        "f.npz: test_features: 1 row is 0, first row 0, of class 1",
        "f.npz: 1 test row equals a training row (first: row 1 is training row 3)",
    )
    assert copied_rows(features, test) == [(1, 3)]
    read = read_feature_file(saved(tmp_path, test_features=0 * test))
    assert read.remarks == ("f.npz: all 2 rows of test_features are 0: no run can use them",)


def bad_zip(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04 no archive")


def pickled(path: Path) -> None:
    torch.save({**arrays(), "model": CliRunner()}, path)


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


def a_list(path: Path) -> None:
    torch.save([torch.zeros(3)], path)


def a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(arrays()))


def cut(path: Path) -> None:
    if path.suffix == ".safetensors":
        save_file({"train_features": torch.zeros(4, 3)}, path)
    elif path.suffix == ".pt":
        torch.save({"train_features": torch.zeros(400, 3)}, path)
    else:
        saved(path.parent)
    path.write_bytes(path.read_bytes()[:-5])


def a_page(path: Path) -> None:
    path.write_text("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("name", "write", "told"),
    [
        ("f.npz", bad_zip, DAMAGED),
        ("f.npz", cut, DAMAGED),
        ("f.npz", a_page, DAMAGED),
        ("f.npz", one_array, "holds one array"),
        ("f.npz", a_pickle, r"objects are refused; save plain arrays, texts with .astype\(str\)$"),
        ("f.pt", pickled, r"refused \(it names [\w.]+\); save tensors .* and lists of texts$"),
        ("f.pt", a_pickle, "pickled objects are refused"),
        ("f.pt", a_list, "holds a list"),
        ("f.pt", cut, DAMAGED),
        ("f.pt", a_page, DAMAGED),
        ("f.safetensors", cut, DAMAGED),
    ],
)
def test_damaged_files_and_objects_are_refused(
    tmp_path: Path, name: str, write: Callable[[Path], None], told: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(DataError, match=told) as error:
        read_feature_file(tmp_path / name)
    assert not {"pickle", "weights_only", "\x1b"} & {*re.findall(r"[\w\x1b]+", str(error.value))}


@pytest.mark.parametrize(("name", "told"), [("f.csv", "ends in"), ("f.npz", "no such file")])
def test_files_that_are_none_are_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_feature_file(tmp_path / name)


def frame_without(column: str) -> Any:
    pd = pytest.importorskip("pandas")
    rows = {
        "split": ["train"] * 4 + ["test"] * 2,
        "label": [0, 1, 1, 0, 1, 0],
        "features": [[1.0, 2.0]] * 6,
        "class_name": ["ant", "bee", "bee", "ant", "bee", "ant"],
    }
    return pd.DataFrame({name: value for name, value in rows.items() if name != column})


@pytest.mark.parametrize(
    ("column", "row", "value", "told"),
    [
        ("split", 4, "val", "row 4: split = 'val', write train or test"),
        ("features", 2, [1.0], "row 2 has 1 features, others have 2"),
        ("class_name", 3, "cow", "label 0 has several names: ant, cow"),
        ("split", 1, None, "row 1: split is empty"),
        ("label", 5, None, "row 5: label is empty"),
        ("features", 4, None, "row 4: features is empty"),
        ("features", 5, [1.0, None], "row 5: features: entry 1 is empty or NaN"),
        ("class_name", 4, None, "row 4: class_name is empty"),
    ],
)
def test_rows_of_frames_are_named(
    tmp_path: Path, column: str, row: int, value: object, told: str
) -> None:
    pytest.importorskip("pyarrow")
    frame = frame_without("")
    frame.at[row, column] = value
    frame.to_parquet(tmp_path / "f.parquet")
    with pytest.raises(DataError, match=told):
        read_feature_file(tmp_path / "f.parquet")


def test_a_frame_without_a_column_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame_without("label").to_parquet(tmp_path / "f.parquet")
    with pytest.raises(DataError, match="lacks the columns label; it has split, features"):
        read_feature_file(tmp_path / "f.parquet")


def test_names_in_the_metadata_of_safetensors_are_read(tmp_path: Path) -> None:
    tensors = {name: torch.from_numpy(value) for name, value in arrays().items()}
    metadata = {"class_names": json.dumps(["ant", "bee"]), "format": "pt"}
    save_file(tensors, tmp_path / "f.safetensors", metadata=metadata)
    assert read_feature_file(tmp_path / "f.safetensors").class_names == ("ant", "bee")


def test_the_card_says_what_is_in_a_file(tmp_path: Path) -> None:
    features = np.array([[3, -4], [0, 1], [1, 0], [0, 2]], dtype=np.float32)
    path = saved(tmp_path, train_features=features, test_features=features[:2], logits=np.zeros(3))
    done = CliRunner().invoke(app, ["features", "check", str(path)])
    assert done.exit_code == 0, done.output
    told = [line.split(None, 1) for line in done.output.splitlines()]
    lines = {key: text for key, text in told if key != "remark"}
    assert lines["D"] == "2" and lines["classes"] == "2, not named"
    assert lines["training"] == "rows   4, 2 a class, not named"
    assert lines["sign"] == "16.7% of the values are negative"
    assert lines["norms"] == "1 to 5, mean 2.5"
    assert [text for key, text in told if key == "remark"] == [
        "f.npz: not read: logits",
        "f.npz: 2 test rows equal a training row (first: row 0 is training row 0)",
    ]
    assert len(lines["digest"]) == 64


def test_a_bad_file_is_explained_by_the_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["features", "check", str(saved(tmp_path, test_labels=None))])
    assert done.exit_code == FscilError.exit_code
    assert "error: " in done.output and "lacks test_labels" in " ".join(done.output.split())
