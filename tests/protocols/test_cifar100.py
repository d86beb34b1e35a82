from __future__ import annotations

import hashlib
import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fscil_bench.errors import DataError, UsageError

DATASET = ("cifar100", 4)
MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
FILES = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
NAMES = ["apple", "aquarium_fish", "bébé", "sweet, pepper", 'so-called "bee"', "bed"]
TRAIN, TEST = 8, 3
TOP = "cifar-100-python"

Files = dict[str, bytes]
Tables = dict[str, dict[str, Any]]
Pickled = Callable[[Any], bytes]


def half(count: int, seed: int) -> dict[str, Any]:
    """Return a half in the published form: `count` images of each class, in mixed order."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(len(NAMES)), count))
    rows = 20 * labels[:, None] + random.integers(0, 20, (len(labels), 3072))
    return {
        "filenames": [f"image_s_{n:06d}.png" for n in range(len(labels))],
        "batch_label": f"batch of {seed}",
        "fine_labels": labels.tolist(),
        "coarse_labels": (labels // 5).tolist(),
        "data": rows.astype(np.uint8),
    }


LABELS, DATA = (half(TRAIN, 0)[key] for key in ("fine_labels", "data"))


@pytest.fixture
def tables() -> Tables:
    return {
        "train": half(TRAIN, 0),
        "test": half(TEST, 1),
        "meta": {"fine_label_names": NAMES, "coarse_label_names": ["a", "b"]},
    }


@pytest.fixture
def files(tables: Tables, python2_pickle: Pickled) -> Files:
    return {name: python2_pickle(table) for name, table in tables.items()}


def archive(copies: Any, files: Files) -> Path:
    path: Path = copies.write({f"{TOP}/{name}": files[name] for name in files}, f"{TOP}.tar.gz")
    return path


def unpacked(copies: Any, files: Files, place: str = ".") -> Path:
    path: Path = copies.write(files, f"{place}/{TOP}")
    return path


def test_items_and_pixels_are_those_of_the_published_tables(
    files: Files, tables: Tables, copies: Any
) -> None:
    path = archive(copies, files)
    index = copies.index(path)
    assert index.class_names == tuple(NAMES[:4])
    assert index.class_keys == ("0", "1", "2", "3")
    for name, items in (("train", index.train), ("test", index.test)):
        labels, data = tables[name]["fine_labels"], tables[name]["data"].reshape(-1, 3, 32, 32)
        expected = [n for n, label in enumerate(labels) if label < 4]
        assert [item.number for item in items] == expected, "the index in the published half"
        assert [item.label for item in items] == [labels[n] for n in expected]
        assert [item.key for item in items] == [f"{name}/{n:05d}" for n in expected]
        assert np.array_equal(copies.images(path, items), data[expected].transpose(0, 2, 3, 1))
    (small,) = copies.images(path, index.test[-1:], size=16)
    assert small.shape == (16, 16, 3)
    assert abs(int(small.mean()) - 20 * index.test[-1].label - 10) < 3
    assert copies.images(path, []) == []


@pytest.mark.parametrize("place", ["root", "parent", "other name"])
def test_a_folder_gives_the_same_as_the_archive(files: Files, copies: Any, place: str) -> None:
    folder = unpacked(copies, files)
    if place == "other name":
        folder = folder.rename(copies.folder / "cifar100")
    index = copies.index(folder if place == "root" else copies.folder)
    packed = archive(copies, files)
    assert index == copies.index(packed)
    assert np.array_equal(copies.images(folder, index.test), copies.images(packed, index.test))


def test_pickles_of_python_3_are_read(tables: Tables, copies: Any) -> None:
    text = {name: pickle.dumps(table) for name, table in tables.items()}
    as_bytes = {
        name: pickle.dumps({key.encode(): value for key, value in table.items()}, protocol=2)
        for name, table in tables.items()
    }
    index = copies.index(unpacked(copies, text, "text"))
    assert copies.index(unpacked(copies, as_bytes, "bytes")) == index


def test_another_copy_is_unofficial_and_says_by_how_much(files: Files, copies: Any) -> None:
    path = archive(copies, files)
    reason = str(copies.find(path).unofficial)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    assert f"has {path.stat().st_size} bytes and MD5 {md5}, the published one 169001437" in reason
    assert MD5 in reason
    path.unlink()
    reason = str(copies.find(unpacked(copies, files).parent).unofficial)
    md5 = hashlib.md5(files["meta"]).hexdigest()
    assert f"meta has {len(files['meta'])} bytes and MD5 {md5}, the published one" in reason


def test_the_published_copy_is_known_packed_and_unpacked(files: Files, copies: Any) -> None:
    packed, folder = archive(copies, files), unpacked(copies, files)
    published = {packed: MD5, **{folder / n: d for n, d in FILES.items()}}

    def digest(path: Path, algorithm: str) -> str:
        assert algorithm == "md5"
        return published[path]

    sources = [copies.find(path, digest=digest) for path in (packed, folder)]
    assert [source.unofficial for source in sources] == [None, None]
    assert sources[0].digest == sources[1].digest, "the same images are decoded once"


def test_what_is_missing_is_named(files: Files, copies: Any) -> None:
    text = copies.refusal(copies.folder / "nowhere", copies.folder)
    assert text.startswith("neither cifar-100-python.tar.gz nor a folder cifar-100-python")
    assert f"looked in {copies.folder / 'nowhere'}, {copies.folder}." in text
    path = archive(copies, files)
    assert copies.refusal(path, classes=7) == (
        f"{path}: has 6 classes, but the protocol asks for 7; set classes = 6 or fewer"
    )
    del files["meta"]
    text = copies.refusal(archive(copies, files))
    assert "has no cifar-100-python/meta; it holds cifar-100-python/train, cifar-100-" in text


@pytest.mark.parametrize("name", ["train", "test", "meta"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_inner_file_is_named_with_size_and_digest(
    files: Files, copies: Any, name: str, packed: bool
) -> None:
    content = files[name] = files[name][: len(files[name]) // 2]
    path = (archive if packed else unpacked)(copies, files)
    where = f"{path}: {TOP}/{name}" if packed else str(path / name)
    md5 = hashlib.md5(content).hexdigest()
    expected = f"{where} ({len(content)} bytes, MD5 {md5}): a damaged pickle"
    assert copies.refusal(path).startswith(expected)


def test_a_pickle_that_means_harm_is_refused_by_name(
    files: Files, harmful: bytes, harm: Path, copies: Any
) -> None:
    files["train"] = harmful
    text = copies.refusal(archive(copies, files))
    assert f"refused, it asks for {open.__module__}.open" in text
    assert not harm.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": DATA[:, :3000]}, "data is an array of uint8 (48, 3000); with 48 fine_labels it"),
        ({"data": [1, 2]}, "data is a list; with 48 fine_labels it should be an array of uint8 (4"),
        ({"fine_labels": [*LABELS[:7], 6, *LABELS[8:]]}, "image 7 has the fine label 6, outside 0"),
        ({"fine_labels": [*LABELS[:-1], "six"]}, "fine_labels: expected a list of whole numbers"),
        ({"fine_labels": LABELS[:-1]}, "data is an array of uint8 (48, 3072); with 47 fine_labels"),
        ({"fine_labels": None}, "has no fine_labels; is it CIFAR100? It holds batch_label, coarse"),
        ({"fine_labels": [5 if n == 2 else n for n in LABELS]}, "no images of 1 of the 4 classes "),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    tables: Tables, python2_pickle: Pickled, copies: Any, changes: dict[str, Any], expected: str
) -> None:
    train = tables["train"] | changes
    tables["train"] = {key: value for key, value in train.items() if value is not None}
    path = unpacked(copies, {name: python2_pickle(table) for name, table in tables.items()})
    assert copies.refusal(path).startswith(f"{path / 'train'}: {expected}")


def test_class_folders_are_read_without_an_order(copies: Any) -> None:
    names = ["aquarium_fish", "apple", *(f"z{n:02d}" for n in range(98))]
    files = {}
    for half, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(sorted(names)):
            for number in range(count):
                buffer = io.BytesIO()
                Image.new("RGB", (32, 32), (label, number, count)).save(buffer, "PNG")
                files[f"cifar100/{half}/{name}/{number:04d}.png"] = buffer.getvalue()
    root = copies.write(files)
    assert "use --split seeded" in str(copies.find(root).unofficial)
    index = copies.index(root, classes=2)
    assert (index.class_names, index.class_keys) == (("apple", "aquarium_fish"), ("0", "1"))
    assert [item.label for item in index.train] == [0, 0, 0, 1, 1, 1]
    assert all((item.number or 0) < 0 for item in index.train), "no published row can mean them"
    corners = [pixels[0, 0].tolist() for pixels in copies.images(root, index.test)]
    assert corners == [[0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 2]]
    shutil.rmtree(root / "cifar100" / "test" / "z01")
    assert "train/ has images in 100 class folders and test/ in 99; the same 100" in (
        copies.refusal(root)
    )


def test_a_small_run(files: Files, copies: Any) -> None:
    archive(copies, files)
    asked: dict[str, Any] = {
        "overrides": {"classes": 6, "base_classes": 4, "way": 1, "sessions": 2},
        "data_root": copies.folder,
        "precision": "fp32",
    }
    shots = r"splits.csv:2: class '60', samples .* not in data set 'cifar100' .cifar-100-python.tar"
    with pytest.raises(UsageError, match=shots):
        copies.run("cifar100", unofficial_data=True, **asked)
    assert not list((copies.folder / "cache").glob("images/*")), "known before it is decoded"
    stored = copies.run("cifar100", split="seeded", unofficial_data=True, **asked)
    assert stored.record.class_names == tuple(NAMES)
    assert stored.record.train_images == (TRAIN, TRAIN)
    assert len(stored.targets) == len(NAMES) * TEST
    assert any("unofficial data (cifar-100-python.tar.gz has" in f for f in stored.record.flags)
    asked["results"] = copies.folder / "other"
    with pytest.raises(DataError, match="--unofficial-data uses this copy") as refused:
        copies.run("cifar100", split="seeded", **asked)
    assert refused.value.remedy == ("--unofficial-data",)
    with pytest.raises(DataError, match="not in it: --split seeded draws others") as refused:
        copies.run("cifar100", **asked)
    assert refused.value.remedy == ("--unofficial-data", "--split", "seeded")
    with pytest.raises(UsageError, match=shots):
        copies.run("cifar100", unofficial_data=True, **asked)
    assert not asked["results"].exists(), "known before base training"
