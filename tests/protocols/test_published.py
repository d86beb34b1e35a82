from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fscil_bench.data.lists import shots_from_lists
from fscil_bench.errors import DataError

DATASET = ("cub200_pilot", 0)
BIRDS = ["001.A", "002.B", "003.C", "004.D"]
COUNTS = "fscil_bench.protocols.folder.published.Cub200Pilot.counts"


def small(root: Path, classes: list[str], train: int = 6, test: int = 2) -> Path:
    for half, count in (("train", train), ("test", test)):
        for name in classes:
            (root / half / name).mkdir(parents=True)
            for number in range(count):
                (root / half / name / f"art_{number}.jpg").touch()
    return root


def test_a_copy_with_the_published_counts_is_the_published_one(
    copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = small(copies.folder / "cub", BIRDS)
    assert copies.find(root).unofficial == (
        f"{root}: the first 4 classes have 24 training and 8 test images, instead of 100 with 4693 "
        "and 1171; fewest has '001.A', 6 and 2"
    )
    monkeypatch.setattr(COUNTS, {2: (12, 4), 4: (24, 8)})
    for place in (copies.folder, root):
        source = copies.find(place)
        assert (source.path, source.unofficial) == (root, None)
    index = copies.index(root, classes=3)
    assert index.class_names == ("001.A", "002.B", "003.C")
    assert [item.key for item in index.test[:2]] == [f"test/001.A/art_{n}.jpg" for n in (0, 1)]
    assert (len(index.train), len(index.test)) == (18, 6)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (
            "train/002.B/art_0.jpg",
            "the first 2 classes have 11 training and 4 test images, instead of 2 with 12 and 4; "
            "fewest has '002.B', 5 and 2",
        ),
        (
            "test/004.D/art_1.jpg",
            "4 classes have 24 training and 7 test images, instead of 4 with 24 and 8; fewest has "
            "'004.D', 6 and 1",
        ),
    ],
)
def test_an_image_that_is_missing_is_found_out_with_its_class(
    copies: Any, monkeypatch: pytest.MonkeyPatch, lost: str, said: str
) -> None:
    root = small(copies.folder / "cub", BIRDS)
    (root / lost).unlink()
    monkeypatch.setattr(COUNTS, {2: (12, 4), 4: (24, 8)})
    assert copies.find(root).unofficial == f"{root}: {said}"


def test_other_classes_and_other_halves_are_not_the_published_copy(copies: Any) -> None:
    renditions = replace(copies, dataset="imagenet_r")
    root = small(copies.folder / "imagenet-r", ["n01443537", "n01484850"])
    assert renditions.find(copies.folder).unofficial == (
        f"{root}: 2 classes have 12 training and 4 test images, instead of 200 with 24000 and "
        "6000; fewest has 'n01443537', 6 and 2"
    )
    assert renditions.index(root).class_names == ("n01443537", "n01484850")
    whole = root.rename(copies.folder / "other") / "train"
    undivided = whole.rename(copies.folder / "imagenet_r")
    assert renditions.find(copies.folder).unofficial == (
        f"{undivided} is not divided into train/ and test/; its images would be divided by "
        "test_fraction and split_seed instead of as published"
    )


def test_where_it_was_looked_for_is_said_with_how_to_get_it(copies: Any) -> None:
    small(copies.folder, ["001.A", "002.B"])  # halves of another data set
    nowhere = copies.folder / "nowhere"
    text = copies.refusal(nowhere, copies.folder)
    assert text.startswith(
        "no folder cub or cub200_pilot with train/ and test/ was found; looked in "
        f"{nowhere} (which does not exist), {copies.folder}. Fetch PILOT's copy"
    )


def test_a_half_that_lacks_a_class_is_named(copies: Any) -> None:
    root = small(copies.folder / "cub", ["001.A", "002.B"])
    for image in (root / "test" / "002.B").iterdir():
        image.unlink()
    assert "1 class folders hold no images: 002.B" in copies.refusal(root)
    (root / "test" / "002.B").rmdir()
    assert f"{root}/test: lacks the class '002.B', which {root}/train has" in copies.refusal(root)


def test_lists_of_shots_as_sec_prompt_writes_them_are_read(copies: Any) -> None:
    root = small(copies.folder / "cub", ["001.A", "002.B", "101.White_Pelican"])
    index = copies.index(root)
    index = replace(index, train=tuple(replace(i, number=n) for n, i in enumerate(index.train)))
    lists = copies.folder / "lists"
    lists.mkdir()
    lines = [f"cub/train/101.White_Pelican/art_{n}.jpg" for n in (4, 0, 5, 1, 2)]
    (lists / "session_2.txt").write_text("\n".join(lines))
    assert shots_from_lists(lists, index, 5) == (
        (1, "101.White_Pelican", ("16", "12", "17", "13", "14")),
    )


def test_another_copy_runs_only_if_asked_for_and_its_row_says_so(copies: Any) -> None:
    root = small(copies.folder / "cub", ["001.A", "002.B", "003.C"])
    for place, image in enumerate(sorted(root.rglob("*.jpg"))):
        Image.new("RGB", (20, 20), (place * 10, 0, 0)).save(image)
    images = {"size": 16, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    cut = {"classes": 3, "base_classes": 2, "way": 1, "shot": 2, "sessions": 1}
    asked = {
        "overrides": {**cut, "images": images, "backbone": "resnet20", "pretraining": "none"},
        "data_root": copies.folder,
    }
    with pytest.raises(DataError, match=r"data set 'cub200_pilot': .* --unofficial-data uses this"):
        copies.run("cub200_pilot", **asked)
    stored = copies.run("cub200_pilot", **asked, unofficial_data=True)
    assert [session.images for session in stored.metrics] == [4, 6]
    assert any(
        flag.startswith(f"unofficial data ({root}: the first 3 cl") for flag in stored.record.flags
    )
