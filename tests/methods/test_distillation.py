from __future__ import annotations

import math

import pytest
import torch

from fscil_bench.methods.icarl import distillation


def test_gradient_and_value_are_zero_where_student_is_teacher() -> None:
    old = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    logits = torch.cat([old, torch.ones(5, 2)], dim=1).requires_grad_()
    value = distillation(logits, old, 2.0)
    value.backward()  # type: ignore[no-untyped-call]
    assert float(value.detach()) == pytest.approx(0, abs=1e-6)
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-6


def test_value_by_hand() -> None:
    # At T = 2 the old probabilities are (3/4, 1/4), the new ones (1/2, 1/2); the third class of
    # the new logits is none of the old ones and does not count.
    old = torch.tensor([[2 * math.log(3), 0.0]])
    new = torch.tensor([[1.0, 1.0, 50.0]])
    expected = 4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert float(distillation(new, old, 2.0)) == pytest.approx(expected, rel=1e-5)
    twice = distillation(new.repeat(2, 1), old.repeat(2, 1), 2.0)
    assert float(twice) == pytest.approx(expected, rel=1e-5), "a mean over samples"
