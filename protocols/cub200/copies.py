"""The two forms in which people keep CUB-200-2011, and how to tell it from CUB-200 of 2010."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.data.reader import read_file
from fscil_bench.errors import DataError, some

from .._archives.tar import READ_LIMIT, Content, TarArchive
from .lists import LISTS

TOP = "CUB_200_2011"
ARCHIVE = f"{TOP}.tgz"
IMAGES_2010 = 6_033
OTHER_YEAR = (
    "CUB-200 of 2010 (6033 images), which is another data set than CUB-200-2011 (11788 images); "
    f"fetch {ARCHIVE}"
)

Listing = tuple[Mapping[str, bytes], frozenset[str]]
"""The lists by name, and the image files below `images/` that are there."""


class Copy(ABC):
    """A copy of the data set.

    Attributes:
        path: the archive or the folder.
        prefix: what stands before a file's name in messages.
    """

    path: Path
    prefix: str

    @abstractmethod
    def listing(self) -> Listing:
        """Return the lists and the names of the images.

        Raises:
            DataError: a list is missing, or it is another data set.
        """

    @abstractmethod
    def contents(self, keys: Sequence[str]) -> Iterator[Content]:
        """Yield the files of `keys`, paths that begin with CUB_200_2011, in their order."""

    def where(self, key: str) -> str:
        """Return how messages call a file."""
        return f"{self.prefix}{key.removeprefix(f'{TOP}/')}"

    def hint(self, images: int) -> str:
        """Return a remark on what is there instead of the images that are listed."""
        if images == IMAGES_2010:
            return f"it holds {images} images. So many images has {OTHER_YEAR}"
        flat = self.flat()
        if flat > images:
            return (
                f"{flat} images lie in images/ directly; they are expected in the folders of their "
                "classes, as images/001.Black_footed_Albatross/*.jpg: unpack the archive as it is"
            )
        return f"it holds {images} images. Fetch the archive again, or unpack it again"

    def flat(self) -> int:
        """Return how many images lie in `images/` without a class's folder."""
        return 0


@dataclass(frozen=True)
class ArchiveCopy(Copy):
    """The archive, read from its beginning to its end.

    `published` and `official` are as in `TarArchive`.
    """

    path: Path
    published: str
    official: bool

    @property
    def prefix(self) -> str:  # type: ignore[override]
        """What stands before a member's name in messages."""
        return f"{self.path}: {TOP}/"

    def listing(self) -> Listing:
        """Return the lists and the names of the images, in one pass over the archive."""
        names = {f"{TOP}/{name}": name for name in LISTS}
        texts: dict[str, bytes] = {}
        images: set[str] = set()
        others: set[str] = set()
        for name, content in self._archive().files(names.__contains__):
            if isinstance(content, DataError):
                raise content
            if content is not None:
                texts[names[name]] = content
            elif name.startswith(f"{TOP}/images/") and _is_image(name):
                images.add(name.removeprefix(f"{TOP}/images/"))
            else:
                others.add(name)
        if not texts:
            raise DataError(f"{self.path}: {_another(images | others)}")
        _check_lists(texts, self.prefix)
        return texts, frozenset(images)

    def contents(self, keys: Sequence[str]) -> Iterator[Content]:
        """Yield members in the order of `keys`, in one pass over the archive."""
        return self._archive().in_order(keys)

    def _archive(self) -> TarArchive:
        return TarArchive(self.path, self.published, self.official, READ_LIMIT)


@dataclass(frozen=True)
class FolderCopy(Copy):
    """The unpacked archive: the folder CUB_200_2011, whatever its name."""

    path: Path

    @property
    def prefix(self) -> str:  # type: ignore[override]
        """What stands before a file's name in messages."""
        return f"{self.path}/"

    def listing(self) -> Listing:
        """Return the lists and the names of the images."""
        return self._texts(), frozenset(name for name, _ in self._files())

    def flat(self) -> int:
        """Return how many images lie in `images/` without a class's folder."""
        return sum(_is_image(path.name) for path in (self.path / "images").glob("*.*"))

    def digest(self) -> str:
        """Return the digest of the lists, and of the names and sizes of all images."""
        digest = hashlib.sha256()
        for name, content in sorted(self._texts().items()):
            digest.update(f"{name} {len(content)}\0".encode() + content)
        for name, size in sorted(self._files()):
            digest.update(f"{name}\0{size}\0".encode(errors="surrogateescape"))
        return f"folder:{digest.hexdigest()}"

    def contents(self, keys: Sequence[str]) -> Iterator[Content]:
        """Yield files in the order of `keys`."""
        for key in keys:
            try:
                yield read_file(self.path / key.removeprefix(f"{TOP}/"), READ_LIMIT)
            except DataError as error:
                yield error

    def _texts(self) -> dict[str, bytes]:
        present = [name for name in LISTS if (self.path / name).is_file()]
        if not present and (text := explain_2010(self.path)):
            raise DataError(text)
        texts = {name: read_file(self.path / name, READ_LIMIT) for name in present}
        _check_lists(texts, self.prefix)
        return texts

    def _files(self) -> list[tuple[str, int]]:
        """Return the images below `images/` with their sizes."""
        images = self.path / "images"
        found = []
        for path in images.glob("*/*"):
            if _is_image(path.name) and path.is_file():
                found.append((path.relative_to(images).as_posix(), path.stat().st_size))
        return found


def explain_2010(root: Path) -> str | None:
    """Say that `root` is or holds CUB-200 of 2010, if it does."""
    marks = [root / "images.tgz", root / "lists.tgz", root / "lists" / "files.txt"]
    if root.name in ("images.tgz", "lists.tgz"):
        marks = [root]
    found = next((mark for mark in marks if mark.is_file()), None)
    count = sum(1 for _ in (root / "images").glob("*/*.jpg")) if found is None else 0
    if found is None and count != IMAGES_2010:
        return None
    return f"{found or root / 'images'}: belongs to {OTHER_YEAR}"


def _is_image(name: str) -> bool:
    file = name.rpartition("/")[2].lower()
    return file.endswith((".jpg", ".jpeg")) and not file.startswith("._")


def _another(names: set[str]) -> str:
    """Say what an archive without any of the lists seems to be."""
    images = sum(name.startswith("images/") and name.endswith(".jpg") for name in names)
    if images or any(name.startswith("lists/") for name in names):
        return f"holds {images} images and no {TOP}/images.txt: it is {OTHER_YEAR}"
    return (
        f"not the archive of CUB-200-2011, it has no {TOP}/images.txt; it holds {len(names)} "
        f"files ({some(sorted(names), 5)})"
    )


def _check_lists(texts: Mapping[str, bytes], prefix: str) -> None:
    missing = [name for name in LISTS if name not in texts]
    if missing:
        raise DataError(
            f"{prefix.rstrip('/')}: lacks {', '.join(missing)}; fetch {ARCHIVE} again, or unpack "
            "all of it"
        )
