"""What every archive is refused, whatever its form for, before anything in it is used."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from fscil_bench.data.downloads import is_web_page
from fscil_bench.errors import DataError


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
    if is_web_page(path):
        size = path.stat().st_size
        raise DataError(f"{path}: not an archive, but a web page ({size} bytes); fetch it again")
