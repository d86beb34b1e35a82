from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscil_bench.data.reader import Pixels
from fscil_bench.errors import DataError

DATASET = ("cub200", 4, 16, 20)
MD5 = "97eceeb196236b17998738112f37df78"
TOP = "CUB_200_2011"
ARCHIVE = f"{TOP}.tgz"
FOLDERS = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross", "004.Ani")
Members = dict[str, bytes]


def photograph(label: int, number: int, size: tuple[int, int] = (40, 30)) -> bytes:
    """Return a JPEG of one colour, which tells class and image apart."""
    buffer = io.BytesIO()
    Image.new("RGB", size, (40 * label + 20, 4 * number, 128)).save(buffer, "JPEG", quality=100)
    return buffer.getvalue()


def data_set(classes: int = 4, images: int = 6, size: tuple[int, int] = (40, 30)) -> Members:
    """Return the files of the data set in small; every third image is for testing.

    Images are numbered over the whole data set and listed in a mixed order within each class, as
    in the published one.
    """
    members: Members = {f"{TOP}/README": b"read me", f"{TOP}/attributes/certainties.txt": b"1 no"}
    images_txt, labels_txt, halves_txt = [], [], []
    for label, folder in enumerate(FOLDERS[:classes]):
        for place in range(images):
            number = label * 10 + (place * 5) % images
            key = label * images + place + 1
            file = f"{folder}/{folder[4:]}_{place:04d}_{number}.jpg"
            members[f"{TOP}/images/{file}"] = photograph(label, number, size)
            images_txt.append(f"{key} {file}")
            labels_txt.append(f"{key} {label + 1}")
            halves_txt.append(f"{key} {int(place % 3 != 2)}")
    lists = {
        "images.txt": images_txt,
        "image_class_labels.txt": labels_txt,
        "train_test_split.txt": halves_txt,
        "classes.txt": [f"{n} {folder}" for n, folder in enumerate(FOLDERS[:classes], start=1)],
    }
    for name, lines in lists.items():
        members[f"{TOP}/{name}"] = "".join(f"{line}\n" for line in lines).encode()
    return members


FORMS = pytest.mark.parametrize("form", ["archive", "folder"])


def kept(copies: Any, members: Members, form: str) -> Path:
    """Write the data set as an archive or as a folder."""
    path: Path = copies.write(members, ARCHIVE if form == "archive" else ".")
    return path if form == "archive" else path / TOP


def colours(images: Iterable[Pixels | DataError]) -> list[tuple[int, int]]:
    """Return the class and number that each image's colour tells."""
    found = []
    for image in images:
        assert isinstance(image, np.ndarray), image
        red, green, _ = image.reshape(-1, 3).mean(axis=0)
        found.append((round((red - 20) / 40), round(green / 4)))
    return found


def test_classes_halves_and_numbers_are_the_data_sets_own(copies: Any) -> None:
    index = copies.index(copies.write(data_set(), ARCHIVE))
    names = ("Black footed Albatross", "Laysan Albatross", "Sooty Albatross", "Ani")
    assert index.class_names == names
    assert index.class_keys == ("1", "2", "3", "4")
    assert [item.label for item in index.train] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert [item.label for item in index.test] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [item.number for item in index.train[4:8]] == [10, 15, 13, 12], "in listed order"
    assert [item.number for item in index.test[2:4]] == [14, 11]
    key = "CUB_200_2011/images/002.Laysan_Albatross/Laysan_Albatross_0000_10.jpg"
    assert index.train[4].key == key


def test_archive_and_folder_give_the_same_whatever_the_archives_order(copies: Any) -> None:
    members = data_set()
    leftovers = {f"{TOP}/images/{FOLDERS[0]}/._x_1.jpg": b"fork", f"._{TOP}": b"fork"}
    names = list(members)
    random.Random(0).shuffle(names)
    roots = [
        copies.write(members, ARCHIVE),
        copies.write(members | leftovers, f"{TOP}.tar.gz", names),
        copies.write({f"./{name}": members[name] for name in names[::-1]}, f"{TOP} (2).tgz"),
        copies.write(members | leftovers) / TOP,
    ]
    expected = copies.index(roots[0])
    pixels = copies.images(roots[0], expected.train)
    assert colours(pixels) == [(item.label, item.number) for item in expected.train]
    assert {(image.shape, image.dtype) for image in pixels} == {((20, 26, 3), np.dtype(np.uint8))}
    for root in roots[1:]:
        index = copies.index(root)
        assert index == expected, root
        assert np.array_equal(copies.images(root, index.train), pixels), root


