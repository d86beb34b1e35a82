"""The protocols' files against what was published, number by number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray, reordered
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.running.sessions import read_canonical

# classes, base, way, sessions | split, images of a class | backbone, pre-training, sizes |
# epochs, batch, rate, milestones, augmentation
PUBLISHED = """
aircraft         | 100 50 5 10  | seeded None    | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
aircraft_calibration | 100 50 5 10 | seeded None | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
aircraft_small   | 100 10 10 9  | seeded None    | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
cars             | 196 96 10 10 | seeded None    | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
cars_calibration | 196 98 14 7  | seeded None    | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
cars_small       | 196 28 28 6  | seeded None    | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
cub200_calibration | 200 100 10 10 | seeded 30   | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip,autoaugment_imagenet
cub200_pilot     | 200 100 10 10 | seeded None   | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
cub200_small     | 200 20 20 9  | seeded 30      | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip,autoaugment_imagenet
imagenet_r       | 200 100 10 10 | seeded None   | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip
cifar100         | 100 60 5 8   | canonical 500  | resnet20 none 32 None    | 100 128 0.1 60,70 crop,flip,autoaugment_cifar10,cutout
cifar100_cec     | 100 60 5 8   | canonical 500  | resnet20 none 32 None    | 100 128 0.1 60,70 crop,flip
cifar100_fact    | 100 60 5 8   | canonical 500  | resnet20 none 32 None    | 600 256 0.1 - crop,flip,autoaugment_cifar10,cutout
cub200           | 200 100 10 10 | canonical 30  | resnet18 imagenet 224 256 | 100 128 0.1 30,40,60,80 resized_crop,flip,autoaugment_imagenet
cub200_fewshot   | 200 100 10 5 | seeded 30      | resnet18 none 224 256    | 100 128 0.1 30,40,60,80 resized_crop,flip,autoaugment_imagenet
glyphs           | 100 60 5 8   | seeded 200     | resnet20 none 32 None    | 10 128 0.03 - crop
mini_imagenet    | 100 60 5 8   | canonical 500  | resnet18 none 84 92      | 100 128 0.1 40,70 resized_crop,flip,autoaugment_imagenet
mini_imagenet_fewshot | 100 64 5 4 | seeded 500  | resnet18 none 84 92      | 100 128 0.1 40,70 resized_crop,flip,autoaugment_imagenet
mini_imagenet_short | 100 60 5 8 | canonical 500  | resnet18 none 84 92      | 15 128 0.1 - resized_crop,flip
tiny_imagenet100 | 100 60 5 8   | seeded 500     | resnet20 none 32 None    | 100 128 0.1 60,70 crop,flip
tiny_imagenet200 | 200 100 10 10 | seeded 500    | resnet18 none 64 None    | 100 128 0.1 40,70 crop,flip
"""  # noqa: E501
ROWS = [[part.split() for part in row.split("|")] for row in PUBLISHED.strip().splitlines()]

MINI_NEW = """
n01930112 n01981276 n02099601 n02110063 n02110341 n02116738 n02129165 n02219486 n02443484 n02871525
n03127925 n03146219 n03272010 n03544143 n03775546 n04146614 n04149813 n04418357 n04522168 n07613480
"""
MINI_VALIDATION = """
n01855672 n02091244 n02114548 n02138441 n02174001 n02950826 n02971356 n02981792 n03075370 n03417042
n03535780 n03584254 n03770439 n03773504 n03980874 n09256479
"""


@pytest.mark.parametrize("row", ROWS, ids=[row[0][0] for row in ROWS])
def test_a_protocol_is_the_published_one(row: list[list[str]]) -> None:
    (name,), cut, data, network, training = row
    one = load_registry().protocol(name)[0]
    assert cut == [str(n) for n in (one.classes, one.base_classes, one.way, one.sessions)]
    assert data == [one.split, str(one.train_images)]
    images, recipe = one.images, one.recipe
    assert network == [one.backbone, one.pretraining, str(images.size), str(images.resize)]
    numbers = [str(n) for n in (recipe.epochs, recipe.batch_size, recipe.lr)]
    milestones = ",".join(map(str, recipe.milestones)) or "-"
    assert training == [*numbers, milestones, ",".join(recipe.augment)]
    assert (one.shot, recipe.momentum, recipe.weight_decay, recipe.gamma) == (5, 0.9, 5e-4, 0.1)
    assert recipe.schedule == ("step" if recipe.milestones else "cosine")


@pytest.mark.parametrize(
    ("recipe", "of"),
    [
        ("cifar100_cec", "cifar100"),
        ("cifar100_fact", "cifar100"),
        ("mini_imagenet_short", "mini_imagenet"),
    ],
)
def test_another_recipe_is_on_the_same_shots(recipe: str, of: str) -> None:
    tables = [read_canonical(*load_registry().protocol(name)) for name in (recipe, of)]
    assert tables[0].rows == tables[1].rows


def ordered(name: str, keys: list[str]) -> tuple[Protocol, Dataset]:
    """Return a protocol, and a data set of these classes in its order."""
    protocol, folder = load_registry().protocol(name)
    images = Images.from_block(np.zeros((len(keys), 8, 8, 3), np.uint8))
    half = ImageArray(images, np.arange(len(keys)), np.arange(len(keys)), tuple(keys))
    made = Dataset(protocol.dataset, tuple(keys), tuple(keys), half, replace(half), "f")
    return protocol, reordered(made, protocol.class_order, folder)


def test_mini_imagenets_few_shot_split_is_cut_as_published() -> None:
    path = load_registry().protocol("mini_imagenet")[1] / "mini_imagenet" / "classes.txt"
    everything = path.read_text().split()
    protocol, dataset = ordered("mini_imagenet_fewshot", everything)
    base, new = set(dataset.class_keys[:64]), set(dataset.class_keys[64:84])
    assert protocol.classes_used == 84
    assert new == set(MINI_NEW.split())
    assert set(dataset.class_keys[84:]) == set(MINI_VALIDATION.split())
    assert base == set(everything) - new - set(MINI_VALIDATION.split())


def test_cubs_few_shot_split_is_cut_by_the_rule_of_its_index() -> None:
    # Class number n has index n − 1: even ones are base, 1 modulo 4 validation, 3 modulo 4 new.
    protocol, dataset = ordered("cub200_fewshot", [str(n) for n in range(1, 201)])
    found = [int(key) - 1 for key in dataset.class_keys]
    assert protocol.classes_used == 150
    assert sorted(found[:100]) == [i for i in range(200) if i % 2 == 0]
    assert sorted(found[100:150]) == [i for i in range(200) if i % 4 == 3]
    assert sorted(found[150:]) == [i for i in range(200) if i % 4 == 1]


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("cub200_small", 200),
        ("aircraft_small", 100),
        ("cars_small", 196),
        ("cars_calibration", 196),
    ],
)
def test_fscil_calibrations_order_is_numpys_permutation_of_seed_1993(
    name: str, classes: int
) -> None:
    keys = [str(number) for number in range(1, classes + 1)]
    protocol, dataset = ordered(name, keys)
    expected = np.random.RandomState(1993).permutation(classes)
    assert dataset.class_keys == tuple(keys[place] for place in expected)
    assert protocol.classes_used == classes, "every class has its session"


def test_aircraft_of_fscil_calibration_has_the_validation_images_too() -> None:
    options = [
        load_registry().protocol(n)[0].reader_options for n in ("aircraft", "aircraft_small")
    ]
    assert options == [{"training": "train"}, {"training": "trainval"}]
