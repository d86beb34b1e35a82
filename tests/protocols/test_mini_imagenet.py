from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fscil_bench as fb
from fscil_bench.data.reader import Item
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry

DATASET = ("mini_imagenet", 6, 84)
FOLDER = load_registry().protocol("mini_imagenet")[1]
CLASSES = tuple((FOLDER / "mini_imagenet" / "classes.txt").read_text().split())
WNIDS = CLASSES[:6]
TRAIN, TEST = (5, 9, 20, 100, 1001), (7, 30)
"""Image numbers of every class."""

HALVES = {"train": TRAIN, "test": TEST}

Files = dict[str, bytes]
Pickled = Callable[[Any], bytes]


def picture(*colour: int) -> bytes:
    """Return a lossless image file, whatever its name says, so that its pixels are known."""
    buffer = io.BytesIO()
    Image.new("RGB", (84, 84), colour).save(buffer, "PNG")
    return buffer.getvalue()


def file_name(wnid: str, number: int) -> str:
    return f"{wnid}{number:08d}.jpg"


def listed(numbers: Sequence[int], wnids: Sequence[str] = WNIDS) -> bytes:
    rows = [f"{file_name(wnid, number)},{wnid}" for wnid in wnids for number in numbers]
    return "\n".join(["filename,label", *rows, ""]).encode()


def pictures(place: Callable[[int, str], str]) -> Files:
    """Return all image files; `place` says in which folder a class's are."""
    return {
        f"{place(label, wnid)}/{file_name(wnid, number)}": picture(20 * label, number % 256, 7)
        for label, wnid in enumerate(WNIDS)
        for number in (*TRAIN, *TEST)
    }


@pytest.fixture
def flat() -> Files:
    """Return the copy that circulates with FSCIL code, in small."""
    lists = {"split/train.csv": listed(TRAIN), "split/test.csv": listed(TEST)}
    return pictures(lambda *_: "images") | lists


@pytest.fixture
def grouped() -> Files:
    """Return the copy with a folder for each class, classes 0 to 2 in one, the rest in others."""
    halves = ("train", "train", "train", "val", "test", "test")
    return pictures(lambda label, wnid: f"{halves[label]}/{wnid}")


@pytest.fixture
def caches(python2_pickle: Pickled) -> Files:
    """Return the pickled copy: seven images of each class, red tells the class, green the row."""
    random = np.random.default_rng(0)
    made = {}
    for name, labels in (("train", [3, 0, 1]), ("val", [2]), ("test", [5, 4])):
        owners = random.permutation(np.repeat(labels, 7))
        images = np.zeros((len(owners), 84, 84, 3), np.uint8)
        images[..., 0] = 20 * owners[:, None, None]
        images[..., 1] = np.arange(len(owners))[:, None, None]
        rows = {WNIDS[label]: np.flatnonzero(owners == label).tolist() for label in labels}
        made[f"mini-imagenet-cache-{name}.pkl"] = python2_pickle(
            {"image_data": images, "class_dict": rows}
        )
    return made


def numbers(items: Sequence[Item]) -> dict[str, list[int | None]]:
    return {w: [i.number for i in items if i.label == c] for c, w in enumerate(WNIDS)}


def each(values: Sequence[int]) -> dict[str, list[int]]:
    return {wnid: list(values) for wnid in WNIDS}


BY_RULE = tuple(each(sorted((*TRAIN, *TEST))[part]) for part in (slice(6), slice(6, None)))
BY_LISTS = each(TRAIN), each(TEST)


def divided(copies: Any, *roots: Path) -> tuple[dict[str, list[int | None]], ...]:
    """Return the numbers of the training and of the test images by class."""
    index = copies.index(*roots)
    return numbers(index.train), numbers(index.test)


@pytest.mark.parametrize("place", [".", "mini_imagenet", "miniimagenet", "MINI-ImageNet"])
def test_the_flat_copy_is_divided_by_its_lists(flat: Files, copies: Any, place: str) -> None:
    copies.write(flat, place)
    roots = copies.folder / "nowhere", copies.folder
    index = copies.index(*roots)
    assert index.class_names == WNIDS
    assert divided(copies, *roots) == BY_LISTS
    assert index.train[0].key == f"images/{WNIDS[0]}00000005.jpg"


