"""mini-ImageNet as three pickles of decoded images, one for each group of its classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fscil_bench.errors import DataError

from .._archives.pickles import as_integers, as_text, described, read_table

CACHES = ("train", "val", "test")
SHAPE = (84, 84, 3)


@dataclass(frozen=True)
class ImageCacheFile:
    """`images` uint8 (n, 84, 84, 3) and the rows of each class, in stored order."""

    images: np.ndarray
    rows: dict[str, np.ndarray]


def cache_path(folder: Path, name: str) -> Path:
    """Return where the cache of a group of classes lies: train, val or test."""
    return folder / f"mini-imagenet-cache-{name}.pkl"


def cache_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the caches that a folder has, with the names of their groups."""
    for name in CACHES:
        path = cache_path(folder, name)
        if path.is_file():
            yield name, path


def read_cache(path: Path) -> ImageCacheFile:
    """Read a cache without executing anything that it might ask for.

    Raises:
        DataError: the file is missing, damaged, asks for something to be executed, or its arrays
            are not as expected.
    """
    try:
        with path.open("rb") as file:
            table = read_table(file, str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    images, classes = (table.get(key) for key in ("image_data", "class_dict"))
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != SHAPE:
        raise DataError(
            f"{path}: image_data is {described(images)}, not an array of uint8 (n, 84, 84, 3)"
        )
    if not isinstance(classes, dict):
        raise DataError(f"{path}: class_dict is {described(classes)}, not a dictionary")
    rows = {}
    for key, value in classes.items():
        if not isinstance(key, bytes | str):
            raise DataError(f"{path}: class_dict has {described(key)} for a class")
        rows[as_text(key)] = as_integers(value, f"{path}: class_dict: {as_text(key)}")
    _check_rows(path, rows, len(images))
    return ImageCacheFile(images, rows)


def _check_rows(path: Path, rows: dict[str, np.ndarray], count: int) -> None:
    owner: dict[int, str] = {}
    for wnid, members in rows.items():
        for row in members.tolist():
            where = f"{path}: class_dict: {wnid}"
            if not 0 <= row < count:
                raise DataError(f"{where}: image {row} does not exist, there are {count}")
            if row in owner:
                raise DataError(f"{where}: image {row} is listed for {owner[row]} already")
            owner[row] = wnid
