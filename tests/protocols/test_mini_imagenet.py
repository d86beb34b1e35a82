from __future__ import annotations

import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fscil_bench as fb
from fscil_bench.data.reader import DatasetIndex, Item, Pixels, ReadRequest
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec
from fscil_bench.running.sessions import read_canonical

MiniImageNet = load_registry().get("data set", "mini_imagenet").value
FOLDER = load_registry().protocol("mini_imagenet")[1]
CLASSES = tuple((FOLDER / "mini_imagenet" / "classes.txt").read_text().split())
WNIDS = CLASSES[:6]
TRAIN, TEST = (5, 9, 20, 100, 1001), (7, 30)
"""Image numbers of every class."""

HALVES = {"train": TRAIN, "test": TEST}

Files = dict[str, bytes]
Pickled = Callable[[Any], bytes]


def request_for(classes: int = 6, size: int = 84, resize: int | None = None) -> ReadRequest:
    spec = ImageSpec(size=size, resize=resize, mean=(0.5,) * 3, std=(0.25,) * 3)
    return ReadRequest(classes, spec)


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


def folder_of(root: Path, files: Files) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def index_of(*roots: Path, classes: int = 6) -> DatasetIndex:
    reader = MiniImageNet()
    return reader.index(reader.find(roots), request_for(classes))


def images_of(path: Path, items: Sequence[Item], **size: int) -> list[Pixels | DataError]:
    reader = MiniImageNet()
    return list(reader.images(reader.find([path]), items, request_for(**size)))


def message_of(*roots: Path, classes: int = 6) -> str:
    with pytest.raises(DataError) as caught:
        index_of(*roots, classes=classes)
    return str(caught.value)


def reason_of(path: Path) -> str:
    return str(MiniImageNet().find([path]).unofficial)


def numbers(items: Sequence[Item]) -> dict[str, list[int | None]]:
    return {w: [i.number for i in items if i.label == c] for c, w in enumerate(WNIDS)}


def each(values: Sequence[int]) -> dict[str, list[int]]:
    return {wnid: list(values) for wnid in WNIDS}


@pytest.mark.parametrize("place", [".", "mini_imagenet", "miniimagenet", "MINI-ImageNet"])
def test_the_flat_copy_is_divided_by_its_lists(flat: Files, tmp_path: Path, place: str) -> None:
    folder_of(tmp_path / place, flat)
    index = index_of(tmp_path / "nowhere", tmp_path)
    assert index.class_names == WNIDS
    assert numbers(index.train) == each(TRAIN)
    assert numbers(index.test) == each(TEST)
    assert index.train[0].key == f"images/{WNIDS[0]}00000005.jpg"


