"""Features from a file, matched to the samples of a data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fscil_bench.data.feature_file import FeatureFile, FeatureHalf
from fscil_bench.data.feature_match import alone, feature_file_of, matched
from fscil_bench.data.reader import DatasetIndex, Item, reordered
from fscil_bench.errors import DataError

NAMES = ("ant", "bee", "cow")
TRAIN = [0, 1, 2, 0, 1, 2]
TEST = [0, 1, 2]


def items(half: str, labels: list[int]) -> tuple[Item, ...]:
    return tuple(
        Item(f"{half}/{NAMES[label]}/{number}.png", label, 10 + number)
        for number, label in enumerate(labels)
    )


INDEX = DatasetIndex(NAMES, items("train", TRAIN), items("test", TEST), ("n0", "n1", "n2"))


def file(**changes: Any) -> FeatureFile:
    """Return a file in the data set's order: feature (i, 100 + i) of training sample i."""
    train = FeatureHalf(rows(6), np.array(TRAIN))
    test = FeatureHalf(rows(3) + 50, np.array(TEST))
    return replace(FeatureFile("f", train, test), **changes)


def rows(count: int) -> np.ndarray:
    first = np.arange(count, dtype=np.float32)
    return np.stack([first, 100 + first], axis=1)


def named(half: FeatureHalf, names: list[str]) -> FeatureHalf:
    return replace(half, names=tuple(names))


def keys(half: str) -> list[str]:
    return [item.key for item in (INDEX.train if half == "train" else INDEX.test)]


def taken(found: Any) -> list[int]:
    return [int(x) for x in found.train.features[:, 0]]


def test_by_order_every_label_is_compared() -> None:
    found, told = matched(file(), INDEX, None, "set")
    assert taken(found) == [0, 1, 2, 3, 4, 5] and found.matching == "order"
    assert found.train.keys == tuple(keys("train")) and found.class_keys == ("n0", "n1", "n2")
    assert found.train.numbers.tolist() == [10, 11, 12, 13, 14, 15]
    assert "matched with set by order, all 6 labels agree" in told[0]


def test_by_name_rows_are_put_into_the_order_of_the_data_set() -> None:
    order = [5, 3, 1, 0, 2, 4]
    train = named(file().train, [keys("train")[i] for i in order])
    train = replace(train, labels=np.array(TRAIN)[order])
    found, _ = matched(file(train=train, test=named(file().test, keys("test"))), INDEX, None, "set")
    # Feature i of the file is that of sample order[i].
    assert [order[i] for i in taken(found)] == [0, 1, 2, 3, 4, 5]
    assert found.train.labels.tolist() == TRAIN and found.matching == "name"


def test_a_name_may_lie_elsewhere_and_be_written_otherwise() -> None:
    names = [f"C:\\data\\{key.removeprefix('train/')}".replace("/", "\\") for key in keys("train")]
    found, _ = matched(file(train=named(file().train, names)), INDEX, None, "set")
    assert taken(found) == [0, 1, 2, 3, 4, 5]


def test_classes_are_matched_by_name_in_whatever_order() -> None:
    """A file with one class more, in another order of classes."""
    place = np.array([3, 0, 2])  # of ant, bee and cow
    labels = np.append(place[TRAIN], 1)
    train = FeatureHalf(np.vstack([rows(6), [[7, 7]]]), labels)
    test = FeatureHalf(rows(3), place[TEST])
    given = FeatureFile("f", train, test, ("bee", "dog", "cow", "ant"))
    found, told = matched(given, INDEX, None, "set")
    assert found.train.labels.tolist() == TRAIN and taken(found) == [0, 1, 2, 3, 4, 5]
    assert "1 rows of other classes left out" in told[0]


def test_rows_of_other_samples_are_left_out_and_told() -> None:
    train = FeatureHalf(np.vstack([[[9, 9]], rows(6)]), np.array([1, *TRAIN]))
    train = named(train, ["elsewhere/x.png", *keys("train")])
    found, told = matched(file(train=train), INDEX, None, "set")
    assert taken(found) == [0, 1, 2, 3, 4, 5]
    assert told[0].endswith(
        "1 rows left out that are none of its samples, first row 0 (elsewhere/x.png)"
    )


