"""mini-ImageNet: 100 classes of photographs, from any of the copies that circulate."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from PIL import Image

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
)
from fscil_bench.errors import DataError, some

from .._archives.tree import FolderTree, ImageTree, tree_of
from .caches import cache_files, cache_path, read_cache
from .division import (
    FILE_NAME,
    Division,
    Picture,
    divide,
    official_classes,
    rule,
    subfolders,
    top_of,
)

LAYOUTS = (
    "images/ with split/train.csv and split/test.csv; "
    "train|val|test/<WordNet id>/*.jpg; <WordNet id>/*.jpg, in images/ or not; "
    "mini-imagenet-cache-train.pkl, -val.pkl and -test.pkl"
)


FOLDERS = (
    "mini_imagenet",
    "miniimagenet",
    "mini-imagenet",
    "MINI-ImageNet",
    "miniImageNet",
    "mini-ImageNet",
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")


class MiniImageNet(DatasetReader):
    """mini-ImageNet (Vinyals et al., 2016; the classes of Ravi and Larochelle, 2017).

    Classes are in the order of their sorted WordNet ids. An image's number is the one in its file
    name, as the published lists of shots have it. 500 images a class are training and 100 test
    images, by the lists that come with the copy used for FSCIL; `division.divide` says what
    happens to a copy without them. The pickled copy has no file names at all: the first five
    sixths of a class's images, in stored order, are its training images, and no published shot can
    be found in it.
    """

    name = "mini_imagenet"
    advice = (
        "It has no address of its own, its photographs are ImageNet's (non-commercial research): "
        "get the copy that the READMEs of published FSCIL code link to, of CEC "
        "(github.com/icoz69/CEC-CVPR2021) for one, a folder or archive miniimagenet with images/, "
        "split/train.csv and split/test.csv. Then `fscil-bench data get mini_imagenet --from "
        "FILE` takes it, or --data-root DIR names the folder that it lies in. Any of these "
        f"layouts is read: {LAYOUTS}."
    )

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the copy: one of `roots` itself, or in one of them.

        Raises:
            DataError: none is found, or what is found is no archive or has malformed lists.
        """
        for root in roots:
            for path in candidates(root):
                if path.is_dir() and (caches := list(cache_files(path))):
                    return _caches(path, [digest(file, "sha256") for _, file in caches])
                if path.is_file() or has_pictures(path):
                    return _files(path, digest)
        looked = "; ".join(described(root) for root in roots) or "no folder at all"
        raise DataError(f"no copy of mini-ImageNet was found; looked in {looked}. {self.advice}")

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes.

        Raises:
            DataError: classes lack images, or lists name files that are not there.
        """
        names, path = official_classes()[: request.classes], source.location
        if request.classes > len(names):
            raise DataError(
                f"mini-ImageNet has {len(names)} classes, but the protocol asks for "
                f"{request.classes}; set classes = {len(names)} or fewer"
            )
        train, test = _cached_items(path, names) if _is_cached(path) else _file_items(path, names)
        for half, items in (("training", train), ("test", test)):
            have = {item.label for item in items}
            _check_classes(path, half, [w for c, w in enumerate(names) if c not in have])
        return DatasetIndex(names, train, test)

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`."""
        path = source.location
        if _is_cached(path):
            for name, members in groupby(items, key=lambda item: item.key.partition("/")[0]):
                images = read_cache(cache_path(path, name)).images
                for item in members:
                    row = int(item.key.rpartition("/")[2])
                    yield prepare(Image.fromarray(images[row]), request.images)
                del images  # three quarters of a GiB, before the next is read
            return
        with tree_of(path, subfolders()) as tree:
            top = _top(tree)
            for item in items:
                try:
                    image = decode_rgb(tree.read(top + item.key), f"{path}: {top}{item.key}")
                except DataError as error:
                    yield error
                else:
                    yield prepare(image, request.images)


def _is_cached(path: Path) -> bool:
    return path.is_dir() and any(cache_files(path))


