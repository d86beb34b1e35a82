"""What stands in for numpy and the like while a pickle is read, so that none of them is called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

DTYPE = re.compile(r"[biuf]\d{1,2}|[SU]\d{1,4}")
"""Kinds of numbers and text of a fixed length; never Python objects, never records."""


def as_text(value: object) -> str:
    """Return text, whichever of Python's two kinds a pickle has it in."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class StoredDtype:
    """A number format as a pickle describes it: `numpy.dtype(code)`, then given its state."""

    def __init__(self, code: object, *_: object) -> None:
        self.code, self.order = as_text(code), "|"
        if DTYPE.fullmatch(self.code) is None:
            raise ValueError(f"arrays of {self.code!r} are not read")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = as_text(state[1])
        if self.order not in ("<", ">", "|", "=") or any(state[2:5]):
            raise ValueError(f"arrays of {self.code!r} with byte order {self.order!r} or fields")

    def dtype(self) -> np.dtype[Any]:
        """Return the format, which is a harmless one."""
        return np.dtype(self.order + self.code)


class StoredArray:
    """An array as a pickle describes it: made empty, then given its state, which is checked."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, content = state
        self.array = _array(content, kind, shape, columns_first)


def unwrapped(value: Any) -> Any:
    """Return an array as numpy's own, and anything else as it is."""
    return value.array if isinstance(value, StoredArray) else value


def _array(content: Any, kind: Any, shape: Any, columns_first: bool) -> np.ndarray:
    """Return an array over `content`, whose length must be what kind and shape say."""
    if not isinstance(kind, StoredDtype) or not isinstance(content, bytes):
        raise ValueError("an array of an unknown form")
    array = np.frombuffer(content, kind.dtype())
    return array.reshape(tuple(shape), order="F" if columns_first else "C")


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any, *_: object) -> StoredArray:
    stored = StoredArray()
    stored.array = _array(content, kind, shape, order == "F")
    return stored


def _scalar(kind: Any, content: Any) -> Any:
    return _array(content, kind, (1,), False)[0].item()


def _encoded(text: str, encoding: object = "latin1") -> bytes:
    if as_text(encoding) != "latin1":
        raise ValueError(f"bytes written as {encoding!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""


def _mapping(*_: object) -> dict[Any, Any]:
    return {}


STAND_INS: Mapping[str, Any] = {
    "numpy.dtype": StoredDtype,
    "numpy.ndarray": "ndarray",  # only ever an argument of `_reconstruct`
    "numpy.core.multiarray._reconstruct": StoredArray,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "_codecs.encode": _encoded,
    "builtins.bytes": _no_bytes,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.list": list,
    "builtins.dict": dict,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _mapping,
}
"""What a pickle may ask for by name, and what it gets."""
