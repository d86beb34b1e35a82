"""Stored images: uint8, memory-mapped, of one size or of many, read without decoding anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch


def margin(length: int, side: int) -> int:
    """Return where a central window of `side` pixels begins, as torchvision's CenterCrop rounds."""
    return round((length - side) / 2)


@dataclass(frozen=True)
class Images:
    """Images uint8 (H, W, 3) one after the other in one flat array, with their shapes.

    Attributes:
        flat: uint8 (bytes,), usually memory-mapped.
        shapes: (n, 2) heights and widths.
        offsets: (n,) where each image begins.
    """

    flat: np.ndarray
    shapes: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_block(cls, block: np.ndarray) -> Images:
        """Return the images of an array (n, H, W, 3)."""
        count, height, width, _ = block.shape
        shapes = np.tile(np.array([[height, width]], dtype=np.int64), (count, 1))
        return cls(block.reshape(-1), shapes, _offsets(shapes))

    @classmethod
    def open(cls, stem: Path) -> Images:
        """Map images that `ImageWriter` wrote.

        Raises:
            OSError: a file cannot be read.
            ValueError: the files do not belong together.
        """
        shapes = np.load(stem.with_name(f"{stem.name}_shapes.npy"), allow_pickle=False)
        path = stem.with_name(f"{stem.name}.bin")
        size = int(3 * shapes.prod(axis=1).sum()) if len(shapes) else 0
        if path.stat().st_size != size:
            raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {size}")
        flat = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
        return cls(flat, shapes, _offsets(shapes))

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return image `index`, a view (H, W, 3) of the stored bytes."""
        height, width = self.shapes[index]
        start = self.offsets[index]
        return self.flat[start : start + 3 * height * width].reshape(height, width, 3)

    def squares(self, indices: np.ndarray, side: int) -> torch.Tensor:
        """Return a copy of the central squares of `side` pixels, uint8 (n, side, side, 3)."""
        if self._block is not None:
            block, places = self._block
            top, left = margin(block.shape[1], side), margin(block.shape[2], side)
            rows, columns = slice(top, top + side), slice(left, left + side)
            return torch.from_numpy(block[places[indices], rows, columns])
        result = np.empty((len(indices), side, side, 3), np.uint8)
        for number, index in enumerate(indices):
            image = self[index]
            top, left = margin(image.shape[0], side), margin(image.shape[1], side)
            result[number] = image[top : top + side, left : left + side]
        return torch.from_numpy(result)

    def part(self, members: np.ndarray) -> Images:
        """Return some of the images, by index; their bytes stay where they are."""
        return Images(self.flat, self.shapes[members], self.offsets[members])

    @cached_property
    def _block(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return `flat` as (m, H, W, 3) and the images' places in it, where all have one shape."""
        if not len(self.shapes) or not (self.shapes == self.shapes[0]).all():
            return None
        height, width = (int(length) for length in self.shapes[0])
        size = 3 * height * width
        if len(self.flat) % size or (self.offsets % size).any():
            return None
        return self.flat.reshape(-1, height, width, 3), self.offsets // size

    def whole(self, indices: Iterable[int]) -> list[torch.Tensor]:
        """Return copies of whole images, uint8 (H, W, 3) each."""
        return [torch.from_numpy(np.array(self[index])) for index in indices]


class ImageWriter:
    """Writes images one after the other, in the form that `Images.open` maps."""

    def __init__(self, stem: Path) -> None:
        self.stem = stem
        self.shapes: list[tuple[int, int]] = []
        self._file = stem.with_name(f"{stem.name}.bin").open("wb")

    def add(self, pixels: np.ndarray) -> None:
        """Append an image, uint8 (H, W, 3)."""
        self._file.write(np.ascontiguousarray(pixels).data)
        self.shapes.append((pixels.shape[0], pixels.shape[1]))

    def close(self) -> None:
        """Finish both files."""
        self._file.close()
        shapes = np.array(self.shapes, dtype=np.int64).reshape(-1, 2)
        np.save(self.stem.with_name(f"{self.stem.name}_shapes.npy"), shapes)


def _offsets(shapes: np.ndarray) -> np.ndarray:
    sizes = 3 * shapes.prod(axis=1)
    starts: np.ndarray = np.cumsum(sizes) - sizes
    return starts
