"""CLOSER: its three terms by hand, and what the released code gives for the same features.

Numbers of the released code are those of commit d6ef526 on sines.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fscil_bench.methods.closer import Closer, between_classes
from fscil_bench.methods.ncm import Cosine
from fscil_bench.representation import TrainingBatch

DIM, CLASSES, BATCH = 4, 3, 5


def wave(*shape: int, phase: float) -> torch.Tensor:
    return torch.sin(0.37 * torch.arange(math.prod(shape)) + phase).view(shape)


class Flat(nn.Module):
    """Images that are features already."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def test_loss_and_gradients_are_the_released_ones() -> None:
    views = wave(3 * BATCH, DIM, phase=0.3).requires_grad_()
    first, *others = views.view(3, BATCH, 1, 2, 2)
    rest = iter(others)
    head = nn.Linear(DIM, CLASSES, bias=False)
    with torch.no_grad():
        head.weight.copy_(wave(CLASSES, DIM, phase=0.9))
    labels = torch.tensor([0, 2, 1, 2, 0])
    batch = TrainingBatch(first, labels, 0, lambda: next(rest), torch.Generator())
    loss = Closer(Closer.Params()).loss(Flat(), head, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == pytest.approx(22.599676, rel=1e-5)
    assert views.grad is not None and head.weight.grad is not None
    assert float(views.grad.norm()) == pytest.approx(6.7212028, rel=1e-4)
    assert float(head.weight.grad.norm()) == pytest.approx(5.5185461, rel=1e-4)
    expected = [-0.4439723, -0.129503, 0.2024941, 0.5070852]
    assert views.grad[7].tolist() == pytest.approx(expected, rel=1e-3)


def test_closeness_is_the_mean_cosine_between_classes() -> None:
    cosines = torch.tensor([[1.0, 0.9, 0.2], [0.9, 1.0, 0.4], [0.2, 0.4, 1.0]])
    assert float(between_classes(cosines, torch.tensor([1, 1, 0]))) == pytest.approx(0.3)
    assert float(between_classes(cosines, torch.zeros(3))) == 0


def test_without_its_terms_equal_views_are_cosine() -> None:
    images, head = wave(BATCH, 1, 2, 2, phase=0.3), nn.Linear(DIM, CLASSES, bias=False)
    labels = torch.tensor([0, 2, 1, 2, 0])
    batch = TrainingBatch(images, labels, 0, lambda: images, torch.Generator())
    off = Closer(Closer.Params(temperature=16, contrast=0, closeness=0))
    expected = Cosine(Cosine.Params()).loss(Flat(), head, batch)
    torch.testing.assert_close(off.loss(Flat(), head, batch), expected)


def test_the_reward_draws_classes_together() -> None:
    features = torch.tensor([[1.0, 0.2], [0.2, 1.0]], requires_grad=True)
    unit = nn.functional.normalize(features, dim=1)
    near = between_classes(unit @ unit.T, torch.tensor([0, 1]))
    (-near).backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    with torch.no_grad():
        moved = nn.functional.normalize(features - 0.1 * features.grad, dim=1)
    assert float(moved[0] @ moved[1]) > float(near.detach())
