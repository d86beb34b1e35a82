"""Makes a copy of CUB-200-2011 in its true layout and size, of images that the program draws."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from fscil_bench.data.reader import Item, Pixels, ReadRequest
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec
from fscil_bench.store.files import replaced_file, replaced_folder

Form = Literal["archive", "folder"]

CLASSES = 200
PUBLISHED, TRAINING = 11_788, 5_994
"""Images of the published data set, and how many of them are for training."""

LONGER, SHORTER = 500, (334, 500)
"""Sides of the images in pixels; the shorter one lies between two values."""

GLYPH = 64
GRAIN = 12
"""Noise in grey levels, to either side, so that files are as large as photographs (100 kB)."""

TOP = "CUB_200_2011"


def make_copy(folder: Path, images: int, form: Form) -> Path:
    """Write a copy below `folder`, unless it is there, and return the archive or the folder.

    With fewer than the published 11,788 images every class has a smaller part of them.
    """
    path = folder / (f"{TOP}.tgz" if form == "archive" else TOP)
    if path.exists():
        return path
    if form == "archive":
        with replaced_file(path) as new, tarfile.open(new, "w:gz", compresslevel=1) as archive:
            for name, content in _files(images):
                info = tarfile.TarInfo(f"{TOP}/{name}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return path
    with replaced_folder(path) as new:
        for name, content in _files(images):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
    return path


def _files(images: int) -> Iterator[tuple[str, bytes]]:
    """Yield all files: the images, then the four lists."""
    counts = _spread(images)
    training = np.minimum(_spread(round(images * TRAINING / PUBLISHED)), np.array(counts) - 1)
    folders = [f"{label + 1:03d}.Bird_{label + 1}" for label in range(CLASSES)]
    names = [
        f"{folder}/{folder[4:]}_{place:04d}_{place + 1000}.jpg"
        for folder, count in zip(folders, counts, strict=True)
        for place in range(count)
    ]
    labels = np.repeat(np.arange(CLASSES), counts)
    places = np.concatenate([np.arange(count) for count in counts])
    random = np.random.default_rng(0)
    grain = random.integers(-GRAIN, GRAIN + 1, (2 * LONGER, 2 * LONGER, 3), dtype=np.int16)
    for name, glyph in zip(names, _glyphs(labels, places), strict=True):
        yield f"images/{name}", _photograph(glyph, grain, random)
    yield "images.txt", _listed(names)
    yield "image_class_labels.txt", _listed(labels + 1)
    yield "train_test_split.txt", _listed((places < training[labels]).astype(int))
    yield "classes.txt", _listed(folders)


def _spread(count: int) -> list[int]:
    """Divide a number among the classes, as evenly as it can be."""
    return [count // CLASSES + (label < count % CLASSES) for label in range(CLASSES)]


def _glyphs(labels: np.ndarray, places: np.ndarray) -> Iterator[Pixels]:
    """Draw a character for each image; classes that share one differ in its images."""
    reader = load_registry().get("data set", "glyphs").value()
    request = ReadRequest(100, ImageSpec(size=GLYPH, mean=(0, 0, 0), std=(1, 1, 1)))
    source = reader.find(())
    drawn: dict[int, list[Item]] = {}
    for item in reader.index(source, request).train:
        drawn.setdefault(item.label, []).append(item)
    chosen = [
        drawn[label % 100][place + 100 * (label // 100)]
        for label, place in zip(labels.tolist(), places.tolist(), strict=True)
    ]
    yield from reader.images(source, chosen, request)


def _photograph(glyph: Pixels, grain: np.ndarray, random: np.random.Generator) -> bytes:
    """Return a JPEG of a character blown up to the size of a photograph, with grain."""
    shorter = int(random.integers(SHORTER[0], SHORTER[1] + 1))
    width, height = (LONGER, shorter) if random.random() < 0.75 else (shorter, LONGER)
    large = Image.fromarray(glyph).resize((width, height), Image.Resampling.BICUBIC)
    top, left = random.integers(0, LONGER, 2)
    grained = np.asarray(large) + grain[top : top + height, left : left + width]
    buffer = io.BytesIO()
    Image.fromarray(grained.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def _listed(values: list[str] | np.ndarray) -> bytes:
    return "".join(f"{number} {value}\n" for number, value in enumerate(values, 1)).encode()
