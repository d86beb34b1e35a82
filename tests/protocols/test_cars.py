from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fscil_bench.data.lists import shots_from_lists

DATASET = ("cars", 3, 16)
TRAIN, TEST = "cars_train_annos.mat", "cars_test_annos_withlabels.mat"
NAMES = ("AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012", "smart fortwo 2012")
LABELS = {TRAIN: (3, 1, 2, 1, 3, 2), TEST: (2, 3, 1)}
BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
Files = dict[str, bytes]


def matlab(**variables: Any) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, variables)
    return buffer.getvalue()


def annotations(
    rows: Sequence[tuple[Any, Any]], fields: tuple[str, str] = ("class", "fname")
) -> Any:
    """Return annotations as MATLAB has them: a struct array (1, N) of boxes, classes and files."""
    table = np.zeros((1, len(rows)), dtype=[(name, "O") for name in (*BOX, *fields)])
    for place, (label, file) in enumerate(rows):
        table[0, place] = (30, 52, 246, 147, label, file)
    return table


def numbered(labels: Sequence[int]) -> list[tuple[Any, Any]]:
    return [(np.uint8(label), f"{n:05d}.jpg") for n, label in enumerate(labels, start=1)]


def names(count: int = 3) -> Any:
    return np.array([NAMES[n] if n < 3 else f"Car {n}" for n in range(count)], dtype=object)[None]


def data_set() -> Files:
    """Return the data set in small, whose images tell half and number by their colour."""
    files = {"devkit/cars_meta.mat": matlab(class_names=names())}
    for folder, file, place in (("cars_train", TRAIN, "devkit/"), ("cars_test", TEST, "")):
        files[place + file] = matlab(annotations=annotations(numbered(LABELS[file])))
        for number in range(1, len(LABELS[file]) + 1):
            buffer = io.BytesIO()
            Image.new("RGB", (24, 20), (40 * number, 200 * (file == TEST), 7)).save(buffer, "PNG")
            files[f"{folder}/{number:05d}.jpg"] = buffer.getvalue()
    return files


def test_classes_halves_and_numbers_are_the_data_sets_own(copies: Any) -> None:
    root = copies.write(data_set(), "stanford_cars")
    index = copies.index(copies.folder / "nowhere", copies.folder)
    assert index.class_names == NAMES
    assert index.class_keys == ("1", "2", "3")
    assert [i.label for i in index.train] == [0, 0, 1, 1, 2, 2]
    assert [i.number for i in index.train] == [2, 4, 3, 6, 1, 5]
    assert [i.key for i in index.test] == [f"cars_test/0000{n}.jpg" for n in (3, 1, 2)]
    assert {i.label for i in copies.index(root, classes=2).test} == {0, 1}
    images = copies.images(root, [index.test[1], index.train[5]])
    assert [image[3, 3].tolist() for image in images] == [[40, 200, 7], [200, 0, 7]]
    assert {image.shape for image in images} == {(16, 16, 3)}


def test_folders_within_folders_and_annotations_beside_them_are_read(copies: Any) -> None:
    plain = copies.index(copies.write(data_set(), "cars"))
    moved = {
        name.replace("cars_train/", "cars_train/cars_train/")
        .replace("cars_test/", "cars_test/cars_test/")
        .removeprefix("devkit/"): content
        for name, content in data_set().items()
    }
    nested = copies.index(copies.write(moved, "elsewhere"))
    assert [i.number for i in nested.train] == [i.number for i in plain.train]
    assert nested.test[0].key == "cars_test/cars_test/00003.jpg"


def test_the_published_copy_is_told_by_its_counts(copies: Any) -> None:
    files = data_set()
    root = copies.write(files)
    assert copies.find(root).unofficial == (
        f"{root}: its annotations have 3 classes, 6 training and 3 test images instead of 196, "
        "8144 and 8041"
    )
    files["devkit/cars_meta.mat"] = matlab(class_names=names(196))
    for place, count in ((f"devkit/{TRAIN}", 8_144), (TEST, 8_041)):
        labels = [n % 196 + 1 for n in range(count)]
        files[place] = matlab(annotations=annotations(numbered(labels)))
    assert copies.find(copies.write(files)).unofficial is None


