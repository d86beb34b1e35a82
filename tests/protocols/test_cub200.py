from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fscil_bench
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import (
    Dataset,
    DatasetIndex,
    ImageArray,
    Item,
    Pixels,
    ReadRequest,
)
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec
from fscil_bench.running.sessions import canonical_shots, check_dataset, read_canonical

Cub200 = load_registry().get("data set", "cub200").value
MD5 = "97eceeb196236b17998738112f37df78"
TOP = "CUB_200_2011"
FOLDERS = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross", "004.Ani")
Members = dict[str, bytes]


def request_for(classes: int = 4, size: int = 16, resize: int | None = 20) -> ReadRequest:
    return ReadRequest(
        classes, ImageSpec(size=size, resize=resize, mean=(0.5,) * 3, std=(0.2,) * 3)
    )


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


def archived(members: Members, path: Path, order: Iterable[str] = (), prefix: str = "") -> Path:
    """Write an archive; members that `order` does not name come last."""
    with tarfile.open(path, "w:gz") as archive:
        for name in [*order, *(name for name in members if name not in set(order))]:
            info = tarfile.TarInfo(prefix + name)
            info.size = len(members[name])
            archive.addfile(info, io.BytesIO(members[name]))
    return path


def unpacked(members: Members, folder: Path) -> Path:
    for name, content in members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / TOP


def index_of(root: Path, classes: int = 4) -> DatasetIndex:
    reader = Cub200()
    return reader.index(reader.find([root]), request_for(classes))


def images_of(root: Path, items: Iterable[Item]) -> list[Pixels | DataError]:
    reader = Cub200()
    return list(reader.images(reader.find([root]), tuple(items), request_for()))


def refusal(root: Path, classes: int = 4) -> str:
    with pytest.raises(DataError) as caught:
        index_of(root, classes)
    return str(caught.value)


def colours(images: Iterable[Pixels | DataError]) -> list[tuple[int, int]]:
    """Return the class and number that each image's colour tells."""
    found = []
    for image in images:
        assert isinstance(image, np.ndarray), image
        red, green, _ = image.reshape(-1, 3).mean(axis=0)
        found.append((round((red - 20) / 40), round(green / 4)))
    return found


def test_classes_halves_and_numbers_are_the_data_sets_own(tmp_path: Path) -> None:
    index = index_of(archived(data_set(), tmp_path / f"{TOP}.tgz"))
    assert index.class_names == (
        "Black footed Albatross",
        "Laysan Albatross",
        "Sooty Albatross",
        "Ani",
    )
    assert index.class_keys == ("1", "2", "3", "4")
    assert [item.label for item in index.train] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert [item.label for item in index.test] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [item.number for item in index.train[4:8]] == [10, 15, 13, 12], "in listed order"
    assert [item.number for item in index.test[2:4]] == [14, 11]
    assert index.train[4].key == (
        "CUB_200_2011/images/002.Laysan_Albatross/Laysan_Albatross_0000_10.jpg"
    )


def test_archive_and_folder_give_the_same_whatever_the_archives_order(tmp_path: Path) -> None:
    members = data_set()
    names = list(members)
    random.Random(0).shuffle(names)
    roots = [
        archived(members, tmp_path / f"{TOP}.tgz"),
        archived(members, tmp_path / f"{TOP}.tar.gz", names),
        archived(members, tmp_path / f"{TOP} (2).tgz", reversed(names), prefix="./"),
        unpacked(members, tmp_path),
    ]
    expected = index_of(roots[0])
    pixels = images_of(roots[0], expected.train)
    assert colours(pixels) == [(item.label, item.number) for item in expected.train]
    for root in roots[1:]:
        index = index_of(root)
        assert index == expected, root
        for one, other in zip(images_of(root, index.train), pixels, strict=True):
            assert np.array_equal(one, other), root


def test_images_are_stored_whole_with_the_shorter_side_asked_for(tmp_path: Path) -> None:
    root = archived(data_set(size=(40, 30)), tmp_path / f"{TOP}.tgz")
    (image,) = images_of(root, index_of(root).test[:1])
    assert isinstance(image, np.ndarray)
    assert (image.shape, image.dtype) == ((20, 26, 3), np.uint8)


@pytest.mark.parametrize("below", ["", TOP, f"{TOP}/{TOP}", "renamed"])
def test_an_unpacked_folder_is_found(tmp_path: Path, below: str) -> None:
    folder = unpacked(data_set(), tmp_path / "unpacked")
    place = tmp_path / "data" / below
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)
    for root in (tmp_path / "data", place):
        assert Cub200().find([tmp_path / "nowhere", root]).path == place


