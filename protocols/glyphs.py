"""Glyphs: a data set that the program draws itself, so that nothing need be fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import PIL
from PIL import features

from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Item,
    Pixels,
    ReadRequest,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError
from fscil_bench.seeding import Randomness

from ._glyph_render import RENDERER_VERSION, render

# In class order. Latin, Greek, Cyrillic and digits take turns, so that the base classes and
# every session mix them. No two look alike or differ in size alone: hence no 0, I, l, c, o ...
CLASSES = tuple(
    "AБÆβaΓ1BДCŒδЖDbΔ2ØEε"
    "ИFÞdΘЙGζ3HŁЦJηeΛЧÐK4"
    "ШLλĦfΞMЩN5μÅЪOgΠÇξPЫ"
    "6QÑЭhΣςRЮSæ7σTiΦЯəUЂ"
    "ωV8ƕmΨWЉϑXʔЊY9tΩϠɮѢZ"
)

# Both halves mix families and styles, but no face is in both.
TRAIN_FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
)
TEST_FACES = (
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSerif-Italic",
    "STIXGeneralBol",
)

# Computer Modern: its character tables are to be trusted for ASCII alone.
TRAIN_FACES_ASCII = ("cmr10", "cmb10", "cmtt10")
TEST_FACES_ASCII = ("cmss10", "cmti10")

ALL_FACES = TRAIN_FACES + TRAIN_FACES_ASCII + TEST_FACES + TEST_FACES_ASCII

IMAGES = {"train": 200, "test": 50}


class Glyphs(DatasetReader):
    """Images of 100 characters in the typefaces that Matplotlib brings.

    The faces of the test images are not among those of the training images. Every image is
    drawn at the side that is asked for, with rotation, shear, scale, place, stroke width,
    blur, colours and noise of its own, which follow from its key alone.
    """

    name = "glyphs"

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        """Return the source, which has no path: `roots` do not matter.

        Raises:
            DataError: the installed Matplotlib lacks some of the typefaces, which are named.
        """
        del roots, digest
        return Source(None, _digest())

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        """List the images of the first `request.classes` characters.

        Raises:
            DataError: more classes are asked for than there are.
        """
        del source
        if request.classes > len(CLASSES):
            raise DataError(
                f"the data set 'glyphs' has {len(CLASSES)} classes, but the protocol asks for "
                f"{request.classes}; set classes = {len(CLASSES)} or fewer"
            )
        names = CLASSES[: request.classes]
        return DatasetIndex(names, _items("train", names), _items("test", names))

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels | DataError]:
        """Draw `items`, in order, each at the side that is to be stored."""
        del source
        folder = font_folder()
        for item in items:
            half, char, face, number = item.key.split("/")
            rng = Randomness(("glyphs", half, char, int(number))).numpy("image")
            yield render(folder / f"{face}.ttf", char, request.images.stored, rng)


def faces(half: str, char: str) -> tuple[str, ...]:
    """Return the names of the faces in which images of `char` are drawn, "train" or "test"."""
    general, ascii_only = {
        "train": (TRAIN_FACES, TRAIN_FACES_ASCII),
        "test": (TEST_FACES, TEST_FACES_ASCII),
    }[half]
    return general + ascii_only if char.isascii() else general


def font_folder() -> Path:
    """Return the folder of Matplotlib's TrueType faces."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def _items(half: str, names: Sequence[str]) -> tuple[Item, ...]:
    return tuple(
        Item(f"{half}/{char}/{used[number % len(used)]}/{number:04d}", label)
        for label, char in enumerate(names)
        for used in [faces(half, char)]
        for number in range(IMAGES[half])
    )


def _digest() -> str:
    """Return a digest of all that an image could depend on."""
    folder = font_folder()
    files = [folder / f"{face}.ttf" for face in ALL_FACES]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise DataError(
            f"the data set 'glyphs' is drawn with typefaces of Matplotlib, but {folder} lacks "
            f"{', '.join(missing)}; install Matplotlib from PyPI: "
            "pip install --force-reinstall matplotlib"
        )
    versions = [
        RENDERER_VERSION,
        PIL.__version__,
        features.version("freetype2"),
        version("matplotlib"),
        np.__version__,
    ]
    digest = hashlib.sha256(repr((versions, CLASSES, ALL_FACES, IMAGES)).encode())
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
