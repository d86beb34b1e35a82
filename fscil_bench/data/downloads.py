"""Getting data: fetched from the published address, or taken from a local copy; always verified."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fscil_bench.data.reader import DatasetReader, Download, file_digest
from fscil_bench.errors import DataError
from fscil_bench.progress import Progress
from fscil_bench.store.files import replaced_file, replaced_folder

WEB_PAGE = (b"<!doctype", b"<html", b"<head", b"<?xml")


def fetch(download: Download, folder: Path, progress: Progress) -> Path:
    """Return the file of a download in `folder`, fetched unless it is there and intact.

    A file appears under its name only once it is whole and its digest is right; what an
    interrupted download left is never taken for it.

    Raises:
        DataError: no address gives the file; each is named with what went wrong.
    """
    import pooch

    failures = []
    for address in download.addresses:
        try:
            with progress.task(f"fetching {download.filename}", download.size) as task:
                path = pooch.retrieve(
                    url=address,
                    known_hash=download.digest,
                    fname=download.filename,
                    path=folder,
                    downloader=_downloader(task.update),
                )
            return Path(path)
        except (OSError, ValueError, DataError) as error:
            failures.append(f"{address}: {_reason(error)}")
    raise DataError(
        f"{download.filename} could not be fetched: {'; '.join(failures)}. Fetch it on another "
        f"machine and give it with --from FILE ({download.size} bytes, {download.digest})"
    )


def take(reader: DatasetReader, given: Path, folder: Path, unofficial: bool) -> Path:
    """Copy a local archive or folder of a data set into `folder`, once its reader accepts it.

    Raises:
        DataError: the reader finds nothing in it or needs no data, the copy is not the published
            one and `unofficial` does not allow that, or something else is in its place.
    """
    if not given.exists():
        raise DataError(f"{given}: no such file or folder")
    source = reader.find((given,))
    if source.path is None:
        raise DataError(
            f"{given}: data set {reader.name!r} is drawn by the program and needs no data"
        )
    if source.unofficial and not unofficial:
        raise DataError(f"{given}: {source.unofficial}; --unofficial-data takes it all the same")
    found = source.path
    # An archive is known by its name, a folder is looked for under the data set's.
    name = reader.download.filename if reader.download and found.is_file() else found.name
    target = folder / (reader.name if found.is_dir() else name)
    if target.exists() and (target.resolve() == found.resolve() or _same_file(target, found)):
        return target
    if target.exists() or target.is_symlink():
        raise DataError(f"{target}: is there already, and is kept; move it away first")
    if target.resolve().is_relative_to(found.resolve()):
        raise DataError(f"{found}: cannot be copied into itself, {target}; choose --data-root")
    if found.is_dir():
        with replaced_folder(target) as new:
            shutil.copytree(found, new, dirs_exist_ok=True)
    else:
        with replaced_file(target) as copied:
            shutil.copyfile(found, copied)
    return target


def _same_file(one: Path, other: Path) -> bool:
    files = one.is_file() and other.is_file() and one.stat().st_size == other.stat().st_size
    return files and file_digest(one) == file_digest(other)


def verify(path: Path, download: Download) -> str | None:
    """Say what is wrong with a local copy of a download, or None if it is the published file."""
    algorithm, _, expected = download.digest.partition(":")
    if path.stat().st_size != download.size:
        return f"{path.stat().st_size} bytes instead of {download.size}"
    found = file_digest(path, algorithm)
    return None if found == expected else f"{algorithm} {found} instead of {expected}"


def is_web_page(path: Path) -> bool:
    """Tell whether a file begins as web pages do, whatever its name."""
    with path.open("rb") as file:
        return file.read(1024).lstrip().lower().startswith(WEB_PAGE)


def _downloader(update: Callable[[float], None]) -> Callable[[str, Any, Any], None]:
    """Return a downloader that reports its progress and refuses a web page."""
    from pooch import HTTPDownloader

    class Bar:
        """What pooch expects of a progress bar."""

        total = 0
        done = 0

        def update(self, count: int) -> None:
            self.done += count
            update(self.done)

        def reset(self) -> None:
            self.done = 0

        def close(self) -> None:
            pass

    def download(url: str, output_file: Any, pup: Any) -> None:
        HTTPDownloader(progressbar=Bar(), timeout=60)(url, output_file, pup)
        if is_web_page(Path(str(output_file))):
            raise DataError("what came is a web page, not the file")

    return download


def _reason(error: Exception) -> str:
    from requests import ConnectionError as NoConnection

    text = str(error)
    if isinstance(error, NoConnection):
        # The pool's own account wraps what happened into several others.
        inner = re.search(r"(Failed to resolve [^()]+|\[Errno -?\d+\] [^()'\"]+|timed out)", text)
        return f"no connection ({inner[1].strip() if inner else type(error).__name__})"
    if "hash of downloaded file" in text.lower():
        return "what came has another digest: a damaged download, or another file"
    return text.partition("\n")[0][:200] or type(error).__name__
