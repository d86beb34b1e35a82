"""A data set of random patterns, drawn in a moment, for tests of the whole path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

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

TRAIN, TEST = 12, 5


class ToyReader(DatasetReader):
    """One random pattern a class, with noise."""

    name = "toy"

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        del roots, digest
        return Source(None, "toy-1")

    def index(self, source: Source, request: ReadRequest) -> DatasetIndex:
        del source
        halves = {
            half: tuple(
                Item(f"{half}/{label}/{number}", label)
                for label in range(request.classes)
                for number in range(count)
            )
            for half, count in (("train", TRAIN), ("test", TEST))
        }
        names = tuple(f"toy {label}" for label in range(request.classes))
        return DatasetIndex(names, halves["train"], halves["test"])

    def images(
        self, source: Source, items: Sequence[Item], request: ReadRequest
    ) -> Iterator[Pixels]:
        del source
        size = request.images.size
        for item in items:
            pattern = np.random.default_rng(item.label).integers(0, 256, (4, 4, 3))
            noise = np.random.default_rng([*item.key.encode()]).normal(0, 40, (size, size, 3))
            tiled = np.kron(pattern, np.ones((size // 4, size // 4, 1)))
            yield np.clip(tiled + noise, 0, 255).astype(np.uint8)
