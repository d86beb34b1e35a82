from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fscil_bench.data.reader import DatasetIndex, Item, Pixels, ReadRequest
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec

TinyImageNet = load_registry().get("data set", "tiny_imagenet").value
FOLDER = load_registry().protocol("tiny_imagenet200")[1]
CLASSES = tuple((FOLDER / "tiny_imagenet_classes.txt").read_text().split())
WNIDS = CLASSES[:3]
TOP = "tiny-imagenet-200"
ANNOTATIONS = f"{TOP}/val/val_annotations.txt"
SHARED = Path(__file__).parents[2].parent / "shared/data"
needs_real_archive = pytest.mark.skipif(
    not (SHARED / "tiny-imagenet-200.zip").is_file(),
    reason="no copy of tiny-imagenet-200.zip in ../shared/data",
)


Members = dict[str, bytes]
MakeArchive = Callable[[Members], Path]


def request_for(classes: int = 3, size: int = 64) -> ReadRequest:
    return ReadRequest(classes, ImageSpec(size=size, mean=(0.5,) * 3, std=(0.25,) * 3))


def picture(*colour: int, size: tuple[int, int] = (64, 64)) -> bytes:
    """Return a lossless image file, so that its pixels are known exactly."""
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
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
    return {
        f"{TOP}/wnids.txt": "\n".join(WNIDS).encode(),
        **train,
        **val,
        ANNOTATIONS: "\n".join(lines).encode(),
    }


@pytest.fixture
def make_archive(tmp_path: Path) -> MakeArchive:
    def make(members: Members) -> Path:
        path = tmp_path / "tiny-imagenet-200.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return path

    return make


def index_of(path: Path, classes: int = 3) -> DatasetIndex:
    reader = TinyImageNet()
    return reader.index(reader.find([path]), request_for(classes))


def images_of(path: Path, items: Sequence[Item], size: int = 64) -> list[Pixels | DataError]:
    reader = TinyImageNet()
    return list(reader.images(reader.find([path]), items, request_for(size=size)))


def first_two_of(path: Path) -> list[Pixels | DataError]:
    return images_of(path, index_of(path).train[:2])


def message_of(path: Path, classes: int = 3) -> str:
    with pytest.raises(DataError) as caught:
        index_of(path, classes)
    return str(caught.value)


def test_finds_the_archive_in_a_folder_and_by_its_own_path(
    members: Members, make_archive: MakeArchive, tmp_path: Path
) -> None:
    path = make_archive(members)
    reader = TinyImageNet()
    for root in (path, tmp_path):
        source = reader.find([tmp_path / "nowhere", root])
        assert source.path == path
        assert source.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_missing_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        TinyImageNet().find([tmp_path / "nowhere", tmp_path])
    text = str(caught.value)
    assert text.startswith(
        "neither tiny-imagenet-200.zip nor a folder tiny-imagenet-200 with train"
    )
    assert f"looked in {tmp_path / 'nowhere'} (which does not exist), {tmp_path}. `fscil" in text
    assert "http://cs231n.stanford.edu/tiny-imagenet-200.zip and name the folder" in text


def unpacked(members: Members, folder: Path) -> Path:
    for name, content in members.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / TOP


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
    members: Members, make_archive: MakeArchive, tmp_path: Path, place: str, by_folder: bool
) -> None:
    packed = make_archive(members)
    expected = index_of(packed)
    files = sorted_into_folders(members) if by_folder else members
    folder = unpacked(files | {f"{TOP}/test/images/t.JPEG": b"", f"{TOP}/.x": b""}, tmp_path / "u")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    folder.rename(tmp_path / place)
    source = TinyImageNet().find([tmp_path / "data"])
    assert source.path == tmp_path / place
    index = index_of(tmp_path / "data")
    for mine, other in ((index.train, expected.train), (index.test, expected.test)):
        assert [item.label for item in mine] == [item.label for item in other]
        pixels = zip(images_of(tmp_path / "data", mine), images_of(packed, other), strict=True)
        assert all(np.array_equal(one, two) for one, two in pixels)


def test_the_digest_of_an_unpacked_copy_follows_its_files(members: Members, tmp_path: Path) -> None:
    folder = unpacked(members, tmp_path)
    before = TinyImageNet().find([folder]).digest
    assert TinyImageNet().find([tmp_path]).digest == before
    (tmp_path / train_name(WNIDS[0], 2)).unlink()
    assert TinyImageNet().find([folder]).digest != before


def test_another_zip_is_refused_with_what_it_holds(make_archive: MakeArchive) -> None:
    path = make_archive({"holiday/beach.jpg": b"1", "notes.txt": b"3"})
    assert message_of(path) == (
        f"{path}: not Tiny-ImageNet, it has no train/<WordNet id>/ with images; it holds "
        "holiday/beach.jpg, notes.txt"
    )


def test_items_are_in_class_order_and_by_number(
    members: Members, make_archive: MakeArchive
) -> None:
    path = make_archive(members)
    index = index_of(path)
    assert index.class_names == WNIDS
    assert (len(set(CLASSES)), list(CLASSES)) == (200, sorted(CLASSES))
    assert {item.label for item in index_of(path, classes=2).train} == {0, 1}
    assert [item.label for item in index.train] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [item.key for item in index.train[3:6]] == [train_name(WNIDS[1], n) for n in (0, 2, 10)]
    assert [(item.label, item.key.rpartition("/")[2]) for item in index.test] == [
        (0, "val_0.JPEG"),
        (0, "val_3.JPEG"),
        (1, "val_1.JPEG"),
        (1, "val_4.JPEG"),
        (2, "val_2.JPEG"),
        (2, "val_5.JPEG"),
    ]