def test_the_archive_is_found_in_a_folder_and_is_preferred(tmp_path: Path) -> None:
    unpacked(data_set(), tmp_path)
    path = archived(data_set(), tmp_path / f"{TOP}.tgz")
    archived({}, tmp_path / f"{TOP} (1).tgz")
    source = Cub200().find([tmp_path])
    assert source.path == path
    assert source.digest == f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"


def test_what_is_missing_is_said_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Cub200().find([tmp_path / "nowhere", tmp_path])
    assert str(caught.value) == (
        "neither CUB_200_2011.tgz nor a folder CUB_200_2011 was found; looked in "
        f"{tmp_path / 'nowhere'} (which does not exist), {tmp_path}. `fscil-bench data get cub200` "
        "fetches it; or fetch it from "
        "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz and name the folder "
        "it lies in: --data-root DIR"
    )


def test_only_the_published_digest_makes_an_archive_official(tmp_path: Path) -> None:
    path = archived(data_set(), tmp_path / f"{TOP}.tgz")
    asked = []

    def digest(file: Path, algorithm: str) -> str:
        asked.append((file, algorithm))
        return MD5

    assert Cub200().find([tmp_path], digest).unofficial is None
    assert asked == [(path, "md5")]
    real = hashlib.md5(path.read_bytes()).hexdigest()
    reason = Cub200().find([tmp_path]).unofficial
    assert reason == f"the md5 of {path} is {real}, not {MD5}"


def test_a_folder_is_official_when_its_counts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpacked(data_set(), tmp_path)
    assert Cub200().find([folder]).unofficial == (
        f"{folder} lists 24 images of 4 classes (16 for training, 8 for test) instead of 11788 "
        "images of 200 classes (5994 for training, 5794 for test)"
    )
    monkeypatch.setattr("fscil_bench.protocols.cub200.reader.COUNTS", (24, 4, 16, 8))
    assert Cub200().find([folder]).unofficial is None


def test_a_folders_digest_follows_lists_names_and_sizes(tmp_path: Path) -> None:
    folder = unpacked(data_set(), tmp_path)
    digests = [Cub200().find([folder]).digest]
    assert Cub200().find([folder]).digest == digests[0]
    image = folder / "images" / FOLDERS[3] / "Ani_0000_30.jpg"
    image.write_bytes(image.read_bytes() + b"x")
    digests.append(Cub200().find([folder]).digest)
    halves = folder / "train_test_split.txt"
    halves.write_text(halves.read_text().replace("1 1\n", "1 0\n", 1))
    digests.append(Cub200().find([folder]).digest)
    image.unlink()
    digests.append(Cub200().find([folder]).digest)
    assert len(set(digests)) == 4


def test_links_in_the_published_archive_would_be_passed_over(tmp_path: Path) -> None:
    path = archived(data_set(), tmp_path / f"{TOP}.tgz")
    bad = tarfile.TarInfo(f"{TOP}/link")
    bad.type, bad.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path.write_bytes(gzip.compress(bad.tobuf() + gzip.decompress(path.read_bytes())))
    reader = Cub200()
    source = reader.find([path], lambda *_: MD5)
    assert len(reader.index(source, request_for()).train) == 16


