from __future__ import annotations

import numpy as np
import pytest

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray
from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.running.pseudo import base_training_data, pseudo_incremental


def shaped(protocol: Protocol, base: int, way: int, sessions: int) -> Protocol:
    classes = base + way * sessions
    return protocol.override(classes=classes, base_classes=base, way=way, sessions=sessions)


@pytest.fixture
def dataset() -> Dataset:
    def half(per_class: int, first: int) -> ImageArray:
        labels = np.tile(np.arange(20), per_class)
        pixels = np.arange(first, first + len(labels), dtype=np.uint8)
        block = np.broadcast_to(pixels[:, None, None, None], (len(labels), 4, 4, 3))
        keys = tuple(f"{first}/{i}" for i in range(len(labels)))
        return ImageArray(Images.from_block(block), labels, np.arange(len(labels)), keys)

    names = tuple(f"class {c}" for c in range(20))
    return Dataset("toy", names, names, half(10, 0), half(2, 200), "f")


def test_the_last_base_classes_play_new_ones_in_the_protocols_share(toy_protocol: Protocol) -> None:
    for shape, expected in (
        ((60, 5, 8), (35, 5, 5)),
        ((100, 10, 10), (50, 10, 5)),
        ((12, 2, 4), (8, 2, 2)),
        ((28, 28, 6), (14, 14, 1)),
    ):
        pseudo = pseudo_incremental(shaped(toy_protocol, *shape))
        assert (pseudo.base_classes, pseudo.way, pseudo.sessions) == expected
        assert (pseudo.classes_used, pseudo.name) == (shape[0], "toy-pseudo")


def test_every_registered_protocol_has_one() -> None:
    registry = load_registry()
    for name in registry.names("protocol"):
        protocol = registry.protocol(name)[0]
        pseudo = pseudo_incremental(protocol)
        assert pseudo.classes_used <= protocol.base_classes
        assert pseudo.recipe == protocol.recipe


def test_a_protocol_without_enough_base_classes_is_refused(toy_protocol: Protocol) -> None:
    with pytest.raises(UsageError, match="has 3 base classes and 2 sessions of 2 classes"):
        pseudo_incremental(shaped(toy_protocol, 3, 2, 2))
    with pytest.raises(UsageError, match="already"):
        pseudo_incremental(pseudo_incremental(shaped(toy_protocol, 12, 2, 4)))


def test_it_holds_base_training_images_alone(toy_protocol: Protocol, dataset: Dataset) -> None:
    pseudo = pseudo_incremental(shaped(toy_protocol, 12, 2, 4))
    view = base_training_data(dataset, pseudo)
    assert np.bincount(view.test.labels).tolist() == [2] * 12
    assert np.bincount(view.train.labels).tolist() == [8] * 12
    keys = set(view.train.keys) | set(view.test.keys)
    base = {k for k, c in zip(dataset.train.keys, dataset.train.labels, strict=True) if c < 12}
    assert keys == base
    assert not set(view.train.keys) & set(view.test.keys)
    assert view.fingerprint != dataset.fingerprint
    squares = view.test.images.squares(np.arange(len(view.test)), 4)
    numbers = [int(key.partition("/")[2]) for key in view.test.keys]
    assert [int(square[0, 0, 0]) for square in squares] == numbers, "the images of its keys"


def test_a_class_has_its_own_test_images_anywhere(toy_protocol: Protocol, dataset: Dataset) -> None:
    small = base_training_data(dataset, pseudo_incremental(shaped(toy_protocol, 8, 2, 4))).test
    large = base_training_data(dataset, pseudo_incremental(shaped(toy_protocol, 12, 2, 4))).test
    assert set(small.keys) < set(large.keys)
