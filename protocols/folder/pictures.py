"""What a listing of somebody's own images is, from folders or from a table."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.errors import DataError, some

ENDINGS = "avif bmp gif jfif jpe jpeg jpg pbm pgm png pnm ppm tif tiff webp"
"""Endings of files that count as images, in any capitals; other files are passed over."""


@dataclass(frozen=True)
class Picture:
    """An image file before it is read.

    Attributes:
        key: its path below the folder (or the table's folder), with slashes.
        class_name: its class.
        half: `train` or `test`, or None where nothing says so.
        state: what changes when the file's content does: size, times of last change.
        identity: what two names of one file have in common, or None for a file that is not there.
    """

    key: str
    class_name: str
    half: str | None
    state: tuple[int, ...] = ()
    identity: tuple[int, int] | None = None


def picture(path: Path, key: str, class_name: str, half: str | None) -> Picture:
    """Return an image file with its present state; one that is not there is found out on reading.

    Raises:
        DataError: its name cannot be written down.
    """
    writable(key)
    try:
        status = path.stat()
    except OSError:
        return Picture(key, class_name, half)
    # The second time cannot be set back by whoever copies an older file over this one.
    state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    identity = (status.st_dev, status.st_ino) if status.st_ino else None
    return Picture(key, class_name, half, state, identity)


def is_image(name: str) -> bool:
    """Tell whether a file counts as an image, by its name."""
    stem, dot, ending = name.lower().rpartition(".")
    return bool(stem and dot) and ending in ENDINGS.split()


def one_form(text: str) -> str:
    """Return a name in the one of its Unicode forms that all systems agree on."""
    return unicodedata.normalize("NFC", text)


def writable(name: str) -> str:
    """Return a name that can be written as UTF-8.

    Raises:
        DataError: it cannot.
    """
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"{name!r}: the name is not valid UTF-8; rename the file") from None
    return name


def check_listing(pictures: Sequence[Picture], where: Path) -> None:
    """Refuse what cannot become a data set.

    Raises:
        DataError: no images, a single class, or a file that is both training and test image.
    """
    if not pictures:
        raise DataError(f"{where}: lists no images")
    classes = {one.class_name for one in pictures}
    if len(classes) == 1:
        raise DataError(
            f"{where}: all {len(pictures)} images are of the single class {classes.pop()!r}; at "
            "least two classes are needed, each with a folder of its own (or label in a CSV)"
        )
    halves: dict[str | None, dict[tuple[int, int], str]] = {}
    for one in pictures:
        if one.identity is not None:
            halves.setdefault(one.half, {})[one.identity] = one.key
    train, test = halves.get("train", {}), halves.get("test", {})
    both = sorted(f"{train[i]} = {test[i]}" for i in train.keys() & test.keys())
    if both:
        raise DataError(
            f"{where}: {len(both)} files are both training and test images: {some(both)}"
        )