def test_what_may_be_held_in_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = data_set()
    path = archived(
        members, tmp_path / f"{TOP}.tgz", [n for n in reversed(members) if "images/" in n]
    )
    items = index_of(path).train
    size = sum(len(members[item.key]) for item in items)
    monkeypatch.setattr("fscil_bench.protocols._archives.tar.HELD_LIMIT", size // 2)
    with pytest.raises(DataError, match="unpack it and name the folder instead"):
        images_of(path, items)
    assert len(images_of(path, reversed(items))) == len(items), "that is the archive's order"


def test_cub_of_2010_is_told_apart(tmp_path: Path) -> None:
    year = "CUB-200 of 2010 (6033 images), which is another data set than CUB-200-2011"
    images = {f"images/{FOLDERS[0]}/{n}.jpg": photograph(0, n) for n in range(3)}
    lists = {"lists/files.txt": b"a", "lists/train.txt": b"b"}
    path = archived({**images, **lists}, tmp_path / f"{TOP}.tgz")
    assert f"holds 3 images and no CUB_200_2011/images.txt: it is {year}" in refusal(path)
    path.unlink()

    archived(images, tmp_path / "images.tgz")
    for root in (tmp_path, tmp_path / "images.tgz"):
        with pytest.raises(DataError) as caught:
            Cub200().find([root])
        assert str(caught.value).startswith(f"{tmp_path / 'images.tgz'}: belongs to {year}")

    unpacked({f"{TOP}/{name}": content for name, content in lists.items()}, tmp_path / "older")
    with pytest.raises(DataError, match=r"lists/files.txt: belongs to CUB-200 of 2010"):
        Cub200().find([tmp_path / "older"])


def test_images_of_2010_under_the_lists_of_2011_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = data_set()
    gone = [name for name in members if "images/" in name][:10]
    for name in gone:
        del members[name]
    monkeypatch.setattr("fscil_bench.protocols.cub200.copies.IMAGES_2010", 14)
    text = refusal(archived(members, tmp_path / f"{TOP}.tgz"))
    assert "10 of the 24 images that images.txt lists are missing (001.Black_footed" in text
    assert "it holds 14 images" in text
    assert "So many images has CUB-200 of 2010" in text


@pytest.mark.parametrize("folder", [False, True], ids=["archive", "folder"])
def test_missing_images_are_listed(tmp_path: Path, folder: bool) -> None:
    members = data_set()
    del members[f"{TOP}/images/{FOLDERS[3]}/Ani_0000_30.jpg"]
    root = unpacked(members, tmp_path) if folder else archived(members, tmp_path / f"{TOP}.tgz")
    assert refusal(root) == (
        f"{root}: 1 of the 24 images that images.txt lists are missing (004.Ani/Ani_0000_30.jpg); "
        "it holds 23 images. Fetch the archive again, or unpack it again"
    )
    assert index_of(root, classes=3).class_names[-1] == "Sooty Albatross", "it is not needed"


def test_images_without_class_folders_are_counted_and_what_is_expected_said(tmp_path: Path) -> None:
    root = unpacked(data_set(), tmp_path)
    for path in list(root.glob("images/*/*.jpg")):
        path.rename(root / "images" / path.name)
    text = refusal(root)
    assert "24 of the 24 images that images.txt lists are missing" in text
    assert "24 images lie in images/ directly; they are expected in the folders of their" in text


@pytest.mark.parametrize("folder", [False, True], ids=["archive", "folder"])
def test_missing_lists_are_named(tmp_path: Path, folder: bool) -> None:
    members = data_set()
    del members[f"{TOP}/classes.txt"], members[f"{TOP}/images.txt"]
    root = unpacked(members, tmp_path) if folder else archived(members, tmp_path / f"{TOP}.tgz")
    text = refusal(root)
    assert "lacks images.txt, classes.txt; fetch CUB_200_2011.tgz again" in text
    assert str(root) in text


def test_another_archive_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    path = archived({"holiday/beach.png": b"1", "notes.txt": b"3"}, tmp_path / f"{TOP}.tgz")
    assert refusal(path) == (
        f"{path}: not the archive of CUB-200-2011, it has no CUB_200_2011/images.txt; it holds 2 "
        "files (holiday/beach.png, notes.txt)"
    )


def test_more_classes_than_there_are_cannot_be_asked_for(tmp_path: Path) -> None:
    path = archived(data_set(), tmp_path / f"{TOP}.tgz")
    text = f"{path}: has 4 classes, but the protocol asks for 200; set classes = 4 or fewer"
    assert refusal(path, 200).startswith(text)


def test_line_ends_marks_and_blank_lines_do_not_matter(tmp_path: Path) -> None:
    members = data_set()
    plain = index_of(archived(members, tmp_path / f"{TOP}.tgz"))
    for name in members:
        if name.endswith(("images.txt", "labels.txt", "split.txt", "classes.txt")):
            lines = members[name].replace(b"\n", b"\r\n\r\n")
            members[name] = b"\xef\xbb\xbf\r\n" + lines + b" \r\n"
    assert index_of(archived(members, tmp_path / f"{TOP}.tgz")) == plain


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
    ],
)
def test_a_wrong_line_is_named(
    tmp_path: Path, file: str, line: int, text: str, problem: str
) -> None:
    members = data_set()
    lines = members[f"{TOP}/{file}"].decode().splitlines()
    lines[line - 1] = text
    members[f"{TOP}/{file}"] = "\n".join(lines).encode()
    path = archived(members, tmp_path / f"{TOP}.tgz")
    said = refusal(path)
    assert said.startswith(f"{path}: {TOP}/{file}:{line}: "), said
    assert problem in said


