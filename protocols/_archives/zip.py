"""Reads members of a zip archive by name, and explains an archive that cannot be read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fscil_bench.data.downloads import is_web_page
from fscil_bench.errors import DataError

from .checks import refuse_size


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive for reading.

    Raises:
        DataError: the file cannot be read, or is no whole zip archive; the message says what it
            seems to be.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise DataError(f"{path}: {_what_it_is(path)}; fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    with archive:
        yield archive


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return the content of a member.

    Raises:
        DataError: there is no such member, it declares more than `limit` bytes, or it is damaged.
    """
    where = f"{archive.filename}: {name}"
    try:
        member = archive.getinfo(name)
    except KeyError:
        raise DataError(f"{where}: not in the archive") from None
    refuse_size(member.file_size, limit, where)
    try:
        return archive.read(member)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{where}: damaged ({error}); fetch the archive again") from error
    except (NotImplementedError, RuntimeError) as error:
        raise DataError(f"{where}: cannot be unpacked: {error}") from error


def _what_it_is(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(1024).lstrip().lower()
    size = f"{path.stat().st_size} bytes"
    if not start:
        return "an empty file"
    if is_web_page(path):
        return f"not an archive, but a web page ({size})"
    if start.startswith(b"pk\x03\x04"):
        return f"a zip archive that is cut short or damaged ({size})"
    return f"not a zip archive ({size})"
