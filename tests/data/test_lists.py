from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fscil_bench.data.lists import index_of, parse_index_list, shots_from_lists
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, DatasetIndex, ImageArray, Item
from fscil_bench.errors import DataError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.running.sessions import CanonicalShots, canonical_shots, read_canonical

DIGESTS = {
    "cifar100": """
        654db7b72e383a1aac94a4e570ea26c9f3cb8b7bf95a7aff2a9e1626f4e0b330
        a466c0f920549096435c9b298e9f52f2b4a676db34f2c54de04f4147759a2eea
        c2d0f0a6db516358055d448b1dd8033a778ae7ba30de78adbd8ea2e1b94282b0
        2907fe7d341f9f4da0c2cdf59bcf33a50619f41e9ebd3232fe2c6c11bc30bfa4
        87f70d04e01acb3ba0bbce24f84bf78ee905721d3609e53c5f11bf92d3237197
        70131153942c3a30418843097a482d0e24dedbaa394876b101db205a5099a595
        8bcefabac5ff2d3086e3cc097b306713661f07aa670ef3935570226293e1c2f1
        242fd41330db6081d11216a8324f92aebd64545b2171bd567a162a7521a62ed7
    """,
    "mini_imagenet": """
        0ca2664ee5be9852f7688e9f691397ba9ac23333b64afcbbb20012a22adee16a
        7a2b2d26f529247dc725d406125eab2a698523d8c669cd1e399c26d068e6d6fa
        e70403ced5ac32b811962cdb498b0e01bb4444da0d20539f6f183db17fe158c2
        4b8aa1d08d1a0aa2a2ed6baefc3aa2e801ea0a6924a8056ca4c4737d60ac0460
        c78365d507400f170186bc321bfa233dde1160c6df6405fba242dedda59d3070
        ad01e6e88f92b8dbcfa38831051f41a2639b2f455695bd2bb5db5cd1129ef88a
        ab39d572974acdd3e542040f3cd18b72a0fc97980f754b9335f99ca3df7f1847
        e808c65f6e081f5b0061cc4a8bdec51dff4ae99cb37193d239a319e388ec1226
    """,
    "cub200": """
        1c871e6946bab59864bc22ebb55fe1eabefcd67d814de79f8f8e27aea5637aee
        2c966e6ff0d606ef5083835ad220cc63f119f6a66047411eed243cd2cd50765f
        577f685606c35f7672e8c33570714de66983c8c09f33f01ac75fa26eacde7196
        dbce809dde2682f3c4d23a6d0029dcef7a94be824a06a1c9ba34d42d6f0b3b7c
        f56e9bbca2730a30a771f69f370a2c24f810e466a552845849b71551a778110d
        def35b88d4423c27a5faf14c5b9db5f4c024fcff44960ae774e4433710255fc3
        9f9ece1a9fe3c6daefe2af2b18542d79bac99056eae61c0e3b2f80994bb8147d
        68fae1d4e1634723e1836ae72a0ca73fd708697b768712a679aea8dc981bd218
        0eadd611ae8a491067f1a10f4de0bd5d9cb81dd4947ead713c894cb6d305dfb9
        600737eb34e7c97147cbe32596304090ebc3b3a7ce90abf893540a55c3ae062d
    """,
}
"""SHA-256 of the published lists of shots, from `session_2.txt` on.

CUB200's file names are not in the table: its digests are of class and number, which stand in them.
"""


def published_shots(protocol: str) -> dict[int, list[tuple[str, int]]]:
    """Return a protocol's shots by few-shot session (from 1): class keys and image numbers."""
    sessions: dict[int, list[tuple[str, int]]] = {}
    for session, key, samples in read_canonical(*load_registry().protocol(protocol)).rows:
        sessions.setdefault(session, []).extend((key, int(sample)) for sample in samples)
    return sessions


def rebuilt(protocol: str) -> list[str]:
    """Return a protocol's few-shot lists as they are published."""
    line = {
        "cifar100": "{1}\n",
        "mini_imagenet": "MINI-ImageNet/train/{0}/{0}{1:08d}.jpg\n",
        "cub200": "{0} {1}\n",
    }[protocol]
    return ["".join(line.format(*s) for s in shots) for shots in published_shots(protocol).values()]


def write(folder: Path, *lists: str | bytes) -> Path:
    """Write few-shot lists, from `session_2.txt` on."""
    for number, content in enumerate(lists, start=2):
        raw = content.encode() if isinstance(content, str) else content
        (folder / f"session_{number}.txt").write_bytes(raw)
    return folder