def test_lists_of_different_images_are_refused(tmp_path: Path) -> None:
    members = data_set()
    members[f"{TOP}/train_test_split.txt"] += b"99 1\n"
    folder = unpacked(members, tmp_path)
    with pytest.raises(DataError) as caught:
        Cub200().find([folder])
    assert str(caught.value).startswith(
        f"{folder}/train_test_split.txt: does not list the same images as images.txt: image 99 is "
        "in one alone"
    )


def test_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    members = data_set()
    for name in list(members):
        content = members.pop(name).replace(b"003.Sooty", b"003.Laysan")
        members[name.replace("003.Sooty", "003.Laysan")] = content
    index = index_of(archived(members, tmp_path / f"{TOP}.tgz"))
    assert index.class_names[1:3] == ("Laysan Albatross (2)", "Laysan Albatross (3)")


@pytest.mark.parametrize("folder", [False, True], ids=["archive", "folder"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the image file is empty"),
        (photograph(0, 0)[:200], "cannot be decoded as an image"),
        (b"<html>", "cannot be decoded as an image"),
    ],
    ids=["empty", "truncated", "web page"],
)
def test_a_broken_image_is_named_and_the_others_come(
    tmp_path: Path, folder: bool, content: bytes, problem: str
) -> None:
    members = data_set()
    key = f"{TOP}/images/{FOLDERS[0]}/{FOLDERS[0][4:]}_0000_0.jpg"
    members[key] = content
    root = unpacked(members, tmp_path) if folder else archived(members, tmp_path / f"{TOP}.tgz")
    broken, *whole = images_of(root, index_of(root).train)
    assert isinstance(broken, DataError)
    place = root / key.removeprefix(f"{TOP}/") if folder else f"{root}: {key}"
    assert str(broken).startswith(f"{place}: {problem}")
    assert len(colours(whole)) == 15


def test_images_that_vanish_or_are_huge_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = data_set()
    path = archived(members, tmp_path / f"{TOP}.tgz")
    items = index_of(path).train
    monkeypatch.setattr("fscil_bench.protocols.cub200.copies.READ_LIMIT", 100_000)
    members[items[1].key] = bytes(100_001)
    del members[items[2].key]
    archived(members, path)
    first, huge, gone, *rest = images_of(path, items)
    assert "declared size of 100001 bytes is absurd (at most 100000)" in str(huge)
    assert str(gone) == f"{path}: {items[2].key}: not in the archive"
    assert len(colours([first, *rest])) == 14


def test_leftovers_of_other_systems_are_no_images(tmp_path: Path) -> None:
    members = data_set()
    expected = index_of(archived(members, tmp_path / f"{TOP}.tgz"))
    members[f"{TOP}/images/{FOLDERS[0]}/._x_1.jpg"] = b"fork"
    members[f"._{TOP}"] = b"fork"
    for root in (archived(members, tmp_path / f"{TOP}.tgz"), unpacked(members, tmp_path / "2")):
        assert index_of(root) == expected


SHARED = Path(__file__).parents[2].parent / "shared/data/index_list/cub200"


def published(names: dict[tuple[int, int], str]) -> Members:
    """Return empty files of the canonical shots, and what else 200 classes need.

    `names` are the files that shots have in the data set; any others are made up.
    """
    protocol, folder = load_registry().protocol("cub200")
    shots = {
        (int(key), int(number)): f"{int(key):03d}.Bird_{key}/Bird_{number}.jpg"
        for _, key, numbers in read_canonical(protocol, folder).rows
        for number in numbers
    } | names
    folders = {key: file.partition("/")[0] for (key, _), file in sorted(shots.items())}
    folders |= {n: f"{n:03d}.Bird_{n}" for n in range(1, 201) if n not in folders}
    files = [(n, f"{folders[n]}/x_{number}.jpg", 0) for n in folders for number in (1, 2)]
    files += [(n, f"{folders[n]}/y_3.jpg", 1) for n in range(1, 101) if not names]
    files += [(key, file, 1) for (key, _), file in shots.items()]
    random.Random(0).shuffle(files)
    listed = list(enumerate(files, start=1))
    return {
        f"{TOP}/images.txt": "\n".join(f"{n} {file}" for n, (_, file, _) in listed).encode(),
        f"{TOP}/image_class_labels.txt": "\n".join(f"{n} {k}" for n, (k, _, _) in listed).encode(),
        f"{TOP}/train_test_split.txt": "\n".join(f"{n} {h}" for n, (_, _, h) in listed).encode(),
        f"{TOP}/classes.txt": "\n".join(f"{n} {name}" for n, name in folders.items()).encode(),
        **{f"{TOP}/images/{file}": b"" for _, file, _ in files},
    }


