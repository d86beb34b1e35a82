"""The image cache: a source decoded once into uint8 arrays, memory-mapped by every later run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from fscil_bench.data.lists import index_of
from fscil_bench.data.pixels import Images, ImageWriter
from fscil_bench.data.reader import (
    Dataset,
    DatasetIndex,
    DatasetReader,
    ImageArray,
    Item,
    Pixels,
    ReadRequest,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError, UsageError
from fscil_bench.progress import Progress
from fscil_bench.spec import digest_of
from fscil_bench.store.caches import changed_file, mark, remembered_digests
from fscil_bench.store.files import replaced_folder, write_text
from fscil_bench.store.runs import Store

FORMAT = 2
"""Raised whenever the files of a cached data set change."""


Check = Callable[[DatasetIndex, str | None], None]


@dataclass(frozen=True)
class ImageCache:
    """Decodes data sets into the store's cache, and maps what is there.

    With `skip_broken` images that cannot be used are left out and counted, else they stop it.
    A copy that is not the published one is refused unless `allow_unofficial`.
    """

    store: Store
    progress: Progress
    skip_broken: bool = False
    allow_unofficial: bool = False

    def load(
        self,
        reader: DatasetReader,
        code: str,
        roots: Sequence[Path],
        request: ReadRequest,
        check: Check | None = None,
    ) -> Dataset:
        """Return a data set, decoding it if this source was not decoded before.

        Args:
            reader: the data set's reader.
            code: digest of the reader's source; an edited reader decodes anew.
            roots: folders (or archives) in which the reader looks.
            request: how many classes, and how images are prepared.
            check: is shown what is to be decoded, and why it is no published copy, and may refuse.

        Raises:
            DataError: the source is missing, damaged, or not what the reader reads.
        """
        source = reader.find(roots, self.digest)
        if self.refuses(source):
            raise _refused(reader, source, request, check)
        images = request.images
        preparation = [request.classes, images.size, images.resize, dict(request.options)]
        identity = [FORMAT, reader.name, code, source.digest, preparation, self.skip_broken]
        folder = self.store.cache_folder("images", f"{reader.name}-{digest_of(identity)}")
        mark(self.store.cache)
        if not (folder / "meta.json").exists():
            self._build(folder, reader, source, request, check)
        dataset = _open(folder, reader.name, self.store.cache)
        return replace(dataset, unofficial=source.unofficial)

    def refuses(self, source: Source) -> bool:
        """Return whether a source is a copy that is not to be used."""
        return source.unofficial is not None and not self.allow_unofficial

    def keep(self, dataset: Dataset, remarks: Sequence[str] = ()) -> Dataset:
        """Store a data set whose features come from a file, and return it mapped.

        Reports then find its features and labels without the file. What is to be remarked on it is
        said once, when it is stored.
        """
        index = index_of(dataset)
        identity = [FORMAT, dataset.fingerprint, dataset.skipped, asdict(index)]
        folder = self.store.cache_folder("images", f"{dataset.name}-{digest_of(identity)}")
        mark(self.store.cache)
        if not (folder / "meta.json").exists():
            for remark in remarks:
                self.progress.say(remark)
            with replaced_folder(folder, "meta.json") as new:
                for half, array in (("train", dataset.train), ("test", dataset.test)):
                    writer = ImageWriter(new / half)
                    for _ in range(len(array)):
                        writer.add(np.empty((0, 0, 3), np.uint8))
                    writer.close()
                    np.save(new / f"{half}_labels.npy", array.labels)
                    np.save(new / f"{half}_numbers.npy", array.numbers)
                    np.save(new / f"{half}_features.npy", np.asarray(array.features))
                _write_meta(new, index, dataset.fingerprint, dataset.skipped)
        stored = _open(folder, dataset.name, self.store.cache)
        return replace(stored, unofficial=dataset.unofficial, matching=dataset.matching)

    def digest(self, path: Path, algorithm: str) -> str:
        """Return a file's digest, remembered while its size and times do not change."""
        return remembered_digests(self.store.cache, [path], algorithm)[path]

    def _build(
        self,
        folder: Path,
        reader: DatasetReader,
        source: Source,
        request: ReadRequest,
        check: Check | None,
    ) -> None:
        index = reader.index(source, request)
        _check(index, reader.name)
        if check is not None:
            check(numbered(index, reader.name), source.unofficial)
        content = _Fingerprint(index.class_names)
        total = len(index.train) + len(index.test)
        kept: dict[str, list[Item]] = {}
        broken: list[DataError] = []
        with (
            replaced_folder(folder, "meta.json") as new,
            self.progress.task(f"decoding {reader.name}", total) as task,
        ):
            done = 0
            for half, items in (("train", index.train), ("test", index.test)):
                writer = ImageWriter(new / half)
                kept[half] = []
                for item, pixels in zip(items, reader.images(source, items, request), strict=True):
                    done += 1
                    task.update(done)
                    if isinstance(pixels, DataError):
                        broken.append(pixels)
                        continue
                    _check_pixels(pixels, reader.name, item, request)
                    writer.add(pixels)
                    kept[half].append(item)
                    content.add(pixels)
                writer.close()
                _save_labels(new, half, kept[half], _numbers(items, kept[half]))
                content.end_half([item.label for item in kept[half]])
            if broken and not self.skip_broken:
                raise _all_broken(reader.name, broken)
            stored = replace(index, train=tuple(kept["train"]), test=tuple(kept["test"]))
            _write_meta(new, stored, content.value, len(broken))


