"""Reads a gzipped tar archive from its beginning to its end; nothing is ever extracted."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from fscil_bench.errors import DataError

from ._zip_archive import WEB_PAGE

READ_LIMIT = 100_000_000
"""Bytes that are read into memory at once."""

MEMBER_LIMIT = 1_000_000_000
"""Bytes that a member may declare, whether it is read or passed over."""

TOTAL_LIMIT = 6_000_000_000
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
    RecursionError,
)
"""What gzip and tarfile raise on streams and headers that make no sense."""

Content = bytes | DataError
"""What a member holds, or why it was not read."""


@dataclass(frozen=True)
class TarStream:
    """A gzipped tar archive.

    `described` says its size and digest, and what they should be, for messages about damage. An
    archive that is `official`, digest and all, may hold entries that are neither file nor folder,
    which are passed over; in any other they are a reason to refuse it.
    """

    path: Path
    described: str
    official: bool = False

    def files(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Content | None]]:
        """Yield the name of every file in archive order, with the content of those `wanted`.

        Raises:
            DataError: the archive is cut short, damaged, no archive at all, or refused for what
                an entry declares; the message says which.
        """
        count = 0
        try:
            with gzip.open(self.path) as plain, _opened(plain, self.path) as archive:
                while (member := archive.next()) is not None:
                    archive.members = []  # type: ignore[attr-defined]  # it keeps every header
                    count += 1
                    self._check(member, count)
                    if member.isreg():
                        name = str(PurePosixPath(member.name))
                        yield name, self._content(archive, member) if wanted(name) else None
                _drain(plain)
        except MALFORMED as error:
            raise DataError(f"{self.path}: {self._what_it_is(error)}; fetch it again") from error
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def in_order(self, names: Sequence[str]) -> Iterator[Content]:
        """Yield the contents of `names` in this order, whatever order the archive has.

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

    def _check(self, member: tarfile.TarInfo, count: int) -> None:
        name, problem = member.name, None
        if count > COUNT_LIMIT:
            problem = f"it has more than {COUNT_LIMIT} entries"
        elif not 0 <= member.size <= MEMBER_LIMIT:
            problem = f"{name}: its declared size of {member.size} bytes is absurd"
        elif member.offset_data + member.size > TOTAL_LIMIT:
            problem = f"it unpacks to more than {TOTAL_LIMIT} bytes"
        elif not self.official and not (member.isreg() or member.isdir()):
            problem = f"{name!r} is {_kind(member)}, which an archive of images does not need"
        elif not self.official and _leads_outside(name):
            problem = f"{name!r} leads outside the archive"
        if problem is not None:
            raise DataError(f"{self.path}: refused: {problem}; fetch the published archive")

    def _content(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Content:
        if member.size > READ_LIMIT:
            return DataError(
                f"{self.path}: {member.name}: refused, its declared size of {member.size} bytes "
                f"is absurd (at most {READ_LIMIT})"
            )
        file = archive.extractfile(member)
        content = file.read() if file is not None else b""
        if len(content) != member.size:
            raise EOFError(f"{member.name} ends early")
        return content

    def _what_it_is(self, error: BaseException) -> str:
        with self.path.open("rb") as file:
            start = file.read(1024).lstrip().lower()
        if not start:
            return "an empty file"
        if start.startswith(WEB_PAGE):
            return f"not an archive, but a web page ({self.described})"
        if not start.startswith(b"\x1f\x8b"):
            return f"not a gzipped tar archive ({self.described})"
        return f"cut short or damaged ({error}): {self.described}"


class _Bounded:
    """Passes reads on to a file, unless one asks for more than could be honest.

    Extended headers are read whole by `tarfile`, however long they say they are.
    """

    def __init__(self, file: gzip.GzipFile, name: str) -> None:
        self._file, self.name = file, name
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= READ_LIMIT:
            raise DataError(f"{self.name}: refused: a header declares {size} bytes")
        return self._file.read(size)


def _opened(plain: gzip.GzipFile, path: Path) -> tarfile.TarFile:
    bounded: IO[bytes] = _Bounded(plain, str(path))  # type: ignore[assignment]
    return tarfile.open(fileobj=bounded, mode="r:")


def _drain(plain: gzip.GzipFile) -> None:
    """Read what follows the last entry, so that the checksum at the end is compared."""
    for _ in range(1000):
        if not plain.read(2**20):
            return


def _length(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else 0


def _leads_outside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or name[1:2] == ":"


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"a link (to {member.linkname!r})"
    return "a device or the like"
