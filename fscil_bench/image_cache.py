"""The image cache: a source decoded once into uint8 arrays, memory-mapped by every later run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fscil_bench.data import (
    Dataset,
    DatasetIndex,
    DatasetReader,
    ImageArray,
    Item,
    ReadRequest,
    Source,
)
from fscil_bench.errors import DataError
from fscil_bench.progress import Progress
from fscil_bench.spec import digest_of
from fscil_bench.store import Store, replaced_folder, write_text


def load_dataset(
    reader: DatasetReader,
    code: str,
    roots: Sequence[Path],
    request: ReadRequest,
    store: Store,
    progress: Progress,
) -> Dataset:
    """Return a data set, decoding it into the cache if this source was not decoded before.

    Args:
        reader: the data set's reader.
        code: digest of the reader's source; an edited reader decodes anew.
        roots: folders (or archives) in which the reader looks.
        request: how many classes, and how images are prepared.
        store: knows where the cache is.
        progress: shows the decoding.

    Raises:
        DataError: the source is missing, damaged, or not what the reader reads.
    """
    source = reader.find(roots)
    identity = [reader.name, code, source.digest, request.classes, request.images.model_dump()]
    folder = store.cache_folder("images", f"{reader.name}-{digest_of(identity)}")
    if not (folder / "meta.json").exists():
        _build(folder, reader, source, request, progress)
    return _open(folder, reader.name)


def _build(
    folder: Path, reader: DatasetReader, source: Source, request: ReadRequest, progress: Progress
) -> None:
    index = reader.index(source, request)
    _check(index, reader.name)
    digest = hashlib.sha256(json.dumps(index.class_names).encode())
    total = len(index.train) + len(index.test)
    with (
        replaced_folder(folder) as new,
        progress.task(f"decoding {reader.name}", total) as task,
    ):
        done = 0
        for half, items in (("train", index.train), ("test", index.test)):
            shape = (len(items), request.images.size, request.images.size, 3)
            array = np.lib.format.open_memmap(
                new / f"{half}.npy", mode="w+", dtype=np.uint8, shape=shape
            )
            for number, pixels in enumerate(reader.images(source, items, request)):
                if pixels.shape != shape[1:] or pixels.dtype != np.uint8:
                    raise DataError(
                        f"reader {reader.name!r} gave {items[number].key} as {pixels.dtype} "
                        f"{pixels.shape} instead of uint8 {shape[1:]}"
                    )
                array[number] = pixels
                digest.update(pixels.tobytes())
                done += 1
                task.update(done)
            array.flush()
            labels = np.array([item.label for item in items], dtype=np.int64)
            np.save(new / f"{half}_labels.npy", labels)
            np.save(new / f"{half}_numbers.npy", _numbers(items))
            digest.update(labels.tobytes())
        meta = {
            "class_names": index.class_names,
            "class_keys": index.class_keys or index.class_names,
            "fingerprint": digest.hexdigest()[:32],
            "source": str(source.path) if source.path else "drawn by the reader",
            "train_keys": [item.key for item in index.train],
            "test_keys": [item.key for item in index.test],
        }
        write_text(new / "meta.json", json.dumps(meta, ensure_ascii=False))


def _open(folder: Path, name: str) -> Dataset:
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        halves = {}
        for half in ("train", "test"):
            images = np.load(folder / f"{half}.npy", mmap_mode="r", allow_pickle=False)
            labels = np.load(folder / f"{half}_labels.npy", allow_pickle=False)
            numbers = np.load(folder / f"{half}_numbers.npy", allow_pickle=False)
            halves[half] = ImageArray(images, labels, numbers, tuple(meta[f"{half}_keys"]))
        return Dataset(
            name=name,
            class_names=tuple(meta["class_names"]),
            class_keys=tuple(meta["class_keys"]),
            train=halves["train"],
            test=halves["test"],
            fingerprint=meta["fingerprint"],
        )
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{folder}: the image cache is damaged ({error}); remove the folder, and the images "
            "are decoded again"
        ) from error


def _numbers(items: Sequence[Item]) -> np.ndarray:
    """Return the items' numbers; where a reader gives none, positions within the class."""
    seen: dict[int, int] = {}
    numbers = []
    for item in items:
        position = seen.get(item.label, 0)
        seen[item.label] = position + 1
        numbers.append(position if item.number is None else item.number)
    return np.array(numbers, dtype=np.int64)


def _check(index: DatasetIndex, name: str) -> None:
    """Refuse an index whose labels do not fit its classes or whose halves overlap."""
    classes = len(index.class_names)

    def outside(items: Sequence[Item]) -> list[Item]:
        return [item for item in items if not 0 <= item.label < classes]

    for item in outside(index.train) + outside(index.test):
        raise DataError(
            f"data set {name!r}: {item.key} has label {item.label}, outside 0 … {classes - 1}"
        )
    overlap = {item.key for item in index.train} & {item.key for item in index.test}
    if overlap:
        some = ", ".join(sorted(overlap)[:5])
        raise DataError(
            f"data set {name!r}: {len(overlap)} images are both training and test images: {some}"
        )
