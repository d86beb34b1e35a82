from __future__ import annotations

import io
import os
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscil_bench.errors import DataError
from fscil_bench.protocols._archives.pickles import as_integers, as_text, read_table

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
BLOCK = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def read(content: bytes) -> dict[str, Any]:
    return read_table(io.BytesIO(content), "a.pkl")


def message_of(content: bytes) -> str:
    with pytest.raises(DataError) as caught:
        read(content)
    return str(caught.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "array",
    [BLOCK, np.asfortranarray(BLOCK), BLOCK.astype(">i4"), BLOCK / 2, np.array(["ä", "b"])],
    ids=["bytes", "columns", "big-endian", "floats", "text"],
)
def test_arrays_come_back_as_they_were(array: np.ndarray, protocol: int) -> None:
    found = read(pickle.dumps({"data": array}, protocol=protocol))["data"]
    assert type(found) is np.ndarray
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_containers_numbers_and_text_come_back(protocol: int) -> None:
    held = {
        "numbers": [1, np.int64(2), 2.5],
        "bytes": b"\x00\xff",
        "empty": b"",
        b"key": {"a", "b"},
        "ordered": OrderedDict(a=[1]),
        "default": defaultdict(list, a=[1]),
    }
    found = read(pickle.dumps(held, protocol=protocol))
    assert found["numbers"] == [1, 2, 2.5]
    assert (found["bytes"], found["empty"]) == (b"\x00\xff", b"")
    assert found["key"] == {"a", "b"}
    assert found["ordered"] == found["default"] == {"a": [1]}


def test_what_python_2_wrote_is_read(python2_pickle: Callable[[Any], bytes]) -> None:
    found = read(python2_pickle({"data": BLOCK, "fine_labels": [3, 4], "names": ["é", "b"]}))
    assert np.array_equal(found["data"], BLOCK)
    assert found["fine_labels"] == [3, 4]
    assert [as_text(name) for name in found["names"]] == ["é", "b"]


def test_nothing_is_executed(harmful: bytes, harm: Path) -> None:
    expected = f"a.pkl: refused, it asks for {open.__module__}.open; only pickles of"
    assert message_of(harmful).startswith(expected)
    assert not harm.exists()
    pickle.loads(harmful)["data"].close()
    assert harm.exists(), "the pickle is as harmful as it should be"


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_refused_is_named(protocol: int) -> None:
    for asked, name in ((Command(), f"{os.system.__module__}.system;"), (Path("x"), "pathlib")):
        text = message_of(pickle.dumps({"data": asked}, protocol=protocol))
        assert f"it asks for {name}" in text


@pytest.mark.parametrize(
    "asked",
    [b"builtins\neval", b"builtins\ngetattr", b"numpy\nload", b"numpy.core.multiarray\nfromfile"],
)
def test_no_neighbour_of_what_is_admitted_is(asked: bytes) -> None:
    text = message_of(b"\x80\x02c" + asked + b"\n.")
    assert f"it asks for {asked.decode().replace(chr(10), '.')};" in text
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93."
    assert "asks for numpy.ndarray.__init__;" in message_of(dotted)


def test_nested_keys_are_refused_at_once() -> None:
    # Each tuple holds the one before twice: hashing the last would take 2**200 steps.
    pair = b"\x80\x04}" + b")" + b"2\x86" * 200
    for attack in (pair + b"K\x01s.", b"\x80\x04}\x8c\x01a\x8f(" + pair[3:] + b"\x90s."):
        assert "as a key or in a set" in message_of(attack)
    for name in (b"set", b"frozenset"):
        made = b"\x80\x04}\x8c\x01a\x8c\x08builtins\x8c" + bytes([len(name)]) + name + b"\x93]"
        assert "as a key or in a set" in message_of(made + pair[3:] + b"a\x85Rs.")


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.array([{}], dtype=object), "O8"),
        (np.zeros(1, dtype=[("a", "u1")]), "V1"),
        (np.zeros(1, dtype="M8[s]"), "M8"),
    ],
)
def test_arrays_of_anything_but_numbers_and_text_are_refused(array: np.ndarray, kind: str) -> None:
    assert f"arrays of '{kind}' are not read" in message_of(pickle.dumps({"data": array}))


def test_an_array_whose_size_is_not_its_shape_is_refused(
    python2_pickle: Callable[[Any], bytes],
) -> None:
    whole = python2_pickle({"data": np.zeros((2, 3), np.uint8)})
    for shape in (b"J\x02\x00\x00\x00J\x04\x00\x00\x00", b"J\xfe\xff\xff\xffJ\xfd\xff\xff\xff"):
        changed = whole.replace(b"J\x02\x00\x00\x00J\x03\x00\x00\x00", shape)
        assert changed != whole
        assert "a damaged pickle" in message_of(changed)


def test_a_pickle_cannot_alter_what_stands_in_for_numpy() -> None:
    function = b"cnumpy\ndtype\n"
    attack = b"\x80\x02" + function + b"N}U\x0c__defaults__(K\x01tsu\x86b."
    assert "a damaged pickle" in message_of(attack)
    assert read(pickle.dumps({"data": BLOCK}))["data"].shape == BLOCK.shape


def test_half_a_pickle_and_none_at_all_are_damaged() -> None:
    whole = pickle.dumps({"data": BLOCK, "labels": list(range(300))})
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        assert message_of(whole[:length]).startswith("a.pkl: a damaged pickle, or none at all (")
    assert "a damaged pickle" in message_of(b"<!DOCTYPE html><html>")
    assert message_of(pickle.dumps([1])) == "a.pkl: holds a list where a dictionary is expected"


def test_flipped_bytes_give_an_error_or_other_data_and_nothing_else() -> None:
    whole = pickle.dumps({"data": BLOCK, "labels": [1, 2], "names": {"a": [1]}}, protocol=2)
    random, refused = np.random.default_rng(0), 0
    for _ in range(2000):
        changed = bytearray(whole)
        for place in random.integers(len(whole), size=3):
            changed[place] = random.integers(256)
        try:
            read(bytes(changed))
        except DataError:
            refused += 1
    assert 0 < refused < 2000


def test_text_is_text() -> None:
    assert [as_text(value) for value in (b"\xc3\xa9", "b", 3)] == ["é", "b", "3"]
    with pytest.raises(ValueError, match="a tuple where text is expected"):
        as_text(())


@pytest.mark.parametrize("value", [[1, 2], (1, 2), np.array([1, 2], np.uint8), {1, 2}])
def test_lists_of_whole_numbers(value: object) -> None:
    found = as_integers(value, "x")
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == [1, 2]


@pytest.mark.parametrize(
    "value", [["1"], [1.5], [True], b"12", {1: 2}, 3, np.zeros((2, 2), int), np.zeros(2), [2**70]]
)
def test_anything_else_is_no_list_of_whole_numbers(value: object) -> None:
    with pytest.raises(DataError, match="labels: expected a list of whole numbers, found"):
        as_integers(value, "a.pkl: labels")


def test_memory_is_taken_for_what_is_there_not_for_what_is_said() -> None:
    far = 2**31 - 1
    memo = b"\x80\x02}r" + far.to_bytes(4, "little") + b"."
    assert read(memo) == {}
    for kind in (b"\x96", b"\x8e"):  # a bytearray and bytes of 64 GiB
        said = b"\x80\x05}\x8c\x01a" + kind + (2**36).to_bytes(8, "little") + b"few"
        assert "a damaged pickle" in message_of(said)
