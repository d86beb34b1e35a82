"""Errors that a user can meet: what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path


class FscilError(Exception):
    """A failure that is explained in its message; the command line exits with `exit_code`.

    `remedy` are the options that make the same command work, where its message names some.
    """

    exit_code = 1

    def __init__(self, *args: object, remedy: Sequence[str] = ()) -> None:
        super().__init__(*args)
        self.remedy = tuple(remedy)


class UsageError(FscilError):
    """The request itself is wrong: an unknown name, a bad value, a file that does not validate."""

    exit_code = 2


class DataError(FscilError):
    """Images, archives or lists are missing, damaged or not what the protocol asks for."""


class OtherClassesError(DataError):
    """Data are of other classes than the protocol's, and not only labelled or ordered otherwise."""


class StoreError(FscilError):
    """Something stored cannot be read or written."""


class WriteError(StoreError):
    """Nothing can be written where results are kept: what else is to be made would fail too."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a phrase naming the known names closest to `name`, or all of them if none is close."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    return "known: " + (", ".join(names) or "none")


def shown(value: object, most: int = 60) -> str:
    """Return a value as a message quotes it: of a long one the beginning alone."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return f"an integer of {int(value).bit_length()} bits"  # type: ignore[call-overload]
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def some(names: Sequence[str], most: int = 20) -> str:
    """Return the first of many names, with a mark that there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def no_file(path: Path | str) -> str:
    """Return why a path is that of no file, for a message that begins with the path."""
    return "a folder, not a file" if Path(path).is_dir() else "no such file"
