from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from PIL import Image

from fscil_bench.data.scan import scan
from fscil_bench.errors import DataError, UsageError
from fscil_bench.protocol import Protocol, load_protocol

NAMES = ("ant", "bee", "cow", "dog", "elk", "fox", "gnu")


def folder(root: Path, counts: Mapping[str, int], size: tuple[int, int] = (20, 24)) -> Path:
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", size).save(root / name / f"{number}.png")
    return root


def loaded(text: str, tmp_path: Path) -> Protocol:
    path = tmp_path / "scanned.toml"
    path.write_text(text, encoding="utf-8")
    return load_protocol(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder of seven classes with six images each."""
    return folder(tmp_path / "animals", dict.fromkeys(NAMES, 6))


def test_a_folder_becomes_a_whole_protocol(tmp_path: Path) -> None:
    root = folder(tmp_path / "animals", {**dict.fromkeys(NAMES, 10), "ant": 20})
    protocol = loaded(scan(root, way=1, shot=5, base="60%"), tmp_path)
    assert (protocol.name, protocol.title, protocol.dataset) == ("animals", "animals", "folder")
    assert protocol.data == str(root)
    assert (protocol.classes, protocol.base_classes, protocol.way) == (7, 4, 1)
    assert (protocol.shot, protocol.sessions, protocol.split) == (5, 3, "seeded")
    assert protocol.reader_options == {"test_fraction": 0.2, "split_seed": 0}
    assert protocol.class_order == "dataset"
    assert protocol.images.mean == (0.485, 0.456, 0.406)
    recipe = protocol.recipe
    assert (recipe.epochs, recipe.batch_size, recipe.lr, recipe.schedule) == (100, 128, 0.1, "step")
    text = scan(root, way=2, shot=5, base="4")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# 7 classes in the sorted order of their names, with 64 training images (8 to 16 a class) "
        "and 16",
        "#   test images (2 to 4 a class). The median shorter side of the images is 20 pixels, "
        "hence 32×32",
        "#   and resnet20.",
        '# Base session, 4 classes: "ant", "bee", "cow", "dog"',
        '# Session 1: "elk", "fox"',
        '# Not used: "gnu"',
    ]


@pytest.mark.parametrize(
    ("base", "way", "expected"),
    [
        ("60%", 1, (4, 3)),
        ("60%", 3, (4, 1)),
        ("50 %", 2, (4, 1)),
        ("28.6%", 2, (2, 2)),
        ("3", 2, (3, 2)),
        (" 6 ", 1, (6, 1)),
    ],
)
def test_the_base_is_a_number_or_a_share_and_the_rest_makes_sessions(
    root: Path, tmp_path: Path, base: str, way: int, expected: tuple[int, int]
) -> None:
    protocol = loaded(scan(root, way, 5, base), tmp_path)
    assert (protocol.base_classes, protocol.sessions) == expected


@pytest.mark.parametrize(
    ("size", "stored", "backbone"),
    [
        ((28, 28), (32, None), "resnet20"),
        ((40, 90), (32, None), "resnet20"),
        ((41, 90), (84, 92), "resnet18"),
        ((300, 100), (84, 92), "resnet18"),
        ((101, 101), (224, 256), "resnet18"),
    ],
)
def test_size_and_backbone_follow_the_median_shorter_side(
    tmp_path: Path, size: tuple[int, int], stored: tuple[int, int | None], backbone: str
) -> None:
    root = folder(tmp_path / "animals", dict.fromkeys(NAMES[:3], 3), size)
    folder(root, {"zebra": 3}, (900, 800))
    (root / "ant" / "broken.png").write_bytes(b"no image")
    os.mkfifo(root / "ant" / "pipe.png")
    protocol = loaded(scan(root, 1, 1, "2"), tmp_path)
    assert (protocol.images.size, protocol.images.resize) == stored
    assert (protocol.backbone, protocol.pretraining) == (backbone, "none")
    crops = "resized_crop" in protocol.recipe.augment
    assert crops == (stored[1] is not None)


def test_options_of_the_split_are_passed_on_unless_there_are_halves(
    root: Path, tmp_path: Path
) -> None:
    text = scan(root, 1, 3, "60%", test_fraction=0.5, split_seed=7)
    assert loaded(text, tmp_path).reader_options == {"test_fraction": 0.5, "split_seed": 7}
    assert "21 training images (3 a class) and 21 test" in text
    with pytest.raises(UsageError, match=r"test_fraction = 1.5 is not between 0 and 1"):
        scan(root, 1, 5, "60%", test_fraction=1.5)
    halved = tmp_path / "halved"
    for half, count in (("train", 5), ("test", 1)):
        folder(halved / half, dict.fromkeys(NAMES, count))
    assert loaded(scan(halved, 1, 5, "60%"), tmp_path).reader_options == {}
    with pytest.raises(UsageError, match="split_seed has no effect"):
        scan(halved, 1, 5, "60%", split_seed=1)


def test_a_table_is_scanned_too(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "my list.csv"
    with path.open("w", newline="") as file:
        rows = [[f"{root.name}/{name}/{n}.png", name] for name in NAMES for n in range(6)]
        csv.writer(file).writerows([["path", "label"], *rows])
    protocol = loaded(scan(path, 1, 5, "60%"), tmp_path)
    assert (protocol.name, protocol.title, protocol.classes) == ("my_list", "my list", 7)
    assert protocol.data == str(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('my bïrds, "2"', "my_birds_2"),
        ("鳥", "own"),
        ("-x-", "x"),
        ("glyphs", "glyphs_own"),
        ("v1.5", "v1.5"),
        ("back\\slash # = [x]", "back_slash_x"),
    ],
)
def test_any_folders_name_makes_a_valid_protocol(tmp_path: Path, name: str, expected: str) -> None:
    odd = ['say "hi"', "a\\b", "# x", "tab\there", "\x7f", "鳥"]
    root = folder(tmp_path / name, dict.fromkeys(odd, 3))
    text = scan(root, 2, 2, "2")
    protocol = loaded(text, tmp_path)
    assert (protocol.name, protocol.title, protocol.data) == (expected, name, str(root))
    assert loaded(scan(root, 2, 2, "2", name="chosen"), tmp_path).name == "chosen"


def test_too_few_classes_or_images_are_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        scan(root, 5, 5, "60%")
    assert str(caught.value) == (
        f"{root}: too few classes for one session: has 7, needs 4 (base) + 5 (way) = 9; lower "
        "--base or --way"
    )
    few = folder(tmp_path / "few", {**dict.fromkeys(NAMES, 6), "bee": 3, "dog": 1, "gnu": 2})
    with pytest.raises(DataError) as caught:
        scan(few, 1, 5, "5")
    assert str(caught.value) == (
        f"{few}: too few images in 3 of 7 classes; each needs 6: 5 for training (shot), 1 for "
        "testing\n"
        "  class 'bee' has 3: 2 for training, 1 for testing\n"
        "  class 'dog' has 1: 1 for training, 0 for testing\n"
        "  class 'gnu' has 2: 1 for training, 1 for testing"
    )


@pytest.mark.parametrize(
    ("way", "shot", "base", "problem"),
    [
        (0, 5, "60%", "--way 0: must be 1 or more"),
        (5, 0, "60%", "--shot 0: must be 1 or more"),
        (5, 5, "most", "--base most: write a number of classes, 60, or a share of them, 60%"),
        (5, 5, "-3", "--base -3: write a number"),
        (5, 5, "60%%", "--base 60%%: write a number"),
        (5, 5, "1", "--base 1: the base session needs at least 2 of 7 classes"),
        (5, 5, "1%", "--base 1%: the base session needs at least 2 of 7 classes"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    root: Path, way: int, shot: int, base: str, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        scan(root, way, shot, base)
    assert str(caught.value).startswith(problem)


def test_what_is_no_data_set_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match="no such folder or CSV"):
        scan(root / "nowhere", 5, 5, "60%")
    for file in root.glob("*/*"):
        file.write_bytes(b"no image")
    with pytest.raises(DataError, match="none of its files can be opened as images"):
        scan(root, 1, 5, "60%")
