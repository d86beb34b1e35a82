"""Features from a file matched to the samples of a data set, or taken as a data set themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fscil_bench.data.cache import ImageCache, numbered
from fscil_bench.data.feature_file import FeatureFile, FeatureHalf
from fscil_bench.data.lists import path_ends
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import (
    Dataset,
    DatasetIndex,
    DatasetReader,
    ImageArray,
    Item,
    ReadRequest,
)
from fscil_bench.errors import DataError, OtherClassesError, some

ABSENT = -1
"""The number of a sample that no list of shots can mean; the place of a row that has none."""


def with_features(
    file: FeatureFile,
    name: str,
    reader: DatasetReader | None,
    roots: Sequence[Path],
    request: ReadRequest,
    cache: ImageCache,
) -> tuple[Dataset, list[str]]:
    """Return a data set with features from a file, stored and mapped, and what to say of it.

    Where its reader finds no copy that may be used, the file itself is taken as it.

    Args:
        file: the features.
        name: the data set's.
        reader: its reader; None for a file that is a data set of its own.
        roots: where the reader looks.
        request: what it is asked for.
        cache: where the data set is stored.

    Raises:
        DataError: file and data set do not fit.
    """
    unread = "labels and order of samples are those of the file of features"
    if reader is None:
        return cache.keep(_of_classes(file, name, request.classes), file.remarks), []
    try:
        source = reader.find(roots, cache.digest)
    except DataError:
        remark = f"data set {name!r} is not on this machine: {unread}"
        return cache.keep(_of_classes(file, name, request.classes), file.remarks), [remark]
    if cache.refuses(source):
        remark = f"data set {name!r}: {source.unofficial}; {unread} (not with --unofficial-data)"
        return cache.keep(_of_classes(file, name, request.classes), file.remarks), [remark]
    index = numbered(reader.index(source, request), name)
    found, remarks = matched(file, index, source.unofficial, name, cache.skip_broken)
    return cache.keep(found, file.remarks), remarks


def _of_classes(file: FeatureFile, name: str, classes: int) -> Dataset:
    if file.classes > classes:
        raise OtherClassesError(
            f"{file.name}: has {file.classes} classes, data set {name!r} is asked for {classes}"
        )
    return alone(file, name)


def alone(file: FeatureFile, name: str) -> Dataset:
    """Return a file as a data set of its own, called `name`: its rows, labels and order.

    Where it does not say how lists of shots number its samples, a row's number is its place, but
    not where rows are grouped by class: then labels could not tell another order.
    """
    names = tuple(file.class_name(label) for label in range(file.classes))
    keys = file.class_keys or names

    def array(half: FeatureHalf, title: str) -> ImageArray:
        numbers = half.numbers
        if numbers is None:
            grouped = np.count_nonzero(np.diff(half.labels)) < 2 * file.classes
            numbers = np.full(len(half), ABSENT) if grouped else np.arange(len(half))
        named = half.names or tuple(f"{title}/{number}" for number in range(len(half)))
        return _array(half.features, half.labels, numbers, named)

    return _dataset(name, names, keys, array(file.train, "train"), array(file.test, "test"), "file")


def matched(
    file: FeatureFile,
    index: DatasetIndex,
    unofficial: str | None,
    name: str,
    skip_missing: bool = False,
) -> tuple[Dataset, list[str]]:
    """Return a data set's samples, in its order, with the features of a file, and how they match.

    Classes are matched by their names or keys where the file has names, else by label; samples by
    name, else by order with every label compared. Rows of other classes or samples are left out.

    Args:
        file: the features.
        index: the samples of the data set; their numbers are known.
        unofficial: why its copy is not the published one.
        name: the data set's.
        skip_missing: leave out samples that the file lacks, where it has names.

    Raises:
        DataError: the file lacks classes or samples, or has another class or another number of
            rows; class, number and first row are named.
    """
    place = _class_places(file, index, name)
    train, train_left, told = _side(file, index, name, place, skip_missing, "train")
    test, test_left, also = _side(file, index, name, place, skip_missing, "test")
    keys = index.class_keys or index.class_names
    by = "name" if file.train.names and file.test.names else "order"
    found = _dataset(name, index.class_names, keys, train, test, by)
    return replace(found, unofficial=unofficial, skipped=train_left + test_left), [told, also]


def _side(
    file: FeatureFile,
    index: DatasetIndex,
    name: str,
    place: np.ndarray,
    skip_missing: bool,
    title: str,
) -> tuple[ImageArray, int, str]:
    """Return a half of a data set with features, how many of its samples lack, and how it fits."""
    half, items, others = file.train, index.train, index.test
    if title == "test":
        half, items, others = file.test, index.test, index.train
    where = f"{file.name}: {title}"
    side = _Side(where, half, place[half.labels], items, name, index.class_names)
    rows, told = side.by_name(others, skip_missing) if half.names else side.by_order()
    kept = [item for item, row in zip(items, rows, strict=True) if row != ABSENT]
    taken = rows[rows != ABSENT]
    same = len(taken) == len(half) and bool((taken == np.arange(len(half))).all())
    array = _array(
        half.features if same else half.features[taken],
        np.array([item.label for item in kept], dtype=np.int64),
        np.array([item.number for item in kept], dtype=np.int64),
        tuple(item.key for item in kept),
    )
    return array, len(items) - len(kept), told


def feature_file_of(
    name: str,
    dataset: Dataset,
    train: np.ndarray,
    test: np.ndarray,
    class_keys: Sequence[str],
) -> FeatureFile:
    """Return features (n, D) of a data set's halves as a file has them.

    Args:
        name: of the file.
        dataset: the samples, in a protocol's order of classes.
        train: features of the training half.
        test: features of the test half.
        class_keys: all classes in the data set's own order, which labels will have.
    """
    kept = [key for key in class_keys if key in set(dataset.class_keys)]
    place = np.array([kept.index(key) for key in dataset.class_keys], dtype=np.int64)
    names = dict(zip(dataset.class_keys, dataset.class_names, strict=True))

    def half(features: np.ndarray, array: ImageArray) -> FeatureHalf:
        return FeatureHalf(features, place[array.labels], array.keys, array.numbers)

    halves = half(train, dataset.train), half(test, dataset.test)
    return FeatureFile(name, *halves, tuple(names[key] for key in kept), tuple(kept))


@dataclass(frozen=True)
class _Side:
    """One half of a file beside the same half of a data set; `labels` are the data set's."""

    where: str
    half: FeatureHalf
    labels: np.ndarray
    items: Sequence[Item]
    name: str
    class_names: Sequence[str]

    def by_order(self) -> tuple[np.ndarray, str]:
        """Return the row of each sample, by order."""
        rows = np.flatnonzero(self.labels != ABSENT)
        wanted = np.array([item.label for item in self.items], dtype=np.int64)
        found = self.labels[rows]
        counts = [np.bincount(x, minlength=len(self.class_names)) for x in (found, wanted)]
        if differing := np.flatnonzero(counts[0] != counts[1]).tolist():
            first = differing[0]
            more = f", and {len(differing) - 1} more classes differ" if len(differing) > 1 else ""
            raise DataError(
                f"{self.where}: class {self.class_names[first]!r} has {counts[0][first]} rows, "
                f"data set {self.name!r} {counts[1][first]} samples{more}; a file that names its "
                "samples is matched by these"
            )
        wrong = np.flatnonzero(found != wanted)
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{self.where}: row {rows[row]} is of class {self._class(found[row])}, its sample "
                f"of data set {self.name!r} ({self.items[row].key}) of class "
                f"{self._class(wanted[row])}; {len(wrong)} rows differ: the order is another, so "
                "that the file must name its samples"
            )
        left_out = len(self.half) - len(rows)
        told = f"{self.where}: matched with {self.name} by order, all {len(rows)} labels agree"
        return rows, told + f"; {left_out} rows of other classes left out" * (left_out > 0)

    def by_name(self, others: Sequence[Item], skip_missing: bool) -> tuple[np.ndarray, str]:
        """Return the row of each sample, by name; `others` are those of the other half."""
        places, other = _places(self.items), _places(others)
        rows = np.full(len(self.items), ABSENT)
        unknown: list[int] = []
        for row, text in enumerate(self.half.names):
            place, length = _found(places, text)
            if length < _found(other, text)[1]:
                raise DataError(
                    f"{self.where}: {self.half.row(row)} is of the other half of data set "
                    f"{self.name!r}"
                )
            if place is None:
                unknown.append(row)
                continue
            if place == ABSENT:
                raise DataError(
                    f"{self.where}: {self.half.row(row)}: several samples of data set "
                    f"{self.name!r} end so; give more of the path"
                )
            if rows[place] != ABSENT:
                raise DataError(
                    f"{self.where}: {self.half.row(int(rows[place]))} and {self.half.row(row)} are "
                    f"one sample of data set {self.name!r}, {self.items[place].key}"
                )
            rows[place] = row
        self._check_named(rows, skip_missing)
        told = f"{self.where}: matched with {self.name} by name"
        if unknown:
            told += f"; {len(unknown)} rows left out that are none of its samples, first "
            told += self.half.row(unknown[0])
        return rows, told

    def _check_named(self, rows: np.ndarray, skip_missing: bool) -> None:
        missing = np.flatnonzero(rows == ABSENT).tolist()
        if len(missing) and not (skip_missing and len(missing) < len(rows)):
            item = self.items[missing[0]]
            own = sum(self.items[place].label == item.label for place in missing)
            raise DataError(
                f"{self.where}: lacks {len(missing)} of {len(rows)} samples of data set "
                f"{self.name!r}: {own} of class {self.class_names[item.label]!r}, first "
                f"{item.key}; its own first is {self.half.names[0]}"
            )
        for place in np.flatnonzero(rows != ABSENT).tolist():
            row, item = int(rows[place]), self.items[place]
            if self.labels[row] != item.label:
                wrong = [self.labels[rows[p]] != i.label for p, i in enumerate(self.items)]
                raise DataError(
                    f"{self.where}: {self.half.row(row)} is of class "
                    f"{self._class(self.labels[row])}, in data set {self.name!r} of class "
                    f"{self._class(item.label)}; {sum(wrong)} rows differ"
                )

    def _class(self, label: int) -> str:
        return repr(self.class_names[label]) if label != ABSENT else "no class of it"