def test_windows_line_ends_and_blank_lines_do_not_matter(
    members: Members, make_archive: MakeArchive
) -> None:
    plain = index_of(make_archive(members))
    lines = members[ANNOTATIONS].replace(b"\n", b"\r\n\r\n")
    members[ANNOTATIONS] = b"\xef\xbb\xbf\r\n" + lines + b"\r\n  \r\n"
    assert index_of(make_archive(members)) == plain


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "val_0.JPEG n01443537 0 0 63 63",
            "'val_0.JPEG n01443537 0 0 63 63' does not name an image and, after a tab, one of "
            "the 200 classes",
        ),
        (
            "val_0.JPEG\tn0144",
            "'val_0.JPEG\\tn0144' does not name an image and, after a tab, one of the 200 classes",
        ),
        (
            "val_99.JPEG\tn01443537\t0\t0\t63\t63",
            "there is no tiny-imagenet-200/val/images/val_99.JPEG",
        ),
        (
            "../../secret\tn01443537\t0\t0\t63\t63",
            "there is no tiny-imagenet-200/val/images/../../secret",
        ),
        (
            "val_5.JPEG\tn01443537\t0\t0\t63\t63",
            "val_5.JPEG is listed a second time, after line 1",
        ),
    ],
)
def test_a_wrong_annotation_is_named_by_its_line(
    members: Members, make_archive: MakeArchive, line: str, problem: str
) -> None:
    lines = members[ANNOTATIONS].decode().splitlines()
    lines[2:2] = ["", line]
    members[ANNOTATIONS] = "\n".join(lines).encode()
    path = make_archive(members)
    assert message_of(path) == f"{path}: {ANNOTATIONS}:4: {problem}"


def test_classes_without_training_images_are_named(
    members: Members, make_archive: MakeArchive
) -> None:
    text = message_of(make_archive(members), classes=4)
    assert f"no training images of 1 of the 4 classes that the protocol asks for ({CLASSES[3]}" in (
        text
    )
    assert "it holds 9 training images of 3 classes" in text


def test_a_class_without_validation_images_is_named(
    members: Members, make_archive: MakeArchive
) -> None:
    lines = members[ANNOTATIONS].decode().splitlines()
    members[ANNOTATIONS] = "\n".join(line for line in lines if WNIDS[1] not in line).encode()
    text = message_of(make_archive(members))
    assert (
        f"no validation images of 1 of the 3 classes that the protocol asks for ({WNIDS[1]}" in text
    )


def test_more_classes_than_there_are_cannot_be_asked_for(
    members: Members, make_archive: MakeArchive
) -> None:
    text = message_of(make_archive(members), classes=201)
    assert text.startswith("Tiny-ImageNet has 200 classes, but the protocol asks for 201")


def test_pixels_are_those_of_the_file_in_the_order_asked_for(
    members: Members, make_archive: MakeArchive
) -> None:
    path = make_archive(members)
    index = index_of(path)
    images = images_of(path, [index.test[5], index.train[5], index.train[0]])
    assert [image.shape for image in images] == [(64, 64, 3)] * 3
    assert [image.dtype for image in images] == [np.uint8] * 3
    assert [image[11, 13].tolist() for image in images] == [[100, 5, 9], [10, 10, 7], [0, 0, 7]]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the image file is empty"),
        (picture(1, 2, 3)[:60], "cannot be decoded as an image"),
        (b"<html>", "cannot be decoded as an image"),
    ],
)
def test_an_image_that_cannot_be_decoded_is_named(
    members: Members, make_archive: MakeArchive, content: bytes, problem: str
) -> None:
    name = train_name(WNIDS[0], 0)
    members[name] = content
    path = make_archive(members)
    broken, whole = first_two_of(path)
    assert isinstance(whole, np.ndarray)
    assert isinstance(broken, DataError)
    assert str(broken).startswith(f"{path}: {name}: {problem}")


def test_a_member_of_absurd_size_is_refused(members: Members, make_archive: MakeArchive) -> None:
    name = train_name(WNIDS[0], 0)
    members[name] = bytes(20_000_001)
    path = make_archive(members)
    broken, whole = first_two_of(path)
    assert isinstance(whole, np.ndarray)
    assert isinstance(broken, DataError)
    assert str(broken) == (
        f"{path}: {name}: refused, its declared size of 20000001 bytes is absurd (at most 20000000)"
    )


def test_a_damaged_member_is_named(members: Members, make_archive: MakeArchive) -> None:
    path = make_archive(members)
    name = train_name(WNIDS[0], 0)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(name).header_offset + 30 + len(name)
    content = bytearray(path.read_bytes())
    content[start : start + 20] = bytes(byte ^ 0xFF for byte in content[start : start + 20])
    path.write_bytes(content)
    broken, whole = first_two_of(path)
    assert isinstance(whole, np.ndarray)
    assert isinstance(broken, DataError)
    assert str(broken).startswith(f"{path}: {name}: damaged")


@needs_real_archive
def test_the_reduced_copy_serves_100_classes_and_is_refused_for_200() -> None:
    reader = TinyImageNet()
    source = reader.find([SHARED])
    index = reader.index(source, request_for(100))
    assert index.class_names == CLASSES[:100]
    assert np.bincount([item.label for item in index.train]).tolist() == [200] * 100
    assert np.bincount([item.label for item in index.test]).tolist() == [50] * 100
    assert [item.key.rpartition("_")[2] for item in index.train[200:203]] == [
        "0.JPEG",
        "1.JPEG",
        "2.JPEG",
    ]
    (image,) = reader.images(source, index.test[-1:], request_for(100, 32))
    assert image.shape == (32, 32, 3)
    assert image.std() > 10
    with pytest.raises(DataError, match="no training images of 100 of the 200 classes"):
        reader.index(source, request_for(200))
