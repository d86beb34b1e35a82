"""mini-ImageNet as image files: which of them are training and which are test images."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fscil_bench.errors import DataError, some

from .._archives.tree import ImageTree

PICTURE = re.compile(
    r"(?:images|(?:(train|val|test)/|images/|)(n\d{8})(?:/images)?)/([^/]+\.(?i:jpe?g|png))"
)
FILE_NAME = re.compile(r"(n\d{8})(\d{8})\.\w+")
"""A published file name: the class's WordNet id, and the image's number in it."""

DIVISIONS = (("split/train.csv", "split/test.csv"), ("train.csv", "test.csv"))
PUBLISHED = (500, 100)
"""Training and test images of every class."""


class Picture(NamedTuple):
    """An image file: its `member` name, its class, and the folder (train, val, test) if any.

    `number` is the one in a published file name, else None.
    """

    member: str
    file: str
    wnid: str
    folder: str | None
    number: int | None


class Row(NamedTuple):
    """A line of a list: an image file, and the WordNet id of its class."""

    line: int
    file: str
    wnid: str


Half = Mapping[str, Sequence[Picture]]
"""Pictures by WordNet id, sorted by file name."""


@dataclass(frozen=True)
class Division:
    """Both halves; `absent` are files that a list names and that are not there.

    `reason` says in what the division is not the published one, or is None.
    """

    train: Half
    test: Half
    absent: Mapping[str, Sequence[str]]
    reason: str | None = None


def official_classes() -> tuple[str, ...]:
    """Return the sorted WordNet ids of the 100 classes."""
    listed = Path(__file__).with_name("classes.txt")
    return tuple(listed.read_text(encoding="utf-8").split())


def subfolders() -> tuple[str, ...]:
    """Return the folders of a copy in which images and lists lie."""
    return ("images", "split", "train", "val", "test", *official_classes())


def top_of(tree: ImageTree) -> str | None:
    """Return the prefix below which the layout begins, or None if there is no such image."""
    classes = set(official_classes())
    for name in tree.names:
        match = re.fullmatch(rf"((?:[^/]+/)*?){PICTURE.pattern}", name)
        if match and (match[3] or match[4][:9]) in classes:
            return match[1]
    return None


def divide(tree: ImageTree, top: str) -> Division:
    """Divide the images below `top`: by lists, else by folder, else by rule.

    1. `split/train.csv` and `split/test.csv` (or both beside `images`), if they name images of
       the same classes. 2. If classes are in both folders `train` and `test`, these. 3. The first
       five sixths of a class's images by file name are training images, the rest test images.

    Raises:
        DataError: a list is malformed, or names an image twice.
    """
    pictures = _pictures(tree, top)
    reason = "it has no split/train.csv with split/test.csv"
    for lists in DIVISIONS:
        if all(top + name in tree.names for name in lists):
            train, test = read_lists(tree, *(top + name for name in lists))
            if {row.wnid for row in train} & {row.wnid for row in test}:
                return _by_list(pictures, train, test)
            reason = f"its {' and '.join(lists)} divide the classes, not the images of each class"
    by_folder = _grouped(pictures, "train"), _grouped(pictures, "test")
    if by_folder[0].keys() & by_folder[1].keys():
        return Division(*by_folder, {}, _miscounted(*by_folder))
    return _by_rule(pictures, reason)


def rule(count: int) -> int:
    """Return how many of a class's `count` images are training images where no list says so."""
    return count - count // 6


def _pictures(tree: ImageTree, top: str) -> list[Picture]:
    found = []
    for name in tree.names:
        match = PICTURE.fullmatch(name.removeprefix(top)) if name.startswith(top) else None
        if match is None:
            continue
        folder, wnid, file = match.groups()
        published = FILE_NAME.fullmatch(file)
        if published and wnid in (None, published[1]):
            found.append(Picture(name, file, published[1], folder, int(published[2])))
        else:
            found.append(Picture(name, file, wnid or "", folder, None))
    return sorted(found, key=lambda picture: picture.file)


def _by_list(pictures: Iterable[Picture], train: Sequence[Row], test: Sequence[Row]) -> Division:
    known = {(picture.wnid, picture.file): picture for picture in pictures}
    halves: list[Half] = []
    absent: dict[str, list[str]] = {}
    for rows in (train, test):
        there = []
        for row in rows:
            picture = known.get((row.wnid, row.file)) or known.get(("", row.file))
            if picture is None:
                absent.setdefault(row.wnid, []).append(row.file)
            else:
                there.append(picture if picture.wnid else picture._replace(wnid=row.wnid))
        halves.append(_grouped(sorted(there, key=lambda picture: picture.file)))
    return Division(halves[0], halves[1], absent, _miscounted(*halves))


def _by_rule(pictures: Iterable[Picture], reason: str) -> Division:
    train, test = {}, {}
    for wnid, members in _grouped(pictures).items():
        count = rule(len(members))
        train[wnid], test[wnid] = members[:count], members[count:]
    return Division(
        train,
        test,
        {},
        f"{reason}, so the first five sixths of each class's images by name are its training "
        "images and the rest its test images, not the published ones",
    )


def _grouped(pictures: Iterable[Picture], folder: str | None = None) -> dict[str, list[Picture]]:
    grouped: dict[str, list[Picture]] = {}
    for picture in pictures:
        if folder in (None, picture.folder):
            grouped.setdefault(picture.wnid, []).append(picture)
    return grouped


def _miscounted(train: Half, test: Half) -> str | None:
    counts = {w: (len(train.get(w, ())), len(test.get(w, ()))) for w in official_classes()}
    other = [wnid for wnid, count in counts.items() if count != PUBLISHED]
    if not other:
        return None
    have, want = (" + ".join(map(str, count)) for count in (counts[other[0]], PUBLISHED))
    return (
        f"{len(other)} of the {len(counts)} classes have other numbers of training and test "
        f"images than the published {want}; {other[0]} has {have}"
    )


def read_lists(tree: ImageTree, train_name: str, test_name: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of both lists, CSV files with the columns filename and label.

    Raises:
        DataError: a list is malformed (file:line), or an image is listed twice.
    """
    train, test = _read(tree, train_name), _read(tree, test_name)
    both = sorted({row.file for row in train} & {row.file for row in test})
    if both:
        raise DataError(
            f"{tree.where}: {len(both)} images are in both train.csv and test.csv: {some(both)}"
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
