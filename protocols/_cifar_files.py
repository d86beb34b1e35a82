"""The three files of CIFAR100's Python version, from its archive or from a folder."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fscil_bench.errors import DataError

from ._pickled_arrays import as_text
from ._pickles import Table, as_integers, described, read_table
from ._tar_archive import TarArchive

FOLDER = "cifar-100-python"
FILES = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
"""The files, which are pickles, and the MD5 of the published ones."""

FILE_LIMIT = 300_000_000
"""Bytes that a file may declare; the published training half has 155 million."""

SIDE = 32


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
        return {name: Stored(path / name, _content(path / name)) for name in names}
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
    return tuple(as_text(name) for name in names)


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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _entry(table: Table, where: str, key: str) -> object:
    if key not in table:
        held = ", ".join(sorted(table)[:10]) or "nothing"
        raise DataError(f"{where}: has no {key}; is it CIFAR100? It holds {held}")
    return table[key]
