"""Finds files in tar archives, gzipped or plain; nothing is ever unpacked onto the disk."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fscil_bench.data.downloads import is_web_page
from fscil_bench.data.reader import file_digest
from fscil_bench.errors import DataError

from .checks import refuse_size, refuse_unsafe

READ_LIMIT = 100_000_000
"""Bytes that are read into memory at once, unless an archive is known to need more."""

SIZE_LIMIT = 1_000_000_000
"""Bytes that a member may declare, even one that is passed over."""

TOTAL_LIMIT = 20_000_000_000
COUNT_LIMIT = 200_000
HELD_LIMIT = 768 * 2**20
"""Bytes of images held back until the ones before them have come."""

MALFORMED = (
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    tarfile.TarError,
    ValueError,
    LookupError,
    MemoryError,
    RecursionError,
)
"""What gzip and tarfile raise on files that are cut short, damaged or no archive at all."""

Content = bytes | DataError
"""What a member holds, or why it was not read."""


@dataclass(frozen=True)
class TarArchive:
    """A tar archive.

    Attributes:
        path: the file.
        published: size and digest that it should have, for messages about damage.
        official: it has that digest, so that what is neither file nor folder in it is passed
            over; in any other archive it is a reason to refuse it.
        limit: bytes of the largest member that is read.
    """

    path: Path
    published: str = ""
    official: bool = False
    limit: int = READ_LIMIT

    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Content | None]]:
        """Yield the name of every file of a gzipped archive, with the content of those `wanted`.

        The archive is read to its end, where its checksum is.

        Raises:
            DataError: it is cut short, damaged or no archive at all (size and digest are given),
                or refused for what a member declares.
        """
        with self._opened(gzip.open) as (archive, plain):
            for name, member in self._members(archive):
                yield name, self._content(archive, member) if wanted(name) else None
            _drain(plain)

    def in_order(self, names: Sequence[str]) -> Iterator[Content]:
        """Yield the contents of `names` in this order, whatever order a gzipped archive has.

        Contents that come too early are held in memory until their turn.

        Raises:
            DataError: as `files`, or the order differs so much that too much would be held.
        """
        missing, held, size, position = set(names), dict[str, Content](), 0, 0
        for name, content in self.files(missing.__contains__):
            if content is None:
                continue
            missing.discard(name)
            held[name] = content
            size += _length(content)
            while position < len(names) and names[position] in held:
                ready = held.pop(names[position])
                size -= _length(ready)
                position += 1
                yield ready
            if position == len(names):
                return
            if size > HELD_LIMIT:
                raise DataError(
                    f"{self.path}: its images lie in an order that would need more than "
                    f"{HELD_LIMIT >> 20} MiB of memory; unpack it and name the folder instead"
                )
        for name in names[position:]:
            yield held.pop(name, DataError(f"{self.path}: {name}: not in the archive"))

    def places(self) -> dict[str, tuple[int, int]]:
        """Return where the files of an archive that is not compressed begin, and their lengths.

        Raises:
            DataError: as `files`.
        """
        with self._opened(lambda path: path.open("rb")) as (archive, plain):
            found = {
                name: (member.offset_data, member.size) for name, member in self._members(archive)
            }
            plain.seek(archive.offset)
            if plain.read(512) != bytes(512):  # `tarfile` takes any end for the end
                raise EOFError("it ends before its end mark")
        return found

    @contextmanager
    def _opened(self, opener: Callable[[Path], Any]) -> Iterator[tuple[tarfile.TarFile, IO[bytes]]]:
        """Open the archive with the bytes it is made of, and explain what goes wrong with it."""
        try:
            with opener(self.path) as plain:
                bounded: Any = _Bounded(plain, self)
                with tarfile.open(fileobj=bounded, mode="r:") as archive:
                    yield archive, plain
        except MALFORMED as error:
            raise DataError(f"{self.path}: {self._what_it_is(error)}; fetch it again") from error
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _members(self, archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
        """Yield the files by name, once each is known to be harmless."""
        count = 0
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # it keeps every header
            count += 1
            self._check(member, count)
            if member.isreg():
                yield str(PurePosixPath(member.name)), member

    def _check(self, member: tarfile.TarInfo, count: int) -> None:
        where, problem = f"{self.path}: {member.name}", None
        if count > COUNT_LIMIT:
            problem = f"the archive has more than {COUNT_LIMIT} members"
        elif not 0 <= member.size <= SIZE_LIMIT:
            problem = f"its declared size of {member.size} bytes is absurd"
        elif member.offset_data + member.size > TOTAL_LIMIT:
            problem = f"the archive unpacks to more than {TOTAL_LIMIT} bytes"
        elif not self.official:
            refuse_unsafe(member.name, where)
            problem = _unusual(member)
        if problem is not None:
            raise DataError(f"{where}: refused, {problem}; fetch the archive from its publisher")

    def _content(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Content:
        try:
            refuse_size(member.size, self.limit, f"{self.path}: {member.name}")
        except DataError as error:
            return error
        file = archive.extractfile(member)
        content = file.read() if file is not None else b""
        if len(content) != member.size:
            raise EOFError(f"{member.name} ends early")
        return content

    def _what_it_is(self, error: BaseException) -> str:
        size = self.path.stat().st_size
        if size == 0:
            return "an empty file"
        if is_web_page(self.path):
            return f"not an archive, but a web page ({size} bytes)"
        md5 = file_digest(self.path, "md5")
        whole = f", {self.published}" if self.published else ""
        return f"no whole tar archive ({error}): it has {size} bytes and MD5 {md5}{whole}"


class _Bounded:
    """Passes reads on to a file, unless one asks for more than could be honest.

    Extended headers are read whole by `tarfile`, however long they say they are.
    """

    def __init__(self, file: IO[bytes], archive: TarArchive) -> None:
        self._file, self._archive = file, archive
        self.name, self.seek, self.tell = str(archive.path), file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        refuse_size(size, self._archive.limit, f"{self.name}: a header")
        return self._file.read(size)


def _drain(plain: IO[bytes]) -> None:
    """Read what follows the last member, so that the checksum at the end is compared."""
    for _ in range(1000):
        if not plain.read(2**20):
            return


def _unusual(member: tarfile.TarInfo) -> str | None:
    """Say what a member is that is neither a plain file nor a folder, or return None."""
    if member.issym() or member.islnk():
        return f"it is a link (to {member.linkname!r})"
    if not (member.isreg() or member.isdir()) or member.sparse is not None:
        return "it is no plain file but a device or the like"
    return None


def _length(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else 0
