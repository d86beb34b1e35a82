from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest

from fscil_bench.data.reader import DatasetIndex, Item, ReadRequest
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec
from fscil_bench.protocols import glyphs
from fscil_bench.protocols.glyphs import ALL_FACES, CLASSES, Glyphs, faces, font_folder, upright

# At most one of each group may be a class: in some face its members look alike, upright or
# italic, or they differ in size alone.
LOOK_ALIKES = (
    "Oo0ОоΟο Il1|ІӀ iіıι aаαɑ AАΑ BВΒв CcСсϹϲ EЕΕЁ eеѐ HНΗн JjЈј KkКкΚκ MМΜм NΝ nηпŋ PpРрΡρ SsЅѕ "
    "TТΤτт UuυՍ VvνѴѵ WwѡԜ XxхХΧχ YyУуΥγү ZzΖ 3ЗзƷʒ 6б 9q rΓГг ΠПπп ΛЛл ΣƩ ΦФφфɸ Ψψ βßв Θθѳɵ ЪъЬь "
    "ЦцЏџ ÐĐƉ ŒœɶƢ Øø Þþ μµ ÅåǺ Çç Ññ Ħħ Łł"
)


def request_for(classes: int = 100, size: int = 32, resize: int | None = None) -> ReadRequest:
    spec = ImageSpec(size=size, resize=resize, mean=(0.5,) * 3, std=(0.3,) * 3)
    return ReadRequest(classes, spec)


@pytest.fixture(scope="module")
def index() -> DatasetIndex:
    reader = Glyphs()
    return reader.index(reader.find([]), request_for())


def drawn(items: list[Item], **request: Any) -> list[np.ndarray]:
    reader = Glyphs()
    images = reader.images(reader.find([]), items, request_for(**request))
    return [image for image in images if isinstance(image, np.ndarray)]


def test_no_two_classes_look_alike() -> None:
    assert len(CLASSES) == len(set(CLASSES)) == 100
    assert [g for g in LOOK_ALIKES.split() if len(set(g) & set(CLASSES)) > 1] == []


def test_base_classes_and_every_two_sessions_mix_scripts() -> None:
    for start in (0, 60, 70, 80, 90):
        part = CLASSES[start : start + 10]
        assert any("A" <= char <= "z" for char in part)
        assert any("Α" <= char <= "Ϡ" for char in part)
        assert any("Ђ" <= char <= "ѣ" for char in part)


def test_test_faces_are_of_every_family_and_of_four_styles() -> None:
    assert faces("test", "Ж") == (
        "DejaVuSans-BoldOblique",
        "DejaVuSansMono",
        "DejaVuSerif-Italic",
        "STIXGeneralBol",
    )
    assert faces("test", "A") == (*faces("test", "Ж"), "cmss10", "cmti10")


def test_index(index: DatasetIndex) -> None:
    assert index.class_names == CLASSES
    assert [item.label for item in index.train] == [c for c in range(100) for _ in range(200)]
    assert [item.label for item in index.test] == [c for c in range(100) for _ in range(50)]
    assert index.train[0].key == "train/A/DejaVuSans/0000"
    assert index.train[216].key == "train/Б/DejaVuSansMono-Oblique/0016"
    assert index.test[4].key == "test/A/cmss10/0004"
    keys = [item.key for item in index.train + index.test]
    assert len(set(keys)) == 25_000
    used = [{item.key.split("/")[2] for item in half} for half in (index.train, index.test)]
    assert not used[0] & used[1], "test faces are never training faces"
    assert used[0] | used[1] == set(ALL_FACES)


def test_fewer_classes_are_the_first_ones_and_more_cannot_be_had(index: DatasetIndex) -> None:
    reader = Glyphs()
    few = reader.index(reader.find([]), request_for(7))
    assert few.class_names == CLASSES[:7]
    assert (few.train, few.test) == (index.train[:1400], index.test[:350])
    with pytest.raises(DataError, match="'glyphs' has 100 classes, but the protocol asks for 101"):
        reader.index(reader.find([]), request_for(101))


