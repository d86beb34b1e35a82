"""Class orders of a data set, and what a list of classes must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscil_bench import api
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray, reordered
from fscil_bench.errors import UsageError

TOY = Path(__file__).parents[1] / "toy"
KEYS = ("a", "b", "c d", "é")


@pytest.fixture
def dataset() -> Dataset:
    labels = np.array([0, 1, 2, 3, 3])
    images = Images.from_block(np.zeros((5, 8, 8, 3), np.uint8))
    half = ImageArray(images, labels, np.arange(5), tuple("vwxyz"))
    return Dataset("toy", ("A", "B", "C", "D"), KEYS, half, half, "f")


def listed(dataset: Dataset, folder: Path, text: str) -> Dataset:
    (folder / "order.txt").write_text(text, encoding="utf-8")
    return reordered(dataset, "list:order.txt", folder)


def test_a_list_orders_the_classes(dataset: Dataset, tmp_path: Path) -> None:
    found = listed(dataset, tmp_path, "\ufeff# the order\nc d\r\né\r\n\r\n# the rest\nb\n a \n\n")
    assert found.class_keys == ("c d", "é", "b", "a")
    assert found.class_names == ("C", "D", "B", "A")
    assert found.train.labels.tolist() == [3, 2, 0, 1, 1]
    assert found.test.labels.tolist() == [3, 2, 0, 1, 1]
    assert dataset.class_keys == KEYS


def test_the_list_counts_and_not_how_it_is_written(dataset: Dataset, tmp_path: Path) -> None:
    one = listed(dataset, tmp_path, "a\nc d\nb\né").fingerprint
    assert listed(dataset, tmp_path, "# x\na\n\nc d\nb\né\n").fingerprint == one
    assert listed(dataset, tmp_path, "c d\na\nb\né").fingerprint != one
    assert reordered(dataset, "dataset", tmp_path).fingerprint == "f"
    assert reordered(dataset, "seed:3", tmp_path).fingerprint == "f"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a\nb\nx\né\nc d",
            "order.txt:3: data set 'toy' has no class 'x'; its first is called 'a'",
        ),
        ("a\n\nb\na\n", "order.txt:4: class 'a' is listed already, on line 1"),
        ("a\nb\n", "order.txt: lists 2 of the 4 classes of data set 'toy'; missing: c d, é"),
        ("", "lists 0 of the 4 classes"),
    ],
)
def test_a_list_of_no_use_is_refused(
    dataset: Dataset, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        listed(dataset, tmp_path, text)


def test_a_missing_or_binary_list_is_named(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent.txt: cannot be read as a list of classes"):
        reordered(dataset, "list:absent.txt", tmp_path)
    (tmp_path / "order.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"order.txt: cannot be read as a list of classes"):
        reordered(dataset, "list:order.txt", tmp_path)


def test_a_protocol_lists_its_classes_beside_itself(tmp_path: Path) -> None:
    order = [8, 9, 0, 1, 2, 3, 4, 5, 6, 7]
    (tmp_path / "order.txt").write_text("\n".join(f"toy {c}" for c in order))
    text = (TOY / "toy.toml").read_text().replace('"toy_shots.csv"', '""')
    changed = text.replace('split = "seeded"', 'split = "seeded"\nclass_order = "list:order.txt"')
    (tmp_path / "listed.toml").write_text(changed.replace('name = "toy"', 'name = "listed"'))
    settings: dict[str, Any] = {
        "plugins": [TOY / "toy_reader.py"],
        "results": tmp_path / "results",
        "cache": tmp_path / "cache",
        "precision": "fp32",
    }
    run = api.run("ncm", str(tmp_path / "listed.toml"), **settings)
    assert run.record.class_names == tuple(f"toy {c}" for c in order)
    assert run.spec.representation.class_order == "list:order.txt"
    (tmp_path / "order.txt").write_text("\n".join(f"toy {c}" for c in reversed(order)))
    other = api.run("ncm", str(tmp_path / "listed.toml"), **settings)
    assert other.spec.representation.key != run.spec.representation.key
    with pytest.raises(UsageError, match="no published list of shots; use --split seeded"):
        api.run("ncm", str(tmp_path / "listed.toml"), split="canonical", **settings)
