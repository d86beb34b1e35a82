"""Reads pickles of arrays, numbers and text; what a pickle asks to be executed is refused."""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, ClassVar

import numpy as np

from fscil_bench.errors import DataError

INSTRUCTIONS = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "GLOBAL STACK_GLOBAL INST REDUCE NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 "
    "LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE "
    "BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET"
)
"""What a pickle may tell the reader to do, by the names of the module `pickle`."""

DTYPE = re.compile(r"[biuf]\d{1,2}|[SU]\d{1,4}")
"""Kinds of numbers and text of a fixed length; never Python objects, never records."""

Table = dict[str, Any]

BROKEN = (
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What an unpickler raises when it is fed bytes that are no pickle, or half of one."""


def read_table(file: BinaryIO, where: str) -> Table:
    """Return the dictionary that a pickle holds, with its keys as text.

    Arrays come back as numpy arrays over the bytes read, without a second copy; they are
    read-only. Text that Python 2 wrote stays bytes: see `as_text`.

    Raises:
        DataError: the pickle is damaged, holds no dictionary, or asks for anything but arrays,
            numbers, text and their containers; what it asks for is named.
    """
    try:
        held = _PlainUnpickler(file, where).load()
        table = {as_text(k): unwrapped(v) for k, v in held.items()} if type(held) is dict else {}
    except BROKEN as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{where}: a damaged pickle, or none at all ({reason})") from error
    if not isinstance(held, dict):
        raise DataError(f"{where}: holds a {type(held).__name__} where a dictionary is expected")
    return table


def as_integers(value: object, where: str) -> np.ndarray:
    """Return a list or array of whole numbers as int64 (n,).

    Raises:
        DataError: it is something else; the message names `where`.
    """
    value = unwrapped(value)
    if isinstance(value, np.ndarray):
        if value.ndim == 1 and value.dtype.kind in "iu":
            return value.astype(np.int64)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes | dict):
        numbers = list(value)
        if all(type(number) is int and abs(number) < 2**62 for number in numbers):
            return np.array(numbers, dtype=np.int64)
    raise DataError(f"{where}: expected a list of whole numbers, found {described(value)}")


def described(value: object) -> str:
    """Return what kind of thing a value is, for a message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    return f"a {type(value).__name__}"


def as_text(value: object) -> str:
    """Return text, whichever of Python's two kinds a pickle has it in, or a number as text.

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(value, bytes | str | int):
        raise ValueError(f"{described(value)} where text is expected")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _keys(values: Iterable[Any]) -> list[Any]:
    """Return keys or members of sets, which are plain ones.

    Raises:
        ValueError: one is a tuple or the like: shared ones in one another take for ever to hash.
    """
    kept = list(values)
    for value in kept:
        if not isinstance(value, bytes | str | int):
            raise ValueError(f"{described(value)} as a key or in a set")
    return kept


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
    "builtins.set": lambda values=(): set(_keys(values)),
    "builtins.frozenset": lambda values=(): frozenset(_keys(values)),
    "builtins.list": list,
    "builtins.dict": _mapping,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _mapping,
}
"""What a pickle may ask for by name, and what it gets."""


def _dictionary(value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise pickle.UnpicklingError("what is no dictionary is given items")
    return value


class _PlainUnpickler(pickle._Unpickler):
    """Knows what numpy's pickles ask for, and stands in for each of them with code of its own.

    It is Python's own unpickler written in Python, cut down to the instructions that are needed;
    the one written in C allocates as much memory as a single damaged byte can ask for.
    """

    dispatch: ClassVar[dict[int, Callable[[pickle.Unpickler], None]]] = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
        for name in INSTRUCTIONS.split()
    }

    def __init__(self, file: BinaryIO, where: str) -> None:
        super().__init__(file, encoding="bytes")
        self.where = where

    def load_bytearray8(self) -> None:
        """Push a bytearray, as bytes; memory is taken for what is there, not for what is said."""
        unpickler: Any = self
        (length,) = struct.unpack("<Q", unpickler.read(8))
        unpickler.append(unpickler.read(length))

    def load_build(self) -> None:
        """Give a stand-in its state; nothing else has any."""
        unpickler: Any = self
        state = unpickler.stack.pop()
        if not isinstance(unpickler.stack[-1], StoredArray | StoredDtype):
            raise pickle.UnpicklingError("an object that is no array has a state")
        unpickler.stack[-1].__setstate__(state)

    def load_setitems(self) -> None:
        """Put pairs into a dictionary."""
        unpickler: Any = self
        pairs = unpickler.pop_mark()
        _dictionary(unpickler.stack[-1]).update(zip(_keys(pairs[::2]), pairs[1::2], strict=True))

    def load_setitem(self) -> None:
        """Put a pair into a dictionary."""
        unpickler: Any = self
        value, key = unpickler.stack.pop(), unpickler.stack.pop()
        _dictionary(unpickler.stack[-1])[_keys([key])[0]] = value

    def load_dict(self) -> None:
        """Push a dictionary of the pairs since the mark."""
        unpickler: Any = self
        pairs = unpickler.pop_mark()
        unpickler.append(dict(zip(_keys(pairs[::2]), pairs[1::2], strict=True)))

    def load_additems(self) -> None:
        """Put values into a set."""
        unpickler: Any = self
        values = _keys(unpickler.pop_mark())
        if not isinstance(unpickler.stack[-1], set):
            raise pickle.UnpicklingError("what is no set is given members")
        unpickler.stack[-1].update(values)

    def load_frozenset(self) -> None:
        """Push a set of the values since the mark."""
        unpickler: Any = self
        unpickler.append(frozenset(_keys(unpickler.pop_mark())))

    dispatch[pickle.SETITEMS[0]] = load_setitems  # type: ignore[assignment]
    dispatch[pickle.SETITEM[0]] = load_setitem  # type: ignore[assignment]
    dispatch[pickle.DICT[0]] = load_dict  # type: ignore[assignment]
    dispatch[pickle.ADDITEMS[0]] = load_additems  # type: ignore[assignment]
    dispatch[pickle.FROZENSET[0]] = load_frozenset  # type: ignore[assignment]
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8  # type: ignore[assignment]
    dispatch[pickle.BUILD[0]] = load_build  # type: ignore[assignment]

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for what the pickle asks for by name, if it is a known one."""
        package = re.sub(r"^numpy\._core\.", "numpy.core.", module)
        package = re.sub(r"^__builtin__$", "builtins", package)
        asked = f"{package}.{name}"
        if "." in name or asked not in STAND_INS:
            raise DataError(
                f"{self.where}: refused, it asks for {module}.{name}; only pickles of arrays, "
                "numbers, text and lists of them are read"
            )
        return STAND_INS[asked]
