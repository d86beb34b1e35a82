"""Stanford Cars: photographs of 196 models of cars, from the unpacked archives."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Item,
    Pixels,
    ReadRequest,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError, shown

from ._archives.tree import FolderTree, ImageTree, decoded, looked_in, refuse_missing

HALVES = {"cars_train": "cars_train_annos.mat", "cars_test": "cars_test_annos_withlabels.mat"}
"""The folder of each half -> the file with its labels."""
META = "cars_meta.mat"
UNLABELLED = "cars_test_annos.mat"
PLACES = ("", "devkit/")
SUBFOLDERS = (*HALVES, "devkit")
COUNTS = (196, 8_144, 8_041)
"""Classes, training images and test images of the published data set."""
NAMES = ("stanford_cars", "stanford-cars", "StanfordCars", "cars")
IMAGE = re.compile(r"([0-9]{1,18})\.jpe?g", re.IGNORECASE)


class Cars(DatasetReader):
    """Stanford Cars (Krause et al., 3dRR 2013): `cars_train/`, `cars_test/` and annotations.

    The annotations are `cars_meta.mat`, `cars_train_annos.mat` and
    `cars_test_annos_withlabels.mat`, beside the folders of the halves or in `devkit/`. Classes are
    in the order of their numbers, from 1, and are called by them in published lists; an image is
    called by its number within its half. Images in `cars_train/cars_train/` are found too.
    """

    name = "cars"
    advice = (
        "The publisher's address is gone. From a copy elsewhere, unpack cars_train.tgz, "
        f"cars_test.tgz and car_devkit.tgz, put {HALVES['cars_test']} beside them, and name the "
        "folder they lie in: --data-root DIR"
    )

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the folder with `cars_train/` and `cars_test/`, in one of `roots` or itself one.

        Raises:
            DataError: it is in none of them, or its annotations are missing or damaged.
        """
        del digest
        for root in roots:
            for path in (root, *(root / name for name in NAMES)):
                if all((path / half).is_dir() for half in HALVES):
                    tree = FolderTree(path, SUBFOLDERS)
                    return Source(path, f"folder:{tree.digest}", _uncommon(tree))
        merged = next((root for root in roots if (root / "car_ims").is_dir()), None)
        other = f"{merged} has car_ims/, the form without halves, which is not read. "
        raise DataError(
            f"no folder with {' and '.join(f'{half}/' for half in HALVES)} was found; looked in "
            f"{looked_in(roots)}. {other if merged else ''}{self.advice}"
        )

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes, by class in listed order.

        Raises:
            DataError: annotations are missing or make no sense, there are fewer classes, or images
                are missing, which are named.
        """
        tree = FolderTree(source.location, SUBFOLDERS)
        names = _class_names(tree)
        if request.classes > len(names):
            raise DataError(
                f"{tree.where}: {META} has {len(names)} classes, but the protocol asks for "
                f"{request.classes}; set classes = {len(names)} or fewer"
            )
        halves = []
        for half, file in HALVES.items():
            items = [i for i in _listed(tree, half, len(names)) if i.label < request.classes]
            refuse_missing(tree, [item.key for item in items], file)
            halves.append(tuple(items))
        keys = tuple(str(number) for number in range(1, request.classes + 1))
        return DatasetIndex(names[: request.classes], halves[0], halves[1], keys)

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`."""
        return decoded(FolderTree(source.location, SUBFOLDERS), items, request.images)


def _read(tree: ImageTree, name: str, variable: str) -> tuple[np.ndarray, str]:
    """Return a variable of a MATLAB file, (n,), with the file's place for messages."""
    from scipy.io import loadmat

    found = next((place + name for place in PLACES if place + name in tree.names), None)
    if found is None:
        unlabelled = any(place + UNLABELLED in tree.names for place in PLACES)
        hint = f"; {UNLABELLED}, which is there, has no labels" if unlabelled else ""
        raise DataError(f"{tree.where}: has no {name}, nor has devkit/{hint}. {Cars.advice}")
    where = f"{tree.where}/{found}"
    file: Any = io.BytesIO(tree.read(found))  # the stubs know paths alone
    try:
        content = loadmat(file, squeeze_me=True, variable_names=[variable])
        return np.atleast_1d(content[variable]), where
    except KeyError:
        raise DataError(f"{where}: holds no {variable!r}; fetch it again") from None
    except Exception as error:  # the decoder raises whatever it likes on damaged files
        raise DataError(f"{where}: cannot be read as a MATLAB file ({error})") from error


def _class_names(tree: ImageTree) -> tuple[str, ...]:
    names, where = _read(tree, META, "class_names")
    for number, name in enumerate(names, start=1):
        if not isinstance(name, str):
            raise DataError(f"{where}: the name of class {number} is {shown(name)}, not text")
    return tuple(map(str, names))


def _listed(tree: ImageTree, half: str, classes: int) -> list[Item]:
    """Return what the annotations of a half name, by class and in their order within each."""
    rows, where = _read(tree, HALVES[half], "annotations")
    if not {"class", "fname"} <= set(rows.dtype.names or ()):
        raise DataError(f"{where}: its annotations have no class and fname; fetch it again")
    nested = any(name.startswith(f"{half}/{half}/") for name in tree.names)
    folder = f"{half}/{half}" if nested else half
    items: dict[str, Item] = {}
    for row, (label, file) in enumerate(zip(rows["class"], rows["fname"], strict=True), start=1):
        key = f"{folder}/{file}"
        number = _number(file)
        if number is None:
            raise DataError(f"{where}: annotation {row}: fname is {shown(file)}, not NUMBER.jpg")
        if not isinstance(label, int | np.integer) or not 1 <= label <= classes:
            raise DataError(
                f"{where}: annotation {row}: class is {shown(label)}, not from 1 to {classes}"
            )
        if key in items:
            raise DataError(f"{where}: annotation {row}: {file} is listed already")
        items[key] = Item(key, int(label) - 1, number)
    return sorted(items.values(), key=lambda item: item.label)


def _number(file: Any) -> int | None:
    match = IMAGE.fullmatch(file) if isinstance(file, str) else None
    return int(match[1]) if match else None


def _uncommon(tree: ImageTree) -> str | None:
    """Say how a copy differs from the published data set, as far as counts tell."""
    classes = len(_class_names(tree))
    train, test = (len(_listed(tree, half, classes)) for half in HALVES)
    if (classes, train, test) == COUNTS:
        return None
    return (
        f"{tree.where}: its annotations have {classes} classes, {train} training and {test} test "
        f"images instead of {COUNTS[0]}, {COUNTS[1]} and {COUNTS[2]}"
    )
