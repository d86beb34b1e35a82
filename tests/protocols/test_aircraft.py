from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscil_bench.data.lists import shots_from_lists
from fscil_bench.errors import UsageError

DATASET = ("aircraft", 3, 16)
TOP = "fgvc-aircraft-2013b"
VARIANTS = ("707-320", "Cessna 172", "F/A-18")
Files = dict[str, bytes]


def lists(sizes: list[tuple[int, int, int]], names: tuple[str, ...]) -> Files:
    """Return the lists of so many training, validation and test images a class.

    As in the published ones, ids are in no order.
    """
    lines: dict[str, list[str]] = {"train": [], "val": [], "trainval": [], "test": []}
    for label, (name, counts) in enumerate(zip(names, sizes, strict=True)):
        number = 0
        for half, count in zip(("train", "val", "test"), counts, strict=True):
            for _ in range(count):
                line = f"{(label * 1000 + number * 37 % 1000):07d} {name}"
                lines[half].append(line)
                number += 1
                if half != "test":
                    lines["trainval"].append(line)
    files = {f"images_variant_{half}.txt": "\n".join(found) for half, found in lines.items()}
    files["variants.txt"] = "\n".join(names) + "\n"
    return {f"{TOP}/data/{name}": text.encode() for name, text in files.items()}


def data_set() -> Files:
    """Return the data set in small: 2 training, 1 validation and 1 test image a class."""
    files = lists([(2, 1, 1)] * 3, VARIANTS)
    for half in ("trainval", "test"):
        for line in files[f"{TOP}/data/images_variant_{half}.txt"].decode().splitlines():
            number = line.split()[0]
            buffer = io.BytesIO()
            colour = (int(number) // 1000 * 50, int(number) % 1000 // 4, 9)
            Image.new("RGB", (24, 20), colour).save(buffer, "PNG")
            files[f"{TOP}/data/images/{number}.jpg"] = buffer.getvalue()
    return files


def full(each: list[tuple[int, int, int]]) -> Files:
    return lists(each, tuple(f"Model {n}" for n in range(len(each))))


PUBLISHED = [(34, 33, 33)] * 34 + [(33, 34, 33)] * 33 + [(33, 33, 34)] * 33


def test_classes_and_halves_are_the_data_sets_own(copies: Any) -> None:
    root = copies.write(data_set())
    index = copies.index(root)
    assert index.class_names == VARIANTS
    assert index.class_keys == ("1", "2", "3")
    assert [(i.label, i.number) for i in index.train[2:4]] == [(1, 1000), (1, 1037)]
    assert [i.key for i in index.test] == [f"images/000{n}.jpg" for n in ("0111", "1111", "2111")]
    more = copies.index(root, options={"training": "trainval"})
    assert [i.number for i in more.train[:3]] == [0, 37, 74]
    assert more.test == index.test
    assert {i.label for i in copies.index(root, classes=2).train} == {0, 1}
    (image,) = copies.images(root, index.train[3:4])
    assert isinstance(image, np.ndarray)
    assert (image.shape, image[5, 5].tolist()) == ((16, 16, 3), [50, 9, 9])


@pytest.mark.parametrize("place", [TOP, "aircraft", "fgvc_aircraft", f"{TOP}/data", "x"])
def test_the_folder_is_found_under_the_names_that_it_goes_by(copies: Any, place: str) -> None:
    made = copies.write(data_set(), "made") / TOP
    made = made / "data" if place in ("fgvc_aircraft", f"{TOP}/data") else made
    target = copies.folder / place
    target.parent.mkdir(exist_ok=True)
    made.rename(target)
    root = target if place == "x" else copies.folder
    assert len(copies.index(copies.folder / "nowhere", root).train) == 6


def test_what_is_missing_or_still_packed_is_said(copies: Any) -> None:
    text = copies.refusal(copies.folder)
    assert text.startswith(f"no folder {TOP} with data/variants.txt was found; looked in")
    assert "unpack it and name the folder it lies in: --data-root DIR" in text
    archive = copies.write(data_set(), f"{TOP}.tar.gz")
    for root in (copies.folder, archive):
        packed = f"{archive}: is packed; unpack it there: tar -xzf {TOP}.tar.gz"
        assert copies.refusal(root) == packed


def test_the_published_copy_is_told_by_its_counts(copies: Any) -> None:
    root = copies.write(full(PUBLISHED))
    assert copies.find(root).unofficial is None
    copies.write(data_set(), "small")
    small = copies.folder / "small"
    assert copies.find(small).unofficial == (
        f"{small}/{TOP}/data: variants.txt has 3 classes instead of 100"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ((34, 33, 32), "images_variant_test.txt has 3332 images instead of 3333"),
        ((33, 33, 33), "images_variant_train.txt has 3333 images instead of 3334"),
    ],
)
def test_a_list_that_lost_an_image_is_named(
    copies: Any, changed: tuple[int, int, int], said: str
) -> None:
    root = copies.write(full([changed, *PUBLISHED[1:]]))
    assert copies.find(root).unofficial == f"{root / TOP / 'data'}: {said}"


