"""Images in class folders or listed by a table: a user's own, and data sets passed on that way."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Item,
    Pixels,
    ReadRequest,
    Source,
    decode_rgb,
    file_digest,
    prepare,
    read_file,
)
from fscil_bench.errors import DataError, UsageError, nearest
from fscil_bench.seeding import Randomness

from .._archives.tree import looked_in
from .pictures import Picture, check_listing, one_form
from .table import list_table
from .tree import list_tree

SIZE_LIMIT = 500_000_000
"""Bytes that an image file may have."""


@dataclass(frozen=True)
class SplitOptions:
    """How images are divided where nothing says which are for testing (`reader_options`).

    Of every class `test_fraction` of the images, but at least one and never all, are test images;
    which ones depends on `split_seed`, the class's name and the number of its images alone.
    """

    test_fraction: float = 0.2
    split_seed: int = 0


class FolderReader(DatasetReader):
    """A user's own images, from the folder or CSV that the protocol names as its `data`.

    A folder has one folder for each class, or `train/` and `test/` (or `training/`, `testing/`,
    in any capitals) with one for each class in both; `val/` (`valid/`, `validation/`) is the test
    half where there is no `test/` or one without these classes, else it is left out. Images in
    folders below a class's folder belong to the class. Files are images by their ending; other
    files, names that begin with a dot and what systems leave behind are passed over. Links are
    followed wherever they lead, unless in a circle.

    A CSV has the columns path,label and, if it likes, split (`train` or `test`); paths are
    relative to its folder.

    Classes are in the sorted order of their names (by Unicode code point, so `10` comes before
    `9`), images of a class in that of their paths. Without halves, see `SplitOptions`.

    A data set that is passed on as class folders is a subclass with the names of its folder and
    its `counts`; a copy that has others is not the published one.
    """

    name = "folder"
    advice = 'name your folder or CSV in the protocol: data = "path/to/images"'
    reads_any = True
    folders: ClassVar[tuple[str, ...]] = ()
    """What the data set's folder is called below a data root; none for a user's own."""
    counts: ClassVar[Mapping[int, tuple[int, int]]] = {}
    """So many classes from the first -> their training and test images; all classes come last."""

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the first of `roots`, which is the protocol's own `data` where it has any.

        Of a data set with `folders` it is the first of these that is one of `roots` or in one.

        The digest covers names, sizes and times of all files; their content decides the
        fingerprint of what is decoded.

        Raises:
            DataError: it is not there, or cannot become a data set.
        """
        del digest
        path = self._place(roots)
        pictures = _listed(path)
        states = sorted([one.key, one.class_name, one.half, *one.state] for one in pictures)
        content = hashlib.sha256(json.dumps(states).encode()).hexdigest()
        return Source(path, f"files:{content}", self._uncommon(path, pictures))

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes; of all if 0 are asked for.

        Raises:
            DataError: there are fewer classes.
            UsageError: `reader_options` are unknown or make no sense.
        """
        pictures = _listed(source.location)
        divided = any(one.half is not None for one in pictures)
        options = read_options(request.options, divided)
        classes: dict[str, list[Picture]] = {}
        for one in sorted(pictures, key=lambda one: (one_form(one.key), one.key)):
            classes.setdefault(one.class_name, []).append(one)
        names = sorted(classes)
        wanted = request.classes or len(names)
        if len(names) < wanted:
            raise DataError(
                f"{source.location}: has {len(names)} classes, the protocol asks for {wanted}; "
                f"set classes = {len(names)} or fewer"
            )
        halves: dict[str, list[Item]] = {"train": [], "test": []}
        for label, name in enumerate(names[:wanted]):
            for one, half in zip(classes[name], _divide(classes[name], options), strict=True):
                halves[half].append(Item(one.key, label))
        kept = tuple(names[:wanted])
        return DatasetIndex(kept, tuple(halves["train"]), tuple(halves["test"]))

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`."""
        path = source.location
        folder = path if path.is_dir() else path.parent
        for item in items:
            try:
                image = decode_rgb(read_file(folder / item.key, SIZE_LIMIT), str(folder / item.key))
            except DataError as error:
                yield error
            else:
                yield prepare(image, request.images)

    def _place(self, roots: Sequence[Path]) -> Path:
        if not self.folders:
            if not roots:
                raise DataError(f"no images are named; {self.advice}")
            return roots[0]
        named = [root for root in roots if root.name in self.folders]
        within = [root / name for root in roots for name in self.folders]
        for path in (*named, *within):
            if path.is_dir():
                return path
        raise DataError(
            f"no folder {' or '.join(self.folders)} with train/ and test/ was found; looked in "
            f"{looked_in(roots)}. {self.advice}"
        )

    def _uncommon(self, path: Path, pictures: Sequence[Picture]) -> str | None:
        """Say how a copy differs from the published data set, as far as counts tell."""
        if self.counts and any(one.half is None for one in pictures):
            return (
                f"{path} is not divided into train/ and test/; its images would be divided by "
                "test_fraction and split_seed instead of as published"
            )
        sizes = Counter((one.class_name, one.half) for one in pictures)
        names = sorted({one.class_name for one in pictures})
        before = 0
        for first, expected in self.counts.items():
            part = first < max(self.counts)
            kept = names[:first] if part else names
            found = sum(sizes[n, "train"] for n in kept), sum(sizes[n, "test"] for n in kept)
            if (len(kept), found) != (first, expected):
                new = kept[before:] or kept
                least = min(new, key=lambda name: sizes[name, "train"] + sizes[name, "test"])
                return (
                    f"{path}: {'the first ' * part}{len(kept)} classes have {found[0]} training "
                    f"and {found[1]} test images, instead of {first} with {expected[0]} and "
                    f"{expected[1]}; fewest has {least!r}, {sizes[least, 'train']} and "
                    f"{sizes[least, 'test']}"
                )
            before = first
        return None


