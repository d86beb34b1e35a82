from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fscil_bench.data.cache import ImageCache, verify
from fscil_bench.data.reader import (
    Dataset,
    DatasetIndex,
    DatasetReader,
    Digester,
    Item,
    Pixels,
    ReadRequest,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError
from fscil_bench.progress import Silent
from fscil_bench.protocol import ImageSpec
from fscil_bench.store.runs import Store

TRAIN = (("a0", 0, None), ("a1", 0, None), ("b0", 1, None), ("a2", 0, None))
TEST = (("t0", 0, None), ("t1", 1, None))
Triples = Sequence[tuple[str, int, int | None]]


class Reader(DatasetReader):
    """Two classes of noise of one shape; `images_of` may be replaced to spoil some of it."""

    name = "noise"

    def __init__(self, train: Triples = TRAIN, test: Triples = TEST, **fields: object) -> None:
        self.halves = [tuple(Item(*triple) for triple in half) for half in (train, test)]
        self.digest, self.unofficial = "digest-1", None
        self.spoilt: dict[str, Pixels | DataError] = {}
        self.read = 0
        self.before: Callable[[], None] = lambda: None
        vars(self).update(fields)

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        del digest
        return Source(roots[0] if roots else None, self.digest, self.unofficial)

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        del source, request
        return DatasetIndex(("ä, b", "c"), *self.halves, class_keys=("1", "2"))

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        del source
        self.before()
        for item in items:
            self.read += 1
            yield self.spoilt.get(item.key, pixels(item.key, request))


def pixels(key: str, request: ReadRequest) -> Pixels:
    side = request.images.stored
    longer = side + (len(key) + ord(key[-1])) % 5 if request.images.resize else side
    random = np.random.default_rng([*key.encode()])
    return random.integers(0, 256, (side, longer, 3), np.uint8)


def request(size: int = 8, resize: int | None = None, **options: int) -> ReadRequest:
    return ReadRequest(
        2, ImageSpec(size=size, resize=resize, mean=(0.5,) * 3, std=(0.2,) * 3), options
    )


def load(
    tmp_path: Path,
    reader: Reader,
    asked: ReadRequest | None = None,
    *,
    skip_broken: bool = False,
    allow_unofficial: bool = False,
    code: str = "code-1",
) -> Dataset:
    store = Store(tmp_path / "results", tmp_path / "cache")
    cache = ImageCache(store, Silent(), skip_broken, allow_unofficial)
    return cache.load(reader, code, [tmp_path], asked or request())


def folders(tmp_path: Path) -> list[Path]:
    """Return what lies in the cache of images, hidden leftovers included."""
    return sorted((tmp_path / "cache" / "images").glob("*"))


@pytest.mark.parametrize("resize", [None, 10], ids=["squares", "ragged"])
def test_a_data_set_is_decoded_once_and_mapped_ever_after(
    tmp_path: Path, resize: int | None
) -> None:
    reader, asked = Reader(), request(resize=resize)
    for data in (load(tmp_path, reader, asked), load(tmp_path, reader, asked)):
        assert (data.class_names, data.class_keys) == (("ä, b", "c"), ("1", "2"))
        assert data.train.labels.tolist() == [0, 0, 1, 0]
        assert data.train.keys == ("a0", "a1", "b0", "a2")
        assert data.test.labels.tolist() == [0, 1]
        assert isinstance(data.train.images.flat, np.memmap)
        for half in (data.train, data.test):
            for number, key in enumerate(half.keys):
                assert np.array_equal(half.images[number], pixels(key, asked))
        assert (data.skipped, data.unofficial) == (0, None)
        assert data.train.of_class(0).tolist() == [0, 1, 3]
    assert reader.read == 6


def test_images_are_numbered_within_their_class_unless_the_reader_does(tmp_path: Path) -> None:
    assert load(tmp_path, Reader()).train.numbers.tolist() == [0, 1, 0, 2]
    numbered = Reader([("x", 0, 77), ("y", 1, 5), ("z", 0, 3)], digest="digest-2")
    assert load(tmp_path, numbered).train.numbers.tolist() == [77, 5, 3]


def test_what_decides_the_pixels_decides_the_folder(tmp_path: Path) -> None:
    same = {
        load(tmp_path, Reader()).fingerprint,
        load(tmp_path, Reader(digest="digest-2")).fingerprint,
        load(tmp_path, Reader(name="other")).fingerprint,
        load(tmp_path, Reader(), code="code-2").fingerprint,
        load(tmp_path, Reader(), request(seed=1)).fingerprint,
        load(tmp_path, Reader(), skip_broken=True).fingerprint,
    }
    assert len(folders(tmp_path)) == 6
    assert len(same) == 1, "the content is the same"
    others = {
        load(tmp_path, Reader(), request(9)).fingerprint,
        load(tmp_path, Reader(), request(resize=10)).fingerprint,
        load(tmp_path, Reader(), request(resize=8)).fingerprint,
    }
    assert len(folders(tmp_path)) == 9
    assert len(same | others) == 4
    reader = Reader()
    load(tmp_path, reader, ReadRequest(2, ImageSpec(size=8, mean=(0.1,) * 3, std=(0.9,) * 3)))
    assert reader.read == 0, "normalisation is no part of what is stored"


PIXEL = pixels("a1", request()) ^ np.eye(8, dtype=np.uint8)[:, :1, None]


@pytest.mark.parametrize(
    "reader",
    [
        Reader(spoilt={"a1": PIXEL}),
        Reader([*TRAIN[:3], ("a2", 1, None)]),
        Reader(TRAIN[:3], [("a2", 0, None), *TEST]),
    ],
    ids=["pixel", "label", "half"],
)
def test_the_fingerprint_follows_pixels_labels_and_halves(tmp_path: Path, reader: Reader) -> None:
    first = load(tmp_path, Reader()).fingerprint
    reader.digest = "digest-2"
    assert load(tmp_path, reader).fingerprint != first


def test_whether_a_copy_is_official_is_asked_anew(tmp_path: Path) -> None:
    reader = Reader()
    assert load(tmp_path, reader).unofficial is None
    reader.unofficial = "another digest"
    with pytest.raises(DataError, match="another digest; --unofficial-data uses this copy"):
        load(tmp_path, reader)
    assert load(tmp_path, reader, allow_unofficial=True).unofficial == "another digest"
    assert reader.read == 6


def broken(reader: Reader, *keys: str) -> Reader:
    for key in keys:
        reader.spoilt[key] = DataError(f"folder/{key}.jpg: the image file is empty")
    return reader


def test_broken_images_are_listed_together_up_to_twenty(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, broken(Reader(), "a1", "t0"))
    assert str(caught.value) == (
        "data set 'noise': 2 images cannot be used (--skip-broken leaves them out and records "
        "how many):\n"
        "  folder/a1.jpg: the image file is empty\n"
        "  folder/t0.jpg: the image file is empty"
    )
    keys = [f"k{number}" for number in range(25)]
    with pytest.raises(DataError) as caught:
        load(tmp_path, broken(Reader([(key, 0, None) for key in keys]), *keys))
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (22, "  and 5 more")
    assert folders(tmp_path) == [], "nothing half-written"


def test_broken_images_are_skipped_and_counted_and_numbers_stay(tmp_path: Path) -> None:
    for _ in range(2):
        data = load(tmp_path, broken(Reader(), "a1", "t0"), skip_broken=True)
        assert data.skipped == 2
        assert data.train.keys == ("a0", "b0", "a2")
        assert data.train.labels.tolist() == [0, 1, 0]
        assert data.train.numbers.tolist() == [0, 0, 2], "as published lists count them"
        assert data.test.keys == ("t1",)
        assert np.array_equal(data.train.images[2], pixels("a2", request()))


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((8, 8, 3), np.float32)]
    + [np.zeros(shape, np.uint8) for shape in ((8, 8), (8, 8, 4), (8, 9, 3), (7, 7, 3))],
)
def test_a_reader_that_gives_other_than_asked_for_is_named(tmp_path: Path, wrong: Pixels) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, Reader(spoilt={"b0": wrong}))
    assert str(caught.value) == (
        f"reader 'noise' gave b0 as {wrong.dtype} {wrong.shape}; expected uint8 (H, W, 3) with a "
        "shorter side of 8"
    )
    assert folders(tmp_path) == []