def _caches(path: Path, digests: Sequence[str]) -> Source:
    reason = (
        "the pickled copy has no file names, so the first five sixths of each class's images as "
        "stored are its training images and the rest its test images; the published shots cannot "
        "be found in it, use --split seeded"
    )
    return Source(path, hashlib.sha256("".join(digests).encode()).hexdigest(), reason)


def _files(path: Path, digest: Digester) -> Source:
    with tree_of(path, subfolders()) as tree:
        division = divide(tree, _top(tree))
        if isinstance(tree, FolderTree):
            return Source(path, tree.digest, division.reason)
    return Source(path, digest(path, "sha256"), division.reason)


def _top(tree: ImageTree) -> str:
    top = top_of(tree)
    if top is None:
        raise DataError(
            f"{tree.where}: has no images of mini-ImageNet; expected one of: {LAYOUTS}; found "
            f"{some(tree.names) or 'no files'}"
        )
    return top


def _file_items(path: Path, names: Sequence[str]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    with tree_of(path, subfolders()) as tree:
        top = _top(tree)
        division = divide(tree, top)
    _check_absent(path, division, names)

    def items(half: dict[str, Sequence[Picture]]) -> tuple[Item, ...]:
        return tuple(
            Item(picture.member.removeprefix(top), label, _number(picture.number, position))
            for label, wnid in enumerate(names)
            for position, picture in enumerate(half.get(wnid, ()))
        )

    return items(dict(division.train)), items(dict(division.test))


def _cached_items(path: Path, names: Sequence[str]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    halves: tuple[list[Item], list[Item]] = [], []
    for name, file in cache_files(path):
        rows = read_cache(file).rows
        for label, wnid in enumerate(names):
            members = rows.get(wnid, ())
            for position, row in enumerate(members):
                half = halves[position >= rule(len(members))]
                half.append(Item(f"{name}/{wnid}/{row:05d}", label, _number(None, position)))
    return tuple(halves[0]), tuple(halves[1])


def _number(published: int | None, position: int) -> int:
    """Return an image's number; below 0, where no list of shots can mean it, if it has none."""
    return -1 - position if published is None else published


def _check_absent(path: Path, division: Division, names: Sequence[str]) -> None:
    absent = [file for wnid in names for file in division.absent.get(wnid, ())]
    if absent:
        raise DataError(
            f"{path}: {len(absent)} images that train.csv and test.csv name are not there: "
            f"{some(absent)}. Get the whole copy again"
        )


def _check_classes(path: Path, half: str, missing: Sequence[str]) -> None:
    if missing:
        raise DataError(
            f"{path}: no {half} images of {len(missing)} of mini-ImageNet's classes that the "
            f"protocol asks for: {some(missing)}. Get the whole copy, or choose a protocol with "
            "fewer classes"
        )


def candidates(root: Path) -> Iterator[Path]:
    """Yield what may be a copy: a data root itself, and what has one of the usual names in it."""
    if root.is_file():
        if root.name.lower().startswith("mini") and root.name.endswith(ARCHIVES):
            yield root
        return
    for path in (root, *(root / name for name in FOLDERS)):
        if path.is_dir():
            yield path
    for name in FOLDERS:
        yield from (p for suffix in ARCHIVES if (p := root / f"{name}{suffix}").is_file())


def has_pictures(folder: Path) -> bool:
    """Return whether a folder looks like one of the layouts; other data sets have images/ too."""
    classes = set(official_classes())
    parents = [folder / name for name in ("", "images", "train", "val", "test")]
    if any((parent / wnid).is_dir() for parent in parents if parent.is_dir() for wnid in classes):
        return True
    if not (folder / "images").is_dir():
        return False
    with os.scandir(folder / "images") as entries:
        names = (FILE_NAME.fullmatch(entry.name) for entry in entries)
        return any(match and match[1] in classes for match in names)


def described(root: Path) -> str:
    """Return a data root with what was found there instead of a copy."""
    if not root.exists():
        return f"{root} (which does not exist)"
    if root.is_file():
        return f"{root} (which is a file; an archive's name must begin with mini)"
    return f"{root} (which holds {some(sorted(p.name for p in root.iterdir())) or 'nothing'})"