@pytest.mark.parametrize("below", ["", TOP, f"{TOP}/{TOP}", "renamed"])
def test_an_unpacked_folder_is_found(copies: Any, below: str) -> None:
    data, place = copies.folder / "data", copies.folder / "data" / below
    place.parent.mkdir(parents=True, exist_ok=True)
    (copies.write(data_set(), "unpacked") / TOP).rename(place)
    for root in (data, place):
        assert copies.find(copies.folder / "nowhere", root).path == place


def test_what_is_missing_is_said_with_where_it_was_looked_for(copies: Any) -> None:
    nowhere = copies.folder / "nowhere"
    text = copies.refusal(nowhere, copies.folder)
    assert text.startswith("neither CUB_200_2011.tgz nor a folder CUB_200_2011 was found; looked")
    assert f"looked in {nowhere} (which does not exist), {copies.folder}. `fscil-bench" in text


def test_the_archive_is_preferred_and_official_by_its_digest_alone(copies: Any) -> None:
    copies.write(data_set())
    path = copies.write(data_set(), ARCHIVE)
    copies.write({}, f"{TOP} (1).tgz")
    asked = []

    def digest(file: Path, algorithm: str) -> str:
        asked.append((file, algorithm))
        return MD5

    assert copies.find(copies.folder, digest=digest).unofficial is None
    assert asked == [(path, "md5")]
    source, real = copies.find(copies.folder), hashlib.md5(path.read_bytes()).hexdigest()
    assert (source.path, source.digest) == (path, f"md5:{real}")
    assert source.unofficial == f"the md5 of {path} is {real}, not {MD5}"