@pytest.mark.parametrize("top", ["", "miniimagenet/", "a/b c/ü/"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_gives_the_same_as_the_folder(
    flat: Files, tmp_path: Path, kind: str, top: str
) -> None:
    path = tmp_path / "packed" / f"miniimagenet.{kind}"
    path.parent.mkdir()
    litter = {"__MACOSX/images/._x.jpg": b"", f"{top}images/.DS_Store": b"x"}
    packed({f"{top}{name}": content for name, content in flat.items()} | litter, path)
    folder = folder_of(tmp_path / "unpacked", flat)
    index = index_of(path.parent)
    assert index == index_of(folder) == index_of(path)
    assert np.array_equal(images_of(path, index.test), images_of(folder, index.test))


def packed(files: Files, path: Path) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return path


def test_images_come_in_order_and_in_the_stored_size(flat: Files, tmp_path: Path) -> None:
    path = folder_of(tmp_path, flat)
    items = index_of(path).train
    for item, pixels in zip(items, images_of(path, items), strict=True):
        assert isinstance(pixels, np.ndarray)
        assert pixels.shape == (84, 84, 3)
        assert pixels[0, 0].tolist() == [20 * item.label, (item.number or 0) % 256, 7]
    assert np.shape(images_of(path, items[:1], resize=92)[0]) == (92, 92, 3)


def test_lists_may_lie_beside_images_and_have_any_line_ends(flat: Files, tmp_path: Path) -> None:
    expected = index_of(folder_of(tmp_path / "a", flat))
    for half in ("train", "test"):
        text = flat.pop(f"split/{half}.csv").replace(b"\n", b"\r\n")
        flat[f"{half}.csv"] = b"\xef\xbb\xbf" + text + b"\r\n"
    assert index_of(folder_of(tmp_path / "b", flat)) == expected


def test_a_copy_with_as_many_images_a_class_as_published_is_official(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fscil_bench.protocols.mini_imagenet.division.PUBLISHED", (5, 2))
    files = {f"split/{half}.csv": listed(n, CLASSES) for half, n in HALVES.items()}
    files |= {f"images/{file_name(w, n)}": b"" for w in CLASSES for n in (*TRAIN, *TEST)}
    assert MiniImageNet().find([packed(files, tmp_path / "mini.zip")]).unofficial is None
    del files[f"images/{file_name(CLASSES[0], 5)}"]
    path = packed(files, tmp_path / "mini-lacking.zip")
    assert reason_of(path).startswith("1 of the 100 classes have other numbers of training")
    assert message_of(path).startswith(f"{path}: 1 images that train.csv and test.csv name are no")


def test_the_new_classes_of_the_published_table_are_the_last_forty() -> None:
    assert (len(set(CLASSES)), list(CLASSES)) == (100, sorted(CLASSES))
    rows = read_canonical(*load_registry().protocol("mini_imagenet")).rows
    named = [(session, wnid) for session, wnid, _ in rows]
    assert named == [(1 + n // 5, wnid) for n, wnid in enumerate(CLASSES[60:])]


def test_other_numbers_of_images_are_unofficial(flat: Files, tmp_path: Path) -> None:
    assert reason_of(folder_of(tmp_path, flat)) == (
        "100 of the 100 classes have other numbers of training and test images than the published "
        f"500 + 100; {WNIDS[0]} has 5 + 2"
    )


def test_class_folders_are_divided_by_lists_where_they_are(
    flat: Files, grouped: Files, tmp_path: Path
) -> None:
    lists = {name: content for name, content in flat.items() if name.startswith("split/")}
    index = index_of(folder_of(tmp_path, grouped | lists))
    assert numbers(index.train) == each(TRAIN)
    assert numbers(index.test) == each(TEST)
    assert index.test[-1].key == f"test/{WNIDS[5]}/{file_name(WNIDS[5], 30)}"


def test_class_folders_without_lists_are_divided_by_rule(grouped: Files, tmp_path: Path) -> None:
    path = folder_of(tmp_path / "mini-imagenet", grouped)
    index = index_of(tmp_path)
    ordered = sorted((*TRAIN, *TEST))
    assert numbers(index.train) == each(ordered[:6])
    assert numbers(index.test) == each(ordered[6:])
    assert reason_of(path) == (
        "it has no split/train.csv with split/test.csv, so the first five sixths of each class's "
        "images by name are its training images and the rest its test images, not the published "
        "ones"
    )


@pytest.mark.parametrize("place", ["", "images/", "images below"])
@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_class_folders_without_halves_are_divided_by_rule(
    tmp_path: Path, place: str, kind: str
) -> None:
    below = "/images" if place == "images below" else ""
    files = pictures(lambda _, w: f"{w}{below}" if place != "images/" else f"images/{w}")
    path = folder_of(tmp_path / "miniimagenet", files)
    path = packed(files, tmp_path / "mini.zip") if kind == "zip" else path
    index = index_of(path)
    ordered = sorted((*TRAIN, *TEST))
    assert numbers(index.train) == each(ordered[:6])
    assert numbers(index.test) == each(ordered[6:])
    assert "the first five sixths of each class's images by name" in reason_of(path)
    assert not any(isinstance(p, DataError) for p in images_of(path, index.test))


def test_lists_that_divide_classes_are_not_the_published_ones(flat: Files, tmp_path: Path) -> None:
    flat["split/train.csv"] = listed((*TRAIN, *TEST), WNIDS[:4])
    flat["split/test.csv"] = listed((*TRAIN, *TEST), WNIDS[4:])
    path = folder_of(tmp_path, flat)
    assert reason_of(path).startswith(
        "its split/train.csv and split/test.csv divide the classes, not the images of each class"
    )
    assert {len(found) for found in numbers(index_of(path).test).values()} == {1}


def test_halves_with_the_same_class_folders_are_the_halves(tmp_path: Path) -> None:
    files = {
        f"{half}/{wnid}/{file_name(wnid, number)}": picture(1, 2, 3)
        for half, found in (("train", TRAIN), ("test", TEST))
        for wnid in WNIDS
        for number in found
    }
    index = index_of(folder_of(tmp_path, files))
    assert numbers(index.train) == each(TRAIN)
    assert numbers(index.test) == each(TEST)
    assert "published 500 + 100" in reason_of(tmp_path)


def test_file_names_of_any_kind_are_read_but_have_no_published_number(tmp_path: Path) -> None:
    files = {
        f"train/{wnid}/{name}.JPEG": picture(label, 2, 3)
        for label, wnid in enumerate(WNIDS)
        for name in ("é 1", "日本", "a,b", 'q"', "5", "x", "._hidden")
    }
    index = index_of(folder_of(tmp_path, files))
    assert numbers(index.train)[WNIDS[2]] == [-1, -2, -3, -4, -5]
    assert index.train[1].key == f"train/{WNIDS[0]}/a,b.JPEG"
    assert not any(isinstance(p, DataError) for p in images_of(tmp_path, index.train))


def test_the_pickled_copy_is_read(caches: Files, tmp_path: Path) -> None:
    path = folder_of(tmp_path, caches)
    index = index_of(path)
    assert numbers(index.train) == each([-1, -2, -3, -4, -5, -6])
    assert numbers(index.test) == each([-7])
    for half in (index.train, index.test):
        for item, pixels in zip(half, images_of(path, half), strict=True):
            assert isinstance(pixels, np.ndarray)
            row = int(item.key.rpartition("/")[2])
            assert pixels[0, 0].tolist() == [20 * item.label, row, 0]
    assert "the published shots cannot be found in it, use --split seeded" in reason_of(path)


def test_a_pickle_that_means_harm_is_refused_by_name(
    caches: Files, harmful: bytes, harm: Path, tmp_path: Path
) -> None:
    caches["mini-imagenet-cache-val.pkl"] = harmful
    text = message_of(folder_of(tmp_path / "copy", caches))
    assert f"cache-val.pkl: refused, it asks for {open.__module__}.open" in text
    assert not harm.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"image_data": np.zeros((2, 32, 32, 3), np.uint8)},
            "image_data is an array of uint8 (2, 32, 32, 3), not an array of uint8 (n, 84, 84, 3)",
        ),
        ({"image_data": [1]}, "image_data is a list, not an array"),
        ({"class_dict": [1]}, "class_dict is a list, not a dictionary"),
        ({"class_dict": {WNIDS[0]: [0, 2]}}, f"class_dict: {WNIDS[0]}: image 2 does not exist"),
        ({"class_dict": {WNIDS[0]: [-1]}}, f"class_dict: {WNIDS[0]}: image -1 does not exist"),
        (
            {"class_dict": {WNIDS[0]: [0], WNIDS[1]: [0]}},
            f"class_dict: {WNIDS[1]}: image 0 is listed for {WNIDS[0]} already",
        ),
        ({"class_dict": {WNIDS[0]: ["x"]}}, f"class_dict: {WNIDS[0]}: expected a list of whole"),
    ],
)
def test_a_pickled_copy_that_does_not_fit_together_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    whole = {"image_data": np.zeros((2, 84, 84, 3), np.uint8), "class_dict": {WNIDS[0]: [0, 1]}}
    path = tmp_path / "mini-imagenet-cache-train.pkl"
    path.write_bytes(pickle.dumps(whole | changes))
    assert message_of(tmp_path, classes=1).startswith(f"{path}: {expected}")


def test_classes_that_a_copy_lacks_are_named(flat: Files, caches: Files, tmp_path: Path) -> None:
    del caches["mini-imagenet-cache-test.pkl"]
    text = message_of(folder_of(tmp_path / "caches", caches))
    assert "no training images of 2 of mini-ImageNet's classes that the protocol" in text
    assert f": {WNIDS[4]}, {WNIDS[5]}. Get the whole copy" in text
    flat["split/test.csv"] = listed(TEST, WNIDS[1:])
    text = message_of(folder_of(tmp_path / "flat", flat))
    assert (
        f"no test images of 1 of mini-ImageNet's classes that the protocol asks for: {WNIDS[0]}"
        in text
    )
    assert message_of(tmp_path / "flat", classes=101).startswith("mini-ImageNet has 100 classes")


def test_files_that_lists_name_and_that_are_not_there_are_listed(
    flat: Files, tmp_path: Path
) -> None:
    flat["split/train.csv"] = listed((*TRAIN, *range(2000, 2025)))
    path = folder_of(tmp_path, flat)
    text = message_of(path, classes=1)
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
    flat: Files, tmp_path: Path, content: bytes, expected: str
) -> None:
    flat["split/train.csv"] = content
    assert expected in message_of(folder_of(tmp_path, flat))


