"""Parameters of plug-ins: frozen dataclasses, typed and checked where a user sets them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from fscil_bench.errors import UsageError, nearest, no_file, shown

NO_TEXT = re.compile(r"[\0\ud800-\udfff]")
"""NUL, which no path can hold, and halves of characters, which no file can."""


FILE = "file"
"""Marks the field of a parameter that names a file, see `file_field`."""
DIGEST = "sha256-"
"""What stands before the digest of a file's content where it stands for the file."""


@dataclass(frozen=True)
class NoParams:
    """For a plug-in that has nothing to set."""


def file_field() -> Any:
    """Return a field, a text, for the path of a file that a plug-in reads; empty for none.

    It is made absolute. In keys and records the digest of the file's content stands for it.
    """
    return field(default="", metadata={FILE: True})


def parse_params(owner: str, schema: type, values: Mapping[str, Any]) -> Any:
    """Return `schema` filled with `values`; strings (from a command line) are converted.

    Raises:
        UsageError: an unknown name, answered with the nearest; a value of the wrong type or
            outside its range; or a file that is not there.
    """
    known = [each.name for each in fields(schema)]
    for name in values:
        if name not in known:
            raise UsageError(f"{owner} has no parameter {name!r}; {nearest(name, known)}")
    try:
        filled = _adapter(schema).validate_python({n: plain(v) for n, v in values.items()})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        where = f"{owner}: {name} = {shown(first['input'])}" if name else owner
        raise UsageError(f"{where}: {message}") from error
    refuse_unstorable(f"{owner}:", asdict(filled))
    files = {name: Path(path).absolute() for name, path in files_of(filled).items()}
    for name, path in files.items():
        if not path.is_file():
            raise UsageError(f"{owner}: {name} = {shown(str(path), 500)}: {no_file(path)}")
    changes = dict.fromkeys(_file_names(schema), "") | {n: str(p) for n, p in files.items()}
    return replace(filled, **changes) if changes else filled


def files_of(params: Any) -> dict[str, str]:
    """Return the paths of the files that parameters name."""
    schema: type = type(params)
    named = {name: getattr(params, name) for name in _file_names(schema)}
    return {name: path for name, path in named.items() if path.strip()}


def _file_names(schema: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(schema) if FILE in each.metadata)


def plain(value: Any) -> Any:
    """Return a value as a number, text or list: without the types of NumPy, torch and paths."""
    if isinstance(value, Path):
        return str(value)
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def refuse_unstorable(owner: str, values: Mapping[str, Any]) -> None:
    """Refuse what a record could not give back: NaN, infinity, integers beyond 64 bits, no text.

    Raises:
        UsageError: there is one; its name and value are told.
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            refuse_unstorable(f"{owner} {name}:", value)
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, float) and not math.isfinite(each):
                raise UsageError(f"{owner} {name} = {each}: input should be a finite number")
            if isinstance(each, int) and not -(2**63) <= each < 2**63:
                size = len(hex(abs(each))) * 4
                raise UsageError(f"{owner} {name}: an integer of {size} bits; 64 can be stored")
            if isinstance(each, str) and NO_TEXT.search(each):
                raise UsageError(f"{owner} {name} = {shown(each)}: holds what is no Unicode text")


@cache
def _adapter(schema: type) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def published_params(value: type, names: Sequence[str | None]) -> Mapping[str, Any]:
    """Return the parameters that a plug-in's paper states for a protocol; {} if it states none.

    `names` are those that the protocol goes by, the most particular first.
    """
    table: Mapping[str, Mapping[str, Any]] = getattr(value, "published", {})
    return next((table[name] for name in names if name is not None and name in table), {})


def params_dict(params: Any) -> dict[str, Any]:
    """Return a parameter dataclass as plain values, for keys, files and tables.

    A file is told by the beginning of its content's SHA-256.
    """
    return asdict(params) | {name: _digest(path) for name, path in files_of(params).items()}


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return DIGEST + hashlib.file_digest(file, "sha256").hexdigest()[:12]


def words(text: str) -> list[str]:
    """Return the parts of a text with `,` between, without those that are empty."""
    return [part for part in map(str.strip, text.split(",")) if part]


AS_WORDS = BeforeValidator(lambda value: words(value) if isinstance(value, str) else value)
"""For a parameter of several values, which a command line writes as one text."""