def decoded_datasets(store: Store, name: str) -> Iterator[Dataset]:
    """Yield what readers called `name` have decoded, whatever the source; not what is damaged."""
    for meta in sorted(store.cache_folder("images", name).parent.glob(f"{name}-*/meta.json")):
        with suppress(DataError):
            yield _open(meta.parent, name, store.cache)


def verify(dataset: Dataset) -> None:
    """Compare what the cache holds of a data set with the fingerprint it was decoded with.

    Args:
        dataset: as `ImageCache.load` returns it, or with its classes or halves rearranged.

    Raises:
        DataError: pixels or labels have changed since; the message names the folder.
    """
    mapped = dataset.train.images.flat
    if not isinstance(mapped, np.memmap) or mapped.filename is None:
        return  # nothing of it is kept on disk
    folder = Path(mapped.filename).parent
    stored = _open(folder, dataset.name, folder.parents[1])
    content = _Fingerprint(stored.class_names)
    for half in (stored.train, stored.test):
        for number in range(len(half)):
            content.add(half.images[number])
        content.end_half(half.labels.tolist())
    if content.value != stored.fingerprint:
        problem = f"its content has the fingerprint {content.value}, not {stored.fingerprint}"
        raise _damaged(folder, problem)


class _Fingerprint:
    """Identifies what a data set holds: its class names, then each half's pixels and labels."""

    def __init__(self, class_names: Sequence[str]) -> None:
        self._digest = hashlib.sha256(json.dumps(class_names).encode())

    def add(self, pixels: np.ndarray) -> None:
        """Take in the next image of the half, uint8 (H, W, 3)."""
        self._digest.update(pixels.tobytes())

    def end_half(self, labels: Iterable[int]) -> None:
        """Take in the labels of the half whose images were added."""
        self._digest.update(json.dumps(list(labels)).encode())

    @property
    def value(self) -> str:
        return self._digest.hexdigest()[:32]


def _check_pixels(pixels: Pixels, name: str, item: Item, request: ReadRequest) -> None:
    stored = request.images.stored
    square = request.images.resize is None
    fits = pixels.ndim == 3 and pixels.shape[2] == 3 and min(pixels.shape[:2]) == stored
    if pixels.dtype != np.uint8 or not fits or (square and pixels.shape[0] != pixels.shape[1]):
        raise DataError(
            f"reader {name!r} gave {item.key} as {pixels.dtype} {pixels.shape}; expected uint8 "
            f"(H, W, 3) with a shorter side of {stored}"
        )


def _all_broken(name: str, broken: Sequence[DataError]) -> DataError:
    listed = "".join(f"\n  {error}" for error in broken[:20])
    more = f"\n  and {len(broken) - 20} more" if len(broken) > 20 else ""
    images = "1 image" if len(broken) == 1 else f"{len(broken)} images"
    return DataError(
        f"data set {name!r}: {images} cannot be used (--skip-broken leaves them out and records "
        f"how many):{listed}{more}"
    )