@pytest.mark.parametrize(
    ("train", "problem"),
    [
        ([("x", 2, None)], "x has label 2, outside 0 … 1"),
        ([("x", -1, None)], "x has label -1, outside 0 … 1"),
        ([("t1", 1, None), ("t0", 0, None)], "2 images are both training and test images: t0, t1"),
    ],
)
def test_an_index_that_makes_no_sense_is_refused(
    tmp_path: Path, train: Triples, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        load(tmp_path, Reader([*TRAIN, *train]))
    assert folders(tmp_path) == []


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), DataError("cut short"), ValueError("bug")])
def test_an_interrupted_build_leaves_nothing_and_is_made_anew(
    tmp_path: Path, fault: BaseException
) -> None:
    reader = Reader()

    def stop() -> None:
        if reader.read == 4:  # the training half is done
            raise fault

    reader.before = stop
    with pytest.raises(type(fault)):
        load(tmp_path, reader)
    assert folders(tmp_path) == []
    reader.before = lambda: None
    assert len(load(tmp_path, reader).test) == 2


SHORTER = io.BytesIO()
np.save(SHORTER, np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("meta.json", b"{"),
        ("meta.json", b"{}"),
        ("meta.json", b"[]"),
        ("train.bin", b"short"),
        ("test.bin", None),
        ("train_shapes.npy", b"no array"),
        ("train_labels.npy", b""),
        ("train_labels.npy", SHORTER.getvalue()),
        ("test_numbers.npy", None),
        *((name, "flipped") for name in ("train.bin", "train_labels.npy", "test_numbers.npy")),
    ],
)
def test_a_damaged_cache_is_named_and_can_be_made_anew(
    tmp_path: Path, name: str, content: bytes | str | None
) -> None:
    load(tmp_path, Reader())
    (folder,) = folders(tmp_path)
    whole = (folder / name).read_bytes()
    (folder / name).unlink()
    if content == "flipped":
        content = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(tmp_path, Reader())
    text = str(caught.value)
    assert text.startswith(f"{folder}: the image cache is damaged (")
    assert name == "meta.json" or name in text
    assert text.endswith(
        f"; remove the folder, by hand or with `fscil-bench data clear {folder}`, and the images "
        "are decoded again"
    )
    shutil.rmtree(folder)
    assert len(load(tmp_path, Reader()).train) == 4


