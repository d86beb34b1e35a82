from __future__ import annotations

import hashlib
import io
import zipfile
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscil_bench.plugins.registry import load_registry

DATASET = ("tiny_imagenet", 3, 64)
FOLDER = load_registry().protocol("tiny_imagenet200")[1]
CLASSES = tuple((FOLDER / "tiny_imagenet_classes.txt").read_text().split())
WNIDS = CLASSES[:3]
TOP = "tiny-imagenet-200"
ARCHIVE = f"{TOP}.zip"
ANNOTATIONS = f"{TOP}/val/val_annotations.txt"

Members = dict[str, bytes]


def picture(*colour: int) -> bytes:
    """Return a lossless image file, so that its pixels are known exactly."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(buffer, "PNG")
    return buffer.getvalue()


def train_name(wnid: str, number: int) -> str:
    return f"{TOP}/train/{wnid}/images/{wnid}_{number}.JPEG"


@pytest.fixture
def members() -> Members:
    """Return an archive in small: 3 classes, training images 0, 2, 10, validation 0 to 5."""
    train = {
        train_name(wnid, number): picture(10 * label, number, 7)
        for label, wnid in enumerate(WNIDS)
        for number in (0, 10, 2)
    }
    val = {f"{TOP}/val/images/val_{n}.JPEG": picture(100, n, 9) for n in range(6)}
    lines = [f"val_{n}.JPEG\t{WNIDS[n % 3]}\t0\t0\t63\t63" for n in (5, 4, 3, 2, 1, 0)]
    lists = {f"{TOP}/wnids.txt": "\n".join(WNIDS), ANNOTATIONS: "\n".join(lines)}
    return train | val | {name: text.encode() for name, text in lists.items()}


def test_the_archive_is_found_in_a_folder_and_by_its_own_path(
    members: Members, copies: Any
) -> None:
    path = copies.write(members, ARCHIVE)
    for root in (path, copies.folder):
        source = copies.find(copies.folder / "nowhere", root)
        assert source.path == path
        assert source.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_missing_is_named_with_where_it_was_looked_for(copies: Any) -> None:
    nowhere = copies.folder / "nowhere"
    text = copies.refusal(nowhere, copies.folder)
    assert text.startswith("neither tiny-imagenet-200.zip nor a folder tiny-imagenet-200 with tr")
    assert f"looked in {nowhere} (which does not exist), {copies.folder}. `fscil" in text


def sorted_into_folders(members: Members) -> Members:
    """Return the files with `val/` in class folders, and folders `images/` left out."""
    names = {}
    for line in members[ANNOTATIONS].decode().splitlines():
        file, wnid = line.split("\t")[:2]
        names[f"{TOP}/val/images/{file}"] = f"{TOP}/val/{wnid}/{file}"
    kept = {names.get(n, n.replace("/images/", "/")): content for n, content in members.items()}
    del kept[ANNOTATIONS]
    return kept


@pytest.mark.parametrize("place", ["data", f"data/{TOP}", "data/tiny_imagenet"])
@pytest.mark.parametrize("by_folder", [False, True], ids=["annotations", "folders"])
def test_an_unpacked_copy_gives_the_same_as_the_archive(
    members: Members, copies: Any, place: str, by_folder: bool
) -> None:
    packed = copies.write(members, ARCHIVE)
    expected = copies.index(packed)
    files = sorted_into_folders(members) if by_folder else members
    litter = {f"{TOP}/test/images/t.JPEG": b"", f"{TOP}/.x": b""}
    folder = copies.write(files | litter, "unpacked") / TOP
    data, target = copies.folder / "data", copies.folder / place
    target.parent.mkdir(exist_ok=True)
    folder.rename(target)
    assert copies.find(data).path == target
    index = copies.index(data)
    for mine, other in ((index.train, expected.train), (index.test, expected.test)):
        assert [item.label for item in mine] == [item.label for item in other]
        assert np.array_equal(copies.images(data, mine), copies.images(packed, other))


def test_the_digest_of_an_unpacked_copy_follows_its_files(members: Members, copies: Any) -> None:
    folder = copies.write(members)
    before = copies.find(folder / TOP).digest
    assert copies.find(folder).digest == before
    (folder / train_name(WNIDS[0], 2)).unlink()
    assert copies.find(folder).digest != before


def test_items_are_in_class_order_and_by_number(members: Members, copies: Any) -> None:
    path = copies.write(members, ARCHIVE)
    index = copies.index(path)
    assert index.class_names == WNIDS
    assert (len(set(CLASSES)), list(CLASSES)) == (200, sorted(CLASSES))
    assert {item.label for item in copies.index(path, classes=2).train} == {0, 1}
    assert [item.label for item in index.train] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [item.key for item in index.train[3:6]] == [train_name(WNIDS[1], n) for n in (0, 2, 10)]
    assert [(item.label, item.key.rpartition("/")[2]) for item in index.test] == [
        (number % 3, f"val_{number}.JPEG") for number in (0, 3, 1, 4, 2, 5)
    ]


def test_pixels_are_those_of_the_file_in_the_order_asked_for(members: Members, copies: Any) -> None:
    path = copies.write(members, ARCHIVE)
    index = copies.index(path)
    images = copies.images(path, [index.test[5], index.train[5], index.train[0]])
    assert [(image.shape, image.dtype) for image in images] == [((64, 64, 3), np.uint8)] * 3
    assert [image[11, 13].tolist() for image in images] == [[100, 5, 9], [10, 10, 7], [0, 0, 7]]


REST = "\tn01443537\t0\t0\t63\t63"
NO_CLASS = "does not name an image and, after a tab, one of the 200 classes"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("val_0.JPEG n01443537 0 0", f"'val_0.JPEG n01443537 0 0' {NO_CLASS}"),
        ("val_0.JPEG\tn0144", f"'val_0.JPEG\\tn0144' {NO_CLASS}"),
        (f"val_99.JPEG{REST}", f"there is no {TOP}/val/images/val_99.JPEG"),
        (f"../../secret{REST}", f"there is no {TOP}/val/images/../../secret"),
        (f"val_5.JPEG{REST}", "val_5.JPEG is listed a second time, after line 1"),
    ],
)
def test_a_wrong_annotation_is_named_by_its_line(
    members: Members, copies: Any, line: str, problem: str
) -> None:
    lines = members[ANNOTATIONS].decode().splitlines()
    lines[2:2] = ["", line]
    members[ANNOTATIONS] = "\n".join(lines).encode()
    path = copies.write(members, ARCHIVE)
    assert copies.refusal(path) == f"{path}: {ANNOTATIONS}:4: {problem}"


def test_classes_without_images_are_named(members: Members, copies: Any) -> None:
    text = copies.refusal(copies.write(members, ARCHIVE), classes=4)
    assert f"no training images of 1 of the 4 classes that the protocol asks for ({CLASSES[3]}" in (
        text
    )
    assert "it holds 9 training images of 3 classes" in text
    lines = members[ANNOTATIONS].splitlines()
    members[ANNOTATIONS] = b"\n".join(x for x in lines if WNIDS[1].encode() not in x)
    path = copies.write(members, ARCHIVE)
    assert "no validation images of 1 of the 3 classes that" in copies.refusal(path)
    assert copies.refusal(path, classes=201).startswith(
        "Tiny-ImageNet has 200 classes, but the protocol asks for 201"
    )
    path = copies.write({"holiday/beach.jpg": b"1", "notes.txt": b"3"}, ARCHIVE)
    assert copies.refusal(path) == (
        f"{path}: not Tiny-ImageNet, it has no train/<WordNet id>/ with images; it holds "
        "holiday/beach.jpg, notes.txt"
    )


def test_images_that_cannot_be_used_are_named(members: Members, copies: Any) -> None:
    names = [train_name(WNIDS[0], n) for n in (0, 2, 10)] + [train_name(WNIDS[1], 0)]
    members |= {names[0]: b"", names[1]: picture(1, 2, 3)[:60], names[2]: bytes(20_000_001)}
    path = copies.write(members, ARCHIVE)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(names[3]).header_offset + 30 + len(names[3])
    content = bytearray(path.read_bytes())
    content[start : start + 20] = bytes(byte ^ 0xFF for byte in content[start : start + 20])
    path.write_bytes(content)
    problems = (
        "the image file is empty",
        "cannot be decoded as an image",
        "refused, its declared size of 20000001 bytes is absurd (at most 20000000)",
        "damaged",
    )
    *broken, whole = copies.images(path, copies.index(path).train[:5])
    for name, problem, error in zip(names, problems, broken, strict=True):
        assert str(error).startswith(f"{path}: {name}: {problem}")
    assert isinstance(whole, np.ndarray)