def test_images_differ_and_do_not_depend_on_what_else_is_drawn_and_when(
    index: DatasetIndex,
) -> None:
    items = [*index.train[::997], *index.test[::499]]
    together = drawn(items)
    backwards = drawn(items[::-1], classes=80)[::-1]
    alone = [drawn([item])[0] for item in items]
    for first, second, third in zip(together, backwards, alone, strict=True):
        assert np.array_equal(first, second)
        assert np.array_equal(first, third)
    same_face = drawn([item for item in index.train[:200] if "/DejaVuSans/" in item.key])
    assert len({image.tobytes() for image in same_face}) == len(same_face) == 14


@pytest.mark.parametrize(("size", "resize", "side"), [(32, None, 32), (64, None, 64), (28, 36, 36)])
def test_shape_and_type(index: DatasetIndex, size: int, resize: int | None, side: int) -> None:
    (image,) = drawn(index.train[:1], size=size, resize=resize)
    assert (image.shape, image.dtype) == ((side, side, 3), np.uint8)


def test_a_larger_image_shows_the_same(index: DatasetIndex) -> None:
    items = [*index.train[::499]]
    small = np.stack(drawn(items)).mean(3).reshape(len(items), -1)
    large = np.stack(drawn(items, size=64)).mean(3)
    halved = large.reshape(len(items), 32, 2, 32, 2).mean((2, 4)).reshape(len(items), -1)
    alike = [np.corrcoef(pair)[0, 1] for pair in zip(small, halved, strict=True)]
    assert np.median(alike) > 0.75


@pytest.mark.parametrize("face", ALL_FACES)
def test_characters_are_in_the_face_and_differ_in_it(face: str) -> None:
    file = font_folder() / f"{face}.ttf"
    chars = [char for char in CLASSES if face in faces("train", char) + faces("test", char)]
    assert len(chars) == (100 if face[0].isupper() else 44)
    images = np.stack([np.asarray(upright(file, char, 32, 0)) for char in chars]) / 255.0
    cover = images.mean((1, 2))
    assert cover.min() > 0.03
    assert cover.max() < 0.4
    absent = np.asarray(upright(file, "\uffff", 32, 0)) / 255
    assert np.abs(images - absent).mean((1, 2)).min() > 0.02
    flat = images.reshape(len(chars), -1)
    common = flat @ flat.T
    either = np.diag(common)[:, None] + np.diag(common) - common
    overlap = common / either - np.eye(len(chars))
    assert overlap.max() < 0.96


def test_the_digest_follows_what_images_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Glyphs().find([]).digest
    assert Glyphs().find([Path("anywhere")]).digest == before
    for place, name, value in (
        (glyphs, "RENDERER_VERSION", -1),
        (glyphs, "CLASSES", CLASSES[::-1]),
        (PIL, "__version__", "0.0"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            assert Glyphs().find([]).digest != before


def test_the_digest_follows_the_font_files_and_missing_faces_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(glyphs, "font_folder", lambda: tmp_path)
    for face in ALL_FACES[2:]:
        (tmp_path / f"{face}.ttf").write_bytes(face.encode())
    missing = f"{tmp_path} lacks DejaVuSans.ttf, DejaVuSans-Bold.ttf; install"
    with pytest.raises(DataError, match=missing):
        Glyphs().find([])
    for face in ALL_FACES[:2]:
        (tmp_path / f"{face}.ttf").write_bytes(face.encode())
    before = Glyphs().find([]).digest
    (tmp_path / "cmr10.ttf").write_bytes(b"another edition")
    assert Glyphs().find([]).digest != before


def test_the_protocol_normalises_by_what_is_drawn(index: DatasetIndex) -> None:
    protocol = load_registry().protocol("glyphs")[0]
    base = [item for item in index.train if item.label < protocol.base_classes]
    sample = np.stack(drawn(base[::41])).reshape(-1, 3) / 255
    assert sample.mean(0) == pytest.approx(protocol.images.mean, abs=0.04)
    assert sample.std(0) == pytest.approx(protocol.images.std, abs=0.02)
