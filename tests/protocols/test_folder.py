from __future__ import annotations

import csv
import io
import os
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscil_bench.data.reader import Item
from fscil_bench.data.scan import scan
from fscil_bench.errors import DataError, UsageError

DATASET = ("folder", 0, 12)


def picture(*colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 12), colour).save(buffer, "PNG")
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
        written(root / name, {f"{n}.png": picture(len(name), n, 0) for n in range(count)})
    return root


def table(path: Path, rows: Iterable[Sequence[str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def keys(items: Iterable[Item]) -> list[str]:
    return [item.key for item in items]


def test_a_folder_for_each_class_in_the_order_of_their_names(tmp_path: Path, copies: Any) -> None:
    index = copies.index(classes(tmp_path, {"b": 5, "10": 5, "9": 5, "B": 5, "ä": 5}))
    names = ("10", "9", "B", "b", "ä")
    assert index.class_names == names
    assert [item.label for item in index.test] == [0, 1, 2, 3, 4]
    assert len(index.train) == 20
    everything = sorted(f"{name}/{n}.png" for name in names for n in range(5))
    assert sorted(keys(index.train) + keys(index.test)) == everything


def test_the_split_depends_on_seed_and_class_alone(tmp_path: Path, copies: Any) -> None:
    one = copies.index(classes(tmp_path / "1", {"ant": 20, "bee": 20}))
    two = copies.index(classes(tmp_path / "2", {"aaa": 3, "ant": 20, "bee": 20, "cat": 7}))
    assert [key for key in keys(two.test) if key[:3] in ("ant", "bee")] == keys(one.test)
    assert keys(one.train) == sorted(keys(one.train))
    assert len(one.test) == 8, "a fifth of each class"
    other = copies.index(tmp_path / "1", options={"split_seed": 1})
    assert keys(other.test) != keys(one.test)
    ant, bee = ([k[4:] for k in keys(one.test) if k.startswith(name)] for name in ("ant", "bee"))
    assert ant != bee, "classes are drawn one by one"


@pytest.mark.parametrize(
    ("count", "fraction", "tests"),
    [(2, 0.01, 1), (2, 0.99, 1), (10, 0.25, 2), (9, 0.5, 4), (1, 0.5, 0)],
)
def test_both_halves_get_an_image_where_there_are_two(
    tmp_path: Path, copies: Any, count: int, fraction: float, tests: int
) -> None:
    root = classes(tmp_path, {"a": count, "b": 2})
    index = copies.index(root, options={"test_fraction": fraction})
    assert sum(item.label == 0 for item in index.test) == tests
    assert sum(item.label == 0 for item in index.train) == count - tests


@pytest.mark.parametrize(
    "names",
    ["train test", "Train TEST", "train val", "Training Testing", "TRAIN VAL", "train validation"],
)
def test_halves_are_taken_as_they_are(tmp_path: Path, copies: Any, names: str) -> None:
    train, test = names.split()
    classes(tmp_path / train, {"ant": 2, "bee": 2})
    classes(tmp_path / test, {"bee": 1, "ant": 2})
    index = copies.index(tmp_path)
    assert index.class_names == ("ant", "bee")
    in_train = ["ant/0.png", "ant/1.png", "bee/0.png", "bee/1.png"]
    assert keys(index.train) == [f"{train}/{file}" for file in in_train]
    assert keys(index.test) == [f"{test}/{file}" for file in in_train[:3]]
    with pytest.raises(UsageError, match="split_seed has no effect, the data have halves"):
        copies.index(tmp_path, options={"split_seed": 3})


def test_of_three_parts_the_test_half_is_the_one_with_labels(tmp_path: Path, copies: Any) -> None:
    def used(root: Path) -> set[str]:
        index = copies.index(root)
        return {key.partition("/")[0] for key in keys(index.train + index.test)}

    for half in ("train", "test", "val"):
        classes(tmp_path / "a" / half, {"ant": 2, "bee": 2})
    assert used(tmp_path / "a") == {"train", "test"}
    for half, names in (("train", "ab"), ("val", "ab"), ("test", ["images"])):
        classes(tmp_path / "b" / half, dict.fromkeys(names, 2))
    assert used(tmp_path / "b") == {"train", "val"}
    grown = classes(tmp_path / "b", {"train/c": 2, "val/c": 1})
    assert "base_classes = 2" in scan(grown, 1, 1, "2")


def test_classes_that_happen_to_be_called_so_are_classes(tmp_path: Path, copies: Any) -> None:
    index = copies.index(classes(tmp_path, {"train": 3, "test": 3, "bus": 3}))
    assert index.class_names == ("bus", "test", "train")


def test_what_systems_leave_behind_is_ignored(tmp_path: Path, copies: Any) -> None:
    expected = copies.index(classes(tmp_path, {"ant": 3, "bee": 3}))
    litter = ["__MACOSX/ant/0.png", ".git/x.png", "ant/._0.png", "ant/.DS_Store", "ant/Thumbs.db"]
    litter += ["bee/desktop.ini", "bee/notes.txt", "ant/__MACOSX/1.png", "README.md", "loose.png"]
    written(tmp_path, dict.fromkeys(litter, b"litter"))
    assert copies.index(tmp_path) == expected


def test_files_are_images_by_their_ending_in_any_capitals_at_any_depth(
    tmp_path: Path, copies: Any
) -> None:
    names = [f"{name}.png" for name in ("3", "8.x", "red/1", "black/big/1")]
    names += ["1.JPG", "2.Jpeg", "4.tif", "5.webp", "6.bmp", "7.gif"]
    others = ["9.jpg.txt", "png", ".png"]
    written(tmp_path / "ant", dict.fromkeys([*names, *others], b"x"))
    index = copies.index(classes(tmp_path, {"bee": 1}))
    assert index.class_names == ("ant", "bee")
    found = {key for key in keys(index.train + index.test) if key.startswith("ant")}
    assert found == {f"ant/{name}" for name in names}


def test_links_are_followed_wherever_they_lead(tmp_path: Path, copies: Any) -> None:
    elsewhere = classes(tmp_path / "elsewhere", {"cow": 2, "dog": 1})
    root = classes(tmp_path / "data", {"ant": 2})
    (root / "cow").symlink_to(elsewhere / "cow")
    (root / "ant" / "dog.png").symlink_to(elsewhere / "dog" / "0.png")
    (root / "ant" / "gone.png").symlink_to(tmp_path / "nothing")
    index = copies.index(root)
    items = [item for item in index.train + index.test if "dog" in item.key or "cow" in item.key]
    assert len(items) == 3
    assert all(isinstance(image, np.ndarray) for image in copies.images(root, items))
    (broken,) = copies.images(root, [Item("ant/gone.png", 0)])
    assert str(broken) == f"{root}/ant/gone.png: cannot be read: No such file or directory"
    (root / "ant" / "all").symlink_to(root / "ant")
    assert "is a link to a folder that it lies in" in copies.refusal(root)


def test_an_image_in_both_halves_is_refused(tmp_path: Path, copies: Any) -> None:
    classes(tmp_path, {"train/ant": 2, "train/bee": 2, "test/ant": 1, "test/bee": 1})
    (tmp_path / "test/bee/1.png").symlink_to(tmp_path / "train/bee/0.png")
    os.link(tmp_path / "train/ant/1.png", tmp_path / "test/ant/9.png")
    assert copies.refusal(tmp_path) == (
        f"{tmp_path}: 2 files are both training and test images: train/ant/1.png = "
        "test/ant/9.png, train/bee/0.png = test/bee/1.png"
    )


def test_two_forms_of_a_letter_are_one_name(tmp_path: Path, copies: Any) -> None:
    composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    index = copies.index(classes(tmp_path, {decomposed: 2, "z": 2}))
    assert index.class_names == ("z", composed)
    assert isinstance(copies.images(tmp_path, index.train[-1:])[0], np.ndarray)
    classes(tmp_path, {composed: 2})
    assert "two class folders are called 'é' in two forms of Unicode" in copies.refusal(tmp_path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path, copies: Any) -> None:
    classes(tmp_path, {"ant": 1, "bee": 1})
    try:
        (tmp_path / "ant" / os.fsdecode(b"\xff.png")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system admits only UTF-8")
    assert "the name is not valid UTF-8; rename the file" in copies.refusal(tmp_path)


@pytest.mark.parametrize(
    ("folders", "problem"),
    [
        ("ant:2 bee:0 cow:0", "2 class folders hold no images: bee, cow; fill or remove"),
        ("ant:0 bee:0", "holds no images in any of its folders (ant, bee)"),
        ("ant:4", "all 4 images are of the single class 'ant'; at least two classes are needed"),
        ("all/ant:2 all/bee:2", "if these are the classes, name {root}/all"),
        ("train/ant:2 train/bee:2", "if these are the classes, name {root}/train"),
        ("train/ant:2 train/bee:0 test/ant:1 test/bee:1", "hold no images: bee;"),
        ("", "has no class folders (0 images lie in it directly)"),
        (".:3", "has no class folders (3 images lie in it directly); give each class a"),
        ("train/ant:1 test/ant:1 cow:2", "has train/ and test/, and beside them cow; which are"),
        ("train/a:1 train/b:1 test/x:1", "train/ and test/ have no class in common (a, b; x)"),
        (
            "train/ant:1 train/bee:1 test/ant:1",
            "lacks the class 'bee', which {root}/train has; both halves need the same classes",
        ),
        (
            "my_train_set/ant:2 my_test_set/ant:2",
            "my_test_set, my_train_set look like halves, they hold the same classes (ant)",
        ),
        (
            "train/ant:2 Training/ant:2 test/ant:2",
            "has both Training/ and train/; which is the train half?",
        ),
    ],
)
def test_a_folder_that_is_no_data_set_is_refused(
    tmp_path: Path, copies: Any, folders: str, problem: str
) -> None:
    counts = {name: int(count) for name, count in (one.split(":") for one in folders.split())}
    text = copies.refusal(classes(tmp_path, counts))
    assert text.startswith(str(tmp_path))
    assert problem.format(root=tmp_path) in text


def test_too_few_classes_are_said(tmp_path: Path, copies: Any) -> None:
    classes(tmp_path, {"ant": 2, "bee": 2, "cow": 2})
    assert copies.refusal(tmp_path, classes=4) == (
        f"{tmp_path}: has 3 classes, the protocol asks for 4; set classes = 3 or fewer"
    )
    assert copies.index(tmp_path, classes=2).class_names == ("ant", "bee")


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
    tmp_path: Path, copies: Any, options: dict[str, Any], problem: str
) -> None:
    classes(tmp_path, {"ant": 2, "bee": 2})
    with pytest.raises(UsageError) as caught:
        copies.index(tmp_path, options=options)
    assert str(caught.value) == f"reader_options: {problem}"


def test_what_is_not_there_or_no_folder_is_said(tmp_path: Path, copies: Any) -> None:
    archive = copies.write({}, "images.zip")
    assert "neither a folder nor a CSV (.csv); unpack an archive" in copies.refusal(archive)
    # A protocol's own data are never replaced by others.
    other = classes(tmp_path / "other", {"ant": 2, "bee": 2})
    text = copies.refusal(tmp_path / "nowhere", other)
    assert "nowhere: no such folder or CSV; name your folder or CSV" in text
    with pytest.raises(DataError, match=r'no images are named; name your folder .* data = "path'):
        copies.find()


def test_the_digest_follows_names_and_contents(tmp_path: Path, copies: Any) -> None:
    root = classes(tmp_path / "data", {"ant": 2, "bee": 2})
    digests = [copies.find(root).digest]
    root = root.rename(tmp_path / "moved")
    assert copies.find(root).digest == digests[0], "wherever the folder lies"
    image = root / "ant" / "0.png"
    before = image.stat()
    time.sleep(0.05)  # more than the steps in which the system keeps time
    image.write_bytes(image.read_bytes()[::-1])
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = image.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    digests.append(copies.find(root).digest)
    image.rename(root / "ant" / "7.png")
    digests.append(copies.find(root).digest)
    written(root, {"bee/9.png": b""})
    digests.append(copies.find(root).digest)
    assert len(set(digests)) == 4


def broken_folder(root: Path) -> Path:
    """Write two classes of ten, in one of which four files are broken."""
    noise, sliver = io.BytesIO(), io.BytesIO()
    Image.effect_noise((64, 64), 60).convert("RGB").save(noise, "JPEG")
    Image.new("RGB", (1, 60_000)).save(sliver, "PNG")
    bad = {"zero.png": b"", "cut.jpg": noise.getvalue()[:700], "text.png": b"<html>"}
    written(root / "bee", bad | {"sliver.png": sliver.getvalue()})
    return classes(root, {"ant": 10, "bee": 10})


def protocol_of(data: str, tmp_path: Path, count: int = 3, options: str = "") -> str:
    """Write a protocol of so many classes, one of them new, and return its path."""
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
        images = {{size = 16, mean = [0.5, 0.5, 0.5], std = [0.25, 0.25, 0.25]}}
        recipe = {{epochs = 1}}
        """,
        encoding="utf-8",
    )
    return str(toml)


def test_broken_images_are_listed_together_or_skipped_and_counted(
    tmp_path: Path, copies: Any
) -> None:
    root = broken_folder(tmp_path / "data")
    toml = protocol_of("data", tmp_path, count=2)
    with pytest.raises(DataError) as caught:
        copies.run(toml)
    text = str(caught.value)
    assert text.startswith("data set 'folder': 4 images cannot be used (--skip-broken leaves")
    empty, long = "zero.png: the image file is empty", "sliver.png: refused, 1×60000 pixels"
    for name in (empty, "cut.jpg: cannot", "text.png: cannot", long):
        assert f"\n  {root}/bee/{name}" in text
    stored = copies.run(toml, skip_broken=True)
    assert stored.record.flags == ("4 broken images skipped",)
    half = stored.record.train_images, stored.record.test_images
    assert sum(low + high for low, high in half) == 20


def test_a_run_from_end_to_end_with_data_beside_the_protocol(tmp_path: Path, copies: Any) -> None:
    names = ('a, "b"', "two  spaces; 50% $x_1$ #{}", "naïve <b>&amp; 鳥")
    classes(tmp_path / "my images", dict.fromkeys(names, 8))
    options = "reader_options = {test_fraction = 0.25, split_seed = 4}"
    stored = copies.run(protocol_of("my images", tmp_path, options=options))
    assert stored.record.class_names == tuple(sorted(names))
    assert stored.record.train_images == (6, 6)
    assert [session.images for session in stored.metrics] == [4, 6]
    assert stored.record.flags == ()


def test_a_scanned_folder_runs(tmp_path: Path, copies: Any) -> None:
    root = classes(tmp_path / "birds", {name: 8 for name in ("ant", "bee", "cow", "dog")})
    toml = tmp_path / "elsewhere" / "my.toml"
    toml.parent.mkdir()
    toml.write_text(scan(root, way=1, shot=3, base="50%"), encoding="utf-8")
    stored = copies.run(str(toml))
    assert [session.classes for session in stored.metrics] == [2, 3, 4]
    assert stored.record.spec.protocol.name == "birds"


def test_a_huge_or_unreadable_file_is_named(
    tmp_path: Path, copies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes(tmp_path, {"ant": 1, "bee": 1, "ant/folder.png": 0})
    monkeypatch.setattr("fscil_bench.protocols.folder.reader.SIZE_LIMIT", 10)
    os.mkfifo(tmp_path / "bee" / "pipe.png")
    items = [Item(f"{name}.png", 0) for name in ("ant/0", "ant/folder", "bee/pipe")]
    huge, folder, pipe = map(str, copies.images(tmp_path, items))
    assert "bytes are absurd (at most 10)" in huge
    assert folder.startswith(f"{tmp_path}/ant/folder.png: ")
    assert pipe.startswith(f"{tmp_path}/bee/pipe.png: refused, it is no file but a pipe, a device")


def listed(tmp_path: Path) -> list[list[str]]:
    """Write 2 × 5 images and return the rows that list them."""
    classes(tmp_path / "pictures", {"x": 5, "y": 5})
    labels = {"x": "a, b", "y": 'say "hi"'}
    return [[f"pictures/{place}/{n}.png", labels[place]] for place in labels for n in range(5)]


def test_a_table_without_halves(tmp_path: Path, copies: Any) -> None:
    rows = listed(tmp_path)
    path = table(tmp_path / "list.csv", [["path", "label"], *rows])
    index = copies.index(path)
    assert index.class_names == ("a, b", 'say "hi"')
    assert len(index.test) == 2
    assert sorted(keys(index.train + index.test)) == sorted(row[0] for row in rows)
    for image in copies.images(path, index.train):
        assert isinstance(image, np.ndarray)
    backwards = [["label", "path"], *(row[::-1] for row in rows[::-1])]
    assert copies.index(table(tmp_path / "other.csv", backwards)) == index

    text = "\ufeff Path , Label\r\n\r\n" + "".join(
        '{}, "{}"\r\n ,\r\n'.format(path.replace("/", "\\"), label.replace('"', '""'))
        for path, label in rows
    )
    assert copies.index(copies.write({"other.csv": text.encode()}) / "other.csv") == index
    (tmp_path / "lists").mkdir()
    absolute = [["path", "label"], *([str(tmp_path / path), label] for path, label in rows)]
    path = table(tmp_path / "lists" / "list.CSV", absolute)
    assert isinstance(copies.images(path, copies.index(path).test)[0], np.ndarray)


X0 = "pictures/x/0.png"


@pytest.mark.parametrize(
    ("lines", "place", "problem"),
    [
        ("file,label", ":1: ", "the header 'file,label' lacks path; it must name path,label"),
        ("x/0.png,ant", ":1: ", "the header 'x/0.png,ant' lacks path, label"),
        ("", ":1: ", "the header '' lacks path, label"),
        ("path,label,path", ":1: ", "has path twice"),
        (f"path,label|{X0}", ":2: ", "has 1 values for the columns path,label"),
        (f"path,label|{X0},a,b", ":2: ", "put a value with a comma into"),
        (f"path,label|{X0}, ", ":2: ", "label is empty"),
        ("path,label|,ant", ":2: ", "path is empty"),
        ("path,label|pictures,ant", ":2: ", "pictures is a folder, not an image"),
        (f"path,label,split|{X0},ant,valid", ":2: ", "split is 'valid'; it must be train or test"),
        (f"path,label,split|{X0},ant,", ":2: ", "split is ''"),
        (
            f"path,label|{X0},ant|pictures/x/../x/0.png,bee",
            ":3: ",
            "pictures/x/../x/0.png is listed again, after line 2; an image has one label and one",
        ),
        (
            f"path,label,split|{X0},ant,train||{X0},ant,test",
            ":4: ",
            f"{X0} is listed again, after line 2",
        ),
        (f"path,label|{X0},ant|pictures/x\0,ant", ":3: ", "path holds a NUL"),
        ("path,label", ": ", "lists no images"),
        (f"path,label|{X0},ant", ": ", "of the single class 'ant'"),
        (f'path,label|{X0},"ant', ": ", "not a CSV in UTF-8"),
        ("path,label|\udcff", ": ", "not a CSV in UTF-8"),
    ],
)
def test_a_wrong_table_is_refused_with_the_line(
    tmp_path: Path, copies: Any, lines: str, place: str, problem: str
) -> None:
    listed(tmp_path)
    path = tmp_path / "list.csv"
    path.write_text(lines.replace("|", "\n"), "utf-8", "surrogateescape")
    text = copies.refusal(path)
    assert text.startswith(f"{path}{place}"), text
    assert problem in text


def test_absent_images_are_listed_with_their_lines(tmp_path: Path, copies: Any) -> None:
    rows = [*listed(tmp_path), *([f"gone/{n}.png", "ant"] for n in range(25))]
    path = table(tmp_path / "list.csv", [["path", "label"], *rows])
    text = copies.refusal(path)
    assert text.startswith(f"{path}: 25 of 35 images are not there (paths are relative to")
    assert f"\n  {path}:12: gone/0.png\n" in text
    assert text.endswith(f"\n  {path}:31: gone/19.png\n  and 5 more")


def test_a_tables_halves_are_taken_as_they_are(tmp_path: Path, copies: Any) -> None:
    rows = [[*row, "test" if n % 5 > 2 else "train"] for n, row in enumerate(listed(tmp_path))]
    index = copies.index(table(tmp_path / "list.csv", [["path", "label", "split"], *rows]))
    assert keys(index.test) == [f"pictures/{name}/{n}.png" for name in "xy" for n in (3, 4)]
    assert len(index.train) == 6
