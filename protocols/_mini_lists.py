"""The lists that say which images of mini-ImageNet are training and which are test images."""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

from fscil_bench.errors import DataError

from ._image_tree import ImageTree


class Row(NamedTuple):
    """A line of a list: an image file, and the WordNet id of its class."""

    line: int
    file: str
    wnid: str


def read_lists(tree: ImageTree, train_name: str, test_name: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of both lists, CSV files with the columns filename and label.

    Raises:
        DataError: a list is malformed (file:line), or an image is listed twice.
    """
    train, test = _read(tree, train_name), _read(tree, test_name)
    both = sorted({row.file for row in train} & {row.file for row in test})
    if both:
        raise DataError(
            f"{tree.where}: {len(both)} images are in both train.csv and test.csv: "
            f"{', '.join(both[:20])}"
        )
    return train, test


def _read(tree: ImageTree, name: str) -> list[Row]:
    where = f"{tree.where}: {name}"
    try:
        text = tree.read(name).decode("utf-8-sig")
        lines = csv.reader(io.StringIO(text, newline=""))
        rows = [(lines.line_num, line) for line in lines if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{where}: not a CSV in UTF-8: {error}") from error
    header = rows[0][1] if rows else []
    if not {"filename", "label"} <= set(header):
        raise DataError(f"{where}:1: expected the columns filename,label")
    columns = header.index("filename"), header.index("label")
    found: dict[str, Row] = {}
    for line, row in rows[1:]:
        file, wnid = (row[c] if c < len(row) else "" for c in columns)
        problem = None
        if not file or not wnid or "/" in file or "\\" in file:
            problem = f"{file!r},{wnid!r} is not a file name and a WordNet id"
        elif file in found:
            problem = f"{file} is listed a second time, after line {found[file].line}"
        if problem is not None:
            raise DataError(f"{where}:{line}: {problem}")
        found[file] = Row(line, file, wnid)
    return list(found.values())
