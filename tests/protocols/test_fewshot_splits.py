"""The ordinary few-shot splits of mini-ImageNet and CUB, against what was published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray, reordered
from fscil_bench.plugins.registry import load_registry, package_folder
from fscil_bench.protocol import Protocol

MINI_NEW = {
    "n01930112",
    "n01981276",
    "n02099601",
    "n02110063",
    "n02110341",
    "n02116738",
    "n02129165",
    "n02219486",
    "n02443484",
    "n02871525",
    "n03127925",
    "n03146219",
    "n03272010",
    "n03544143",
    "n03775546",
    "n04146614",
    "n04149813",
    "n04418357",
    "n04522168",
    "n07613480",
}
MINI_VALIDATION = {
    "n01855672",
    "n02091244",
    "n02114548",
    "n02138441",
    "n02174001",
    "n02950826",
    "n02971356",
    "n02981792",
    "n03075370",
    "n03417042",
    "n03535780",
    "n03584254",
    "n03770439",
    "n03773504",
    "n03980874",
    "n09256479",
}
FOLDER = package_folder("protocols")


def ordered(name: str, keys: list[str]) -> tuple[Protocol, Dataset]:
    """Return a protocol, and a data set of these classes in its order."""
    protocol, folder = load_registry().protocol(name)
    images = Images.from_block(np.zeros((len(keys), 8, 8, 3), np.uint8))
    half = ImageArray(images, np.arange(len(keys)), np.arange(len(keys)), tuple(keys))
    made = Dataset(protocol.dataset, tuple(keys), tuple(keys), half, replace(half), "f")
    return protocol, reordered(made, protocol.class_order, folder)


def test_mini_imagenet_is_cut_as_published() -> None:
    everything = (FOLDER / "mini_imagenet_classes.txt").read_text().split()
    protocol, dataset = ordered("mini_imagenet_fewshot", everything)
    base, new = set(dataset.class_keys[:64]), set(dataset.class_keys[64:84])
    assert (protocol.base_classes, protocol.classes_used) == (64, 84)
    assert new == MINI_NEW
    assert set(dataset.class_keys[84:]) == MINI_VALIDATION
    assert base == set(everything) - new - MINI_VALIDATION


def test_cub_is_cut_by_the_rule_of_its_index() -> None:
    # Class number n has index n − 1: even ones are base, 1 modulo 4 validation, 3 modulo 4 new.
    numbers = [str(n) for n in range(1, 201)]
    protocol, dataset = ordered("cub200_fewshot", numbers)
    found = [int(key) - 1 for key in dataset.class_keys]
    assert (protocol.base_classes, protocol.classes_used) == (100, 150)
    assert sorted(found[:100]) == [i for i in range(200) if i % 2 == 0]
    assert sorted(found[100:150]) == [i for i in range(200) if i % 4 == 3]
    assert sorted(found[150:]) == [i for i in range(200) if i % 4 == 1]


@pytest.mark.parametrize("name", ["mini_imagenet", "cub200"])
def test_all_else_is_inherited(name: str) -> None:
    registry = load_registry()
    parent, own = registry.protocol(name)[0], registry.protocol(f"{name}_fewshot")[0]
    assert own.recipe == parent.recipe
    assert own.images == parent.images
    assert (own.split, own.pretraining) == ("seeded", "none")
