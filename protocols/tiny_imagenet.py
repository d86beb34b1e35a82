"""Tiny-ImageNet: 200 classes of photographs, from the official archive or unpacked from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
    decode_rgb,
    file_digest,
    prepare,
)
from fscil_bench.errors import DataError, some

from ._archives.tree import FolderTree, ImageTree, tree_of
from ._archives.zip import opened

TOP = "tiny-imagenet-200"
ARCHIVE = f"{TOP}.zip"
URL = f"http://cs231n.stanford.edu/{ARCHIVE}"
ANNOTATIONS = "val/val_annotations.txt"
SUBFOLDERS = ("train", "val")

IMAGE = re.compile(r"(train|val)/(n\d{8})/(?:images/)?[^/]+\.(?i:jpe?g|png)")
"""An image in the folder of its class, with or without `images/` in between."""

Images = dict[str, list[str]]
"""Names of image files by WordNet id."""


class TinyImageNet(DatasetReader):
    """Tiny-ImageNet from `tiny-imagenet-200.zip`, packed or unpacked.

    Classes are in the order of the sorted WordNet ids of the official 200. The test images are
    the archive's validation images, because the labels of its own test images are not public;
    they may lie together with `val_annotations.txt`, or sorted into class folders.
    """

    name = "tiny_imagenet"
    download = Download(ARCHIVE, (URL,), "md5:90528d7ca1a48142e341f4ef8d21d0de", 248_100_043)

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the archive or the folder: one of `roots` itself, or in one of them.

        Raises:
            DataError: it is in none of them, or it is no zip archive.
        """
        for root in roots:
            for path in (root, root / ARCHIVE):
                if path.name == ARCHIVE and path.is_file():
                    with opened(path):  # a file that is no archive is explained here
                        return Source(path, digest(path, "sha256"))
            for path in (root, root / TOP, root / self.name, root / TOP / TOP):
                if _is_unpacked(path):
                    return Source(path, f"folder:{FolderTree(path, SUBFOLDERS).digest}")
        looked = ", ".join(_described(root) for root in roots) or "no folder at all"
        raise DataError(
            f"neither {ARCHIVE} nor a folder {TOP} with train/<WordNet id>/ and val/ was found; "
            f"looked in {looked}. `fscil-bench data get {self.name}` fetches it; or fetch it from "
            f"{URL} and name the folder it lies in: --data-root DIR"
        )

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes, by number within each class.

        Raises:
            DataError: the copy is damaged or is another one, an annotation is wrong, or
                classes lack images, which are named.
        """
        names = _class_names(request.classes)
        with tree_of(source.location, SUBFOLDERS) as tree:
            train, test = _images(tree)
            _check_classes(tree, names, train, "training")
            _check_classes(tree, names, test, "validation")
        return DatasetIndex(names, _items(names, train), _items(names, test))

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`.

        In place of an image that is missing, absurdly large or damaged comes its error.
        """
        with tree_of(source.location, SUBFOLDERS) as tree:
            for item in items:
                try:
                    image = decode_rgb(tree.read(item.key), f"{tree.where}: {item.key}")
                except DataError as error:
                    yield error
                else:
                    yield prepare(image, request.images)


def official_classes() -> tuple[str, ...]:
    """Return the sorted WordNet ids of all 200 classes."""
    listed = Path(__file__).with_name("tiny_imagenet_classes.txt")
    return tuple(listed.read_text(encoding="utf-8").split())


def _is_unpacked(path: Path) -> bool:
    """Tell a copy of it from other folders with halves: no other has so few of these classes."""
    if not (path / "train").is_dir() or not (path / "val").is_dir():
        return False
    inner = {entry.name for entry in (path / "train").iterdir()}
    classes = set(official_classes())
    known = (path / ANNOTATIONS).is_file() or (path / "wnids.txt").is_file()
    return bool(inner & classes) and (known or inner <= classes)


def _class_names(count: int) -> tuple[str, ...]:
    names = official_classes()
    if count > len(names):
        raise DataError(
            f"Tiny-ImageNet has {len(names)} classes, but the protocol asks for {count}; "
            f"set classes = {len(names)} or fewer"
        )
    return names[:count]


def _described(root: Path) -> str:
    return str(root) if root.exists() else f"{root} (which does not exist)"


def _images(tree: ImageTree) -> tuple[Images, Images]:
    """Return the training and the validation images by class."""
    top = next((f"{TOP}/" for name in tree.names if name.startswith(f"{TOP}/")), "")
    halves: dict[str, Images] = {"train": {}, "val": {}}
    for name in tree.names:
        if match := IMAGE.fullmatch(name.removeprefix(top)):
            halves[match[1]].setdefault(match[2], []).append(name)
    if not halves["train"]:
        tops = sorted({"/".join(name.split("/")[:2]) for name in tree.names})
        raise DataError(
            f"{tree.where}: not Tiny-ImageNet, it has no {top}train/<WordNet id>/ with images; "
            f"it holds {some(tops) or 'nothing'}"
        )
    if top + ANNOTATIONS in tree.names and not halves["val"]:
        halves["val"] = _annotated(tree, top)
    return halves["train"], halves["val"]


def _annotated(tree: ImageTree, top: str) -> Images:
    images: Images = {}
    present, classes = set(tree.names), set(official_classes())
    first_lines: dict[str, int] = {}
    where = f"{tree.where}: {top}{ANNOTATIONS}"
    for number, line in text_lines(tree.read(top + ANNOTATIONS), where):
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        name = f"{top}val/images/{file}"
        problem = None
        if wnid not in classes:
            problem = f"{line!r} does not name an image and, after a tab, one of the 200 classes"
        elif name not in present:
            problem = f"there is no {name}"
        elif name in first_lines:
            problem = f"{file} is listed a second time, after line {first_lines[name]}"
        if problem is not None:
            raise DataError(f"{where}:{number}: {problem}")
        first_lines[name] = number
        images.setdefault(wnid, []).append(name)
    return images


def _check_classes(tree: ImageTree, names: Sequence[str], images: Images, half: str) -> None:
    missing = [name for name in names if name not in images]
    if missing:
        total = sum(len(members) for members in images.values())
        raise DataError(
            f"{tree.where}: no {half} images of {len(missing)} of the {len(names)} classes "
            f"that the protocol asks for ({some(missing)}); it holds {total} {half} images of "
            f"{len(images)} classes. Fetch the whole archive from {URL}, or choose a protocol "
            "with fewer classes"
        )


def _items(names: Sequence[str], images: Images) -> tuple[Item, ...]:
    return tuple(
        Item(member, label)
        for label, name in enumerate(names)
        for member in sorted(images[name], key=_by_number)
    )


def _by_number(member: str) -> tuple[list[int], str]:
    """Return a sort key that puts `_2.JPEG` before `_10.JPEG`."""
    return [int(digits) for digits in re.findall(r"[0-9]{1,18}", Path(member).name)], member