def _class_places(file: FeatureFile, index: DatasetIndex, name: str) -> np.ndarray:
    """Return the data set's label of each label of the file; ABSENT for a class that it lacks."""
    own = index.class_keys or index.class_names
    namings = [names for names in (file.class_keys, file.class_names) if names]
    if not namings:
        if file.classes != len(index.class_names):
            raise OtherClassesError(
                f"{file.name}: has {file.classes} classes without names, data set {name!r} has "
                f"{len(index.class_names)}; class_names tell which of them are meant"
            )
        return np.arange(file.classes)
    lacking: list[str] = []
    for names in namings:
        for known in (own, index.class_names):
            absent = [each for each in known if each not in set(names)]
            if not absent and len(set(known)) == len(known) and len(set(names)) == len(names):
                labels = {each: label for label, each in enumerate(known)}
                return np.array([labels.get(each, ABSENT) for each in names])
            lacking = absent if not lacking or len(absent) < len(lacking) else lacking
    strange = sorted({*namings[-1]} - {*own, *index.class_names})
    raise OtherClassesError(
        f"{file.name}: lacks {len(lacking)} of the {len(own)} classes of data set {name!r}: "
        f"{some(lacking, 5)}; {len(strange)} of its own {file.classes} are none of them: "
        f"{some(strange, 5) or 'none'}"
    )


