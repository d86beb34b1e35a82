"""CIFAR100: 100 classes of 32×32 images, from the published archive or unpacked from it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Download,
    Item,
    Pixels,
    ReadRequest,
    Source,
    decode_rgb,
    file_digest,
    prepare,
    read_file,
)
from fscil_bench.errors import DataError, some

from ._archives.checks import refuse_web_page
from ._archives.pickles import Table, as_integers, as_text, described, read_table
from ._archives.tar import TarArchive
from ._archives.tree import FolderTree

FOLDER = "cifar-100-python"
FILES = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
"""The files, which are pickles, and the MD5 of the published ones."""

FILE_LIMIT = 300_000_000
"""Bytes that a file may declare; the published training half has 155 million."""

SIDE, CLASSES = 32, 100
HALVES, IMAGES = ("train", "test"), (".png", ".jpg", ".jpeg")
NO_ORDER = (
    "a copy with a folder for each class has not the order of the published one, by which the "
    "published shots are called; use --split seeded"
)

ARCHIVE = f"{FOLDER}.tar.gz"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
SIZE = 169_001_437


class Cifar100(DatasetReader):
    """CIFAR100 from `cifar-100-python.tar.gz`, packed or unpacked, or `train/apple/*.png` ...

    Classes are the fine labels in their own order, which is that of their names. An image's number
    is its index in its half, which is how the published lists name training images; a copy in
    class folders has none.
    """

    name = "cifar100"
    download = Download(ARCHIVE, (URL,), f"md5:{MD5}", SIZE)

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the archive, or the folder unpacked from it: one of `roots`, or in one of them.

        Raises:
            DataError: there is neither, or what has the archive's name is no archive.
        """
        for root in roots:
            for path in (root, root / ARCHIVE):
                if path.name == ARCHIVE and path.is_file():
                    return _archive(path, digest)
            for path in (root, root / FOLDER, root / self.name):
                if all((path / name).is_file() for name in FILES):
                    return _folder(path, digest)
                if _has_class_folders(path):
                    return Source(path, f"folder:{FolderTree(path, HALVES).digest}", NO_ORDER)
        looked = ", ".join(str(root) for root in roots) or "no folder at all"
        raise DataError(
            f"neither {ARCHIVE} nor a folder {FOLDER} with {', '.join(FILES)} was found; looked "
            f"in {looked}. `fscil-bench data get {self.name}` fetches it; or fetch it from {URL} "
            "and name the folder it lies in: --data-root DIR"
        )

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` fine labels, in stored order.

        Raises:
            DataError: a file is damaged or not CIFAR100's, or classes lack images.
        """
        path = source.location
        if _has_class_folders(path):
            return _class_folders(path, request.classes)
        files = read_files(path, list(FILES))
        names = class_names(files["meta"])
        if request.classes > len(names):
            raise DataError(
                f"{path}: has {len(names)} classes, but the protocol asks for "
                f"{request.classes}; set classes = {len(names)} or fewer"
            )
        train = _items("train", files["train"], names, request.classes)
        test = _items("test", files["test"], names, request.classes)
        keys = tuple(str(label) for label in range(request.classes))
        return DatasetIndex(names[: request.classes], train, test, keys)

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, all of one half, in order; see `DatasetReader.images`."""
        if not items:
            return
        if _has_class_folders(source.location):
            yield from _pictures(source.location, items, request)
            return
        name = items[0].key.partition("/")[0]
        stored = half(read_files(source.location, [name])[name])
        for item in items:
            pixels = stored.images[item.number].transpose(1, 2, 0)
            yield prepare(Image.fromarray(np.ascontiguousarray(pixels)), request.images)


def _archive(path: Path, digest: Digester) -> Source:
    found, size = digest(path, "md5"), path.stat().st_size
    if found == MD5:
        return Source(path, _joined(FILES.values()))
    refuse_web_page(path)
    reason = (
        f"{ARCHIVE} has {size} bytes and MD5 {found}, the published one {SIZE} and {MD5} (fetch it "
        "again if its download was cut short)"
    )
    return Source(path, found, reason)


def _folder(path: Path, digest: Digester) -> Source:
    found = {name: digest(path / name, "md5") for name in FILES}
    other = [
        f"{name} has {(path / name).stat().st_size} bytes and MD5 {found[name]}, the published "
        f"one {expected}"
        for name, expected in FILES.items()
        if found[name] != expected
    ]
    return Source(path, _joined(found.values()), "; ".join(other) or None)


def _joined(digests: Iterable[str]) -> str:
    """Identify the content by its three files, so that packed and unpacked are the same."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def _items(name: str, stored: Stored, names: Sequence[str], classes: int) -> tuple[Item, ...]:
    labels = half(stored).labels
    for number in np.flatnonzero((labels < 0) | (labels >= len(names)))[:1]:
        raise DataError(
            f"{stored.where}: image {number} has the fine label {labels[number]}, outside "
            f"0 … {len(names) - 1}"
        )
    counts = np.bincount(labels, minlength=classes)[:classes]
    missing = [names[int(label)] for label in np.flatnonzero(counts == 0)]
    if missing:
        raise DataError(
            f"{stored.where}: no images of {len(missing)} of the {classes} classes that the "
            f"protocol asks for: {some(missing)}"
        )
    return tuple(
        Item(f"{name}/{number:05d}", int(labels[number]), int(number))
        for number in np.flatnonzero(labels < classes)
    )


def _has_class_folders(path: Path) -> bool:
    """Tell whether images lie in the folders of their classes, in halves."""
    return all((path / half / "aquarium_fish").is_dir() for half in HALVES)


def _class_folders(path: Path, wanted: int) -> DatasetIndex:
    """Return the images of a copy with a folder for each class; the names' order is the labels'."""
    tree = FolderTree(path, HALVES)
    found: dict[str, dict[str, list[str]]] = {half: {} for half in HALVES}
    for name in tree.names:
        half, _, rest = name.partition("/")
        if half in HALVES and name.lower().endswith(IMAGES):
            found[half].setdefault(rest.partition("/")[0], []).append(name)
    names = sorted(found["train"])
    if len(names) != CLASSES or names != sorted(found["test"]):
        raise DataError(
            f"{path}: train/ has images in {len(names)} class folders and test/ in "
            f"{len(found['test'])}; the same {CLASSES} are expected in both"
        )
    if wanted > CLASSES:
        raise DataError(f"{path}: has {CLASSES} classes, but the protocol asks for {wanted}")

    def items(half: str) -> tuple[Item, ...]:
        return tuple(
            Item(file, label, -1 - place)  # below 0, where no published list can mean it
            for label, name in enumerate(names[:wanted])
            for place, file in enumerate(found[half][name])
        )

    keys = tuple(str(label) for label in range(wanted))
    return DatasetIndex(tuple(names[:wanted]), items("train"), items("test"), keys)


def _pictures(
    path: Path, items: Sequence[Item], request: ReadRequest
) -> Iterator[Pixels | DataError]:
    for item in items:
        try:
            image = decode_rgb(read_file(path / item.key), str(path / item.key))
        except DataError as error:
            yield error
        else:
            yield prepare(image, request.images)


@dataclass(frozen=True)
class Stored:
    """A file's content, and where it lies: in a folder, or as `member` of an archive."""

    path: Path
    content: bytes
    member: str = ""

    @property
    def where(self) -> str:
        """How messages call the file."""
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    def table(self) -> Table:
        """Return the dictionary that the file holds.

        Raises:
            DataError: it holds none; the message gives size and digest.
        """
        md5 = hashlib.md5(self.content, usedforsecurity=False).hexdigest()
        where = f"{self.where} ({len(self.content)} bytes, MD5 {md5})"
        return read_table(io.BytesIO(self.content), where)


@dataclass(frozen=True)
class Half:
    """`images` uint8 (n, 3, 32, 32) and `labels` (n,) of the training or the test half."""

    images: np.ndarray
    labels: np.ndarray


def read_files(path: Path, names: Sequence[str]) -> dict[str, Stored]:
    """Return some of the three files; `path` is the archive or the folder.

    Raises:
        DataError: a file is missing, or the archive is damaged or another one.
    """
    if path.is_dir():
        return {name: Stored(path / name, read_file(path / name, FILE_LIMIT)) for name in names}
    members = {f"{FOLDER}/{name}": name for name in names}
    found: dict[str, Stored] = {}
    seen: list[str] = []
    for member, content in TarArchive(path, limit=FILE_LIMIT).files(members.__contains__):
        seen.append(member)
        if isinstance(content, DataError):
            raise content
        if content is not None:
            found[members[member]] = Stored(path, content, member)
    missing = [member for member, name in members.items() if name not in found]
    if missing:
        held = ", ".join(seen[:10]) or "nothing"
        raise DataError(f"{path}: has no {missing[0]}; it holds {held}")
    return found


def class_names(meta: Stored) -> tuple[str, ...]:
    """Return the names of the fine labels, in their order, from the file `meta`.

    Raises:
        DataError: the file is damaged or another one.
    """
    names = _entry(meta.table(), meta.where, "fine_label_names")
    if not isinstance(names, list) or not names:
        raise DataError(f"{meta.where}: fine_label_names is {described(names)}, not a list")
    try:
        return tuple(as_text(name) for name in names)
    except ValueError as error:
        raise DataError(f"{meta.where}: fine_label_names: {error}") from error


def half(stored: Stored) -> Half:
    """Return the images and labels of the file `train` or `test`.

    Raises:
        DataError: the file is damaged or another one, or its arrays do not fit together.
    """
    where, table = stored.where, stored.table()
    labels = as_integers(_entry(table, where, "fine_labels"), f"{where}: fine_labels")
    data = _entry(table, where, "data")
    shape = (len(labels), 3 * SIDE * SIDE)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != shape:
        raise DataError(
            f"{where}: data is {described(data)}; with {len(labels)} fine_labels it should be an "
            f"array of uint8 {shape}"
        )
    return Half(data.reshape(-1, 3, SIDE, SIDE), labels)


def _entry(table: Table, where: str, key: str) -> object:
    if key not in table:
        held = ", ".join(sorted(table)[:10]) or "nothing"
        raise DataError(f"{where}: has no {key}; is it CIFAR100? It holds {held}")
    return table[key]