def wrong(labels: list[int], names: list[str] | None = None) -> FeatureFile:
    half = FeatureHalf(rows(len(labels)), np.array(labels))
    return file(train=named(half, names) if names else half)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (wrong([0, 1, 2, 0, 1, 1]), "class 'bee' has 3 rows, data set 'set' 2 samples, and 1 more"),
        (wrong(TRAIN[:-1]), "class 'cow' has 1 rows, data set 'set' 2 samples"),
        (
            wrong([0, 2, 1, 0, 1, 2]),
            r"row 1 is of class 'cow', its sample of data set 'set' \(train/bee/1.png\) of class "
            "'bee'; 2 rows differ",
        ),
        (
            wrong([0, 2, 1, *TRAIN[3:]], keys("train")),
            r"row 1 \(train/bee/1.png\) is of class 'cow'",
        ),
        (
            wrong(TRAIN[:-1], keys("train")[:-1]),
            "lacks 1 of 6 samples of data set 'set': 1 of class 'cow', first train/cow/5.png",
        ),
        (
            wrong(TRAIN, [*keys("train")[:-1], keys("test")[2]]),
            r"row 5 \(test/cow/2.png\) is of the other half",
        ),
        (
            wrong([*TRAIN, 2], [*keys("train"), "x/train/cow/5.png"]),
            r"row 5 \(train/cow/5.png\) and row 6 \(x/train/cow/5.png\) are one sample",
        ),
        (file(class_names=("ant", "bee", "dog")), "lacks 1 of the 3 classes of data set 'set': "),
        (
            file(train=FeatureHalf(rows(4), np.arange(4))),
            "has 4 classes without names, data set 'set' has 3",
        ),
    ],
)
def test_what_does_not_fit_is_named(given: FeatureFile, told: str) -> None:
    with pytest.raises(DataError, match=told):
        matched(given, INDEX, None, "set")


def test_a_name_that_fits_several_samples_is_refused() -> None:
    twins = (Item("a/1.png", 0, 0), Item("b/1.png", 1, 1))
    index = DatasetIndex(("a", "b"), twins, (Item("t/a", 0, 0), Item("t/b", 1, 1)))
    half = FeatureHalf(rows(2), np.array([0, 1]))
    given = FeatureFile("f", named(half, ["a/1.png", "1.png"]), half)
    with pytest.raises(DataError, match=r"row 1 \(1.png\): several samples"):
        matched(given, index, None, "set")


def test_samples_without_features_are_skipped_if_asked_for() -> None:
    given = wrong(TRAIN[:-1], keys("train")[:-1])
    found, _ = matched(given, INDEX, "a copy", "set", skip_missing=True)
    assert (found.skipped, len(found.train), found.unofficial) == (1, 5, "a copy")


def test_a_file_alone_is_a_data_set() -> None:
    found = alone(file(class_names=NAMES, class_keys=("n0", "n1", "n2")), "set")
    assert (found.class_names, found.class_keys, found.matching) == (
        NAMES,
        ("n0", "n1", "n2"),
        "file",
    )
    assert found.train.numbers.tolist() == [-1] * 6  # few labels: nothing tells the order
    many = FeatureHalf(rows(40), np.tile([0, 1, 2, 1], 10))
    assert alone(file(train=many), "set").train.numbers.tolist() == list(range(40))
    grouped = FeatureHalf(rows(60), np.repeat([0, 1, 2], 20))
    assert set(alone(file(train=grouped), "set").train.numbers.tolist()) == {-1}


def test_the_fingerprint_is_that_of_what_is_there_and_not_of_where_it_came_from() -> None:
    exported = feature_file_of(
        "f", matched(file(), INDEX, None, "set")[0], rows(6), rows(3) + 50, ("n0", "n1", "n2")
    )
    with_data, _ = matched(exported, INDEX, None, "set")
    without = alone(exported, "set")
    assert with_data.fingerprint == without.fingerprint
    assert with_data.train.numbers.tolist() == without.train.numbers.tolist()
    other, _ = matched(file(test=replace(file().test, features=rows(3))), INDEX, None, "set")
    assert other.fingerprint != with_data.fingerprint


def test_another_order_of_classes_is_undone_where_features_are_written() -> None:
    found, _ = matched(file(), INDEX, None, "set")
    order = next(
        f"seed:{n}"
        for n in range(9)
        if reordered(found, f"seed:{n}", None).class_keys != found.class_keys
    )  # type: ignore[arg-type]
    moved = reordered(found, order, None)  # type: ignore[arg-type]
    written = feature_file_of("f", moved, rows(6), rows(3), found.class_keys)
    assert written.class_names == NAMES and written.train.labels.tolist() == TRAIN
