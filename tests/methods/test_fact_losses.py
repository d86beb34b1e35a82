"""FACT's losses on cases small enough to work out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.methods.fact import (
    draw_links,
    mixing_pairs,
    second_choice_loss,
    virtual_instance_loss,
)

INF = float("inf")


def softmax_loss(values: list[float], target: int) -> float:
    """Return the cross-entropy of one row, worked out."""
    return math.log(sum(math.exp(v) for v in values)) - values[target]


def test_every_virtual_prototype_is_linked_to_so_many_classes() -> None:
    links = draw_links(10, 7, 3, torch.Generator().manual_seed(0))
    assert links.shape == (10, 7) and links.sum(dim=0).tolist() == [3] * 7
    assert draw_links(2, 4, 3, torch.Generator()).sum(dim=0).tolist() == [2] * 4


def test_the_second_choice_is_the_best_linked_virtual_prototype() -> None:
    logits = torch.tensor([[5.0, 1.0, 3.0, 2.0]])
    links = torch.tensor([[False, True], [True, True]])
    loss = second_choice_loss(logits, torch.tensor([0]), links)
    # Class 0 is out; virtual prototype 1 is the one linked, though 0 has the larger logit.
    assert float(loss) == pytest.approx(softmax_loss([1.0, 3.0, 2.0], 2))


def test_an_allowed_prototype_wins_though_all_its_logits_are_negative() -> None:
    logits = torch.tensor([[5.0, 1.0, -1.0, -2.0]])
    links = torch.tensor([[False, True], [True, True]])
    loss = second_choice_loss(logits, torch.tensor([0]), links)
    assert float(loss) == pytest.approx(softmax_loss([1.0, -1.0, -2.0], 2))


def test_a_class_without_links_may_choose_any() -> None:
    logits = torch.tensor([[5.0, 1.0, 3.0, 2.0]])
    links = torch.tensor([[False, False], [True, True]])
    loss = second_choice_loss(logits, torch.tensor([0]), links)
    assert float(loss) == pytest.approx(softmax_loss([1.0, 3.0, 2.0], 1))


def test_a_mixed_sample_is_virtual_first_and_known_second() -> None:
    logits = torch.tensor([[4.0, 1.0, 0.0, 2.0]])
    expected = softmax_loss([4.0, 1.0, 0.0, 2.0], 3) + softmax_loss([4.0, 1.0, 0.0], 0)
    assert float(virtual_instance_loss(logits, classes=2)) == pytest.approx(expected)


def test_losses_reach_every_row_but_the_forbidden() -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    links = torch.ones(3, 2, dtype=torch.bool)
    second_choice_loss(logits, labels, links).backward()
    assert logits.grad is not None and bool(torch.isfinite(logits.grad).all())
    own = F.one_hot(labels, 5).bool()
    assert bool((logits.grad[own] == 0).all()) and bool((logits.grad[~own] != 0).all())


def test_pairs_are_of_different_classes() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    first, second = mixing_pairs(labels, torch.Generator().manual_seed(1))
    assert 0 < len(first) == len(second)
    assert bool((labels[first] != labels[second]).all())
    assert len(mixing_pairs(torch.zeros(5, dtype=torch.int64), torch.Generator())[0]) == 0
