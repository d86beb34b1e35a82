"""Lists of shots in the published format: an index or a path a line, a file a session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.data.reader import Dataset, DatasetIndex, ImageArray, Item, read_file
from fscil_bench.errors import DataError, UsageError, some

LIST = re.compile(r"session_0*(\d{1,6})\.txt", re.ASCII)
INDEX = re.compile(r"([+-]?)0*(\d{1,18})", re.ASCII)
"""More digits than 18 are no index."""

Row = tuple[int, str, tuple[str, ...]]
"""A few-shot session (from 1), a class by its key, and the numbers of its shots."""


@dataclass(frozen=True)
class Entry:
    """A line of a list: either an `index` into the training images, or a `path` with `/`."""

    where: str
    index: int | None = None
    path: str | None = None


def text_lines(content: bytes, where: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that are not blank, stripped, with their numbers from 1.

    Line ends of any system and a byte-order mark do not matter.

    Raises:
        DataError: it is not UTF-8; the message names `where`.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line.strip()


def parse_index_list(path: Path, most: int | None = None) -> tuple[Entry, ...]:
    """Read a list; line ends of any system, a byte-order mark and blank lines do not matter.

    Raises:
        DataError: the file is missing, empty or not text, or a line is neither an index nor a
            path, or is of the other kind than the lines before (file:line); or there are more
            than `most` of them.
    """
    entries: list[Entry] = []
    for number, line in text_lines(read_file(path), str(path)):
        where = f"{path}:{number}"
        if len(entries) == most:
            raise DataError(f"{where}: lists more than the {most} images of the data set")
        entries.append(_entry(where, line.replace("\\", "/")))
        if (entries[-1].path is None) != (entries[0].path is None):
            raise DataError(
                f"{where}: {line!r} is of another kind than the first entry; a list holds either "
                "indices or paths"
            )
    if not entries:
        raise DataError(f"{path}: the list is empty")
    return tuple(entries)


def shots_from_lists(folder: Path, index: DatasetIndex, shot: int | None = None) -> tuple[Row, ...]:
    """Return what the lists `session_2.txt`, `session_3.txt` ... of a folder choose.

    `session_1.txt` would be the base session's, which has all training images of its classes, and
    is not read. A path is matched by its end, because lists and copies differ in the folders above.
    The items of `index` must have numbers; those that `index_of` returns do. With `shot`, every
    class that is listed must have so many.

    Raises:
        DataError: there are no lists or one is missing, an entry fits no training image or more
            than one, a class is in two sessions, or test images are listed; the message lists
            the overlap.
        UsageError: two lines of a list mean the same image, however they write it (file:line), or
            a class has more or fewer than `shot`.
    """
    known, images = _Known(index), len(index.train) + len(index.test)
    rows: list[Row] = []
    test: list[str] = []
    for session, path in _files(folder):
        shots: dict[int, list[str]] = {}
        lines: dict[str, str] = {}
        for entry in parse_index_list(path, images):
            half, item = known.find(entry)
            line = entry.where.rpartition(":")[2]
            if item.key in lines:
                same = f"the same image as line {lines[item.key]} ({item.key})"
                raise UsageError(f"{entry.where}: {same}")
            lines[item.key] = line
            if half == "test":
                test.append(f"{entry.where}: {item.key}")
            shots.setdefault(item.label, []).append(str(item.number))
        for label, listed in shots.items():
            if shot is not None and len(listed) != shot:
                where = [line for key, line in lines.items() if known.labels[key] == label]
                raise UsageError(
                    f"{path}: class {known.keys[label]!r} has {len(listed)} shots (on line "
                    f"{some(where)}), the protocol needs {shot}"
                )
            rows.append((session, known.keys[label], tuple(listed)))
    if test:
        raise DataError(f"{folder}: test images are among the shots ({len(test)}): {some(test)}")
    _refuse_repeated(folder, rows)
    return tuple(rows)


def index_of(dataset: Dataset) -> DatasetIndex:
    """Return what a data set holds as an index again, with the numbers that lists use."""

    def items(half: ImageArray) -> tuple[Item, ...]:
        columns = half.keys, half.labels.tolist(), half.numbers.tolist()
        return tuple(Item(*row) for row in zip(*columns, strict=True))

    halves = items(dataset.train), items(dataset.test)
    return DatasetIndex(dataset.class_names, *halves, dataset.class_keys)


class _Known:
    """Finds the image that an entry means."""

    def __init__(self, index: DatasetIndex) -> None:
        self.keys = index.class_keys or index.class_names
        self.labels = {item.key: item.label for item in (*index.train, *index.test)}
        self._names = index.class_names
        self._numbers: dict[int | None, list[tuple[str, Item]]] = {}
        self._ends: dict[str, list[tuple[str, Item]]] = {}
        for half, items in (("train", index.train), ("test", index.test)):
            for item in items:
                if half == "train":
                    self._numbers.setdefault(item.number, []).append((half, item))
                for end in path_ends(item.key):
                    self._ends.setdefault(end, []).append((half, item))

    def find(self, entry: Entry) -> tuple[str, Item]:
        """Return the half and the item that an entry means."""
        if entry.path is None:
            return self._only(entry, str(entry.index), self._numbers.get(entry.index, []))
        for end in path_ends(entry.path):
            # A bare file name alone says too little: the path must name its class as well.
            found = [
                (half, item)
                for half, item in self._ends.get(end, [])
                if "/" in end or self._named(item, entry.path)
            ]
            if found:
                return self._only(entry, entry.path, found)
        return self._only(entry, entry.path, [])

    def _named(self, item: Item, path: str) -> bool:
        folders = path.split("/")[:-1]
        return self.keys[item.label] in folders or self._names[item.label] in folders

    def _only(self, entry: Entry, text: str, found: Sequence[tuple[str, Item]]) -> tuple[str, Item]:
        if len(found) == 1:
            return found[0]
        if not found and entry.path is None:
            high = max((number for number in self._numbers if number is not None), default=-1)
            raise DataError(f"{entry.where}: no training image has the index {text} (0 … {high})")
        if not found:
            raise DataError(f"{entry.where}: {text} is no image of the data set")
        keys = some([item.key for _, item in found])
        raise DataError(f"{entry.where}: {text} fits {len(found)} images: {keys}")


def _entry(where: str, text: str) -> Entry:
    if "/" in text:
        return Entry(where, path=text)
    match = INDEX.fullmatch(text)
    if match is None:
        shown = text if len(text) < 100 else f"{text[:100]}..."
        raise DataError(
            f"{where}: {shown!r} is neither an index nor a path with its class's folder"
        )
    if match[1] == "-" and int(match[2]):
        raise DataError(f"{where}: the index {text} is below 0; indices count from 0")
    return Entry(where, index=int(match[2]))


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the few-shot sessions, from 1, with their lists."""
    found: dict[int, Path] = {}
    try:
        for path in sorted(folder.iterdir()):
            match = LIST.fullmatch(path.name)
            if match and int(match[1]) in found:
                other = found[int(match[1])].name
                raise DataError(f"{folder}: has both {other} and {path.name}; remove one of them")
            if match and int(match[1]) > 1:
                found[int(match[1])] = path
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from error
    if not found:
        raise DataError(
            f"{folder}: has no lists session_2.txt, session_3.txt ... of the few-shot sessions"
        )
    for number in range(2, max(found) + 1):
        if number not in found:
            last = found[max(found)].name
            raise DataError(f"{folder}: has {last} but no session_{number}.txt")
        yield number - 1, found[number]


def _refuse_repeated(folder: Path, rows: Iterable[Row]) -> None:
    sessions: dict[str, list[str]] = {}
    for session, key, _ in rows:
        sessions.setdefault(key, []).append(f"session_{session + 1}.txt")
    repeated = [f"{key} ({', '.join(lists)})" for key, lists in sessions.items() if len(lists) > 1]
    if repeated:
        raise DataError(
            f"{folder}: classes are in more than one session ({len(repeated)}): {some(repeated)}"
        )


def path_ends(path: str) -> Iterator[str]:
    """Yield a path, then what is left of it without its first folder, and so on."""
    yield path
    while "/" in path:
        path = path.partition("/")[2]
        yield path
