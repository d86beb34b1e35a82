"""Images as data: a verified source, decoded once into uint8 arrays on disk, mapped ever after."""

from __future__ import annotations

import hashlib
import io
import re
import stat
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from PIL import Image, ImageOps

from fscil_bench.data.pixels import Images, margin
from fscil_bench.errors import DataError, UsageError
from fscil_bench.plugins.contract import Contract
from fscil_bench.seeding import Randomness
from fscil_bench.spec import digest_of

if TYPE_CHECKING:
    from fscil_bench.protocol import ImageSpec

Pixels = np.ndarray
"""uint8 array (H, W, 3)."""

BITS_PER_SAMPLE = 258
"""A tag of TIFF."""

MOST_OBLONG = 50
"""How many times its shorter side an image's longer one may be: resizing multiplies both."""


@dataclass(frozen=True)
class ReadRequest:
    """What a protocol asks of a reader: so many classes, at this size, with its own options."""

    classes: int
    images: ImageSpec
    options: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where the data come from, and the digest of what decides their content.

    `path` is None for data that are drawn by the program itself. `unofficial` says why the copy
    is not the published one, where that can be told; such a copy is used only if asked for.
    """

    path: Path | None
    digest: str
    unofficial: str | None = None

    @property
    def location(self) -> Path:
        """The `path`, for readers whose data are on disk."""
        assert self.path is not None, "the reader's own find gives a path"
        return self.path


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


Digester = Callable[[Path, str], str]
"""Returns the digest of a file by an algorithm that hashlib knows."""


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def read_file(path: Path, limit: int = 100_000_000) -> bytes:
    """Return the content of a file, links followed.

    Raises:
        DataError: it cannot be read, is no regular file (a pipe would be waited for), or has more
            than `limit` bytes.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise DataError(f"{path}: refused, it is no file but a pipe, a device or the like")
        if status.st_size > limit:
            raise DataError(f"{path}: refused, {status.st_size} bytes are absurd (at most {limit})")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a name with a NUL in it
        raise DataError(f"{str(path)!r}: cannot be read: {error}") from error


@dataclass(frozen=True)
class Download:
    """A file that can be fetched: its name, addresses in order of preference, digest and size.

    `digest` is written algorithm:hexadecimal; `size` is in bytes.
    """

    filename: str
    addresses: tuple[str, ...]
    digest: str
    size: int


class DatasetReader(Contract):
    """Reads one data set, from wherever its users keep it. Lives in `protocols/`.

    The engine asks `find` for the source, `index` for what is in it and streams `images` into
    the cache; a reader holds no more than one image at a time.
    """

    kind = "data set"
    download: ClassVar[Download | None] = None
    """The published archive, where it has an address."""
    advice: ClassVar[str] = ""
    """How to come by the data where they cannot be downloaded."""
    reads_any: ClassVar[bool] = False
    """Whether it reads whatever a protocol names as its `data`, and has no data set of its own."""

    @abstractmethod
    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the source under one of `roots`: a folder, or the archive itself.

        `digest` remembers files that it has seen, so that a large archive is read only once.

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
    ) -> Iterator[Pixels | DataError]:
        """Yield the pixels of `items`, in order, as `prepare` returns them.

        In place of an image that cannot be decoded its error, which names its path, is yielded;
        all of them are then shown together, or skipped if the user wants that.
        """


@dataclass(frozen=True)
class ImageArray:
    """Half of a data set: `images`, memory-mapped; `labels` (n,); `keys`.

    `numbers` (n,) are how published lists of shots name the images. Where `features` (n, D) come
    from a file, the images have no pixels.
    """

    images: Images
    labels: np.ndarray
    numbers: np.ndarray
    keys: tuple[str, ...]
    features: np.ndarray | None = None

    def of_class(self, label: int) -> np.ndarray:
        """Return the indices of the samples of class `label`, in stored order."""
        return np.flatnonzero(self.labels == label)

    def part(self, members: np.ndarray) -> ImageArray:
        """Return some of the samples, by index."""
        if len(members) == len(self):
            return self
        keys = tuple(self.keys[i] for i in members)
        images = self.images.part(members)
        features = None if self.features is None else self.features[members]
        return ImageArray(images, self.labels[members], self.numbers[members], keys, features)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A data set ready for use.

    `class_keys` are how published lists of shots name the classes; `fingerprint` identifies the
    decoded content; `skipped` counts broken images that were left out. `matching` says how
    features from a file came to its samples: by `name`, by `order`, or that the `file` itself is
    the data set; empty without a file.
    """

    name: str
    class_names: tuple[str, ...]
    class_keys: tuple[str, ...]
    train: ImageArray
    test: ImageArray
    fingerprint: str
    unofficial: str | None = None
    skipped: int = 0
    matching: str = ""

    @property
    def features(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Training and test features (n, D) where they come from a file."""
        train, test = self.train.features, self.test.features
        return None if train is None or test is None else (train, test)