def index(test: Sequence[Item] = ()) -> DatasetIndex:
    """Return four classes of three training images: numbers 0 to 11, class by class."""
    names = ("cat", "dog", "blå fågel", "007.Fly, small")
    train = [Item(f"train/{names[n // 3]}/{n}.jpg", n // 3, n) for n in range(12)]
    return DatasetIndex(names, tuple(train), tuple(test), ("0", "1", "2", "3"))


def message_of(folder: Path, known: DatasetIndex | None = None) -> str:
    with pytest.raises(DataError) as caught:
        shots_from_lists(folder, known or index())
    return str(caught.value)


@pytest.mark.parametrize("protocol", DIGESTS)
def test_lists_rebuilt_from_the_table_are_the_published_ones(protocol: str) -> None:
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in rebuilt(protocol)]
    assert digests == DIGESTS[protocol].split()


def test_the_table_has_five_shots_of_every_new_class_of_cifar100() -> None:
    for session, shots in published_shots("cifar100").items():
        new = range(55 + 5 * session, 60 + 5 * session)
        assert [key for key, _ in shots] == [str(c) for c in new for _ in range(5)]
        assert len(set(shots)) == 25


def blank(items: Sequence[Item]) -> ImageArray:
    images = Images(np.empty(0, np.uint8), np.zeros((0, 2), np.int64), np.empty(0, np.int64))
    labels, numbers = (np.array([getattr(i, n) for i in items]) for n in ("label", "number"))
    return ImageArray(images, labels, numbers, tuple(item.key for item in items))


def test_published_lists_choose_what_the_table_chooses(tmp_path: Path) -> None:
    shots = published_shots("mini_imagenet")
    protocol, folder = load_registry().protocol("mini_imagenet")
    names = tuple((folder / "mini_imagenet" / "classes.txt").read_text().split())
    items = [
        Item(f"images/{wnid}{number:08d}.jpg", names.index(wnid), number)
        for listed in shots.values()
        for wnid, number in listed
    ]
    dataset = Dataset("mini_imagenet", names, names, blank(items), blank([]), "f")
    rows = shots_from_lists(write(tmp_path, *rebuilt("mini_imagenet")), index_of(dataset))
    chosen = canonical_shots(CanonicalShots(tmp_path, rows), protocol, dataset)
    assert np.concatenate(chosen).tolist() == list(range(200))


def test_indices_and_paths_choose_the_same(tmp_path: Path) -> None:
    names = "x/blå fågel/7.jpg\nx/blå fågel/6.jpg\n", "x/007.Fly, small/9.jpg\nx/dog/3.jpg\n"
    windows = [name.replace("/", "\\") for name in names]
    for lists in (("7\n6\n", "9\n3\n"), names, windows):
        assert shots_from_lists(write(tmp_path, *lists), index()) == (
            (1, "2", ("7", "6")),
            (2, "3", ("9",)),
            (2, "1", ("3",)),
        )


def test_a_data_set_gives_its_index_back() -> None:
    known = index([Item("test/cat/1.jpg", 0, 0)])
    halves = blank(known.train), blank(known.test)
    dataset = Dataset("x", known.class_names, known.class_keys, *halves, "f")
    assert index_of(dataset) == known


@pytest.mark.parametrize(
    "content",
    [b"7\r\n6\r\n", b"\xef\xbb\xbf7\n6", b"7\n6\n\n\n  \n", b"\n7 \n\t6\r", b"007\n+6\n"],
    ids=["CRLF", "mark", "blank", "spaces", "signs"],
)
def test_how_lines_end_does_not_matter(tmp_path: Path, content: bytes) -> None:
    assert shots_from_lists(write(tmp_path, content), index()) == ((1, "2", ("7", "6")),)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"3\n-1\n", ":2: the index -1 is below 0; indices count from 0"),
        (b"3\n50000\n", ":2: no training image has the index 50000 (0 … 11)"),
        (b"3\nthree\n", ":2: 'three' is neither an index nor a path with its class's folder"),
        (b"3.5\n", ":1: '3.5' is neither an index nor a path"),
        (b"3\nx/dog/4.jpg\n", ":2: 'x/dog/4.jpg' is of another kind than the first entry"),
        (b"x/dog/99.jpg\n", ":1: x/dog/99.jpg is no image of the data set"),
        (b"x/cat/3.jpg\n", ":1: x/cat/3.jpg is no image of the data set"),
        (b"9" * 5000 + b"\n", ":1: '" + "9" * 100 + "...' is neither an index nor a path"),
        (b"-\n", ":1: '-' is neither an index nor a path"),
        (b"0\n" * 13, ":13: lists more than the 12 images of the data set"),
        (b"\n\n", ": the list is empty"),
        (b"\xff\xfe3\n", ": not UTF-8 text"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, content: bytes, expected: str) -> None:
    path = write(tmp_path, content) / "session_2.txt"
    assert message_of(tmp_path).startswith(f"{path}{expected}")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"3\n\n4\n+03\n", "4"),
        (b"a/dog/3.jpg\na\\dog\\3.jpg\n", "2"),
        (b"dog/3.jpg\nx/dog/3.jpg\n", "2"),
        (b"dog/3.jpg\ndog/4.jpg\ny/x/train/dog/3.jpg\n", "3"),
    ],
)
def test_an_image_listed_twice_is_refused_however_it_is_written(
    tmp_path: Path, content: bytes, line: str
) -> None:
    path = write(tmp_path, content) / "session_2.txt"
    with pytest.raises(UsageError) as caught:
        shots_from_lists(tmp_path, index())
    assert str(caught.value) == f"{path}:{line}: the same image as line 1 (train/dog/3.jpg)"