def test_images_of_another_class_are_named(copies: Any) -> None:
    files = full(PUBLISHED)
    name = f"{TOP}/data/images_variant_train.txt"
    files[name] = files[name].replace(b"Model 1\n", b"Model 2\n", 1)
    root = copies.write(files)
    assert copies.find(root).unofficial == (
        f"{root / TOP / 'data'}: images_variant_train.txt has 35 images of 'Model 2' instead of "
        "33 or 34"
    )


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("images_variant_train.txt", "0000000", "'0000000' is not an image's id and a variant of"),
        ("images_variant_train.txt", "../1 707-320", "is not an image's id and a variant of"),
        ("images_variant_test.txt", "0000111 Concorde", "'0000111 Concorde' is not an image's id"),
        ("images_variant_train.txt", "0000037 707-320", "image 0000037 is listed already"),
        ("variants.txt", "Cessna 172", "the variant 'Cessna 172' is listed already"),
    ],
)
def test_a_wrong_line_is_named(copies: Any, file: str, line: str, said: str) -> None:
    files = data_set()
    lines = [line, *files[f"{TOP}/data/{file}"].decode().splitlines()]
    files[f"{TOP}/data/{file}"] = "\n".join(lines).encode()
    text = copies.refusal(copies.write(files))
    number = 1 if "already" not in said else 3
    assert text.startswith(f"{copies.folder / TOP}/data/{file}:{number}: "), text
    assert said in text


def test_missing_lists_images_and_classes_are_named(copies: Any) -> None:
    files = data_set()
    root = copies.write(files)
    data = root / TOP / "data"
    text = f"{data}: variants.txt has 3 classes, but the protocol asks for 100; set classes = 3"
    assert copies.refusal(root, classes=100).startswith(text)
    (data / "images" / "0001037.jpg").unlink()
    assert copies.refusal(root) == (
        f"{data}: 1 of the 6 images that images_variant_train.txt lists are missing "
        "(images/0001037.jpg); unpack the whole archive again"
    )
    assert len(copies.index(root, classes=1).train) == 2, "it is not needed"
    (data / "images_variant_train.txt").unlink()
    assert f"{data / 'images_variant_train.txt'}: cannot be read" in copies.refusal(root)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trainig": "train"}, "unknown option 'trainig'; did you mean 'training'?"),
        ({"training": "test"}, "training = 'test' is neither 'train' nor 'trainval'"),
        ({"training": 1}, "training = 1 is neither 'train' nor 'trainval'"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    copies: Any, options: dict[str, Any], said: str
) -> None:
    root = copies.write(data_set())
    with pytest.raises(UsageError) as caught:
        copies.index(root, options=options)
    assert str(caught.value) == f"reader_options: {said}"


def test_broken_images_are_named(copies: Any) -> None:
    root: Path = copies.write(data_set())
    items = copies.index(root).train
    data = root / TOP / "data"
    (data / items[0].key).write_bytes(b"")
    empty, whole = copies.images(root, items[:2])
    assert str(empty) == f"{data}: {items[0].key}: the image file is empty"
    assert isinstance(whole, np.ndarray)


def test_published_lists_of_shots_are_read(copies: Any) -> None:
    index = copies.index(copies.write(data_set()))
    lists_of_shots = copies.folder / "lists"
    lists_of_shots.mkdir()
    lines = "data/images/0002037.jpg\ndata/images/0002000.jpg\n"
    (lists_of_shots / "session_2.txt").write_text(lines)
    assert shots_from_lists(lists_of_shots, index, 2) == ((1, "3", ("2037", "2000")),)
