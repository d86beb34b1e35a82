"""Files that appear whole or not at all, and records that are read with care."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from fscil_bench.errors import StoreError, WriteError
from fscil_bench.spec import digest_of


def work_folders(root: Path) -> list[Path]:
    """Return the folders PROTOCOL/METHOD/KEY below `root`, each of finished work.

    One without its record is among them: as folders appear whole, something has damaged it.
    """
    found = root.glob("*/*/[!.]*")
    return sorted(path for path in found if path.is_dir() or path.is_symlink())


TEMPORARY = "fscil-"
"""Stands before the random end of temporary names, so that they cannot be anybody else's."""


class Keyed(Protocol):
    """What is recorded of finished work: its specification, with the key that this has."""

    @property
    def key(self) -> str:
        """The key as recorded."""

    @property
    def spec(self) -> Any:
        """The specification, whose own `key` it must be."""


Record = TypeVar("Record", bound=Keyed)


def read_record(path: Path, model: type[Record], version: int) -> Record:
    """Read the JSON record in a folder that is named by its key.

    Raises:
        StoreError: it is damaged, of another schema, or not the one that its folder names.
    """
    advice = remedy(path.parent)
    try:
        content = path.read_bytes()
        data = json.loads(content)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: is missing, its folder is damaged; {advice}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: damaged, not readable as JSON ({error}); {advice}") from error
    if not isinstance(data, dict):
        raise StoreError(f"{path}: damaged, it holds no record; {advice}")
    found = data.get("schema_version")
    if found != version:
        newer = "update fscil-bench, or " if isinstance(found, int) and found > version else ""
        raise StoreError(
            f"{path}: has schema version {found!r}, this version of fscil-bench reads "
            f"{version}; {newer}{advice}"
        )
    try:
        record: Record = _adapter(model).validate_json(content)
    except ValidationError as error:
        raise StoreError(f"{path}: {_problem(error)}; {advice}") from error
    # The text's own comes first: `record.spec` has fields that an older version did not know.
    known = record.key == digest_of(data["spec"]) or record.key == record.spec.key
    if path.parent.name != record.key or not known:
        raise StoreError(
            f"{path}: damaged, its specification does not belong to its folder's key; {advice}"
        )
    return record


def record_text(record: Keyed) -> str:
    """Return a record as the JSON that `read_record` reads, once it has been read back.

    Raises:
        StoreError: it holds a value that JSON cannot give back.
    """
    model = type(record)
    text = _adapter(model).dump_json(record, indent=1).decode() + "\n"
    try:
        same = _adapter(model).validate_json(text).key == digest_of(json.loads(text)["spec"])
    except ValidationError as error:
        raise StoreError(f"a record that could not be read again: {_problem(error)}") from error
    if not same:
        raise StoreError("a record that could not be read again: its key is another's")
    return text


@cache
def _adapter(model: type[Record]) -> TypeAdapter[Record]:
    return TypeAdapter(model)


def _problem(error: ValidationError) -> str:
    """Say what is wrong with a record."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return (
            f"has {where}, which this version of fscil-bench does not know: another version "
            "wrote it; update fscil-bench, or leave it be, or"
        )
    return f"damaged{' at ' * bool(where)}{where}: {first['msg']}"


def remedy(folder: Path) -> str:
    """Say what to do about damaged work."""
    return f"remove the folder {folder} and run it again"


def now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def write_text(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old or the new one, never a part.

    Raises:
        StoreError: it cannot be written.
    """
    with replaced_file(path) as new:
        new.write_text(text, encoding="utf-8")


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside `path` that takes its place when the block ends well.

    Raises:
        StoreError: the place cannot be written to.
    """
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{TEMPORARY}")
        os.close(handle)
    new = Path(name)
    try:
        with _explained(path):
            yield new
            new.chmod(0o644)
            new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def replaced_folder(path: Path, mark: str | None = None) -> Iterator[Path]:
    """Give a temporary folder beside `path` that takes its place when the block ends well.

    If another process puts its own there in the same moment, that one stays. With `mark`, the
    file that makes such a folder whole, a whole one that is there by then stays too: what is made
    from one key is the same, and another process may be about to open it.

    Raises:
        StoreError: the place cannot be written to.
    """
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        names = f".{path.name}.{TEMPORARY}", f".{path.name}.old.{TEMPORARY}"
        new, old = (Path(tempfile.mkdtemp(dir=path.parent, prefix=name)) for name in names)
    try:
        with _explained(path):
            yield new
            new.chmod(0o755)
            _exchange(path, new, old / path.name, mark)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(path: Path, new: Path, old: Path, mark: str | None) -> None:
    """Put `new` in the place of `path`, which is moved to `old`, or back if that fails.

    A `path` that has the mark is never moved, not even for a moment.
    """
    if mark is not None:
        with suppress(OSError):  # something is there, or the exchange below explains it
            new.replace(path)
            return
        if (path / mark).exists():
            return
    with suppress(FileNotFoundError):
        path.replace(old)
    try:
        new.replace(path)
    except OSError:
        if (
            path.exists()
        ):  # another process was quicker; which error tells it, depends on the system
            return
        if old.exists():
            old.replace(path)
        raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        whole = path.absolute()
        place = Path(os.fsdecode(error.filename)).absolute() if error.filename else whole
        if whole.parent not in (place, *place.parents) and place not in whole.parents:
            raise StoreError(f"{place}: cannot be read ({error.strerror or error})") from error
        # The name of a temporary file beside `path` would tell a user nothing.
        shown = path if place.parent == whole.parent else place
        raise WriteError(
            f"{shown}: cannot be written ({error.strerror or error}); choose "
            f"another folder with --results, --cache or --out, or make room"
        ) from error
