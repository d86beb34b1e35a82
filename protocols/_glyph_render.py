"""Draws one character of one typeface as a small, randomly distorted colour image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from fscil_bench.data.reader import Pixels

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