@pytest.mark.parametrize("top", ["", "miniimagenet/", "a/b c/ü/"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_gives_the_same_as_the_folder(
    flat: Files, copies: Any, kind: str, top: str
) -> None:
    litter = {"__MACOSX/images/._x.jpg": b"", f"{top}images/.DS_Store": b"x"}
    files = {f"{top}{name}": content for name, content in flat.items()} | litter
    path = copies.write(files, f"packed/miniimagenet.{kind}")
    folder = copies.write(flat, "unpacked")
    index = copies.index(path.parent)
    assert index == copies.index(folder) == copies.index(path)
    images = copies.images(path, index.test)
    assert np.array_equal(images, copies.images(folder, index.test))
    corners = [[20 * item.label, (item.number or 0) % 256, 7] for item in index.test]
    assert [image[0, 0].tolist() for image in images] == corners
    resized = copies.images(path, index.test[:1], resize=92)
    assert [np.shape(images), np.shape(resized)] == [(12, 84, 84, 3), (1, 92, 92, 3)]


def test_lists_may_lie_beside_images_and_have_any_line_ends(flat: Files, copies: Any) -> None:
    expected = copies.index(copies.write(flat, "a"))
    for half in ("train", "test"):
        text = flat.pop(f"split/{half}.csv").replace(b"\n", b"\r\n")
        flat[f"{half}.csv"] = b"\xef\xbb\xbf" + text + b"\r\n"
    assert copies.index(copies.write(flat, "b")) == expected


def test_a_copy_with_as_many_images_a_class_as_published_is_official(
    flat: Files, copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert copies.find(copies.write(flat, "small")).unofficial == (
        "100 of the 100 classes have other numbers of training and test images than the published "
        f"500 + 100; {WNIDS[0]} has 5 + 2"
    )
    monkeypatch.setattr("fscil_bench.protocols.mini_imagenet.division.PUBLISHED", (5, 2))
    files = {f"split/{half}.csv": listed(n, CLASSES) for half, n in HALVES.items()}
    files |= {f"images/{file_name(w, n)}": b"" for w in CLASSES for n in (*TRAIN, *TEST)}
    assert copies.find(copies.write(files, "mini.zip")).unofficial is None
    del files[f"images/{file_name(CLASSES[0], 5)}"]
    path = copies.write(files, "mini-lacking.zip")
    reason = copies.find(path).unofficial
    assert reason.startswith("1 of the 100 classes have other numbers of training")
    assert copies.refusal(path).startswith(f"{path}: 1 images that train.csv and test.csv name are")


def test_class_folders_are_divided_by_lists_where_they_are(
    flat: Files, grouped: Files, copies: Any
) -> None:
    lists = {name: content for name, content in flat.items() if name.startswith("split/")}
    path = copies.write(grouped | lists)
    assert divided(copies, path) == BY_LISTS
    assert copies.index(path).test[-1].key == f"test/{WNIDS[5]}/{file_name(WNIDS[5], 30)}"


def test_class_folders_without_lists_are_divided_by_rule(grouped: Files, copies: Any) -> None:
    path = copies.write(grouped, "mini-imagenet")
    assert divided(copies, copies.folder) == BY_RULE
    assert copies.find(path).unofficial == (
        "it has no split/train.csv with split/test.csv, so the first five sixths of each class's "
        "images by name are its training images and the rest its test images, not the published "
        "ones"
    )


@pytest.mark.parametrize("place", ["{}", "images/{}", "{}/images"])
@pytest.mark.parametrize("form", ["miniimagenet", "mini.zip"])
def test_class_folders_without_halves_are_divided_by_rule(
    copies: Any, place: str, form: str
) -> None:
    path = copies.write(pictures(lambda _, wnid: place.format(wnid)), form)
    assert divided(copies, path) == BY_RULE
    assert "the first five sixths of each class's images by name" in copies.find(path).unofficial
    found = copies.images(path, copies.index(path).test)
    assert not any(isinstance(pixels, DataError) for pixels in found)


def test_lists_that_divide_classes_are_not_the_published_ones(flat: Files, copies: Any) -> None:
    flat["split/train.csv"] = listed((*TRAIN, *TEST), WNIDS[:4])
    flat["split/test.csv"] = listed((*TRAIN, *TEST), WNIDS[4:])
    path = copies.write(flat)
    assert divided(copies, path) == BY_RULE
    assert copies.find(path).unofficial.startswith(
        "its split/train.csv and split/test.csv divide the classes, not the images of each class"
    )


def test_halves_with_the_same_class_folders_are_the_halves(copies: Any) -> None:
    files = {
        f"{half}/{wnid}/{file_name(wnid, number)}": picture(1, 2, 3)
        for half, found in HALVES.items()
        for wnid in WNIDS
        for number in found
    }
    path = copies.write(files)
    assert divided(copies, path) == BY_LISTS
    assert "published 500 + 100" in copies.find(path).unofficial


def test_file_names_of_any_kind_are_read_but_have_no_published_number(copies: Any) -> None:
    files = {
        f"train/{wnid}/{name}.JPEG": picture(label, 2, 3)
        for label, wnid in enumerate(WNIDS)
        for name in ("é 1", "日本", "a,b", 'q"', "5", "x", "._hidden")
    }
    path = copies.write(files)
    items = copies.index(path).train
    assert numbers(items)[WNIDS[2]] == [-1, -2, -3, -4, -5]
    assert items[1].key == f"train/{WNIDS[0]}/a,b.JPEG"
    assert not any(isinstance(pixels, DataError) for pixels in copies.images(path, items))


def test_the_pickled_copy_is_read(caches: Files, copies: Any) -> None:
    path = copies.write(caches)
    assert divided(copies, path) == (each([-1, -2, -3, -4, -5, -6]), each([-7]))
    index = copies.index(path)
    items = (*index.train, *index.test)
    for item, pixels in zip(items, copies.images(path, items), strict=True):
        row = int(item.key.rpartition("/")[2])
        assert pixels[0, 0].tolist() == [20 * item.label, row, 0]
    reason = "the published shots cannot be found in it, use --split seeded"
    assert reason in copies.find(path).unofficial
    with pytest.raises(fb.FscilError, match="not in data set 'mini_imagenet'"):
        run(copies, path, split="canonical")


def test_a_pickle_that_means_harm_is_refused_by_name(
    caches: Files, harmful: bytes, harm: Path, copies: Any
) -> None:
    caches["mini-imagenet-cache-val.pkl"] = harmful
    text = copies.refusal(copies.write(caches, "copy"))
    assert f"cache-val.pkl: refused, it asks for {open.__module__}.open" in text
    assert not harm.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"image_data": np.zeros((2, 32, 32, 3), np.uint8)},
            "image_data is an array of uint8 (2, ",
        ),
        ({"image_data": [1]}, "image_data is a list, not an array"),
        ({"class_dict": [1]}, "class_dict is a list, not a dictionary"),
        ({"class_dict": {WNIDS[0]: [0, 2]}}, f"class_dict: {WNIDS[0]}: image 2 does not exist"),
        ({"class_dict": {WNIDS[0]: [-1]}}, f"class_dict: {WNIDS[0]}: image -1 does not exist"),
        ({"class_dict": {WNIDS[0]: [0], WNIDS[1]: [0]}}, f"class_dict: {WNIDS[1]}: image 0 is lis"),
        ({"class_dict": {WNIDS[0]: ["x"]}}, f"class_dict: {WNIDS[0]}: expected a list of whole"),
    ],
)
def test_a_pickled_copy_that_does_not_fit_together_is_refused(
    copies: Any, changes: dict[str, Any], expected: str
) -> None:
    whole = {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {WNIDS[0]: [0, 1]}}
    path = copies.folder / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps(whole | changes))
    assert copies.refusal(path.parent, classes=1).startswith(f"{path}: {expected}")


