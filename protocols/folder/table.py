"""Lists the images that a CSV names: path,label or path,label,split."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from fscil_bench.errors import DataError, some

from .pictures import Picture, one_form, picture

NEEDED, OPTIONAL = ("path", "label"), "split"
HALVES = ("train", "test")
NAMED = 20
"""How many absent images a message names."""

Row = Mapping[str, str]


def list_table(file: Path) -> list[Picture]:
    """Return the images of a table; paths are relative to its folder, or absolute.

    Raises:
        DataError: a column is missing, a value makes no sense, an image is listed twice (all
            file:line), or images are not there.
    """
    pictures: list[Picture] = []
    lines: dict[tuple[int, int] | str, int] = {}
    absent = []
    for line, row in _rows(file):
        one = _picture(file, line, row)
        place = one.identity or one.key
        if place in lines:
            raise DataError(
                f"{file}:{line}: {one.key} is listed again, after line {lines[place]}; an image "
                "has one label and one half"
            )
        lines[place] = line
        pictures.append(one)
        if not one.state:
            absent.append(f"{file}:{line}: {one.key}")
    if absent:
        more = "" if len(absent) <= NAMED else f"\n  and {len(absent) - NAMED} more"
        listed = "".join(f"\n  {text}" for text in absent[:NAMED])
        raise DataError(
            f"{file}: {len(absent)} of {len(pictures)} images are not there (paths are relative "
            f"to {file.parent}):{listed}{more}"
        )
    return pictures


def _rows(file: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows with the lines on which they end."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            table = csv.reader(opened, skipinitialspace=True, strict=True)
            header = [name.strip().lower() for name in next(table, [])]
            _check_header(header, file)
            for values in table:
                if not any(value.strip() for value in values):
                    continue
                if len(values) != len(header):
                    raise DataError(
                        f"{file}:{table.line_num}: has {len(values)} values for the columns "
                        f"{','.join(header)}; put a value with a comma into double quotes"
                    )
                row = zip(header, (value.strip() for value in values), strict=True)
                yield table.line_num, dict(row)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not a CSV in UTF-8: {error}") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error


def _check_header(header: list[str], file: Path) -> None:
    missing = [name for name in NEEDED if name not in header]
    twice = sorted({name for name in header if header.count(name) > 1})
    if missing or twice:
        problem = f"lacks {', '.join(missing)}" if missing else f"has {some(twice)} twice"
        raise DataError(
            f"{file}:1: the header {','.join(header)!r} {problem}; it must name path,label, and "
            "may name split"
        )


def _picture(file: Path, line: int, row: Row) -> Picture:
    for name in NEEDED:
        if not row[name] or "\0" in row[name]:
            problem = "holds a NUL character" if row[name] else "is empty"
            raise DataError(f"{file}:{line}: {name} {problem}")
    half = row.get(OPTIONAL)
    if half is not None and half not in HALVES:
        raise DataError(f"{file}:{line}: split is {half!r}; it must be train or test")
    key = row["path"]
    path = file.parent / key
    if "\\" in key and not path.is_file():
        key = key.replace("\\", "/")
        path = file.parent / key
    if path.is_dir():
        raise DataError(f"{file}:{line}: {key} is a folder, not an image")
    return picture(path, key, one_form(row["label"]), half)
