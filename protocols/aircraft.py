"""FGVC-Aircraft: photographs of 100 variants of aircraft, from the unpacked official archive."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fscil_bench.data.lists import text_lines
from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Download,
    Item,
    Pixels,
    ReadRequest,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError, UsageError, nearest, shown

from ._archives.tree import FolderTree, ImageTree, decoded, looked_in, refuse_missing

TOP = "fgvc-aircraft-2013b"
ARCHIVE = f"{TOP}.tar.gz"
URL = f"https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/{ARCHIVE}"
VARIANTS = "variants.txt"
COUNTS = {"train": 3_334, "trainval": 6_667, "test": 3_333}
"""Images of each list of the published data set."""
EACH = {"train": (33, 34), "trainval": (66, 67), "test": (33, 34)}
"""Images of each class in it, at least and at most."""
TRAINING = ("train", "trainval")
IMAGE = re.compile(r"[0-9]{1,18}")

Variants = Mapping[str, int]
"""Names of the classes -> their labels."""


class Aircraft(DatasetReader):
    """FGVC-Aircraft (Maji et al., arXiv 1306.5151) from its folder, `fgvc-aircraft-2013b`.

    Classes are the 100 variants in the order of `variants.txt`, and are called by their numbers
    there, from 1; images are called by their ids. The option `training` says which list brings
    the training images: `train`, or `trainval` with the validation images too.

    The strip with the photographer's name at the lower edge stays, as in the code of the papers.
    """

    name = "aircraft"
    download = Download(ARCHIVE, (URL,), "md5:d4acdd33327262359767eeaa97a4f732", 2_753_340_328)

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the folder with `variants.txt` and `images/`, in one of `roots` or itself one.

        Raises:
            DataError: it is in none of them, it is packed still, or its lists are damaged.
        """
        del digest
        for root in roots:
            for folder in (root, *(root / name for name in (TOP, self.name, "fgvc_aircraft"))):
                for path in (folder / "data", folder):
                    if (path / VARIANTS).is_file():
                        tree = FolderTree(path, ("images",))
                        return Source(path, f"folder:{tree.digest}", _uncommon(tree))
        packed = [path for root in roots for path in (root, root / ARCHIVE) if path.name == ARCHIVE]
        for archive in packed:
            if archive.is_file():
                raise DataError(f"{archive}: is packed; unpack it there: tar -xzf {ARCHIVE}")
        raise DataError(
            f"no folder {TOP} with data/{VARIANTS} was found; looked in {looked_in(roots)}. "
            f"`fscil-bench data get {self.name}` fetches {ARCHIVE}, or fetch it from {URL}; unpack "
            "it and name the folder it lies in: --data-root DIR"
        )

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes, by class in listed order.

        Raises:
            DataError: a list is missing or makes no sense (file:line), there are fewer classes,
                or images are missing, which are named.
            UsageError: `reader_options` are unknown or make no sense.
        """
        training = _training(request.options)
        tree = FolderTree(source.location, ("images",))
        names = _variants(tree)
        if request.classes > len(names):
            raise DataError(
                f"{tree.where}: {VARIANTS} has {len(names)} classes, but the protocol asks for "
                f"{request.classes}; set classes = {len(names)} or fewer"
            )

        def half(which: str) -> tuple[Item, ...]:
            items = tuple(i for i in _listed(tree, which, names) if i.label < request.classes)
            refuse_missing(tree, [item.key for item in items], _list_of(which))
            return items

        kept = tuple(names)[: request.classes]
        keys = tuple(str(number) for number in range(1, request.classes + 1))
        return DatasetIndex(kept, half(training), half("test"), keys)

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`."""
        return decoded(FolderTree(source.location, ("images",)), items, request.images)


def _training(options: Mapping[str, int | float | str]) -> str:
    for name in options:
        if name != "training":
            known = nearest(name, ["training"])
            raise UsageError(f"reader_options: unknown option {name!r}; {known}")
    training = options.get("training", "train")
    if training not in TRAINING:
        raise UsageError(
            f"reader_options: training = {shown(training)} is neither 'train' nor 'trainval'"
        )
    return str(training)


def _list_of(which: str) -> str:
    return f"images_variant_{which}.txt"


def _lines(tree: ImageTree, name: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a list, each with its place for messages."""
    where = f"{tree.where}/{name}"
    for number, line in text_lines(tree.read(name), where):
        yield f"{where}:{number}", line


def _variants(tree: ImageTree) -> Variants:
    found: dict[str, int] = {}
    for where, name in _lines(tree, VARIANTS):
        if name in found:
            raise DataError(f"{where}: the variant {name!r} is listed already")
        found[name] = len(found)
    return found


def _listed(tree: ImageTree, which: str, variants: Variants) -> list[Item]:
    """Return what a list names, by class and in its order within each."""
    items: dict[str, Item] = {}
    for where, line in _lines(tree, _list_of(which)):
        image, _, variant = line.partition(" ")
        if not IMAGE.fullmatch(image) or variant not in variants:
            raise DataError(f"{where}: {line!r} is not an image's id and a variant of {VARIANTS}")
        if image in items:
            raise DataError(f"{where}: image {image} is listed already")
        items[image] = Item(f"images/{image}.jpg", variants[variant], int(image))
    return sorted(items.values(), key=lambda item: item.label)


def _uncommon(tree: ImageTree) -> str | None:
    """Say how a copy differs from the published data set, as far as counts tell."""
    variants = _variants(tree)
    if len(variants) != 100:
        return f"{tree.where}: {VARIANTS} has {len(variants)} classes instead of 100"
    for which, count in COUNTS.items():
        items = _listed(tree, which, variants)
        if len(items) != count:
            return f"{tree.where}: {_list_of(which)} has {len(items)} images instead of {count}"
        sizes = Counter(item.label for item in items)
        low, high = EACH[which]
        for name, label in variants.items():
            if not low <= sizes[label] <= high:
                return (
                    f"{tree.where}: {_list_of(which)} has {sizes[label]} images of {name!r} "
                    f"instead of {low} or {high}"
                )
    return None
