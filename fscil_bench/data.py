"""Images as data: a verified source, decoded once into uint8 arrays on disk, mapped ever after."""

from __future__ import annotations

import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from fscil_bench.errors import DataError

if TYPE_CHECKING:
    from fscil_bench.protocol import ImageSpec

Pixels = np.ndarray
"""uint8 array (H, W, 3)."""


@dataclass(frozen=True)
class ReadRequest:
    """What a protocol asks of a reader: so many classes, at this size."""

    classes: int
    images: ImageSpec


@dataclass(frozen=True)
class Source:
    """Where the data come from, and the digest of what decides their content.

    `path` is None for data that are drawn by the program itself.
    """

    path: Path | None
    digest: str


@dataclass(frozen=True)
class Item:
    """One image before it is read: a stable `key` (path in the archive) and its class.

    `number` is how published lists of shots name a training image within its data set; by default
    its position among the training images of its class.
    """

    key: str
    label: int
    number: int | None = None


@dataclass(frozen=True)
class DatasetIndex:
    """What a source holds: class names in class order, and the items of both halves.

    `class_keys` are how published lists of shots name the classes; by default as `class_names`.
    """

    class_names: tuple[str, ...]
    train: tuple[Item, ...]
    test: tuple[Item, ...]
    class_keys: tuple[str, ...] = ()


class DatasetReader(ABC):
    """Reads one data set, from wherever its users keep it. Lives in `protocols/`.

    The engine asks `find` for the source, `index` for what is in it and streams `images` into
    the cache; a reader holds no more than one image at a time.
    """

    name: ClassVar[str]

    @abstractmethod
    def find(self, roots: Sequence[Path]) -> Source:
        """Return the source under one of `roots`.

        Raises:
            DataError: nothing fits; the message says what was looked for, where, and how to get it.
        """

    @abstractmethod
    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` classes.

        Raises:
            DataError: the source is damaged or lacks classes, which are named.
        """

    @abstractmethod
    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels]:
        """Yield the pixels of `items`, in order, as uint8 (size, size, 3).

        Raises:
            DataError: an image cannot be decoded; the message names its path.
        """


@dataclass(frozen=True)
class ImageArray:
    """Half of a data set: `images` uint8 (n, H, W, 3), memory-mapped; `labels` (n,); `keys`.

    `numbers` (n,) are how published lists of shots name the images.
    """

    images: np.ndarray
    labels: np.ndarray
    numbers: np.ndarray
    keys: tuple[str, ...]

    def of_class(self, label: int) -> np.ndarray:
        """Return the indices of the samples of class `label`, in stored order."""
        return np.flatnonzero(self.labels == label)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A data set ready for use.

    `class_keys` are how published lists of shots name the classes; `fingerprint` identifies the
    decoded content.
    """

    name: str
    class_names: tuple[str, ...]
    class_keys: tuple[str, ...]
    train: ImageArray
    test: ImageArray
    fingerprint: str


def decode_rgb(content: bytes, where: str) -> Image.Image:
    """Decode an image file of any mode into RGB.

    Grayscale, palette, CMYK and alpha images are converted, 16-bit grayscale is scaled to 8 bits,
    and the first frame of an animation is taken.

    Raises:
        DataError: the content is not a whole image; the message names `where`.
    """
    if not content:
        raise DataError(f"{where}: the image file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            file = Image.open(io.BytesIO(content))
            file.load()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{where}: cannot be decoded as an image: {error}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{where}: refused, its declared size is absurd: {error}") from error
    image: Image.Image = file
    if image.mode.startswith("I;16") or image.mode == "I":
        image = Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def to_square(image: Image.Image, spec: ImageSpec) -> Pixels:
    """Bring the shorter side to `spec.resize` (or `spec.size`) and cut out the central square.

    Bilinear with antialiasing, as torchvision's Resize and CenterCrop do.
    """
    short = spec.resize or spec.size
    if min(image.size) != short:
        scale = short / min(image.size)
        size = (max(short, round(image.width * scale)), max(short, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = (image.width - spec.size) // 2, (image.height - spec.size) // 2
    return np.asarray(image.crop((left, top, left + spec.size, top + spec.size)))