def test_a_folder_is_official_when_its_counts_are(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copies.write(data_set()) / TOP
    assert copies.find(folder).unofficial == (
        f"{folder} lists 24 images of 4 classes (16 for training, 8 for test) instead of 11788 "
        "images of 200 classes (5994 for training, 5794 for test)"
    )
    monkeypatch.setattr("fscil_bench.protocols.cub200.reader.COUNTS", (24, 4, 16, 8))
    assert copies.find(folder).unofficial is None


def test_a_folders_digest_follows_lists_names_and_sizes(copies: Any) -> None:
    folder = copies.write(data_set()) / TOP
    digests = [copies.find(folder).digest]
    assert copies.find(folder).digest == digests[0]
    image = folder / "images" / FOLDERS[3] / "Ani_0000_30.jpg"
    image.write_bytes(image.read_bytes() + b"x")
    digests.append(copies.find(folder).digest)
    halves = folder / "train_test_split.txt"
    halves.write_text(halves.read_text().replace("1 1\n", "1 0\n", 1))
    digests.append(copies.find(folder).digest)
    image.unlink()
    digests.append(copies.find(folder).digest)
    assert len(set(digests)) == 4


def test_links_in_the_published_archive_would_be_passed_over(copies: Any) -> None:
    path = copies.write(data_set(), ARCHIVE)
    bad = tarfile.TarInfo(f"{TOP}/link")
    bad.type, bad.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path.write_bytes(gzip.compress(bad.tobuf() + gzip.decompress(path.read_bytes())))
    source = copies.find(path, digest=lambda *_: MD5)
    assert len(copies.reader.index(source, copies.request()).train) == 16


def test_what_may_be_held_in_memory_is_bounded(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = data_set()
    path = copies.write(members, ARCHIVE, [n for n in reversed(members) if "images/" in n])
    items = copies.index(path).train
    size = sum(len(members[item.key]) for item in items)
    monkeypatch.setattr("fscil_bench.protocols._archives.tar.HELD_LIMIT", size // 2)
    with pytest.raises(DataError, match="unpack it and name the folder instead"):
        copies.images(path, items)
    assert len(copies.images(path, reversed(items))) == len(items), "that is the archive's order"


def test_other_archives_and_cub_of_2010_are_told_apart(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    year = "CUB-200 of 2010 (6033 images), which is another data set than CUB-200-2011"
    images = {f"images/{FOLDERS[0]}/{n}.jpg": photograph(0, n) for n in range(3)}
    lists = {"lists/files.txt": b"a", "lists/train.txt": b"b"}
    path = copies.write(images | lists, ARCHIVE)
    assert f"holds 3 images and no CUB_200_2011/images.txt: it is {year}" in copies.refusal(path)
    path = copies.write({"holiday/beach.png": b"1", "notes.txt": b"3"}, ARCHIVE)
    assert copies.refusal(path) == (
        f"{path}: not the archive of CUB-200-2011, it has no CUB_200_2011/images.txt; it holds 2 "
        "files (holiday/beach.png, notes.txt)"
    )
    path.unlink()

    older = copies.write(images, "images.tgz")
    for root in (copies.folder, older):
        assert copies.refusal(root).startswith(f"{older}: belongs to {year}")
    copies.write(lists, f"older/{TOP}")
    assert f"lists/files.txt: belongs to {year}" in copies.refusal(copies.folder / "older")

    members = data_set()
    for name in [name for name in members if "images/" in name][:10]:
        del members[name]
    monkeypatch.setattr("fscil_bench.protocols.cub200.copies.IMAGES_2010", 14)
    text = copies.refusal(copies.write(members, ARCHIVE))
    assert "10 of the 24 images that images.txt lists are missing (001.Black_footed" in text
    assert "it holds 14 images. So many images has CUB-200 of 2010" in text


@FORMS
def test_what_a_copy_lacks_is_listed(copies: Any, form: str) -> None:
    members = data_set()
    del members[f"{TOP}/images/{FOLDERS[3]}/Ani_0000_30.jpg"]
    root = kept(copies, members, form)
    assert copies.refusal(root) == (
        f"{root}: 1 of the 24 images that images.txt lists are missing (004.Ani/Ani_0000_30.jpg); "
        "it holds 23 images. Fetch the archive again, or unpack it again"
    )
    assert copies.index(root, classes=3).class_names[-1] == "Sooty Albatross", "it is not needed"
    text = f"{root}: has 4 classes, but the protocol asks for 200; set classes = 4 or fewer"
    assert copies.refusal(root, classes=200).startswith(text)
    for name in ("classes.txt", "images.txt"):
        del members[f"{TOP}/{name}"]
        (root.parent / TOP / name).unlink(missing_ok=True)
    text = copies.refusal(kept(copies, members, form))
    assert "lacks images.txt, classes.txt; fetch CUB_200_2011.tgz again" in text
    assert str(root) in text


def test_images_without_class_folders_are_counted_and_what_is_expected_said(copies: Any) -> None:
    root = copies.write(data_set()) / TOP
    for path in list(root.glob("images/*/*.jpg")):
        path.rename(root / "images" / path.name)
    text = copies.refusal(root)
    assert "24 of the 24 images that images.txt lists are missing" in text
    assert "24 images lie in images/ directly; they are expected in the folders of their" in text


@pytest.mark.parametrize(
    ("file", "line", "text", "problem"),
    [
        ("images.txt", 2, "two 001.X/x_1.jpg", "is not a number and a value after a space"),
        ("images.txt", 2, "2", "'2' is not a number and a value after a space"),
        ("images.txt", 2, "1 001.X/x_1.jpg", "1 is listed again, after line 1"),
        ("images.txt", 2, "2 ../../etc/passwd_1.jpg", "is not CLASS/NAME_NUMBER.jpg"),
        ("images.txt", 2, "2 ../x_1.jpg", "'../x_1.jpg' is not CLASS/NAME_NUMBER.jpg"),
        ("images.txt", 2, f"2 {FOLDERS[0]}/x.jpg", "is not CLASS/NAME_NUMBER.jpg"),
        ("images.txt", 2, f"2 {FOLDERS[1]}/x_1.jpg", "does not lie in the folder of its class"),
        ("images.txt", 2, f"2 {FOLDERS[0]}/x_0.jpg", "ends in the same number as 001.Black_foot"),
        ("image_class_labels.txt", 2, "2 5", "'5' is no class number from 1 to 4"),
        ("image_class_labels.txt", 2, "2 0", "'0' is no class number from 1 to 4"),
        ("train_test_split.txt", 2, "2 2", "'2' is neither 1 (training) nor 0 (test)"),
        ("classes.txt", 4, "7 007.Auklet", "class 7 follows class 3"),
        ("train_test_split.txt", 0, "99 1", "list the same images as images.txt: image 24 is in"),
    ],
)
def test_a_wrong_line_is_named(copies: Any, file: str, line: int, text: str, problem: str) -> None:
    members = data_set()
    lines = members[f"{TOP}/{file}"].decode().splitlines()
    lines[line - 1] = text
    members[f"{TOP}/{file}"] = "\n".join(lines).encode()
    path = copies.write(members, ARCHIVE)
    said = copies.refusal(path)
    assert said.startswith(f"{path}: {TOP}/{file}:{f'{line}:' if line else ''} "), said
    assert problem in said


def test_classes_of_one_name_are_told_apart(copies: Any) -> None:
    members = {
        name.replace("003.Sooty", "003.Laysan"): content.replace(b"003.Sooty", b"003.Laysan")
        for name, content in data_set().items()
    }
    index = copies.index(copies.write(members, ARCHIVE))
    assert index.class_names[1:3] == ("Laysan Albatross (2)", "Laysan Albatross (3)")


@FORMS
def test_broken_images_are_named_and_the_others_come(copies: Any, form: str) -> None:
    members = data_set()
    root = kept(copies, members, form)
    empty, cut = (item.key for item in copies.index(root).train[:2])
    members |= {empty: b"", cut: members[cut][:200]}
    found = copies.images(kept(copies, members, form), copies.index(root).train)
    for key, error in zip((empty, cut), found[:2], strict=True):
        place = root / key.removeprefix(f"{TOP}/") if form == "folder" else f"{root}: {key}"
        problem = "the image file is empty" if key == empty else "cannot be decoded as an image"
        assert str(error).startswith(f"{place}: {problem}")
    assert len(colours(found[2:])) == 14


def test_images_that_vanish_or_are_huge_are_named(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = data_set()
    items = copies.index(copies.write(members, ARCHIVE)).train
    monkeypatch.setattr("fscil_bench.protocols.cub200.copies.READ_LIMIT", 100_000)
    members[items[1].key] = bytes(100_001)
    del members[items[2].key]
    path = copies.write(members, ARCHIVE)
    first, huge, gone, *rest = copies.images(path, items)
    assert "declared size of 100001 bytes is absurd (at most 100000)" in str(huge)
    assert str(gone) == f"{path}: {items[2].key}: not in the archive"
    assert len(colours([first, *rest])) == 14


def test_missing_weights_and_data_are_one_message_with_the_data_first(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise DataError("no ImageNet weights here")

    monkeypatch.setattr("fscil_bench.running.origins.resolve_pretraining", absent)
    monkeypatch.chdir(copies.folder)
    with pytest.raises(DataError) as caught:
        copies.run("cub200")
    data, weights = str(caught.value).splitlines()
    assert data.startswith("neither CUB_200_2011.tgz nor a folder CUB_200_2011 was found")
    assert weights == "no ImageNet weights here"
    copies.write(data_set(), ARCHIVE)
    with pytest.raises(DataError, match=r"^no ImageNet weights here$"):
        copies.run("cub200", data_root=copies.folder)


def test_a_run_from_end_to_end(copies: Any) -> None:
    root = copies.write(data_set(size=(280, 260)), ARCHIVE)
    small = {"classes": 4, "base_classes": 2, "way": 1, "shot": 2, "sessions": 2}
    images = {"size": 32, "resize": 36, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    asked = {
        "overrides": {**small, "images": images},
        "split": "seeded",
        "weights": "none",
        "data_root": root,
    }
    with pytest.raises(DataError, match=r"--unofficial-data uses this copy all the same"):
        copies.run("cub200", **asked)
    assert not list((copies.folder / "cache").glob("images/*")), "refused before it is decoded"
    stored = copies.run("cub200", **asked, unofficial_data=True)
    assert [session.images for session in stored.metrics] == [4, 6, 8]
    assert stored.record.class_names[3] == "Ani"
    assert stored.record.train_images == (4, 4)
    marks = ("unofficial data (", "without the protocol's ImageNet weights")
    assert all(any(flag.startswith(mark) for flag in stored.record.flags) for mark in marks)