def read_options(options: Mapping[str, int | float | str], divided: bool) -> SplitOptions:
    """Return the options of a protocol; `divided` tells whether the data have halves already.

    Raises:
        UsageError: an option is unknown, of a wrong type, out of range, or without effect.
    """
    known = [field.name for field in fields(SplitOptions)]
    for name in options:
        if name not in known:
            raise UsageError(f"reader_options: unknown option {name!r}; {nearest(name, known)}")
        if divided:
            raise UsageError(f"reader_options: {name} has no effect, the data have halves already")
    fraction, seed = options.get("test_fraction", 0.2), options.get("split_seed", 0)
    if isinstance(fraction, str) or not 0 < fraction < 1:
        raise UsageError(f"reader_options: test_fraction = {fraction!r} is not between 0 and 1")
    if not isinstance(seed, int):
        raise UsageError(f"reader_options: split_seed = {seed!r} is not a whole number")
    return SplitOptions(float(fraction), seed)


def _divide(members: Sequence[Picture], options: SplitOptions) -> list[str]:
    """Return the half of each image of a class; too few for one are found out by the engine."""
    given = [one.half for one in members if one.half is not None]
    if given:
        return given
    name, count = members[0].class_name, len(members)
    tests = min(count - 1, max(1, round(options.test_fraction * count)))
    random = Randomness(("folder split", options.split_seed, name)).numpy()
    return ["test" if place < tests else "train" for place in random.permutation(count)]


def _listed(path: Path) -> list[Picture]:
    if path.is_dir():
        pictures = list_tree(path)
    elif path.is_file() and path.suffix.lower() == ".csv":
        pictures = list_table(path)
    elif path.exists():
        raise DataError(
            f"{path}: neither a folder nor a CSV (.csv); unpack an archive and name its folder"
        )
    else:
        raise DataError(f"{path}: no such folder or CSV; {FolderReader.advice}")
    check_listing(pictures, path)
    return pictures
