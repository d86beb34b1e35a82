"""What the data sets' tests share: pickles as Python 2 wrote them, and one that means harm."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
DTYPE = (
    b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)


def python2(value: Any) -> bytes:
    """Return what pickles of Python 2, protocol 2, have for a value: text is bytes there."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(part) for item in value.items() for part in item) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(python2(part) for part in value) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(python2(part) for part in value) + b"t"
    if isinstance(value, str):
        return b"T" + struct.pack("<i", len(value.encode())) + value.encode()
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    assert isinstance(value, np.ndarray)
    assert value.dtype == np.uint8
    content = b"T" + struct.pack("<i", value.size) + value.tobytes()
    return ARRAY + b"(K\x01" + python2(value.shape) + DTYPE + b"\x89" + content + b"tb"


@pytest.fixture
def python2_pickle() -> Callable[[Any], bytes]:
    """Return a function that pickles dictionaries, lists, text, numbers and uint8 arrays."""
    return lambda value: b"\x80\x02" + python2(value) + b"."


@pytest.fixture
def harm(tmp_path: Path) -> Path:
    """Return the file that the pickle `harmful` creates if it has its way."""
    return tmp_path / "harm"


@pytest.fixture
def harmful(harm: Path) -> bytes:
    """Return a pickle that opens a file for writing while it is read."""

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(harm), "w")

    return pickle.dumps({"data": Harmful()}, protocol=2)
