from __future__ import annotations

import hashlib
import io
import pickle
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fscil_bench as fb
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import (
    Dataset,
    DatasetIndex,
    ImageArray,
    Item,
    Pixels,
    ReadRequest,
)
from fscil_bench.errors import DataError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec
from fscil_bench.running.sessions import canonical_shots, read_canonical

Cifar100 = load_registry().get("data set", "cifar100").value
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
Pickled = Callable[[Any], bytes]


def request_for(classes: int = 4, size: int = 32) -> ReadRequest:
    return ReadRequest(classes, ImageSpec(size=size, mean=(0.5,) * 3, std=(0.25,) * 3))


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
def tables() -> dict[str, dict[str, Any]]:
    return {
        "train": half(TRAIN, 0),
        "test": half(TEST, 1),
        "meta": {"fine_label_names": NAMES, "coarse_label_names": ["a", "b"]},
    }


@pytest.fixture
def files(tables: dict[str, dict[str, Any]], python2_pickle: Pickled) -> Files:
    return {name: python2_pickle(table) for name, table in tables.items()}


def archive(folder: Path, files: Files) -> Path:
    path = folder / f"{TOP}.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{TOP}/{name}")
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return path


def unpacked(folder: Path, files: Files) -> Path:
    (folder / TOP).mkdir()
    for name, content in files.items():
        (folder / TOP / name).write_bytes(content)
    return folder / TOP


def index_of(path: Path, classes: int = 4) -> DatasetIndex:
    reader = Cifar100()
    return reader.index(reader.find([path]), request_for(classes))


def images_of(path: Path, items: Sequence[Item], size: int = 32) -> list[Pixels | DataError]:
    reader = Cifar100()
    return list(reader.images(reader.find([path]), items, request_for(size=size)))


def message_of(path: Path, classes: int = 4) -> str:
    with pytest.raises(DataError) as caught:
        index_of(path, classes)
    return str(caught.value)


def test_the_archive_is_read_packed(files: Files, tmp_path: Path) -> None:
    index = index_of(archive(tmp_path, files))
    assert index.class_names == tuple(NAMES[:4])
    assert index.class_keys == ("0", "1", "2", "3")
    assert len(index.train) == 4 * TRAIN
    assert len(index.test) == 4 * TEST