def reordered(dataset: Dataset, order: str, folder: Path) -> Dataset:
    """Return the data set with its classes in the given order.

    Args:
        dataset: the data set as its reader gives it.
        order: `dataset`, the order it has; `seed:N`, a permutation drawn from N; or `list:FILE`,
            the order of the class keys in a text file, which counts as content of the data set.
            Classes that are not listed are left out, with their images.
        folder: where that file lies.

    Raises:
        UsageError: the list names an unknown class, or one twice (file:line), or none.
    """
    if order == "dataset":
        return dataset
    fingerprint = dataset.fingerprint
    if order.startswith("list:"):
        permutation = _listed_order(folder / order.removeprefix("list:"), dataset)
        fingerprint = digest_of([fingerprint, *(dataset.class_keys[c] for c in permutation)])
    else:
        seed = int(order.removeprefix("seed:"))
        random = Randomness(("class order", seed)).numpy()
        permutation = random.permutation(len(dataset.class_names))
    place = np.full(len(dataset.class_names), -1)
    place[permutation] = np.arange(len(permutation))

    def half(array: ImageArray) -> ImageArray:
        labels = place[array.labels]
        return replace(array, labels=labels).part(np.flatnonzero(labels >= 0))

    return replace(
        dataset,
        class_names=tuple(dataset.class_names[c] for c in permutation),
        class_keys=tuple(dataset.class_keys[c] for c in permutation),
        train=half(dataset.train),
        test=half(dataset.test),
        fingerprint=fingerprint,
    )


def _listed_order(path: Path, dataset: Dataset) -> np.ndarray:
    """Return the label of the class on each line; blank lines and those after `#` are ignored."""
    try:
        lines = read_file(path).decode("utf-8-sig").splitlines()
    except (DataError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a list of classes: {error}") from error
    labels = {key: label for label, key in enumerate(dataset.class_keys)}
    found: dict[int, int] = {}
    for number, line in enumerate(lines, start=1):
        key = line.strip()
        if not key or key.startswith("#"):
            continue
        if key not in labels:
            raise UsageError(
                f"{path}:{number}: no class {key!r} is among the {len(labels)} of data set "
                f"{dataset.name!r} that the protocol asks for (classes = {len(labels)}); its first "
                f"is called {dataset.class_keys[0]!r}"
            )
        if labels[key] in found:
            first = found[labels[key]]
            raise UsageError(f"{path}:{number}: class {key!r} is listed already, on line {first}")
        found[labels[key]] = number
    if not found:
        raise UsageError(f"{path}: lists no class")
    return np.array(list(found))


def decode_rgb(content: bytes, where: str) -> Image.Image:
    """Decode an image file of any mode into RGB.

    The rules: an image is turned as its EXIF orientation says. Of 16 bits the upper 8 are taken,
    unless no value of the image is above 255: such values are of 8 bits already. Alpha is left
    away, so that pixels have the colour stored for them, however transparent. Grayscale, palette
    and CMYK become RGB; of an animation the first frame is taken. Values of unknown range
    (floating point, 32 bits) are refused, and so are absurdly long images.

    Raises:
        DataError: the content is not a whole image of use; the message names `where`.
    """
    if not content:
        raise DataError(f"{where}: the image file is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            file = Image.open(io.BytesIO(content))
            file.load()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{where}: refused, its declared size is absurd: {error}") from error
    except Exception as error:  # decoders raise whatever they like on damaged files
        reason = re.sub(r" ?<_io\.BytesIO[^>]*>", "", str(error))
        raise DataError(f"{where}: cannot be decoded as an image: {reason}") from error
    image = _upright(file)
    _refuse_oblong(image, where)
    if image.mode.startswith("I"):
        values = np.asarray(image)
        low, high = values.min(), values.max()
        if low < 0 or high > 65535:
            raise DataError(f"{where}: its values are not in the range of 8 or 16 bits")
        image = Image.fromarray((values.astype(np.uint32) >> 8 * (high > 255)).astype(np.uint8))
    elif _has_16_bits(file, content) and not np.asarray(image.convert("RGB")).any():
        # Of colours with 16 bits the decoder keeps the upper 8 alone.
        raise DataError(
            f"{where}: its colours have 16 bits and none is above 255, so that it would be black; "
            "save it with 8 bits"
        )
    if image.mode == "F":
        raise DataError(f"{where}: holds floating-point values, whose range is not known")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def prepare(image: Image.Image, spec: ImageSpec) -> Pixels:
    """Return an image as it is stored, uint8 (H, W, 3).

    The shorter side is brought to `spec.resize`, or to `spec.size` where that is not set, in which
    case the central square is cut out too. Bilinear with antialiasing, as torchvision's Resize and
    CenterCrop do.

    Raises:
        DataError: the image is absurdly long.
    """
    _refuse_oblong(image, "an image")
    short = spec.resize or spec.size
    if min(image.size) != short:
        size = tuple(short * length // min(image.size) for length in image.size)
        image = image.resize((size[0], size[1]), Image.Resampling.BILINEAR)
    if spec.resize is not None:
        return np.asarray(image)
    left, top = margin(image.width, spec.size), margin(image.height, spec.size)
    return np.asarray(image.crop((left, top, left + spec.size, top + spec.size)))


def _upright(image: Image.Image) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ImageOps.exif_transpose(image)
    except Exception:  # EXIF that cannot be read turns nothing
        return image


def _has_16_bits(file: Image.Image, content: bytes) -> bool:
    if file.format == "PNG":
        return content[24:25] == b"\x10"
    depths: tuple[int, ...] = getattr(file, "tag_v2", {}).get(BITS_PER_SAMPLE, ())
    return 16 in depths


def _refuse_oblong(image: Image.Image, where: str) -> None:
    short, long = sorted(image.size)
    if not 0 < long <= MOST_OBLONG * short:
        raise DataError(
            f"{where}: refused, {image.width}×{image.height} pixels are absurd: one side may be at "
            f"most {MOST_OBLONG} times the other"
        )
