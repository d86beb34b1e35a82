"""Finds files in tar archives, gzipped or plain; nothing is ever unpacked onto the disk."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from fscil_bench.data import file_digest
from fscil_bench.errors import DataError

from ._zip_archive import WEB_PAGE

SIZE_LIMIT = 1_000_000_000
"""Bytes that a member may declare, even one that is passed over."""

COUNT_LIMIT = 500_000
"""Members that an archive may have."""

BROKEN = (tarfile.TarError, zlib.error, EOFError, ValueError, LookupError, MemoryError, OSError)
"""What tarfile and gzip raise on files that are cut short, damaged or no archive at all."""


def read_gzipped_tar(path: Path, names: Sequence[str], limit: int) -> dict[str, bytes]:
    """Return the content of some members of a gzipped archive, which is read to its end.

    Raises:
        DataError: the file is no such archive, or cut short or damaged anywhere (its size and
            digest are given), lacks one of `names`, or is refused for what a member declares.
    """
    contents: dict[str, bytes] = {}
    seen: list[str] = []

    def read() -> None:
        with (
            _BoundedGzip(path, limit) as plain,
            tarfile.open(fileobj=plain, mode="r:", name=str(path)) as archive,
        ):
            for name, member in _files(path, archive):
                seen.append(name)
                if name in names and (file := archive.extractfile(member)):
                    refuse_size(member.size, limit, f"{path}: {name}")
                    contents[name] = file.read()
            while plain.read(2**20):  # to where the checksum is
                pass

    _explained(path, read)
    missing = [name for name in names if name not in contents]
    if missing:
        raise DataError(
            f"{path}: has no {missing[0]}; it holds {', '.join(seen[:10]) or 'nothing'}"
        )
    return contents


def list_plain_tar(path: Path) -> dict[str, tuple[int, int]]:
    """Return where the files of a tar archive that is not compressed begin, and their lengths.

    Raises:
        DataError: the file is no such archive, is cut short or damaged, or is refused for what a
            member declares.
    """
    found: dict[str, tuple[int, int]] = {}

    def read() -> None:
        with tarfile.open(path, "r:") as archive:
            for name, member in _files(path, archive):
                found[name] = (member.offset_data, member.size)
            end = archive.offset
        with path.open("rb") as file:
            file.seek(end)
            if file.read(512) != bytes(512):  # `tarfile` takes any end for the end
                raise EOFError("it ends before its end mark")

    _explained(path, read)
    return found


def refuse_unsafe(name: str, where: str) -> None:
    """Refuse the name of a member that leads out of the archive's own folder.

    Raises:
        DataError: the name is absolute or climbs with `..`.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if ".." in parts or parts[:1] == ("/",) or PureWindowsPath(name).drive:
        raise DataError(f"{where}: refused, the name leads out of the archive; do not unpack it")


def refuse_size(size: int, limit: int, where: str) -> None:
    """Refuse a file that declares more bytes than it can need.

    Raises:
        DataError: `size` is above `limit`.
    """
    if not 0 <= size <= limit:
        raise DataError(
            f"{where}: refused, its declared size of {size} bytes is absurd (at most {limit})"
        )


def refuse_web_page(path: Path) -> None:
    """Refuse a page that a browser or a server saved under an archive's name.

    Raises:
        DataError: the file begins as web pages do.
    """
    if _is_web_page(path):
        raise DataError(f"{path}: {_what_it_is(path)}; fetch it again")


class _BoundedGzip(gzip.GzipFile):
    """Refuses to read absurdly much at once: `tarfile` reads some headers whole, however long."""

    def __init__(self, path: Path, limit: int) -> None:
        super().__init__(path)
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        refuse_size(-1 if size is None else size, self._limit, f"{self.name}: a header")
        return super().read(size)


def _files(path: Path, archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield what is no folder, by name, once it is known to be harmless."""
    for count, member in enumerate(archive, start=1):
        where = f"{path}: {member.name}"
        refuse_unsafe(member.name, where)
        refuse_size(member.size, SIZE_LIMIT, where)
        if count > COUNT_LIMIT:
            raise DataError(f"{where}: refused, the archive has more than {COUNT_LIMIT} members")
        if member.isdir():
            continue
        if not member.isreg() or member.sparse is not None:
            raise DataError(f"{where}: refused, it is no plain file but a link, device or the like")
        yield member.name.removeprefix("./"), member


def _explained(path: Path, read: Callable[[], None]) -> None:
    try:
        read()
    except BROKEN as error:
        if not path.is_file():
            raise DataError(f"{path}: cannot be read: {error}") from error
        raise DataError(f"{path}: {_what_it_is(path)}: {error}; fetch it again") from error


def _what_it_is(path: Path) -> str:
    size = path.stat().st_size
    if size == 0:
        return "an empty file"
    if _is_web_page(path):
        return f"not an archive, but a web page ({size} bytes)"
    return f"no whole tar archive ({size} bytes, MD5 {file_digest(path, 'md5')})"


def _is_web_page(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(1024).lstrip().lower().startswith(WEB_PAGE)
