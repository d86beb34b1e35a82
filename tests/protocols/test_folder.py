from __future__ import annotations

import csv
import io
import os
import shutil
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fscil_bench
from fscil_bench.data.reader import DatasetIndex, Item, Pixels, ReadRequest
from fscil_bench.data.scan import scan
from fscil_bench.errors import DataError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec

FolderReader = load_registry().get("data set", "folder").value
SPEC = ImageSpec(size=12, mean=(0.5,) * 3, std=(0.25,) * 3)
Options = Mapping[str, int | float | str]


def picture(*colour: int, size: tuple[int, int] = (16, 12), kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, kind)
    return buffer.getvalue()


def written(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def classes(root: Path, counts: Mapping[str, int]) -> Path:
    """Write that many images for each class, numbered from 0."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        files = {f"{name}/{n}.png": picture(len(name), n, 0) for n in range(count)}
        written(root, files)
    return root


def table(path: Path, rows: Iterable[Sequence[str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def index_of(root: Path, count: int = 0, options: Options | None = None) -> DatasetIndex:
    reader = FolderReader()
    return reader.index(reader.find([root]), ReadRequest(count, SPEC, options or {}))


def images_of(root: Path, items: Iterable[Item]) -> list[Pixels | DataError]:
    reader = FolderReader()
    return list(reader.images(reader.find([root]), tuple(items), ReadRequest(0, SPEC)))


def refusal(root: Path, count: int = 0) -> str:
    with pytest.raises(DataError) as caught:
        index_of(root, count)
    return str(caught.value)


def keys(items: Iterable[Item]) -> list[str]:
    return [item.key for item in items]


def test_a_folder_for_each_class_in_the_order_of_their_names(tmp_path: Path) -> None:
    index = index_of(classes(tmp_path, {"b": 5, "10": 5, "9": 5, "B": 5, "ä": 5}))
    assert index.class_names == ("10", "9", "B", "b", "ä")
    assert [item.label for item in index.test] == [0, 1, 2, 3, 4]
    assert len(index.train) == 20
    both = sorted(keys(index.train) + keys(index.test))
    assert both == sorted(
        f"{name}/{n}.png" for name in ("10", "9", "B", "b", "ä") for n in range(5)
    )


def test_the_split_depends_on_seed_and_class_alone(tmp_path: Path) -> None:
    one = index_of(classes(tmp_path / "1", {"ant": 20, "bee": 20}))
    two = index_of(classes(tmp_path / "2", {"aaa": 3, "ant": 20, "bee": 20, "cat": 7}))
    assert [key for key in keys(two.test) if key[:3] in ("ant", "bee")] == keys(one.test)
    assert keys(one.train) == sorted(keys(one.train))
    assert len(one.test) == 8, "a fifth of each class"
    other = index_of(tmp_path / "1", options={"split_seed": 1})
    assert keys(other.test) != keys(one.test)
    ant, bee = ([k[4:] for k in keys(one.test) if k.startswith(name)] for name in ("ant", "bee"))
    assert ant != bee, "classes are drawn one by one"


@pytest.mark.parametrize(
    ("count", "fraction", "tests"),
    [(2, 0.01, 1), (2, 0.99, 1), (10, 0.25, 2), (9, 0.5, 4), (1, 0.5, 0)],
)
def test_both_halves_get_an_image_where_there_are_two(
    tmp_path: Path, count: int, fraction: float, tests: int
) -> None:
    index = index_of(classes(tmp_path, {"a": count, "b": 2}), options={"test_fraction": fraction})
    assert sum(item.label == 0 for item in index.test) == tests
    assert sum(item.label == 0 for item in index.train) == count - tests


HALF_NAMES = [
    ("train", "test"),
    ("Train", "TEST"),
    ("train", "val"),
    ("Training", "Testing"),
    ("TRAIN", "VAL"),
    ("train", "validation"),
]


@pytest.mark.parametrize("names", HALF_NAMES)
def test_halves_are_taken_as_they_are(tmp_path: Path, names: tuple[str, str]) -> None:
    train, test = names
    classes(tmp_path / train, {"ant": 3, "bee": 2})
    classes(tmp_path / test, {"bee": 1, "ant": 2})
    index = index_of(tmp_path)
    assert index.class_names == ("ant", "bee")
    assert keys(index.train) == [f"{train}/ant/{n}.png" for n in range(3)] + [
        f"{train}/bee/{n}.png" for n in range(2)
    ]
    assert keys(index.test) == [f"{test}/ant/{n}.png" for n in range(2)] + [f"{test}/bee/0.png"]
    with pytest.raises(UsageError, match="split_seed has no effect, the data have halves"):
        index_of(tmp_path, options={"split_seed": 3})


def test_a_third_part_beside_the_halves_is_left_out(tmp_path: Path) -> None:
    for half in ("train", "test", "val"):
        classes(tmp_path / half, {"ant": 2, "bee": 2})
    index = index_of(tmp_path)
    assert {key.partition("/")[0] for key in keys(index.train + index.test)} == {"train", "test"}


def test_a_test_half_without_labels_gives_way_to_validation(tmp_path: Path) -> None:
    for half, names in (("train", "ab"), ("val", "ab"), ("test", ["images"])):
        classes(tmp_path / half, dict.fromkeys(names, 2))
    assert {key.partition("/")[0] for key in keys(index_of(tmp_path).test)} == {"val"}
    assert "base_classes = 2" in scan(classes(tmp_path, {"train/c": 2, "val/c": 1}), 1, 1, "2")


def test_halves_of_unknown_names_are_named_and_so_are_two_of_one_kind(tmp_path: Path) -> None:
    for half in ("my_train_set", "my_test_set"):
        classes(tmp_path / "a" / half, {"ant": 2, "bee": 2})
    assert refusal(tmp_path / "a") == (
        f"{tmp_path / 'a'}: my_test_set, my_train_set look like halves, they hold the same classes "
        "(ant, bee); rename them to train and test"
    )
    for half in ("train", "Training", "test"):
        classes(tmp_path / "b" / half, {"ant": 2, "bee": 2})
    assert "has both Training/ and train/; which is the train half?" in refusal(tmp_path / "b")


def test_halves_beside_classes_are_refused(tmp_path: Path) -> None:
    classes(tmp_path, {"train/ant": 1, "test/ant": 1, "cow": 2})
    assert refusal(tmp_path) == (
        f"{tmp_path}: has train/ and test/, and beside them cow; which are halves and which are "
        "classes? Move one kind away"
    )


def test_classes_that_happen_to_be_called_so_are_classes(tmp_path: Path) -> None:
    index = index_of(classes(tmp_path, {"train": 3, "test": 3, "bus": 3}))
    assert index.class_names == ("bus", "test", "train")


def test_halves_of_different_classes_are_refused(tmp_path: Path) -> None:
    classes(tmp_path / "x", {"train/ant": 1, "train/bee": 1, "test/images": 1})
    assert "x: train/ and test/ have no class in common (ant, bee; images);" in refusal(
        tmp_path / "x"
    )
    shutil.rmtree(tmp_path / "x")
    classes(tmp_path, {"train/ant": 1, "train/bee": 1, "test/ant": 1})
    assert refusal(tmp_path) == (
        f"{tmp_path / 'test'}: lacks the class 'bee', which {tmp_path / 'train'} has; both halves "
        "need the same classes (differing: bee)"
    )


def test_what_systems_leave_behind_is_ignored(tmp_path: Path) -> None:
    expected = index_of(classes(tmp_path, {"ant": 3, "bee": 3}))
    litter = ["__MACOSX/ant/0.png", ".git/x.png", "ant/._0.png", "ant/.DS_Store", "ant/Thumbs.db"]
    litter += ["bee/desktop.ini", "bee/notes.txt", "ant/__MACOSX/1.png", "README.md", "loose.png"]
    written(tmp_path, dict.fromkeys(litter, b"litter"))
    assert index_of(tmp_path) == expected


def test_images_in_folders_below_a_class_belong_to_it(tmp_path: Path) -> None:
    classes(tmp_path, {"ant/red": 2, "ant": 1, "bee": 2, "ant/black/big": 1})
    index = index_of(tmp_path)
    assert index.class_names == ("ant", "bee")
    assert sorted(key for key in keys(index.train + index.test) if key.startswith("ant")) == [
        "ant/0.png",
        "ant/black/big/0.png",
        "ant/red/0.png",
        "ant/red/1.png",
    ]


def test_files_are_images_by_their_ending_in_any_capitals(tmp_path: Path) -> None:
    names = [
        "1.JPG",
        "2.Jpeg",
        "3.png",
        "4.tif",
        "5.webp",
        "6.bmp",
        "7.gif",
        "8.x.png",
        "9.jpg.txt",
    ]
    written(tmp_path, {f"ant/{name}": b"x" for name in [*names, "png", ".png"]})
    classes(tmp_path, {"bee": 1})
    index = index_of(tmp_path)
    found = sorted(key for key in keys(index.train + index.test) if key.startswith("ant"))
    assert found == [f"ant/{name}" for name in names[:8]]


def test_links_are_followed_wherever_they_lead(tmp_path: Path) -> None:
    elsewhere = classes(tmp_path / "elsewhere", {"cow": 2, "dog": 1})
    root = classes(tmp_path / "data", {"ant": 2})
    (root / "cow").symlink_to(elsewhere / "cow")
    (root / "ant" / "dog.png").symlink_to(elsewhere / "dog" / "0.png")
    (root / "ant" / "gone.png").symlink_to(tmp_path / "nothing")
    index = index_of(root)
    items = [item for item in index.train + index.test if "dog" in item.key or "cow" in item.key]
    assert len(items) == 3
    assert all(isinstance(image, np.ndarray) for image in images_of(root, items))
    (broken,) = images_of(root, [Item("ant/gone.png", 0)])
    assert str(broken) == f"{root}/ant/gone.png: cannot be read: No such file or directory"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    classes(tmp_path, {"ant/red": 1, "bee": 1})
    (tmp_path / "ant" / "red" / "all").symlink_to(tmp_path / "ant")
    assert "is a link to a folder that it lies in" in refusal(tmp_path)


def test_an_image_in_both_halves_is_refused(tmp_path: Path) -> None:
    classes(tmp_path, {"train/ant": 2, "train/bee": 2, "test/ant": 1, "test/bee": 1})
    (tmp_path / "test/bee/1.png").symlink_to(tmp_path / "train/bee/0.png")
    os.link(tmp_path / "train/ant/1.png", tmp_path / "test/ant/9.png")
    assert refusal(tmp_path) == (
        f"{tmp_path}: 2 files are both training and test images: train/ant/1.png = "
        "test/ant/9.png, train/bee/0.png = test/bee/1.png"
    )


def test_names_of_all_kinds_come_out_as_they_are(tmp_path: Path) -> None:
    names = [
        "a, b",
        'say "hi"',
        "two  spaces",
        "naïve <b>&amp;",
        "50% $x_1$ #{}",
        "鳥",
        "it's",
        "a;b",
    ]
    index = index_of(classes(tmp_path, dict.fromkeys(names, 2)))
    assert index.class_names == tuple(sorted(names))
    for image in images_of(tmp_path, index.train):
        assert isinstance(image, np.ndarray)


def test_two_forms_of_a_letter_are_one_name(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    assert composed != decomposed
    classes(tmp_path, {decomposed: 2, "z": 2})
    index = index_of(tmp_path)
    assert index.class_names == ("z", composed)
    assert isinstance(images_of(tmp_path, index.train[-1:])[0], np.ndarray)
    classes(tmp_path, {composed: 2})
    assert "two class folders are called 'é' in two forms of Unicode" in refusal(tmp_path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    classes(tmp_path, {"ant": 1, "bee": 1})
    try:
        (tmp_path / "ant" / os.fsdecode(b"\xff.png")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system admits only UTF-8")
    assert "the name is not valid UTF-8; rename the file" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        (
            {"ant": 2, "bee": 0, "cow": 0},
            "2 class folders hold no images: bee, cow; fill or remove",
        ),
        ({"ant": 0, "bee": 0}, "holds no images in any of its folders (ant, bee)"),
        ({"ant": 4}, "all 4 images are of the single class 'ant'; at least two classes are needed"),
        ({"all/ant": 2, "all/bee": 2}, "if these are the classes, name {root}/all"),
        ({"train/ant": 2, "train/bee": 2}, "if these are the classes, name {root}/train"),
        ({"train/ant": 2, "train/bee": 0, "test/ant": 1, "test/bee": 1}, "hold no images: bee;"),
        ({}, "has no class folders (0 images lie in it directly)"),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused(
    tmp_path: Path, counts: dict[str, int], problem: str
) -> None:
    text = refusal(classes(tmp_path, counts))
    assert text.startswith(str(tmp_path))
    assert problem.format(root=tmp_path) in text


def test_images_without_class_folders_are_refused(tmp_path: Path) -> None:
    written(tmp_path, {f"{n}.png": b"x" for n in range(3)})
    assert "has no class folders (3 images lie in it directly); give each class a" in refusal(
        tmp_path
    )


def test_too_few_classes_are_said(tmp_path: Path) -> None:
    classes(tmp_path, {"ant": 2, "bee": 2, "cow": 2})
    assert refusal(tmp_path, 4) == (
        f"{tmp_path}: has 3 classes, the protocol asks for 4; set classes = 3 or fewer"
    )
    assert index_of(tmp_path, 2).class_names == ("ant", "bee")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"test_fractoin": 0.2}, "unknown option 'test_fractoin'; did you mean 'test_fraction'?"),
        ({"test_fraction": 0.0}, "test_fraction = 0.0 is not between 0 and 1"),
        ({"test_fraction": 1}, "test_fraction = 1 is not between 0 and 1"),
        ({"test_fraction": "0.2"}, "test_fraction = '0.2' is not between 0 and 1"),
        ({"split_seed": 0.5}, "split_seed = 0.5 is not a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: Options, problem: str
) -> None:
    classes(tmp_path, {"ant": 2, "bee": 2})
    with pytest.raises(UsageError) as caught:
        index_of(tmp_path, options=options)
    assert str(caught.value) == f"reader_options: {problem}"


def test_what_is_not_there_or_no_folder_is_said(tmp_path: Path) -> None:
    written(tmp_path, {"images.zip": b"PK"})
    assert "neither a folder nor a CSV (.csv); unpack an archive" in refusal(
        tmp_path / "images.zip"
    )
    assert "nowhere: no such folder or CSV; name your folder or CSV" in refusal(
        tmp_path / "nowhere"
    )
    with pytest.raises(DataError, match=r'no images are named; name your folder .* data = "path'):
        FolderReader().find([])


def test_a_protocols_own_data_are_never_replaced_by_others(tmp_path: Path) -> None:
    other = classes(tmp_path / "other", {"ant": 2, "bee": 2})
    with pytest.raises(DataError, match="mine: no such folder"):
        FolderReader().find([tmp_path / "mine", other])


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    root = classes(tmp_path / "data", {"ant": 2, "bee": 2})
    digests = [FolderReader().find([root]).digest]
    assert FolderReader().find([root]).digest == digests[0]
    root.rename(tmp_path / "moved")
    root = tmp_path / "moved"
    assert FolderReader().find([root]).digest == digests[0], "wherever the folder lies"
    image = root / "ant" / "0.png"
    before = image.stat()
    time.sleep(0.05)  # more than the steps in which the system keeps time
    image.write_bytes(image.read_bytes()[::-1])
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = image.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    digests.append(FolderReader().find([root]).digest)
    image.rename(root / "ant" / "7.png")
    digests.append(FolderReader().find([root]).digest)
    written(root, {"bee/9.png": b""})
    digests.append(FolderReader().find([root]).digest)
    assert len(set(digests)) == 4


def broken_folder(root: Path) -> Path:
    """Write two classes of ten, in one of which four files are broken."""
    classes(root, {"ant": 10, "bee": 10})
    noise = io.BytesIO()
    Image.effect_noise((64, 64), 60).convert("RGB").save(noise, "JPEG")
    bad = {"zero.png": b"", "cut.jpg": noise.getvalue()[:700], "text.png": b"<html>"}
    sliver = io.BytesIO()
    Image.new("RGB", (1, 60_000)).save(sliver, "PNG")
    bad["sliver.png"] = sliver.getvalue()
    return written(root, {f"bee/{name}": content for name, content in bad.items()})


def run(toml: Path, tmp_path: Path, skip_broken: bool = False) -> fscil_bench.StoredRun:
    return fscil_bench.run(
        method="ncm",
        protocol=str(toml),
        overrides={"epochs": 1, "milestones": ()},
        skip_broken=skip_broken,
        results=tmp_path / "results",
        cache=tmp_path / "cache",
    )


def protocol_of(root: Path, tmp_path: Path, data: str, count: int = 3, options: str = "") -> Path:
    toml = tmp_path / "my.toml"
    toml.write_text(
        f"""
        name = "mine"
        title = "Mine"
        dataset = "folder"
        data = {data!r}
        {options}
        classes = {count}
        base_classes = {count - 1}
        way = 1
        shot = 2
        sessions = 1
        backbone = "resnet20"
        [images]
        size = 16
        mean = [0.5, 0.5, 0.5]
        std = [0.25, 0.25, 0.25]
        [recipe]
        epochs = 1
        """,
        encoding="utf-8",
    )
    assert root.exists()
    return toml


def test_broken_images_are_listed_together_or_skipped_and_counted(tmp_path: Path) -> None:
    root = broken_folder(tmp_path / "data")
    toml = protocol_of(root, tmp_path, "data", count=2)
    with pytest.raises(DataError) as caught:
        run(toml, tmp_path)
    text = str(caught.value)
    assert text.startswith("data set 'folder': 4 images cannot be used (--skip-broken leaves")
    empty, long = "zero.png: the image file is empty", "sliver.png: refused, 1×60000 pixels"
    for name in (empty, "cut.jpg: cannot", "text.png: cannot", long):
        assert f"\n  {root}/bee/{name}" in text
    stored = run(toml, tmp_path, skip_broken=True)
    assert stored.record.flags == ("4 broken images skipped",)
    half = stored.record.train_images, stored.record.test_images
    assert sum(low + high for low, high in half) == 20


def test_a_run_from_end_to_end_with_data_beside_the_protocol(tmp_path: Path) -> None:
    names = ["a, b", 'say "hi"', "naïve"]
    root = classes(tmp_path / "my images", dict.fromkeys(names, 8))
    options = "reader_options = {test_fraction = 0.25, split_seed = 4}"
    stored = run(protocol_of(root, tmp_path, "my images", options=options), tmp_path)
    assert stored.record.class_names == ("a, b", "naïve", 'say "hi"')
    assert stored.record.train_images == (6, 6)
    assert [session.images for session in stored.metrics] == [4, 6]
    assert stored.record.flags == ()


def test_a_scanned_folder_runs(tmp_path: Path) -> None:
    root = classes(tmp_path / "birds", {name: 8 for name in ("ant", "bee", "cow", "dog")})
    toml = tmp_path / "elsewhere" / "my.toml"
    toml.parent.mkdir()
    toml.write_text(scan(root, way=1, shot=3, base="50%"), encoding="utf-8")
    stored = run(toml, tmp_path)
    assert [session.classes for session in stored.metrics] == [2, 3, 4]
    assert stored.record.spec.protocol.name == "birds"


def test_a_class_with_too_few_images_is_named(tmp_path: Path) -> None:
    root = classes(tmp_path / "data", {"ant": 8, "bee": 8, "cow": 2})
    with pytest.raises(DataError) as caught:
        run(protocol_of(root, tmp_path, "data"), tmp_path)
    assert "class 'cow' of data set 'folder' has 1 training images" in str(caught.value)
    assert "needs 2 (shot)" in str(caught.value)


def test_a_huge_or_unreadable_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes(tmp_path, {"ant": 1, "bee": 1})
    (tmp_path / "ant" / "folder.png").mkdir()
    monkeypatch.setattr("fscil_bench.protocols.folder.reader.SIZE_LIMIT", 10)
    os.mkfifo(tmp_path / "bee" / "pipe.png")
    items = [Item(f"{name}.png", 0) for name in ("ant/0", "ant/folder", "bee/pipe")]
    huge, folder, pipe = images_of(tmp_path, items)
    assert (
        str(pipe)
        == f"{tmp_path}/bee/pipe.png: refused, it is no file but a pipe, a device or the like"
    )
    assert "bytes are absurd (at most 10)" in str(huge)
    assert isinstance(folder, DataError)


def listed(tmp_path: Path) -> list[list[str]]:
    """Write 2 × 5 images and return the rows that list them."""
    classes(tmp_path / "pictures", {"x": 5, "y": 5})
    labels = {"x": "a, b", "y": 'say "hi"'}
    return [
        [f"pictures/{folder}/{n}.png", label] for folder, label in labels.items() for n in range(5)
    ]


def test_a_table_without_halves(tmp_path: Path) -> None:
    rows = listed(tmp_path)
    path = table(tmp_path / "list.csv", [["path", "label"], *rows])
    index = index_of(path)
    assert index.class_names == ("a, b", 'say "hi"')
    assert len(index.test) == 2
    assert sorted(keys(index.train + index.test)) == sorted(row[0] for row in rows)
    shuffled = table(
        tmp_path / "other.csv", [["label", "path"], *(row[::-1] for row in rows[::-1])]
    )
    assert index_of(shuffled) == index, "the order of rows and columns does not matter"
    for image in images_of(path, index.train):
        assert isinstance(image, np.ndarray)


def test_a_table_with_halves(tmp_path: Path) -> None:
    rows = [[*row, "test" if n % 5 == 3 else "train"] for n, row in enumerate(listed(tmp_path))]
    index = index_of(table(tmp_path / "list.csv", [["path", "label", "split"], *rows]))
    assert keys(index.test) == ["pictures/x/3.png", "pictures/y/3.png"]
    assert len(index.train) == 8


def test_marks_spaces_blank_lines_and_backslashes_do_not_matter(tmp_path: Path) -> None:
    rows = listed(tmp_path)
    plain = index_of(table(tmp_path / "list.csv", [["path", "label"], *rows]))
    text = "\ufeff Path , Label\r\n\r\n" + "".join(
        '{}, "{}"\r\n ,\r\n'.format(path.replace("/", "\\"), label.replace('"', '""'))
        for path, label in rows
    )
    other = tmp_path / "other.csv"
    other.write_bytes(text.encode())
    assert index_of(other) == plain


def test_absolute_paths_are_taken_as_they_are(tmp_path: Path) -> None:
    rows = [[str(tmp_path / path), label] for path, label in listed(tmp_path)]
    (tmp_path / "lists").mkdir()
    path = table(tmp_path / "lists" / "list.CSV", [["path", "label"], *rows])
    index = index_of(path)
    assert isinstance(images_of(path, index.test)[0], np.ndarray)


@pytest.mark.parametrize(
    ("rows", "line", "problem"),
    [
        ([["file", "label"]], 1, "the header 'file,label' lacks path; it must name path,label"),
        ([["x/0.png", "ant"]], 1, "the header 'x/0.png,ant' lacks path, label"),
        ([], 1, "the header '' lacks path, label"),
        ([["path", "label", "path"]], 1, "has path twice"),
        ([["path", "label"], ["pictures/x/0.png"]], 2, "has 1 values for the columns path,label"),
        ([["path", "label"], ["pictures/x/0.png", "a", "b"]], 2, "put a value with a comma into"),
        ([["path", "label"], ["pictures/x/0.png", " "]], 2, "label is empty"),
        ([["path", "label"], ["", "ant"]], 2, "path is empty"),
        ([["path", "label"], ["pictures", "ant"]], 2, "pictures is a folder, not an image"),
        (
            [["path", "label", "split"], ["pictures/x/0.png", "ant", "valid"]],
            2,
            "split is 'valid'; it must be train or test",
        ),
        ([["path", "label", "split"], ["pictures/x/0.png", "ant", ""]], 2, "split is ''"),
        (
            [["path", "label"], ["pictures/x/0.png", "ant"], ["pictures/x/../x/0.png", "bee"]],
            3,
            "pictures/x/../x/0.png is listed again, after line 2; an image has one label and one",
        ),
        (
            [
                ["path", "label", "split"],
                ["pictures/x/0.png", "ant", "train"],
                [],
                ["pictures/x/0.png", "ant", "test"],
            ],
            4,
            "pictures/x/0.png is listed again, after line 2",
        ),
    ],
)
def test_a_wrong_line_is_named(
    tmp_path: Path, rows: list[list[str]], line: int, problem: str
) -> None:
    listed(tmp_path)
    path = table(tmp_path / "list.csv", rows)
    text = refusal(path)
    assert text.startswith(f"{path}:{line}: "), text
    assert problem in text


def test_absent_images_are_listed_with_their_lines(tmp_path: Path) -> None:
    rows = [*listed(tmp_path), *([f"gone/{n}.png", "ant"] for n in range(25))]
    path = table(tmp_path / "list.csv", [["path", "label"], *rows])
    text = refusal(path)
    assert text.startswith(f"{path}: 25 of 35 images are not there (paths are relative to")
    assert f"\n  {path}:12: gone/0.png\n" in text
    assert text.endswith(f"\n  {path}:31: gone/19.png\n  and 5 more")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"path,label\n", "lists no images"),
        (b"path,label\npictures/x/0.png,ant\n", "of the single class 'ant'"),
        (b'path,label\npictures/x/0.png,"ant\n', "not a CSV in UTF-8"),
        (b"path,label\n\xff\xfe", "not a CSV in UTF-8"),
        (b"path,label\npictures/x/0.png,ant\npictures/x\x00,ant\n", ":3: path holds a NUL"),
    ],
)
def test_a_table_that_is_no_data_set_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    listed(tmp_path)
    path = tmp_path / "list.csv"
    path.write_bytes(content)
    text = refusal(path)
    assert text.startswith(str(path))
    assert problem in text


def test_a_tables_run_from_end_to_end(tmp_path: Path) -> None:
    rows = [[*row, "test" if n % 5 > 2 else "train"] for n, row in enumerate(listed(tmp_path))]
    path = table(tmp_path / "list.csv", [["path", "label", "split"], *rows])
    stored = run(protocol_of(path, tmp_path, "list.csv", count=2), tmp_path)
    assert stored.record.class_names == ("a, b", 'say "hi"')
    assert [session.images for session in stored.metrics] == [2, 4]
