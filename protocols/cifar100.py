"""CIFAR100: 100 classes of 32×32 images, from the published archive or unpacked from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
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
    file_digest,
    prepare,
)
from fscil_bench.errors import DataError

from ._archive_checks import refuse_web_page
from ._cifar_files import FILES, FOLDER, Stored, class_names, half, read_files

ARCHIVE = f"{FOLDER}.tar.gz"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
SIZE = 169_001_437

NAMED = 10
"""How many classes a message names."""


class Cifar100(DatasetReader):
    """CIFAR100 from `cifar-100-python.tar.gz`, packed or unpacked.

    Classes are the fine labels in their own order. An image's number is its index in its half,
    which is how the published lists name training images.
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
        path = _path(source)
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
        name = items[0].key.partition("/")[0]
        stored = half(read_files(_path(source), [name])[name])
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


def _path(source: Source) -> Path:
    if source.path is None:
        raise DataError(f"the source of CIFAR100 must be {ARCHIVE} or a folder {FOLDER}")
    return source.path


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
            f"protocol asks for: {', '.join(missing[:NAMED])}"
        )
    return tuple(
        Item(f"{name}/{number:05d}", int(labels[number]), int(number))
        for number in np.flatnonzero(labels < classes)
    )