def test_what_a_copy_lacks_is_named(flat: Files, caches: Files, copies: Any) -> None:
    del caches["mini-imagenet-cache-test.pkl"]
    text = copies.refusal(copies.write(caches, "caches"))
    lacks = "images of {} of mini-ImageNet's classes that the protocol asks for: "
    assert f"no training {lacks.format(2)}{WNIDS[4]}, {WNIDS[5]}. Get the whole copy" in text
    path = copies.write(flat | {"split/test.csv": listed(TEST, WNIDS[1:])}, "flat")
    assert f"no test {lacks.format(1)}{WNIDS[0]}" in copies.refusal(path)
    assert copies.refusal(path, classes=101).startswith("mini-ImageNet has 100 classes")
    copies.write({"split/train.csv": listed((*TRAIN, *range(2000, 2025)))}, "flat")
    text = copies.refusal(path, classes=1)
    assert text.startswith(f"{path}: 25 images that train.csv and test.csv name are not there: ")
    assert text.count(".jpg") == 20
    assert file_name(WNIDS[0], 2019) in text
    assert file_name(WNIDS[0], 2020) not in text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"file,class\nx,y\n", "split/train.csv:1: expected the columns filename,label"),
        (b"", "split/train.csv:1: expected the columns filename,label"),
        (b"filename,label\n\nx.jpg\n", "split/train.csv:3: 'x.jpg','' is not a file name and a"),
        (b"filename,label\n../x.jpg,n1\n", "split/train.csv:2: '../x.jpg','n1' is not a file name"),
        (b"filename,label\na.jpg,n\na.jpg,n\n", "split/train.csv:3: a.jpg is listed a second time"),
        (b"filename,label\n\xff\xfe,n\n", "split/train.csv: not a CSV in UTF-8"),
    ],
)
def test_malformed_lists_are_refused_with_the_line(
    flat: Files, copies: Any, content: bytes, expected: str
) -> None:
    flat["split/train.csv"] = content
    assert expected in copies.refusal(copies.write(flat))