def test_an_image_in_both_lists_is_refused(flat: Files, tmp_path: Path) -> None:
    flat["split/test.csv"] = listed((*TEST, TRAIN[0]))
    text = message_of(folder_of(tmp_path, flat))
    assert "6 images are in both train.csv and test.csv: " in text
    assert file_name(WNIDS[0], TRAIN[0]) in text


def test_what_was_found_instead_is_named_with_the_layouts(tmp_path: Path) -> None:
    folder_of(tmp_path / "other", {"readme.txt": b"", "images/cat/1.jpg": b""})
    (tmp_path / "x.zip").write_bytes(b"")
    text = message_of(tmp_path / "other", tmp_path / "nowhere", tmp_path / "x.zip")
    assert f"{tmp_path / 'other'} (which holds images, readme.txt)" in text
    assert f"{tmp_path / 'nowhere'} (which does not exist)" in text
    assert "x.zip (which is a file; an archive's name must begin with mini)" in text
    for layout in ("split/train.csv", "train|val|test/<WordNet id>/*.jpg", "mini-imagenet-cache-"):
        assert layout in text
    path = packed({"images/cat.jpg": b""}, tmp_path / "mini.zip")
    assert "has no images of mini-ImageNet; expected one of:" in message_of(path)


def test_a_compressed_tar_archive_has_to_be_unpacked(flat: Files, tmp_path: Path) -> None:
    packed(flat, tmp_path / "miniimagenet.tar.gz")
    assert "take only the compression off (gunzip, bunzip2, unxz)" in message_of(tmp_path)