def test_a_class_in_two_sessions_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "0\n3\n", "6\n4\n", "1\n")
    assert message_of(tmp_path) == (
        f"{tmp_path}: classes are in more than one session (2): 0 (session_2.txt, session_4.txt), "
        "1 (session_2.txt, session_3.txt)"
    )


def test_test_images_among_the_shots_are_refused(tmp_path: Path) -> None:
    known = index([Item("test/cat/t.jpg", 0, 0), Item("test/dog/u.jpg", 1, 1)])
    path = write(tmp_path, "x/cat/0.jpg\nx/cat/t.jpg\nx/dog/u.jpg\n") / "session_2.txt"
    assert message_of(tmp_path, known) == (
        f"{tmp_path}: test images are among the shots (2): {path}:2: test/cat/t.jpg, "
        f"{path}:3: test/dog/u.jpg"
    )


def test_a_name_that_fits_two_images_is_refused(tmp_path: Path) -> None:
    known = index([Item("test/cat/1.jpg", 0, 0)])
    write(tmp_path, "x/cat/1.jpg\n")
    assert message_of(tmp_path, known).endswith(
        ":1: x/cat/1.jpg fits 2 images: train/cat/1.jpg, test/cat/1.jpg"
    )
    write(tmp_path, "x/test/cat/1.jpg\n")
    assert "test images are among the shots (1)" in message_of(tmp_path, known)


def test_missing_lists_are_named(tmp_path: Path) -> None:
    (tmp_path / "session_1.txt").write_text("0\n")
    assert "has no lists session_2.txt, session_3.txt" in message_of(tmp_path)
    write(tmp_path, "0\n", "3\n", "6\n")
    (tmp_path / "session_3.txt").unlink()
    assert message_of(tmp_path).endswith("has session_4.txt but no session_3.txt")
    assert "cannot be read" in message_of(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        parse_index_list(tmp_path / "nowhere.txt")
    os.mkfifo(tmp_path / "session_3.txt")
    assert "session_3.txt: refused, it is no file but a pipe" in message_of(tmp_path)


def test_numbers_in_names_may_begin_with_zeros(tmp_path: Path) -> None:
    (tmp_path / "session_01.txt").write_text("no list of shots")
    (tmp_path / "session_02.txt").write_text("7\n6\n")
    (tmp_path / "session_003.txt").write_text("9\n")
    assert [row[:2] for row in shots_from_lists(tmp_path, index())] == [(1, "2"), (2, "3")]
    (tmp_path / "session_2.txt").write_text("0\n")
    assert message_of(tmp_path).endswith(
        "has both session_02.txt and session_2.txt; remove one of them"
    )


def test_a_class_with_another_number_of_shots_is_named_with_its_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "0\n3\n\n1\n4\n5\n") / "session_2.txt"
    with pytest.raises(UsageError) as caught:
        shots_from_lists(tmp_path, index(), 2)
    assert str(caught.value) == (
        f"{path}: class '1' has 3 shots (on line 2, 5, 6), the protocol needs 2"
    )
    assert len(shots_from_lists(tmp_path, index())) == 2
