"""The text files in which CUB-200-2011 lists its classes, images and halves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fscil_bench.data.lists import text_lines
from fscil_bench.errors import DataError

IMAGES, LABELS, HALVES, CLASSES = LISTS = (
    "images.txt",
    "image_class_labels.txt",
    "train_test_split.txt",
    "classes.txt",
)
IMAGE = re.compile(r"([^/\\]+)/[^/\\]+_([0-9]{1,18})\.jpe?g", re.IGNORECASE)
NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Entry:
    """One image: its path below `images/`, the number that ends its name, class and half."""

    file: str
    number: int
    label: int
    train: bool


@dataclass(frozen=True)
class Lists:
    """The classes' folders in the order of their numbers; the images by class, in listed order."""

    folders: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes for a reader: `001.Black_footed_Albatross` without its number."""
        names = [folder.partition(".")[2].replace("_", " ") or folder for folder in self.folders]
        return tuple(
            name if names.count(name) == 1 else f"{name} ({number})"
            for number, name in enumerate(names, start=1)
        )

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of images, classes, training images and test images."""
        train = sum(entry.train for entry in self.entries)
        return len(self.entries), len(self.folders), train, len(self.entries) - train


def parse_lists(texts: Mapping[str, bytes], where: str) -> Lists:
    """Read the four lists.

    Args:
        texts: their contents by name.
        where: what stands before a list's name in messages.

    Raises:
        DataError: a line makes no sense, or the lists do not fit together (file:line).
    """
    tables = {name: _table(texts[name], f"{where}{name}") for name in LISTS}
    folders = _folders(tables[CLASSES], f"{where}{CLASSES}")
    for name in (LABELS, HALVES):
        lacking = sorted(set(tables[IMAGES]) ^ set(tables[name]))
        if lacking:
            raise DataError(
                f"{where}{name}: does not list the same images as {IMAGES}: image {lacking[0]} is "
                f"in one alone, and so are {len(lacking) - 1} others; fetch the data set again"
            )
    entries, numbers = [], dict[tuple[int, int], str]()
    for image, (line, file) in tables[IMAGES].items():
        label = _label(tables[LABELS][image], len(folders), f"{where}{LABELS}")
        number = _number(file, folders[label], f"{where}{IMAGES}:{line}")
        if (label, number) in numbers:
            raise DataError(
                f"{where}{IMAGES}:{line}: {file} ends in the same number as "
                f"{numbers[label, number]}, of the same class"
            )
        numbers[label, number] = file
        train = _is_train(tables[HALVES][image], f"{where}{HALVES}")
        entries.append(Entry(file, number, label, train))
    return Lists(folders, tuple(sorted(entries, key=lambda entry: entry.label)))


def _table(content: bytes, where: str) -> dict[int, tuple[int, str]]:
    """Return the values of a list by their ids, each with its line."""
    table: dict[int, tuple[int, str]] = {}
    for line, text in text_lines(content, where):
        key, _, value = text.partition(" ")
        if not NUMBER.fullmatch(key) or not value.strip():
            raise DataError(f"{where}:{line}: {text!r} is not a number and a value after a space")
        if int(key) in table:
            raise DataError(
                f"{where}:{line}: {int(key)} is listed again, after line {table[int(key)][0]}"
            )
        table[int(key)] = (line, value.strip())
    return table


def _folders(table: Mapping[int, tuple[int, str]], where: str) -> tuple[str, ...]:
    for expected, (number, (line, _)) in enumerate(sorted(table.items()), start=1):
        if number != expected:
            raise DataError(f"{where}:{line}: class {number} follows class {expected - 1}")
    if not table:
        raise DataError(f"{where}: lists no class")
    return tuple(folder for _, (_, folder) in sorted(table.items()))


def _label(value: tuple[int, str], classes: int, where: str) -> int:
    line, text = value
    if not NUMBER.fullmatch(text) or not 1 <= int(text) <= classes:
        raise DataError(f"{where}:{line}: {text!r} is no class number from 1 to {classes}")
    return int(text) - 1


def _number(file: str, folder: str, where: str) -> int:
    match = IMAGE.fullmatch(file)
    if match is None or match[1] in (".", ".."):
        raise DataError(f"{where}: {file!r} is not CLASS/NAME_NUMBER.jpg")
    if match[1] != folder:
        raise DataError(f"{where}: {file} does not lie in the folder of its class, {folder}")
    return int(match[2])


def _is_train(value: tuple[int, str], where: str) -> bool:
    line, text = value
    if text not in ("0", "1"):
        raise DataError(f"{where}:{line}: {text!r} is neither 1 (training) nor 0 (test)")
    return text == "1"