def canonical_lists(root: Path) -> tuple[DatasetIndex, dict[str, list[str]]]:
    """Return the keys of every session's shots, as the engine finds them in the table."""
    protocol, folder = load_registry().protocol("cub200")
    index = index_of(root, classes=200)

    def half(items: tuple[Item, ...]) -> ImageArray:
        labels, numbers = ([getattr(item, name) for item in items] for name in ("label", "number"))
        images = Images.from_block(np.zeros((len(items), 1, 1, 3), np.uint8))
        keys = tuple(item.key for item in items)
        return ImageArray(images, np.array(labels), np.array(numbers), keys)

    train, test = half(index.train), half(index.test)
    data = Dataset("cub200", index.class_names, index.class_keys, train, test, "")
    check_dataset(protocol.override(shot=1), data)
    shots = canonical_shots(read_canonical(protocol, folder), protocol, data)
    return index, {
        f"session_{number}.txt": [train.keys[i] for i in members]
        for number, members in enumerate(shots, start=2)
    }


def test_canonical_shots_are_found_by_class_and_number(tmp_path: Path) -> None:
    _, lists = canonical_lists(archived(published({}), tmp_path / f"{TOP}.tgz"))
    assert [len(files) for files in lists.values()] == [50] * 10
    assert lists["session_2.txt"][:2] == [
        f"{TOP}/images/101.Bird_101/Bird_96148.jpg",
        f"{TOP}/images/101.Bird_101/Bird_96422.jpg",
    ]


@pytest.mark.skipif(not SHARED.is_dir(), reason="no published lists in ../shared/data/index_list")
def test_canonical_shots_are_the_published_lists_byte_for_byte(tmp_path: Path) -> None:
    lines = [line for file in SHARED.glob("*.txt") for line in file.read_text().split()]
    files = [line.removeprefix(f"{TOP}/images/") for line in lines]
    ends = [int(file.rpartition("_")[2].removesuffix(".jpg")) for file in files]
    names = {(int(file[:3]), end): file for file, end in zip(files, ends, strict=True)}
    assert len(names) == 3500, "a number is unique in its class"
    index, lists = canonical_lists(unpacked(published(names), tmp_path))
    for name, keys in lists.items():
        assert "".join(f"{key}\n" for key in keys) == (SHARED / name).read_text(), name
    base = [item.key for item in index.train if item.label < 100]
    assert sorted(base) == sorted((SHARED / "session_1.txt").read_text().split())


def test_missing_weights_and_data_are_one_message_with_the_data_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> None:
        raise DataError("no ImageNet weights here")

    monkeypatch.setattr("fscil_bench.running.workbench.resolve_pretraining", absent)
    monkeypatch.chdir(tmp_path)
    places = {"results": tmp_path / "results", "cache": tmp_path / "cache"}
    with pytest.raises(DataError) as caught:
        fscil_bench.run("ncm", "cub200", **places)
    data, weights = str(caught.value).splitlines()
    assert data.startswith("neither CUB_200_2011.tgz nor a folder CUB_200_2011 was found")
    assert weights == "no ImageNet weights here"
    archived(data_set(), tmp_path / f"{TOP}.tgz")
    with pytest.raises(DataError, match=r"^no ImageNet weights here$"):
        fscil_bench.run("ncm", "cub200", data_root=tmp_path, **places)


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    root = archived(data_set(size=(280, 260)), tmp_path / f"{TOP}.tgz")
    small = {"classes": 4, "base_classes": 2, "way": 1, "shot": 2, "sessions": 2}
    images = {"size": 32, "resize": 36, "mean": (0.5,) * 3, "std": (0.2,) * 3}

    def run(unofficial_data: bool) -> fscil_bench.StoredRun:
        return fscil_bench.run(
            method="ncm",
            protocol="cub200",
            overrides={**small, "images": images, "epochs": 1, "milestones": ()},
            split="seeded",
            weights="none",
            data_root=root,
            unofficial_data=unofficial_data,
            results=tmp_path / "results",
            cache=tmp_path / "cache",
        )

    with pytest.raises(DataError, match=r"--unofficial-data uses this copy all the same"):
        run(unofficial_data=False)
    assert not list((tmp_path / "cache").glob("images/*")), "refused before it is decoded"
    stored = run(unofficial_data=True)
    assert [session.images for session in stored.metrics] == [4, 6, 8]
    assert stored.record.class_names[3] == "Ani"
    assert stored.record.train_images == (4, 4)
    marks = ("unofficial data (", "without the protocol's ImageNet weights")
    assert all(any(flag.startswith(mark) for flag in stored.record.flags) for mark in marks)
