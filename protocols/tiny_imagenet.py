"""Tiny-ImageNet: 200 classes of photographs, read straight from the official archive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from zipfile import ZipFile

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

from ._archives.zip import opened, read_lines, read_member

TOP = "tiny-imagenet-200"
ARCHIVE = f"{TOP}.zip"
URL = f"http://cs231n.stanford.edu/{ARCHIVE}"
ANNOTATIONS = f"{TOP}/val/val_annotations.txt"
MARKS = (f"{TOP}/wnids.txt", ANNOTATIONS)
TRAIN_IMAGE = re.compile(rf"{TOP}/train/([^/]+)/images/[^/]+\.JPEG")

IMAGE_LIMIT = 10_000_000
"""Bytes that an image may declare; one of 64×64 has some two thousand."""

Images = Mapping[str, Sequence[str]]
"""Member names by WordNet id."""


class TinyImageNet(DatasetReader):
    """Tiny-ImageNet from `tiny-imagenet-200.zip`, which need not be unpacked.

    Classes are in the order of the sorted WordNet ids of the official 200. The test images are
    the archive's validation images, because the labels of its own test images are not public.
    """

    name = "tiny_imagenet"
    download = Download(ARCHIVE, (URL,), "md5:90528d7ca1a48142e341f4ef8d21d0de", 248_100_043)

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the archive: one of `roots` itself, or in one of them.

        Raises:
            DataError: it is in none of them, or it is no zip archive.
        """
        for root in roots:
            for path in (root, root / ARCHIVE):
                if path.name == ARCHIVE and path.is_file():
                    with opened(path):  # a file that is no archive is explained here
                        return Source(path, digest(path, "sha256"))
        looked = ", ".join(_described(root) for root in roots) or "no folder at all"
        raise DataError(
            f"{ARCHIVE} was not found; looked in {looked}. Fetch it from {URL}, leave it packed, "
            "and name the folder it lies in: --data-root DIR"
        )

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes, by number within each class.

        Raises:
            DataError: the archive is damaged or is another one, an annotation is wrong, or
                classes lack images, which are named.
        """
        names = _class_names(request.classes)
        with opened(source.location) as archive:
            _check_layout(archive)
            train = _train_images(archive)
            test = _test_images(archive)
            _check_classes(archive, names, train, "training")
            _check_classes(archive, names, test, "validation")
        return DatasetIndex(names, _items(names, train), _items(names, test))

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`.

        In place of an image that is missing, absurdly large or damaged comes its error.
        """
        with opened(source.location) as archive:
            for item in items:
                try:
                    content = read_member(archive, item.key, IMAGE_LIMIT)
                    image = decode_rgb(content, f"{archive.filename}: {item.key}")
                except DataError as error:
                    yield error
                else:
                    yield prepare(image, request.images)


def official_classes() -> tuple[str, ...]:
    """Return the sorted WordNet ids of all 200 classes."""
    listed = Path(__file__).with_name("tiny_imagenet_classes.txt")
    return tuple(listed.read_text(encoding="utf-8").split())


def _class_names(count: int) -> tuple[str, ...]:
    names = official_classes()
    if count > len(names):
        raise DataError(
            f"Tiny-ImageNet has {len(names)} classes, but the protocol asks for {count}; "
            f"set classes = {len(names)} or fewer"
        )
    return names[:count]


def _described(root: Path) -> str:
    if not root.exists():
        return f"{root} (which does not exist)"
    if (root / TOP).is_dir():
        return f"{root} (which has an unpacked {TOP}; the archive itself is needed)"
    return str(root)


def _check_layout(archive: ZipFile) -> None:
    missing = [name for name in MARKS if name not in archive.NameToInfo]
    if missing:
        tops = sorted({"/".join(name.split("/")[:2]) for name in archive.namelist()})
        raise DataError(
            f"{archive.filename}: not the Tiny-ImageNet archive, it has no {missing[0]}; "
            f"it holds {some(tops)}"
        )


def _train_images(archive: ZipFile) -> Images:
    images: dict[str, list[str]] = {}
    for name in archive.namelist():
        if match := TRAIN_IMAGE.fullmatch(name):
            images.setdefault(match[1], []).append(name)
    return images


def _test_images(archive: ZipFile) -> Images:
    images: dict[str, list[str]] = {}
    classes = set(official_classes())
    first_lines: dict[str, int] = {}
    for number, line in read_lines(archive, ANNOTATIONS):
        file, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        name = f"{TOP}/val/images/{file}"
        problem = None
        if wnid not in classes:
            problem = f"{line!r} does not name an image and, after a tab, one of the 200 classes"
        elif name not in archive.NameToInfo:
            problem = f"the archive has no {name}"
        elif name in first_lines:
            problem = f"{file} is listed a second time, after line {first_lines[name]}"
        if problem is not None:
            raise DataError(f"{archive.filename}: {ANNOTATIONS}:{number}: {problem}")
        first_lines[name] = number
        images.setdefault(wnid, []).append(name)
    return images


def _check_classes(archive: ZipFile, names: Sequence[str], images: Images, half: str) -> None:
    missing = [name for name in names if name not in images]
    if missing:
        total = sum(len(members) for members in images.values())
        raise DataError(
            f"{archive.filename}: no {half} images of {len(missing)} of the {len(names)} classes "
            f"that the protocol asks for ({some(missing)}); the archive holds {total} {half} "
            f"images of {len(images)} classes. Fetch the whole archive from {URL}, or choose a "
            "protocol with fewer classes"
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
