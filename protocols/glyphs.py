"""Glyphs: a data set that the program draws itself, so that nothing need be fetched."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageDraw, ImageFilter, ImageFont, features

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

RENDERER_VERSION = 1
"""Raised whenever a change here alters any image."""

OVERSAMPLING = 2
INK = 0.68
"""Longer side of the undistorted character, as a fraction of the image's side."""
ROTATION = 30.0
"""Degrees, to either side."""
SHEAR = 0.3
SCALE = (0.5, 1.15)
"""Of each axis by itself, so that proportions vary too."""
SHIFT = 0.1
"""Fraction of the image's side, along each axis, to either side."""
WEIGHTS = (0, 1)
"""Widening of every stroke, on each of its edges, in 64ths of the image's side."""
BLUR = (0.0, 1.2)
"""Radius in 32nds of the image's side."""
CONTRAST = (0.2, 0.7)
"""Difference of grey level between character and ground, of 1."""
TINT = 0.15
"""Departure of each colour channel from the grey level, to either side."""
NOISE = (0.03, 0.17)
"""Standard deviation of the pixel noise."""


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


@dataclass(frozen=True)
class Look:
    """One image's distortion: `inverse` maps centred image positions to the character's."""

    weight: int
    inverse: np.ndarray
    shift: np.ndarray
    blur: float
    ground: np.ndarray
    ink: np.ndarray
    noise: float


def render(face: Path, char: str, side: int, rng: np.random.Generator) -> Pixels:
    """Draw `char` in the typeface file `face` as uint8 (side, side, 3); `rng` decides how."""
    look = _draw_look(rng)
    mask = _distorted(upright(face, char, side, look.weight), look, side)
    cover = np.asarray(mask, dtype=np.float32)[:, :, None] / 255
    image = look.ground + cover * (look.ink - look.ground)
    image += np.float32(look.noise) * rng.standard_normal(image.shape, dtype=np.float32)
    pixels: Pixels = np.rint(image.clip(0, 1) * 255).astype(np.uint8)
    return pixels


def _draw_look(rng: np.random.Generator) -> Look:
    angle = math.radians(rng.uniform(-ROTATION, ROTATION))
    shear = rng.uniform(-SHEAR, SHEAR)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    forward = turn @ np.array([[1, shear], [0, 1]]) @ np.diag(rng.uniform(*SCALE, size=2))
    ground, ink = _draw_colours(rng)
    return Look(
        weight=int(rng.choice(WEIGHTS)),
        inverse=np.linalg.inv(forward),
        shift=rng.uniform(-SHIFT, SHIFT, size=2),
        blur=rng.uniform(*BLUR),
        ground=ground,
        ink=ink,
        noise=rng.uniform(*NOISE),
    )


def _draw_colours(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the colours of ground and character in [0, 1]; either may be the lighter one."""
    contrast = rng.uniform(*CONTRAST)
    dark = rng.uniform(0, 1 - contrast)
    levels = [dark, dark + contrast]
    if rng.random() < 0.5:
        levels.reverse()
    tints = rng.uniform(-TINT, TINT, size=(2, 3))
    tints -= tints.mean(axis=1, keepdims=True)
    ground, ink = (np.array(levels)[:, None] + tints).clip(0, 1).astype(np.float32)
    return ground, ink


def _distorted(master: Image.Image, look: Look, side: int) -> Image.Image:
    centre = OVERSAMPLING * side / 2
    moved = np.full(2, centre) + look.shift * OVERSAMPLING * side
    start = centre - look.inverse @ moved
    (a, b), (d, e) = look.inverse
    big = master.transform(
        master.size,
        Image.Transform.AFFINE,
        (a, b, start[0], d, e, start[1]),
        Image.Resampling.BILINEAR,
    )
    small = big.reduce(OVERSAMPLING)
    return small.filter(ImageFilter.GaussianBlur(look.blur * side / 32))


@lru_cache(maxsize=256)
def upright(face: Path, char: str, side: int, weight: int) -> Image.Image:
    """Draw a character upright, in white on black, with its ink centred and of a set length."""
    canvas = OVERSAMPLING * side
    probe = _font(face, canvas)
    left, top, right, bottom = probe.getbbox(char)
    font = probe.font_variant(size=canvas * canvas * INK / max(right - left, bottom - top))
    widening = round(weight * canvas / 64)
    left, top, right, bottom = font.getbbox(char, stroke_width=widening)
    corner = ((canvas - left - right) / 2, (canvas - top - bottom) / 2)
    image = Image.new("L", (canvas, canvas))
    ImageDraw.Draw(image).text(corner, char, fill=255, font=font, stroke_width=widening)
    return image


@lru_cache(maxsize=64)
def _font(face: Path, size: int) -> ImageFont.FreeTypeFont:
    # The basic layout engine: the other one is not part of every Pillow.
    return ImageFont.truetype(face, size, layout_engine=ImageFont.Layout.BASIC)
