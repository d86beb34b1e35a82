"""CUB-200-2011: photographs of 200 species of birds, from the official archive or unpacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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

from .copies import ARCHIVE, TOP, ArchiveCopy, Copy, FolderCopy, explain_2010
from .lists import Lists, parse_lists

MD5 = "97eceeb196236b17998738112f37df78"
SIZE = 1_150_585_339
COUNTS = (11_788, 200, 5_994, 5_794)
"""Images, classes, training images and test images of the published data set."""

ADDRESSES = (
    f"https://data.caltech.edu/records/65de6-vp158/files/{ARCHIVE}",
    f"http://www.vision.caltech.edu/visipedia-data/CUB-200-2011/{ARCHIVE}",
)
ENDINGS = (".tgz", ".gz")


class Cub200(DatasetReader):
    """CUB-200-2011 from `CUB_200_2011.tgz`, which need not be unpacked, or from its folder.

    Classes are in the order of the numbers that begin their folders' names, and are called by
    these numbers in published lists; an image is called by the number that ends its file's name.
    Training and test halves are the data set's own. Items are in the data set's own order, from
    an archive as from a folder, so that both copies give the same data set.
    """

    name = "cub200"
    download = Download(ARCHIVE, ADDRESSES, f"md5:{MD5}", SIZE)

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the archive or the unpacked folder: one of `roots` itself, or in one of them.

        Raises:
            DataError: it is in none of them, CUB-200 of 2010 is there instead, or an unpacked
                folder lacks its lists.
        """
        for root in roots:
            if (archive := _archive(root)) is not None:
                md5 = digest(archive, "md5")
                problem = None if md5 == MD5 else f"the md5 of {archive} is {md5}, not {MD5}"
                return Source(archive, f"md5:{md5}", problem)
            if (folder := _folder(root)) is not None:
                copy = FolderCopy(folder)
                return Source(folder, copy.digest(), _uncommon(copy))
        older = next((text for root in roots if (text := explain_2010(root))), None)
        looked = ", ".join(map(_described, roots)) or "no folder at all"
        raise DataError(
            older
            or f"neither {ARCHIVE} nor a folder {TOP} was found; looked in {looked}. "
            f"`fscil-bench data get {self.name}` fetches it; or fetch it from {ADDRESSES[0]} and "
            "name the folder it lies in: --data-root DIR"
        )

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes, by class.

        Raises:
            DataError: the copy is damaged or another data set, its lists do not fit together, it
                has too few classes, or lacks images, which are named.
        """
        copy = _copy(source)
        texts, present = copy.listing()
        lists = parse_lists(texts, copy.prefix)
        _check_classes(lists, request.classes, copy)
        entries = [entry for entry in lists.entries if entry.label < request.classes]
        _check_present([entry.file for entry in entries], present, copy)

        def half(train: bool) -> tuple[Item, ...]:
            return tuple(
                Item(f"{TOP}/images/{entry.file}", entry.label, entry.number)
                for entry in entries
                if entry.train == train
            )

        keys = tuple(str(number) for number in range(1, request.classes + 1))
        return DatasetIndex(lists.names[: request.classes], half(True), half(False), keys)

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order; see `DatasetReader.images`.

        An archive is read once from beginning to end.
        """
        copy = _copy(source)
        contents = copy.contents([item.key for item in items])
        for item, content in zip(items, contents, strict=True):
            try:
                if isinstance(content, DataError):
                    raise content
                image = decode_rgb(content, copy.where(item.key))
            except DataError as error:
                yield error
            else:
                yield prepare(image, request.images)


def _archive(root: Path) -> Path | None:
    """Return the archive that `root` is or holds, the one of the published name first."""
    found = [root] if root.is_file() else [root / ARCHIVE, *sorted(root.glob(f"{TOP}*"))]
    named = (path for path in found if path.name.startswith(TOP))
    return next((path for path in named if path.suffix in ENDINGS and path.is_file()), None)


def _folder(root: Path) -> Path | None:
    """Return the unpacked folder that `root` is or holds; it may lie in one of its own name."""
    renamed = sorted(path.parent for path in root.glob("*/train_test_split.txt"))
    for folder in (root / TOP / TOP, root / TOP, root, *renamed):
        if folder.is_dir() and (folder.name == TOP or (folder / "images.txt").is_file()):
            return folder
    return None


def _copy(source: Source) -> Copy:
    if source.location.is_dir():
        return FolderCopy(source.location)
    published = f"the published archive {SIZE} bytes and {MD5}"
    return ArchiveCopy(source.location, published, source.unofficial is None)


def _uncommon(copy: FolderCopy) -> str | None:
    """Say how an unpacked folder differs from the published data set, as far as counts tell."""
    texts, _ = copy.listing()
    counts = parse_lists(texts, copy.prefix).counts()
    if counts == COUNTS:
        return None

    def said(numbers: tuple[int, int, int, int]) -> str:
        images, classes, train, test = numbers
        return f"{images} images of {classes} classes ({train} for training, {test} for test)"

    return f"{copy.path} lists {said(counts)} instead of {said(COUNTS)}"


def _check_classes(lists: Lists, wanted: int, copy: Copy) -> None:
    have = len(lists.folders)
    if wanted > have:
        raise DataError(
            f"{copy.path}: has {have} classes, but the protocol asks for {wanted}; set classes = "
            f"{have} or fewer, or fetch the whole data set"
        )


def _check_present(files: Sequence[str], present: frozenset[str], copy: Copy) -> None:
    missing = [file for file in files if file not in present]
    if missing:
        raise DataError(
            f"{copy.path}: {len(missing)} of the {len(files)} images that images.txt lists are "
            f"missing ({some(missing)}); {copy.hint(len(present))}"
        )


def _described(root: Path) -> str:
    return str(root) if root.exists() else f"{root} (which does not exist)"
