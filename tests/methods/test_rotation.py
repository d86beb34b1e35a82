"""The rotation representation: which way images are turned, and what the loss adds up."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fscil_bench.methods.ncm import Cosine
from fscil_bench.methods.rotation import Rotation, RotationHead, shown_turns
from fscil_bench.representation import TrainingBatch

DIM, CLASSES = 6, 3


class Sums(nn.Module):
    """Features that tell apart which half of an image is bright."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top, left = x[:, :, :2].sum(dim=(1, 2, 3)), x[:, :, :, :2].sum(dim=(1, 2, 3))
        whole = x.sum(dim=(1, 2, 3))
        return torch.stack([top, left, whole - top, whole - left, whole, torch.ones_like(top)], 1)


def batch(count: int = 8) -> TrainingBatch:
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(count, 3, 4, 4, generator=generator)
    return TrainingBatch(images, torch.arange(count) % CLASSES, 0, lambda: images, generator)


def head() -> RotationHead:
    return RotationHead(DIM, CLASSES, torch.Generator().manual_seed(0))


def test_all_turns_show_every_image_in_each_rotation() -> None:
    given = batch()
    shown, turns = shown_turns(given, "all")
    assert len(shown) == len(turns) == 4 * len(given.labels)
    assert torch.bincount(turns).tolist() == [8, 8, 8, 8]
    for quarter in range(4):
        expected = torch.rot90(given.images, quarter, dims=(2, 3))
        assert torch.equal(shown[turns == quarter], expected)


def test_one_turn_shows_each_image_once_as_its_label_says() -> None:
    given = batch(64)
    shown, turns = shown_turns(given, "one")
    assert len(shown) == 64 and set(turns.tolist()) == {0, 1, 2, 3}
    for image, original, quarter in zip(shown, given.images, turns.tolist(), strict=True):
        assert torch.equal(image, torch.rot90(original, quarter, dims=(1, 2)))


def test_without_weight_it_is_cosine() -> None:
    given, made = batch(), head()
    loss = Rotation(Rotation.Params(weight=0.0)).loss(Sums(), made, given)
    assert torch.equal(loss, Cosine(Cosine.Params()).loss(Sums(), made.rows, given))


def test_an_undecided_rotation_layer_adds_weight_times_log_4() -> None:
    made = head()
    nn.init.zeros_(made.turns.weight)
    plain = Rotation(Rotation.Params(weight=0.0)).loss(Sums(), made, batch())
    added = Rotation(Rotation.Params(weight=2.0)).loss(Sums(), made, batch()) - plain
    assert float(added) == pytest.approx(2 * math.log(4), rel=1e-5)