@pytest.mark.parametrize("resize", [None, 10], ids=["squares", "ragged"])
def test_a_cache_as_it_was_decoded_is_verified(tmp_path: Path, resize: int | None) -> None:
    verify(load(tmp_path, Reader(), request(resize=resize)))
    data = load(tmp_path, broken(Reader(), "a1", "t0"), skip_broken=True)
    verify(data)
    rearranged = replace(data.train, labels=1 - data.train.labels)
    verify(replace(data, train=rearranged, fingerprint="of another order"))
    for folder in folders(tmp_path):
        assert (folder / "meta.json").exists(), "verifying removes nothing"


def test_verifying_does_not_trust_what_is_remembered_of_a_file(tmp_path: Path) -> None:
    data = load(tmp_path, Reader())
    (folder,) = folders(tmp_path)
    memo, path = tmp_path / "cache" / "digests.json", folder / "test.bin"
    (key,) = (key for key in json.loads(memo.read_text()) if str(path) in key)
    path.write_bytes(path.read_bytes()[::-1])  # as a disk that fails would, without a new time
    status = path.stat()
    now = f"sha256:{path}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    memo.write_text(memo.read_text().replace(key, now))
    with pytest.raises(DataError, match=f"has the fingerprint .*, not {data.fingerprint}"):
        verify(load(tmp_path, Reader()))