def test_published_lists_of_shots_are_read(copies: Any) -> None:
    index = copies.index(copies.write(data_set()))
    lists = copies.folder / "lists"
    lists.mkdir()
    (lists / "session_2.txt").write_text("cars_train/cars_train/00005.jpg\n")
    assert shots_from_lists(lists, index, 1) == ((1, "3", ("5",)),)


def test_what_is_missing_is_said(copies: Any) -> None:
    text = copies.refusal(copies.folder)
    start = "no folder with cars_train/ and cars_test/ was found; looked in "
    assert text.startswith(f"{start}{copies.folder}. The publisher's address is gone")
    (copies.folder / "car_ims").mkdir()
    assert f"{copies.folder} has car_ims/, the form without halves" in copies.refusal(copies.folder)
    files = data_set()
    del files[TEST]
    files["devkit/cars_test_annos.mat"] = b"without labels"
    root: Path = copies.write(files)
    text = copies.refusal(root)
    assert text.startswith(f"{root}: has no {TEST}, nor has devkit/; cars_test_annos.mat, which is")


def test_missing_images_and_classes_are_named(copies: Any) -> None:
    files = data_set()
    for number in (3, 6):
        del files[f"cars_train/0000{number}.jpg"]
    root = copies.write(files)
    assert copies.refusal(root) == (
        f"{root}: 2 of the 6 images that {TRAIN} lists are missing (cars_train/00003.jpg, "
        "cars_train/00006.jpg); unpack the whole archive again"
    )
    assert len(copies.index(root, classes=1).train) == 2, "they are not needed"
    text = f"{root}: cars_meta.mat has 3 classes, but the protocol asks for 196; set classes = 3"
    assert copies.refusal(root, classes=196).startswith(text)


GOOD = (np.uint8(1), "00001.jpg")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((np.uint8(4), "00002.jpg"), "annotation 2: class is 4, not from 1 to 3"),
        ((np.uint8(0), "00002.jpg"), "annotation 2: class is 0, not from 1 to 3"),
        (("2", "00002.jpg"), "annotation 2: class is '2', not from 1 to 3"),
        ((1.5, "00002.jpg"), "annotation 2: class is 1.5, not from 1 to 3"),
        ((np.uint8(1), "../../1.jpg"), "annotation 2: fname is '../../1.jpg', not NUMBER.jpg"),
        ((np.uint8(1), 7), "annotation 2: fname is 7, not NUMBER.jpg"),
        ((np.uint8(2), "00001.jpg"), "annotation 2: 00001.jpg is listed already"),
    ],
)
def test_an_annotation_that_makes_no_sense_is_named(
    copies: Any, row: tuple[Any, Any], said: str
) -> None:
    files = data_set()
    files[f"devkit/{TRAIN}"] = matlab(annotations=annotations([GOOD, row]))
    root = copies.write(files)
    text = copies.refusal(root)
    assert text.startswith(f"{root}/devkit/{TRAIN}: {said}"), text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (f"devkit/{TRAIN}", b"", "cannot be read as a MATLAB file"),
        (f"devkit/{TRAIN}", b"<html>", "cannot be read as a MATLAB file"),
        (f"devkit/{TRAIN}", data_set()[f"devkit/{TRAIN}"][:300], "cannot be read as a MATLAB file"),
        (f"devkit/{TRAIN}", matlab(other=1), "holds no 'annotations'; fetch it again"),
        (f"devkit/{TRAIN}", matlab(annotations=3), "its annotations have no class and fname"),
        (
            TEST,
            matlab(annotations=annotations([GOOD], ("label", "fname"))),
            "its annotations have no class and fname",
        ),
        ("devkit/cars_meta.mat", matlab(class_names=[1, 2]), "the name of class 1 is "),
    ],
)
def test_a_file_that_is_no_annotations_is_refused(
    copies: Any, name: str, content: bytes, said: str
) -> None:
    root = copies.write(data_set() | {name: content})
    text = copies.refusal(root)
    assert text.startswith(f"{root}/{name}: {said}"), text