def test_links_in_archives_are_refused(flat: Files, tmp_path: Path) -> None:
    first = f"images/{file_name(WNIDS[0], TRAIN[0])}"
    path = tmp_path / "miniimagenet.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in flat.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o120777 if name == first else 0o100644) << 16
            archive.writestr(info, b"/etc/passwd" if name == first else content)
    errors = images_of(path, index_of(path).train[:2])
    assert f"{first}: refused, it is a link or a device" in str(errors[0])
    assert isinstance(errors[1], np.ndarray)


def test_broken_images_give_their_errors_in_place(flat: Files, tmp_path: Path) -> None:
    names = [f"images/{file_name(WNIDS[0], number)}" for number in TRAIN]
    flat[names[1]] = b""
    flat[names[2]] = flat[names[2]][:40]
    path = folder_of(tmp_path, flat)
    items = index_of(path).train[:5]
    (path / names[3]).unlink()
    with (path / names[4]).open("wb") as huge:
        huge.truncate(10**9)
    found = images_of(path, items)
    assert isinstance(found[0], np.ndarray)
    assert str(found[1]) == f"{path}: {names[1]}: the image file is empty"
    assert str(found[2]).startswith(f"{path}: {names[2]}: cannot be decoded as an image")
    assert "No such file" in str(found[3])
    assert "refused, 1000000000 bytes are absurd" in str(found[4])


def test_a_changed_folder_is_another_source(flat: Files, tmp_path: Path) -> None:
    path = folder_of(tmp_path, flat)
    before = MiniImageNet().find([path])
    assert MiniImageNet().find([path]) == before
    os.utime(path / "images" / file_name(WNIDS[0], 5), ns=(1, 1))
    assert MiniImageNet().find([path]).digest != before.digest


def run(root: Path, copy: Path, **options: Any) -> fb.StoredRun:
    changes = {"classes": 6, "base_classes": 4, "way": 1, "sessions": 2, "epochs": 1}
    return fb.run(
        "ncm",
        "mini_imagenet",
        overrides=changes,
        data_root=copy,
        results=root / "results",
        cache=root / "cache",
        precision="fp32",
        unofficial_data=True,
        **options,
    )


def test_a_small_run(flat: Files, tmp_path: Path) -> None:
    folder_of(tmp_path / "data/miniimagenet", flat)
    stored = run(tmp_path, tmp_path / "data", split="seeded")
    assert stored.record.class_names == WNIDS
    assert stored.record.train_images == (len(TRAIN), len(TRAIN))
    assert len(stored.targets) == len(WNIDS) * len(TEST)
    assert any("other numbers of training and test images" in f for f in stored.record.flags)


def test_published_shots_are_never_found_in_a_pickled_copy(caches: Files, tmp_path: Path) -> None:
    folder_of(tmp_path / "data", caches)
    with pytest.raises(fb.FscilError, match="not in data set 'mini_imagenet'"):
        run(tmp_path, tmp_path / "data", split="canonical")