def test_a_build_that_ends_second_does_not_disturb_the_first(tmp_path: Path) -> None:
    first, second = Reader(), Reader()
    opened, places = [], []

    def meanwhile() -> None:
        if not opened:
            opened.append(load(tmp_path, first))
            whole = [folder for folder in folders(tmp_path) if folder.name[0] != "."]
            places.extend(folder.stat().st_ino for folder in whole)

    second.before = meanwhile
    later = load(tmp_path, second)
    now = [folder.stat().st_ino for folder in folders(tmp_path)]
    assert now == places, "a whole cache is not moved away even for a moment"
    assert (first.read, second.read) == (6, 6)
    for data in (opened[0], later):
        for number, key in enumerate(data.train.keys):
            assert np.array_equal(data.train.images[number], pixels(key, request()))


@pytest.mark.parametrize("when", [1, 2])
def test_a_cache_that_another_process_ends_at_the_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    replaced, moves, opened = Path.replace, [], []

    def late(path: Path, target: Path) -> Path:
        if path.parent == tmp_path / "cache" / "images" and not opened:
            moves.append(path)
            if len(moves) == when:
                opened.append(None)
                opened[0] = load(tmp_path, Reader())
        return replaced(path, target)

    monkeypatch.setattr(Path, "replace", late)
    if when == 2:  # a folder without its mark is moved away first
        load(tmp_path, Reader())
        (folders(tmp_path)[0] / "meta.json").unlink()
        moves.clear()
        opened.clear()
    later = load(tmp_path, Reader())
    assert later.fingerprint == opened[0].fingerprint
    assert np.array_equal(opened[0].train.images[1], pixels("a1", request()))
    assert len(folders(tmp_path)) == 1


PARTS = (".bin", "_labels.npy", "_numbers.npy", "_shapes.npy")


class Digesting(Reader):
    """Asks for the digest of a file, as readers of archives do."""

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        return Source(roots[0], digest(roots[0] / "archive.zip", "md5"))


def test_digests_are_remembered_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(path: Path, algorithm: str) -> str:
        asked.append(path.name)
        return file_digest(path, algorithm)

    monkeypatch.setattr("fscil_bench.store.caches.file_digest", counted)
    archive = tmp_path / "archive.zip"
    archive.write_bytes(b"one")
    for _ in range(3):
        load(tmp_path, Digesting())
    files = ["archive.zip", *(f"{half}{part}" for half in ("test", "train") for part in PARTS)]
    assert sorted(asked) == sorted(files), "each once"
    assert len(folders(tmp_path)) == 1
    archive.write_bytes(b"another")
    load(tmp_path, Digesting())
    assert asked.count("archive.zip") == 2
    assert len(folders(tmp_path)) == 2, "another content is another cache"


def test_a_file_rewritten_with_its_old_time_is_hashed_again(tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    archive.write_bytes(b"one")
    before = archive.stat()
    load(tmp_path, Digesting())
    end = time.monotonic() + 10
    while archive.stat().st_ctime_ns == before.st_ctime_ns and time.monotonic() < end:
        archive.write_bytes(b"two")  # until the clock of the file system has moved on
        os.utime(archive, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert archive.stat().st_mtime_ns == before.st_mtime_ns
    load(tmp_path, Digesting())
    assert len(folders(tmp_path)) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"md5:x": "y"}'])
def test_a_damaged_memory_of_digests_is_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "archive.zip").write_bytes(b"one")
    load(tmp_path, Digesting())
    memo = tmp_path / "cache" / "digests.json"
    memo.write_text(content)
    load(tmp_path, Digesting())
    known = json.loads(memo.read_text())
    assert file_digest(tmp_path / "archive.zip", "md5") in known.values()
    assert len(folders(tmp_path)) == 1
