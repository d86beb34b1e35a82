"""Decoding and preparing images, and the order of a data set's classes."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

from fscil_bench import api
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray, decode_rgb, prepare, read_file, reordered
from fscil_bench.errors import DataError, UsageError
from fscil_bench.protocol import ImageSpec

TOY = Path(__file__).parents[1] / "toy"
KEYS = ("a", "b", "c d", "é")


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def spec(size: int, resize: int | None = None) -> ImageSpec:
    return ImageSpec(size=size, resize=resize, mean=(0, 0, 0), std=(1, 1, 1))


@pytest.mark.parametrize(
    ("image", "kind", "expected"),
    [
        (Image.new("L", (4, 4), 77), "PNG", (77, 77, 77)),
        (Image.new("RGBA", (4, 4), (10, 20, 30, 255)), "PNG", (10, 20, 30)),
        (Image.new("CMYK", (4, 4), (0, 0, 0, 255)), "JPEG", (0, 0, 0)),
        (Image.new("RGB", (4, 4), (200, 100, 50)).convert("P"), "PNG", None),
        (Image.fromarray(np.full((4, 4), 0x8000, np.uint16)), "PNG", (128, 128, 128)),
        (Image.new("1", (4, 4), 1), "PNG", (255, 255, 255)),
        (Image.new("LA", (4, 4), (90, 255)), "PNG", (90, 90, 90)),
        (Image.new("RGB", (4, 4), (50, 60, 70)), "BMP", (50, 60, 70)),
    ],
)
def test_every_mode_becomes_rgb(
    image: Image.Image, kind: str, expected: tuple[int, int, int] | None
) -> None:
    decoded = decode_rgb(encoded(image, kind), "a/b.png")
    assert decoded.mode == "RGB"
    assert decoded.size == (4, 4)
    if expected is not None:
        assert np.abs(np.array(decoded.getpixel((1, 1))).astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<html>", "cannot be decoded"),
        (encoded(Image.new("RGB", (40, 40)))[:60], "cannot be decoded"),
        (encoded(Image.effect_noise((64, 64), 50).convert("RGB"), "JPEG")[:700], "cannot be"),
        (encoded(Image.fromarray(np.full((4, 4), 0.5, np.float32)), "TIFF"), "whose range is not"),
    ],
)
def test_a_broken_image_is_named_by_its_path(content: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"folder/broken.jpg: .*{reason}"):
        decode_rgb(content, "folder/broken.jpg")


@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1), (2, 101)])
def test_an_absurdly_long_image_is_refused_before_it_is_resized(size: tuple[int, int]) -> None:
    refused = f"^folder/long.png: refused, {size[0]}×{size[1]} pixels"
    with pytest.raises(DataError, match=refused):
        decode_rgb(encoded(Image.new("RGB", size)), "folder/long.png")
    with pytest.raises(DataError, match="at most 50 times"):
        prepare(Image.new("RGB", size), spec(224, 256))
    assert prepare(Image.new("RGB", (500, 10)), spec(8, 10)).shape == (10, 500, 3)


def test_the_central_square_of_the_resized_image_is_cut_out() -> None:
    pixels = np.zeros((10, 20, 3), np.uint8)
    pixels[:, 5:15] = 255
    square = prepare(Image.fromarray(pixels), spec(10))
    assert square.shape == (10, 10, 3)
    assert (square == 255).all(), "columns 5 to 14 are the centre"


@pytest.mark.parametrize("size", [(64, 64), (100, 37), (37, 100), (50, 40), (33, 1000)])
def test_resizing_is_torchvisions(size: tuple[int, int]) -> None:
    image = Image.effect_noise(size, 60).convert("RGB")
    expected = transforms.Compose([transforms.Resize(28), transforms.CenterCrop(28)])(image)
    assert np.array_equal(prepare(image, spec(28)), np.asarray(expected))
    whole = Images.from_block(prepare(image, spec(28, 32))[None])
    expected = transforms.Compose([transforms.Resize(32), transforms.CenterCrop(28)])(image)
    assert np.array_equal(whole.squares(np.array([0]), 28)[0], np.asarray(expected))


@pytest.fixture
def dataset() -> Dataset:
    labels = np.array([0, 1, 2, 3, 3])
    images = Images.from_block(np.zeros((5, 8, 8, 3), np.uint8))
    half = ImageArray(images, labels, np.arange(5), tuple("vwxyz"))
    return Dataset("toy", ("A", "B", "C", "D"), KEYS, half, half, "f")


def listed(dataset: Dataset, folder: Path, text: str) -> Dataset:
    (folder / "order.txt").write_text(text, encoding="utf-8")
    return reordered(dataset, "list:order.txt", folder)


def test_a_list_orders_the_classes(dataset: Dataset, tmp_path: Path) -> None:
    found = listed(dataset, tmp_path, "\ufeff# the order\nc d\r\né\r\n\r\n# the rest\nb\n a \n\n")
    assert found.class_keys == ("c d", "é", "b", "a")
    assert found.class_names == ("C", "D", "B", "A")
    assert found.train.labels.tolist() == [3, 2, 0, 1, 1]
    assert found.test.labels.tolist() == [3, 2, 0, 1, 1]
    assert dataset.class_keys == KEYS
    assert listed(dataset, tmp_path, "c d\né\nb\na").fingerprint == found.fingerprint
    assert listed(dataset, tmp_path, "c d\né\na\nb").fingerprint != found.fingerprint


def test_a_seed_orders_the_classes_and_changes_no_content(dataset: Dataset) -> None:
    found = reordered(dataset, "seed:1", Path("unused"))
    assert sorted(found.class_keys) == sorted(KEYS) != list(found.class_keys)
    assert [found.class_keys[c] for c in found.train.labels] == ["a", "b", "c d", "é", "é"]
    assert found.fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a\nb\nx\né\nc d",
            "order.txt:3: no class 'x' is among the 4 of data set 'toy' that the protocol asks for "
            r".classes = 4.; its first is called 'a'",
        ),
        ("a\n\nb\na\n", "order.txt:4: class 'a' is listed already, on line 1"),
        ("", "order.txt: lists no class"),
    ],
)
def test_a_list_of_no_use_is_refused(
    dataset: Dataset, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        listed(dataset, tmp_path, text)


def test_classes_that_a_list_leaves_out_are_left_out(dataset: Dataset, tmp_path: Path) -> None:
    found = listed(dataset, tmp_path, "é\na\n")
    assert (found.class_keys, found.class_names) == (("é", "a"), ("D", "A"))
    for half in (found.train, found.test):
        assert half.labels.tolist() == [1, 0, 0]
        assert half.keys == ("v", "y", "z")
        assert half.numbers.tolist() == [0, 3, 4]
        assert len(half.images) == 3
    assert found.fingerprint != listed(dataset, tmp_path, "é\na\nb\n").fingerprint


def test_a_protocol_lists_its_classes_beside_itself(tmp_path: Path) -> None:
    order = [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]
    (tmp_path / "order.txt").write_text("\n".join(f"toy {c}" for c in order))
    text = (TOY / "toy.toml").read_text().replace('"toy_shots.csv"', '""')
    changed = text.replace('split = "seeded"', 'split = "seeded"\nclass_order = "list:order.txt"')
    (tmp_path / "listed.toml").write_text(changed.replace('name = "toy"', 'name = "listed"'))
    settings: dict[str, Any] = {
        "plugins": [TOY / "toy_reader.py"],
        "results": tmp_path / "results",
        "cache": tmp_path / "cache",
        "precision": "fp32",
    }

    def run(**asked: Any) -> api.StoredRun:
        return api.run("ncm", str(tmp_path / "listed.toml"), **settings, **asked)

    ordered = run()
    assert ordered.record.class_names == tuple(f"toy {c}" for c in order)
    assert ordered.spec.representation.class_order == "list:order.txt"
    with pytest.raises(UsageError, match="no published list of shots; use --split seeded"):
        run(split="canonical")
    (tmp_path / "order.txt").write_text("toy 3\ntoy 9\ntoy 1\ntoy 7\n")
    part = run(overrides={"base_classes": 2, "way": 1, "sessions": 2})
    assert part.record.class_names == ("toy 3", "toy 9", "toy 1", "toy 7")


def test_exif_orientation_is_applied() -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = (200, 0, 0)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    for orientation, turned in ((1, 0), (3, 2), (6, 3), (8, 1)):
        exif[0x0112] = orientation
        for kind in ("PNG", "TIFF"):
            buffer = io.BytesIO()
            image.save(buffer, kind, exif=exif)
            found = np.asarray(decode_rgb(buffer.getvalue(), "x"))
            assert np.array_equal(found, np.rot90(pixels, turned)), (orientation, kind)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", exif=b"Exif\x00\x00MM\x00*\x00\x00\xff\xff")
    assert np.array_equal(np.asarray(decode_rgb(buffer.getvalue(), "x")), pixels), "no EXIF at all"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 128, 255], [0, 128, 255]),
        ([0, 128, 256], [0, 0, 1]),
        ([0, 32768, 65535], [0, 128, 255]),
    ],
)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_are_scaled_unless_all_values_are_of_8(
    kind: str, values: list[int], expected: list[int]
) -> None:
    row = decode_rgb(encoded(Image.fromarray(np.array([values], np.uint16)), kind), "x")
    assert np.asarray(row)[0, :, 1].tolist() == expected


def sixteen_bit_png(value: int) -> bytes:
    """Return a 2×2 PNG with 16 bits a colour, which Pillow cannot write."""
    rows = (b"\x00" + struct.pack(">6H", *[value] * 6)) * 2

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_colours_of_16_bits_that_would_come_out_black_are_refused() -> None:
    assert decode_rgb(sixteen_bit_png(0x8123), "x").getpixel((0, 0)) == (0x81, 0x81, 0x81)
    with pytest.raises(DataError, match=r"^a.png: its colours have 16 bits and none is above 255"):
        decode_rgb(sixteen_bit_png(200), "a.png")


def test_the_first_frame_is_taken_and_alpha_left_away() -> None:
    frames = [Image.new("RGB", (4, 4), c) for c in ((0, 0, 250), (250, 0, 0))]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:])
    assert decode_rgb(buffer.getvalue(), "x").getpixel((0, 0)) == (0, 0, 250)
    image = Image.new("RGBA", (4, 4), (9, 99, 199, 0))
    assert decode_rgb(encoded(image), "x").getpixel((0, 0)) == (9, 99, 199)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, dataset: Dataset) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: refused, it is no file but a pipe, a device or the"):
        read_file(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(bytes(11))
    with pytest.raises(DataError, match=r"large: refused, 11 bytes are absurd \(at most 10\)"):
        read_file(tmp_path / "large", 10)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("pipe", "absent.txt", "binary.txt", "a\0b"):
        with pytest.raises(UsageError, match="cannot be read as a list of classes"):
            reordered(dataset, f"list:{name}", tmp_path)
