"""Vectors of classes: those of a file, read with care, and those that are mean features."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from fscil_bench.data.feature_file import LENGTHS
from fscil_bench.errors import DataError, UsageError, shown, some

ALIKE = 1e-12
"""How much less than 1 the cosine of vectors must be, in float64, that they are told apart."""


def read_vectors(path: str) -> torch.Tensor | None:
    """Return the vectors (C, E) of a file that `numpy.save` wrote, float32; None without one.

    Raises:
        UsageError: it holds something else than numbers (C, E), or a row that is zero, not finite,
            or too long or short for float32; the message names the first.
    """
    if not path:
        return None
    try:
        values = np.load(path, allow_pickle=False)
    except Exception as error:  # what a damaged file does to a library is not foreseeable
        raise UsageError(
            f"sfms: cannot read vectors from {path} ({type(error).__name__}: "
            f"{shown(str(error), 200)}); write an array (classes, dimensions) with numpy.save"
        ) from error
    if not isinstance(values, np.ndarray):
        with values:
            names = some(values.files)
        raise UsageError(
            f"sfms: {path} is an archive of arrays ({names}); save the one of the classes' vectors "
            "with numpy.save"
        )
    if values.ndim != 2 or values.dtype.kind not in "iuf" or not values.size:
        raise UsageError(
            f"sfms: {path} holds {values.dtype} of the shape {values.shape}; give numbers "
            "(classes, dimensions)"
        )
    largest = np.abs(values.astype(np.float64)).max(axis=1)
    fitting = (largest >= LENGTHS[0]) & (largest <= LENGTHS[1])
    if not fitting.all():
        row, further = int((~fitting).argmax()), int((~fitting).sum()) - 1
        more = f" ({further} more rows are no better)" * (further > 0)
        raise UsageError(
            f"sfms: {path}: row {row}, the vector of class {row}, has {largest[row]:g} as its "
            f"largest entry{more}; only its direction counts: give one with entries between "
            f"{LENGTHS[0]:g} and {LENGTHS[1]:g}"
        )
    return torch.from_numpy(values.astype(np.float32))


def refuse_alike(path: str, vectors: torch.Tensor) -> None:
    """Refuse vectors (C, E) of a file of which two have one direction.

    Raises:
        UsageError: their classes would have the same scores; the first two are named.
    """
    unit = F.normalize(vectors.double(), dim=1)
    pairs = ((unit @ unit.T).triu(diagonal=1) > 1 - ALIKE).nonzero().tolist()
    if pairs:
        first, second = pairs[0]
        more = f"; so do {len(pairs) - 1} more pairs" * (len(pairs) > 1)
        raise UsageError(
            f"sfms: {path}: rows {first} and {second} have the same direction, so that these "
            f"classes cannot be told apart{more}; give each class a vector of its own"
        )


def refuse_zero(means: torch.Tensor, class_ids: tuple[int, ...]) -> None:
    """Refuse mean features (way, D) as vectors where one is zero.

    Raises:
        DataError: it has no direction; its class is named.
    """
    zero = (~means.any(dim=1)).nonzero()[:, 0].tolist()
    if zero:
        raise DataError(
            f"sfms: the mean feature of class {class_ids[zero[0]]}, which stands for its word "
            "vector, is zero; check the backbone's training, or give word vectors (vectors=FILE)"
        )
