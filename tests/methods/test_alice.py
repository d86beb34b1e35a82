"""ALICE: the margin, the two views, class fusion's labels, and what is left of the projector."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.methods.alice import (
    Alice,
    AliceHead,
    fusion_pairs,
    margin_loss,
    pair_count,
    pair_labels,
)
from fscil_bench.representation import TrainingBatch

DIM, CLASSES, WIDTH = 6, 3, 10


class Pooled(nn.Module):
    """The first pixels of an image as its features."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :DIM]


def head(rows: int = CLASSES) -> AliceHead:
    return AliceHead(DIM, CLASSES, rows, WIDTH, torch.Generator().manual_seed(0))


def batch() -> TrainingBatch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(9, 3, 4, 4, generator=generator)
    labels = torch.arange(9) % CLASSES
    return TrainingBatch(images, labels, 0, lambda: images, generator)


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
    other = replace(batch(), augment=lambda: batch().images.flip(3))
    assert float(loss(head(), other, views=2)) != pytest.approx(one, rel=1e-3)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_pairs_are_numbered_one_to_one(classes: int) -> None:
    pairs = torch.tensor(list(itertools.combinations(range(classes), 2)))
    labels = pair_labels(pairs[:, 0], pairs[:, 1], classes)
    assert labels.tolist() == list(range(classes, classes + pair_count(classes)))
    assert torch.equal(pair_labels(pairs[:, 1], pairs[:, 0], classes), labels)


def test_fused_images_lie_between_images_of_two_classes() -> None:
    labels = torch.arange(CLASSES).repeat(8)
    view = F.one_hot(labels, CLASSES).float()[:, :, None, None].expand(-1, -1, 2, 2)
    pairs = fusion_pairs(labels, torch.Generator().manual_seed(0))
    shares = pairs.mixed(view)[:, :, 0, 0]
    assert len(view) < len(pairs.share) <= 4 * len(view)
    assert bool((labels[pairs.rows[0]] != labels[pairs.rows[1]]).all())
    rows = torch.arange(len(shares))
    torch.testing.assert_close(shares[rows, labels[pairs.rows[0]]], pairs.share.float())
    torch.testing.assert_close(shares[rows, labels[pairs.rows[1]]], 1 - pairs.share.float())
    assert 0.4 <= float(pairs.share.min()) < float(pairs.share.max()) <= 0.6
    assert len(set(pairs.share.tolist())) > len(view), "each pair has its own"


def test_both_views_are_mixed_and_pass_one_after_the_other() -> None:
    flipped = batch().images.flip(3)
    given, again = replace(batch(), augment=lambda: flipped), batch()
    pairs = fusion_pairs(again.labels, again.generator)
    labels = torch.cat([given.labels, pair_labels(*given.labels[pairs.rows], CLASSES)])
    each = []
    for view in (given.images, flipped):
        made = head(CLASSES + 3)
        projected = made.projector(Pooled()(torch.cat([view, pairs.mixed(view)])))
        each.append(float(margin_loss(projected, made.rows.weight, labels, 30.0, 0.4).detach()))
    assert each[0] != pytest.approx(each[1], rel=1e-4)
    found = float(loss(head(CLASSES + 3), given, views=2, fusion=True))
    assert found == pytest.approx(sum(each) / 2, rel=1e-5)


def test_fusion_adds_rows_for_pairs_and_they_are_not_handed_on() -> None:
    made = Alice(Alice.Params(width=WIDTH, fusion=True))
    built = made.build_head(DIM, CLASSES, torch.Generator().manual_seed(0))
    assert isinstance(built, AliceHead)
    assert built.rows.weight.shape == (CLASSES + 3, WIDTH)
    assert made.classifier(built).shape == (CLASSES, DIM)
    assert bool(torch.isfinite(made.loss(Pooled(), built, batch())))
