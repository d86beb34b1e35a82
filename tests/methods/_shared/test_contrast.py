"""Supervised contrast in closed form."""

from __future__ import annotations

import math

import pytest
import torch

from fscil_bench.methods._shared.contrast import contrast


def test_two_groups_of_two() -> None:
    # Samples of a group agree, those of different groups are orthogonal.
    units = torch.tensor([[1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0]])
    found = contrast(units @ units.T, torch.tensor([0, 1, 0, 1]), 0.5)
    assert float(found) == pytest.approx(math.log(math.exp(2) + 2) - 2)


def test_samples_without_others_of_their_group_are_negatives_alone() -> None:
    cosines = torch.tensor([[1.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.0]], requires_grad=True)
    found = contrast(cosines, torch.tensor([7, 7, 2]), 1.0)
    first = math.log(math.exp(0.5) + math.exp(0.1)) - 0.5
    second = math.log(math.exp(0.5) + math.exp(0.3)) - 0.5
    assert float(found.detach()) == pytest.approx((first + second) / 2)
    found.backward()  # type: ignore[no-untyped-call]
    assert cosines.grad is not None and bool(torch.isfinite(cosines.grad).all())
    assert float(contrast(cosines.detach(), torch.arange(3), 1.0)) == 0