def _write_meta(folder: Path, index: DatasetIndex, fingerprint: str, skipped: int) -> None:
    """Finish the folder of a data set: names and keys, and the digest of each of its files."""
    meta = {
        "class_names": index.class_names,
        "class_keys": index.class_keys or index.class_names,
        "fingerprint": fingerprint,
        "skipped": skipped,
        "train_keys": [item.key for item in index.train],
        "test_keys": [item.key for item in index.test],
        "files": {path.name: file_digest(path) for path in sorted(folder.iterdir())},
    }
    write_text(folder / "meta.json", json.dumps([digest_of(meta), meta], ensure_ascii=False))


def _save_labels(folder: Path, half: str, items: Sequence[Item], numbers: np.ndarray) -> None:
    labels = np.array([item.label for item in items], dtype=np.int64)
    np.save(folder / f"{half}_labels.npy", labels)
    np.save(folder / f"{half}_numbers.npy", numbers)


def _refused(
    reader: DatasetReader, source: Source, request: ReadRequest, check: Check | None
) -> DataError:
    """Return the refusal of a copy, with all options that it takes to use it."""
    told = (
        f"data set {reader.name!r}: {source.unofficial}; --unofficial-data uses this copy all the "
        "same, and marks the run and its row in every table"
    )
    remedy = ["--unofficial-data"]
    try:
        if check is not None:
            check(numbered(reader.index(source, request), reader.name), source.unofficial)
    except UsageError:
        told += "; the published shots are not in it: --split seeded draws others"
        remedy += ["--split", "seeded"]
    return DataError(told, remedy=remedy)


def _open(folder: Path, name: str, cache: Path) -> Dataset:
    try:
        digest, meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        changed = changed_file(cache, folder, meta["files"])
        if changed or digest != digest_of(meta):
            raise ValueError(changed or "meta.json is not as it was written")
        halves = {}
        for half in ("train", "test"):
            images = Images.open(folder / half)
            labels = np.load(folder / f"{half}_labels.npy", allow_pickle=False)
            numbers = np.load(folder / f"{half}_numbers.npy", allow_pickle=False)
            keys = tuple(meta[f"{half}_keys"])
            given = folder / f"{half}_features.npy"
            features = np.load(given, mmap_mode="r") if given.name in meta["files"] else None
            if not len(images) == len(labels) == len(numbers) == len(keys):
                raise ValueError(f"the {half} files do not belong together")
            halves[half] = ImageArray(images, labels, numbers, keys, features)
        return Dataset(
            name=name,
            class_names=tuple(meta["class_names"]),
            class_keys=tuple(meta["class_keys"]),
            train=halves["train"],
            test=halves["test"],
            fingerprint=meta["fingerprint"],
            skipped=meta["skipped"],
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, problem: object) -> DataError:
    return DataError(
        f"{folder}: the image cache is damaged ({problem}); remove the folder, by hand or with "
        f"`fscil-bench data clear {folder}`, and the images are decoded again"
    )


def numbered(index: DatasetIndex, name: str) -> DatasetIndex:
    """Return what a reader lists, checked, with the numbers that its images would be stored with.

    Raises:
        DataError: its labels do not fit its classes, or its halves overlap.
    """
    _check(index, name)

    def half(items: Sequence[Item]) -> tuple[Item, ...]:
        numbers = _numbers(items, items).tolist()
        return tuple(replace(i, number=n) for i, n in zip(items, numbers, strict=True))

    return replace(index, train=half(index.train), test=half(index.test))


def _numbers(items: Sequence[Item], kept: Sequence[Item]) -> np.ndarray:
    """Return the numbers of `kept`; where a reader gives none, positions within the class."""
    seen: dict[int, int] = {}
    numbers: dict[str, int] = {}
    for item in items:
        position = seen.get(item.label, 0)
        seen[item.label] = position + 1
        numbers[item.key] = position if item.number is None else item.number
    return np.array([numbers[item.key] for item in kept], dtype=np.int64)


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