def _places(items: Sequence[Item]) -> dict[str, int]:
    """Return the place of a sample by each end of its key; ABSENT for one that several share."""
    places: dict[str, int] = {}
    for place, item in enumerate(items):
        for end in path_ends(item.key):
            places[end] = ABSENT if end in places else place
    return places | {item.key: place for place, item in enumerate(items)}


def _found(places: dict[str, int], text: str) -> tuple[int | None, int]:
    """Return the place of the sample whose key ends like a path, and how much of it fits."""
    ends = path_ends(text.replace("\\", "/"))
    return next(((places[end], len(end)) for end in ends if end in places), (None, 0))


def _array(
    features: np.ndarray, labels: np.ndarray, numbers: np.ndarray, keys: tuple[str, ...]
) -> ImageArray:
    """Return samples with features and no pixels."""
    nothing = np.zeros((len(labels), 2), dtype=np.int64)
    images = Images(np.empty(0, np.uint8), nothing, nothing[:, 0])
    return ImageArray(images, labels, numbers, keys, features)


def _dataset(
    name: str,
    class_names: tuple[str, ...],
    class_keys: tuple[str, ...],
    train: ImageArray,
    test: ImageArray,
    matching: str,
) -> Dataset:
    """Return a data set whose fingerprint tells what it holds, wherever that came from."""
    digest = hashlib.sha256(json.dumps(class_keys).encode())
    for half in (train, test):
        assert half.features is not None
        digest.update(np.ascontiguousarray(half.features).data)
        digest.update(half.labels.data)
    fingerprint = digest.hexdigest()[:32]
    return Dataset(name, class_names, class_keys, train, test, fingerprint, matching=matching)
