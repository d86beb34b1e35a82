"""ALICE: the margin, the two views, class fusion's labels, and what is left of the projector."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.methods.alice import Alice, AliceHead, fused, margin_loss, pair_count, pair_labels
from fscil_bench.representation import TrainingBatch

DIM, CLASSES, WIDTH = 6, 3, 10


class Pooled(nn.Module):
    """The first pixels of an image as its features."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :DIM]


def head(rows: int = CLASSES) -> AliceHead:
    return AliceHead(DIM, CLASSES, rows, WIDTH, torch.Generator().manual_seed(0))


def batch(shift: float = 0.0) -> TrainingBatch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(9, 3, 4, 4, generator=generator)
    labels = torch.arange(9) % CLASSES
    return TrainingBatch(images, labels, 0, lambda: images + shift, generator)


def loss(made: AliceHead, given: TrainingBatch, **params: Any) -> torch.Tensor:
    return Alice(Alice.Params(width=WIDTH, **params)).loss(Pooled(), made, given).detach()


def test_the_margin_is_taken_off_the_true_class() -> None:
    features, rows = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    found = margin_loss(features, rows, torch.tensor([0]), temperature=2.0, margin=0.4)
    # Cosines 1 and 0: logits 2·(1 − 0.4) and 0.
    assert float(found) == pytest.approx(math.log(math.exp(1.2) + 1) - 1.2)


def test_two_equal_views_cost_what_one_does_and_other_ones_do_not() -> None:
    one = float(loss(head(), batch(), views=1))
    assert float(loss(head(), batch(), views=2)) == pytest.approx(one, rel=1e-5)
    shifted = batch()
    other = TrainingBatch(
        shifted.images, shifted.labels, 0, lambda: shifted.images.flip(3), shifted.generator
    )
    assert float(loss(head(), other, views=2)) != pytest.approx(one, rel=1e-3)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_pairs_are_numbered_one_to_one(classes: int) -> None:
    pairs = torch.tensor(list(itertools.combinations(range(classes), 2)))
    labels = pair_labels(pairs[:, 0], pairs[:, 1], classes)
    assert labels.tolist() == list(range(classes, classes + pair_count(classes)))
    assert torch.equal(pair_labels(pairs[:, 1], pairs[:, 0], classes), labels)


def test_fused_images_lie_between_images_of_two_classes() -> None:
    labels = torch.arange(CLASSES).repeat(3)
    images = F.one_hot(labels, CLASSES).float()[:, :, None, None].expand(-1, -1, 2, 2)
    mixed, names = fused(images, labels, CLASSES, torch.Generator().manual_seed(0))
    shares = mixed[:, :, 0, 0]
    assert len(mixed) == len(names) > 0
    assert torch.allclose(shares.sum(dim=1), torch.ones(len(mixed)))
    involved = shares > 0
    assert involved.sum(dim=1).tolist() == [2] * len(mixed)
    assert bool((shares[involved] >= 0.4 - 1e-6).all())
    low, high = (torch.nonzero(involved)[k::2, 1] for k in (0, 1))
    assert torch.equal(pair_labels(low, high, CLASSES), names)


def test_the_classifier_is_the_running_mean_of_unit_features() -> None:
    made = head()
    first = torch.tensor([[3.0, 0, 0, 0, 0, 0], [0, 4.0, 0, 0, 0, 0]])
    made.follow(first, torch.tensor([0, 0]))
    assert made.means[0].tolist() == pytest.approx([0.5, 0.5, 0, 0, 0, 0])
    assert made.means[1].tolist() == [0] * DIM, "a class that was not seen is left alone"
    made.follow(torch.tensor([[0, 0, 5.0, 0, 0, 0]]), torch.tensor([0]))
    assert made.means[0].tolist() == pytest.approx([0.45, 0.45, 0.1, 0, 0, 0])


def test_fusion_adds_rows_for_pairs_and_they_are_not_handed_on() -> None:
    made = Alice(Alice.Params(width=WIDTH, fusion=True))
    built = made.build_head(DIM, CLASSES, torch.Generator().manual_seed(0))
    assert isinstance(built, AliceHead)
    assert built.rows.weight.shape == (CLASSES + 3, WIDTH)
    assert made.classifier(built).shape == (CLASSES, DIM)
    assert bool(torch.isfinite(made.loss(Pooled(), built, batch())))