def test_an_images_number_is_its_index_in_the_training_set(
    files: Files, tables: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    path = archive(tmp_path, files)
    items = index_of(path).train
    labels = tables["train"]["fine_labels"]
    assert [item.number for item in items] == [n for n, label in enumerate(labels) if label < 4]
    assert all(labels[item.number] == item.label for item in items)
    assert items[0].key == f"train/{items[0].number:05d}"
    for item, pixels in zip(items, images_of(path, items), strict=True):
        stored = tables["train"]["data"][item.number].reshape(3, 32, 32)
        assert np.array_equal(pixels, stored.transpose(1, 2, 0))


def test_the_test_half_is_the_test_half(files: Files, tmp_path: Path) -> None:
    path = archive(tmp_path, files)
    items = index_of(path).test
    pixels = images_of(path, items[-1:], size=16)[0]
    assert isinstance(pixels, np.ndarray)
    assert pixels.shape == (16, 16, 3)
    assert abs(int(pixels.mean()) - 20 * items[-1].label - 10) < 3
    assert images_of(path, []) == []


@pytest.mark.parametrize("place", ["root", "parent", "other name"])
def test_a_folder_gives_the_same_as_the_archive(files: Files, tmp_path: Path, place: str) -> None:
    folder = unpacked(tmp_path, files)
    if place == "other name":
        folder = folder.rename(tmp_path / "cifar100")
    index = index_of(folder if place == "root" else tmp_path)
    packed = archive(tmp_path, files)
    assert index == index_of(packed)
    assert np.array_equal(images_of(folder, index.test), images_of(packed, index.test))


def test_pickles_of_python_3_are_read(tables: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    written = {name: pickle.dumps(table) for name, table in tables.items()}
    index = index_of(unpacked(tmp_path, written))
    as_bytes = {
        name: pickle.dumps({key.encode(): value for key, value in table.items()}, protocol=2)
        for name, table in tables.items()
    }
    (tmp_path / "other").mkdir()
    assert index_of(unpacked(tmp_path / "other", as_bytes)) == index


def test_another_copy_is_unofficial_and_says_by_how_much(files: Files, tmp_path: Path) -> None:
    path = archive(tmp_path, files)
    reason = Cifar100().find([path]).unofficial
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    assert reason is not None
    assert f"has {path.stat().st_size} bytes and MD5 {md5}, the published one 169001437" in reason
    assert MD5 in reason
    path.unlink()
    reason = Cifar100().find([unpacked(tmp_path, files).parent]).unofficial
    md5 = hashlib.md5(files["meta"]).hexdigest()
    assert f"meta has {len(files['meta'])} bytes and MD5 {md5}, the published one" in str(reason)


def test_the_published_copy_is_known_packed_and_unpacked(tmp_path: Path, files: Files) -> None:
    packed, folder = archive(tmp_path, files), unpacked(tmp_path, files)
    published = {packed: MD5, **{folder / n: d for n, d in FILES.items()}}

    def digest(path: Path, algorithm: str) -> str:
        assert algorithm == "md5"
        return published[path]

    sources = [Cifar100().find([path], digest) for path in (packed, folder)]
    assert [source.unofficial for source in sources] == [None, None]
    assert sources[0].digest == sources[1].digest, "the same images are decoded once"


def test_a_missing_archive_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Cifar100().find([tmp_path / "nowhere", tmp_path])
    text = str(caught.value)
    assert text.startswith("neither cifar-100-python.tar.gz nor a folder cifar-100-python")
    assert f"looked in {tmp_path / 'nowhere'}, {tmp_path}." in text
    assert "--data-root DIR" in text


@pytest.mark.parametrize("name", ["train", "test", "meta"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_damaged_inner_file_is_named_with_size_and_digest(
    files: Files, tmp_path: Path, name: str, packed: bool
) -> None:
    content = files[name] = files[name][: len(files[name]) // 2]
    path = (archive if packed else unpacked)(tmp_path, files)
    text = message_of(path)
    where = f"{path}: {TOP}/{name}" if packed else str(path / name)
    md5 = hashlib.md5(content).hexdigest()
    assert text.startswith(f"{where} ({len(content)} bytes, MD5 {md5}): a damaged pickle")


def test_a_pickle_that_means_harm_is_refused_by_name(
    files: Files, harmful: bytes, harm: Path, tmp_path: Path
) -> None:
    files["train"] = harmful
    text = message_of(archive(tmp_path, files))
    assert f"refused, it asks for {open.__module__}.open" in text
    assert not harm.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": DATA[:, :3000]}, "data is an array of uint8 (48, 3000); with 48 fine_labels it"),
        (
            {"data": [1, 2]},
            "data is a list; with 48 fine_labels it should be an array of uint8 (4",
        ),
        ({"fine_labels": [*LABELS[:7], 6, *LABELS[8:]]}, "image 7 has the fine label 6, outside 0"),
        ({"fine_labels": [*LABELS[:-1], "six"]}, "fine_labels: expected a list of whole numbers"),
        ({"fine_labels": LABELS[:-1]}, "data is an array of uint8 (48, 3072); with 47 fine_labels"),
        ({"fine_labels": None}, "has no fine_labels; is it CIFAR100? It holds batch_label, coarse"),
        ({"fine_labels": [5 if n == 2 else n for n in LABELS]}, "no images of 1 of the 4 classes "),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    tables: dict[str, dict[str, Any]],
    python2_pickle: Pickled,
    tmp_path: Path,
    changes: dict[str, Any],
    expected: str,
) -> None:
    train = tables["train"] | changes
    tables["train"] = {key: value for key, value in train.items() if value is not None}
    path = unpacked(tmp_path, {name: python2_pickle(table) for name, table in tables.items()})
    assert message_of(path).startswith(f"{path / 'train'}: {expected}")


def test_too_few_classes_are_named(files: Files, tmp_path: Path) -> None:
    path = archive(tmp_path, files)
    assert message_of(path, 7) == (
        f"{path}: has 6 classes, but the protocol asks for 7; set classes = 6 or fewer"
    )


def test_a_missing_inner_file_is_named(files: Files, tmp_path: Path) -> None:
    del files["meta"]
    text = message_of(archive(tmp_path, files))
    assert "has no cifar-100-python/meta; it holds cifar-100-python/train, cifar-100-" in text


def test_published_shots_are_found_by_index() -> None:
    protocol, folder = load_registry().protocol("cifar100")
    table = read_canonical(protocol, folder)
    labels = np.full(50_000, 0)
    for _, key, samples in table.rows:
        labels[[int(sample) for sample in samples]] = int(key)
    blank = Images(np.empty(0, np.uint8), np.zeros((0, 2), np.int64), np.empty(0, np.int64))
    train = ImageArray(blank, labels, np.arange(50_000), ())
    keys = tuple(str(label) for label in range(100))
    dataset = Dataset("cifar100", keys, keys, train, train, "f")
    shots = canonical_shots(table, protocol, dataset)
    assert [len(session) for session in shots] == [25] * 8
    assert shots[0][:5].tolist() == [29774, 33344, 4815, 6772, 48317]


def test_class_folders_are_read_without_an_order(tmp_path: Path) -> None:
    names = ["aquarium_fish", "apple", *(f"z{n:02d}" for n in range(98))]
    for half, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(sorted(names)):
            (tmp_path / "cifar100" / half / name).mkdir(parents=True)
            for number in range(count):
                path = tmp_path / "cifar100" / half / name / f"{number:04d}.png"
                Image.new("RGB", (32, 32), (label, number, count)).save(path)
    source = Cifar100().find([tmp_path])
    assert "use --split seeded" in str(source.unofficial)
    index = index_of(tmp_path, 2)
    assert (index.class_names, index.class_keys) == (("apple", "aquarium_fish"), ("0", "1"))
    assert [item.label for item in index.train] == [0, 0, 0, 1, 1, 1]
    assert all((item.number or 0) < 0 for item in index.train), "no published row can mean them"
    pixels = images_of(tmp_path, index.test)
    assert [p[0, 0].tolist() for p in pixels if isinstance(p, np.ndarray)] == [
        [0, 0, 2],
        [0, 1, 2],
        [1, 0, 2],
        [1, 1, 2],
    ]
    shutil.rmtree(tmp_path / "cifar100" / "test" / "z01")
    assert "train/ has images in 100 class folders and test/ in 99; the same 100" in message_of(
        tmp_path
    )


def test_a_small_run(files: Files, tmp_path: Path) -> None:
    archive(tmp_path, files)
    stored = fb.run(
        "ncm",
        "cifar100",
        split="seeded",
        overrides={"classes": 6, "base_classes": 4, "way": 1, "sessions": 2, "epochs": 1},
        data_root=tmp_path,
        results=tmp_path / "results",
        cache=tmp_path / "cache",
        precision="fp32",
        unofficial_data=True,
    )
    assert stored.record.class_names == tuple(NAMES)
    assert stored.record.train_images == (TRAIN, TRAIN)
    assert len(stored.targets) == len(NAMES) * TEST
    assert any("unofficial data (cifar-100-python.tar.gz has" in f for f in stored.record.flags)
    settings: dict[str, Any] = {
        "overrides": {"classes": 6, "base_classes": 4, "way": 1, "sessions": 2},
        "data_root": tmp_path,
        "results": tmp_path / "other",
        "cache": tmp_path / "cache",
    }
    with pytest.raises(DataError, match="--unofficial-data uses this copy"):
        fb.run("ncm", "cifar100", split="seeded", **settings)
    shots = r"splits.csv:2: class '60', samples .* not in data set 'cifar100' .cifar-100-python.tar"
    with pytest.raises(UsageError, match=shots):
        fb.run("ncm", "cifar100", unofficial_data=True, **settings)
    assert not (tmp_path / "other").exists(), "known before base training"