def test_an_image_in_both_lists_is_refused(flat: Files, copies: Any) -> None:
    flat["split/test.csv"] = listed((*TEST, TRAIN[0]))
    text = copies.refusal(copies.write(flat))
    assert f"6 images are in both train.csv and test.csv: {file_name(WNIDS[0], TRAIN[0])}" in text


def test_what_was_found_instead_is_named_with_the_layouts(flat: Files, copies: Any) -> None:
    other = copies.write({"readme.txt": b"", "images/cat/1.jpg": b""}, "other")
    nowhere, unknown = copies.folder / "nowhere", copies.write({}, "x.zip")
    text = copies.refusal(other, nowhere, unknown)
    assert f"{other} (which holds images, readme.txt)" in text
    assert f"{nowhere} (which does not exist)" in text
    assert "x.zip (which is a file; an archive's name must begin with mini)" in text
    path = copies.write({"images/cat.jpg": b""}, "mini.zip")
    assert "has no images of mini-ImageNet; expected one of:" in copies.refusal(path)
    path = copies.write(flat, "miniimagenet.tar.gz")
    assert "take only the compression off (gunzip, bunzip2, unxz)" in copies.refusal(path)


def test_links_in_archives_are_refused(flat: Files, copies: Any) -> None:
    first = f"images/{file_name(WNIDS[0], TRAIN[0])}"
    path = copies.write({name: flat[name] for name in flat if name != first}, "miniimagenet.zip")
    link = zipfile.ZipInfo(first)
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, b"/etc/passwd")
    refused, whole = copies.images(path, copies.index(path).train[:2])
    assert f"{first}: refused, it is a link or a device" in str(refused)
    assert isinstance(whole, np.ndarray)


def test_broken_images_give_their_errors_in_place(flat: Files, copies: Any) -> None:
    names = [f"images/{file_name(WNIDS[0], number)}" for number in TRAIN]
    flat |= {names[1]: b"", names[2]: flat[names[2]][:40]}
    path = copies.write(flat)
    items = copies.index(path).train[:5]
    (path / names[3]).unlink()
    with (path / names[4]).open("wb") as huge:
        huge.truncate(10**9)
    found = copies.images(path, items)
    assert isinstance(found[0], np.ndarray)
    assert str(found[1]) == f"{path}: {names[1]}: the image file is empty"
    assert str(found[2]).startswith(f"{path}: {names[2]}: cannot be decoded as an image")
    assert "No such file" in str(found[3])
    assert "refused, 1000000000 bytes are absurd" in str(found[4])


def test_a_changed_folder_is_another_source(flat: Files, copies: Any) -> None:
    path = copies.write(flat)
    before = copies.find(path)
    assert copies.find(path) == before
    os.utime(path / "images" / file_name(WNIDS[0], 5), ns=(1, 1))
    assert copies.find(path).digest != before.digest


IMAGES = {"size": 32, "resize": None, "mean": (0.5,) * 3, "std": (0.25,) * 3}
SMALL = {"classes": 6, "base_classes": 4, "way": 1, "sessions": 2, "backbone": "resnet20"}


def run(copies: Any, root: Path, split: str) -> fb.StoredRun:
    stored: fb.StoredRun = copies.run(
        "mini_imagenet",
        overrides=SMALL | {"images": IMAGES},
        split=split,
        data_root=root,
        unofficial_data=True,
    )
    return stored


def test_a_small_run(flat: Files, copies: Any) -> None:
    copies.write(flat, "data/miniimagenet")
    stored = run(copies, copies.folder / "data", "seeded")
    assert stored.record.class_names == WNIDS
    assert stored.record.train_images == (len(TRAIN), len(TRAIN))
    assert len(stored.targets) == len(WNIDS) * len(TEST)
    assert any("other numbers of training and test images" in f for f in stored.record.flags)
