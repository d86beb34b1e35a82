"""Files below a folder or in an archive, under the same relative names either way."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from fscil_bench.data.reader import Item, Pixels, decode_rgb, prepare, read_file
from fscil_bench.errors import DataError, some
from fscil_bench.protocol import ImageSpec

from .checks import refuse_size, refuse_unsafe
from .tar import TarArchive
from .zip import opened, read_member

FILE_LIMIT = 20_000_000
"""Bytes that a file which is wanted may have."""


class ImageTree(ABC):
    """The names of the files in a folder or an archive, and their content on demand.

    Attributes:
        where: the folder or archive, for messages.
        names: sorted, with `/` between folders; files that systems leave behind are not among
            them.
    """

    def __init__(self, where: Path, names: Sequence[str]) -> None:
        self.where = where
        self.names = tuple(sorted(name for name in names if not _is_litter(name)))

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            DataError: it is missing, unreadable, absurdly large, or no regular file.
        """


class FolderTree(ImageTree):
    """The files in some of a folder's subfolders, and those that lie in it directly.

    Attributes:
        digest: of names, sizes and times of all files, so that it changes whenever they do.
    """

    def __init__(self, root: Path, subfolders: Sequence[str]) -> None:
        found = dict(_walk(root, "", subfolders))
        super().__init__(root, list(found))
        stamps = [f"{name}\0{found[name]}" for name in self.names]
        self.digest = hashlib.sha256("\n".join(stamps).encode("utf-8", "surrogatepass")).hexdigest()

    def read(self, name: str) -> bytes:
        """Return the content of a file; see `ImageTree.read`."""
        return read_file(self.where / name, FILE_LIMIT)


class ZipTree(ImageTree):
    """The files in a zip archive."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        names = archive.namelist()
        for name in names:
            refuse_unsafe(name, f"{path}: {name}")
        super().__init__(path, [name for name in names if not name.endswith("/")])
        self._archive = archive

    def read(self, name: str) -> bytes:
        """Return the content of a member; see `ImageTree.read`."""
        if name in self._archive.NameToInfo:
            kind = stat.S_IFMT(self._archive.getinfo(name).external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise DataError(f"{self.where}: {name}: refused, it is a link or a device")
        return read_member(self._archive, name, FILE_LIMIT)


class TarTree(ImageTree):
    """The files in a tar archive that is not compressed, so that any of them is near."""

    def __init__(self, path: Path) -> None:
        self._places = TarArchive(path).places()
        super().__init__(path, list(self._places))
        self._file = path.open("rb")

    def read(self, name: str) -> bytes:
        """Return the content of a member; see `ImageTree.read`."""
        if name not in self._places:
            raise DataError(f"{self.where}: {name}: not in the archive")
        start, length = self._places[name]
        refuse_size(length, FILE_LIMIT, f"{self.where}: {name}")
        try:
            self._file.seek(start)
            return self._file.read(length)
        except OSError as error:
            raise DataError(f"{self.where}: {name}: cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Close the archive."""
        self._file.close()


@contextmanager
def tree_of(path: Path, subfolders: Sequence[str]) -> Iterator[ImageTree]:
    """Open a folder, or a zip or tar archive, for reading.

    Args:
        path: the folder or archive.
        subfolders: of a folder, those that are looked into.

    Raises:
        DataError: it cannot be read, is no archive, or is a compressed tar archive.
    """
    if path.is_dir():
        yield FolderTree(path, subfolders)
    elif path.suffix == ".zip":
        with opened(path) as archive:
            yield ZipTree(path, archive)
    elif _is_compressed(path):
        raise DataError(
            f"{path}: a compressed tar archive has to be read from its start for every image; "
            "unpack it, or take only the compression off (gunzip, bunzip2, unxz)"
        )
    else:
        with closing(TarTree(path)) as tree:
            yield tree


def refuse_missing(tree: ImageTree, listed: Sequence[str], by: str) -> None:
    """Refuse a copy that lacks files which its lists name.

    Raises:
        DataError: some are missing; how many, and the first of them, are named.
    """
    present = set(tree.names)
    missing = [name for name in listed if name not in present]
    if missing:
        raise DataError(
            f"{tree.where}: {len(missing)} of the {len(listed)} images that {by} lists are missing "
            f"({some(missing, 5)}); unpack the whole archive again"
        )


def decoded(
    tree: ImageTree, items: Sequence[Item], images: ImageSpec
) -> Iterator[Pixels | DataError]:
    """Yield the pixels of `items`, in order, or the error of one that cannot be used."""
    for item in items:
        try:
            image = decode_rgb(tree.read(item.key), f"{tree.where}: {item.key}")
        except DataError as error:
            yield error
        else:
            yield prepare(image, images)


def looked_in(roots: Sequence[Path]) -> str:
    """Return the places that were looked in, as a message names them."""
    described = [str(root) if root.exists() else f"{root} (which does not exist)" for root in roots]
    return ", ".join(described) or "no folder at all"


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))


def _walk(folder: Path, prefix: str, subfolders: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield relative names with size and time; `subfolders` limits the first step alone."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir():
                    status = entry.stat()
                    yield prefix + entry.name, f"{status.st_size} {status.st_mtime_ns}"
                elif subfolders is None or entry.name in subfolders:
                    yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", None)
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error


def _is_litter(name: str) -> bool:
    return "/." in f"/{name}" or "__MACOSX/" in name
