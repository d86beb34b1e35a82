from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression

from fscil_bench.methods._shared.softmax import fit_cosine, fit_logistic

CLASSES, DIM = 4, 6


def _problem(count: int = 120, spread: float = 1.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples of overlapping classes (the larger the spread, the more), and labels."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(count) % CLASSES
    centres = torch.randn(CLASSES, DIM, generator=generator).double()
    noise = torch.randn(count, DIM, generator=generator).double()
    return centres[labels] + spread * noise, labels


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("spread", [0.1, 1.5])
def test_it_finds_scikit_learns_optimum(penalty: float, spread: float) -> None:
    x, y = _problem(spread=spread)
    fit = fit_logistic(x, y, CLASSES, penalty, tolerance=1e-8)
    theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(x, y)
    assert fit.converged
    assert np.allclose(fit.weights, theirs.coef_, atol=1e-4)
    assert np.allclose(fit.intercept, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4)


def test_the_optimum_does_not_depend_on_the_start() -> None:
    x, y = _problem()
    cold = fit_logistic(x, y, CLASSES, 0.1, tolerance=1e-9)
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(3, DIM, generator=generator), torch.randn(3, generator=generator)
    warm = fit_logistic(x, y, CLASSES, 0.1, start=random, tolerance=1e-9)
    assert torch.allclose(warm.weights, cold.weights, atol=1e-6)
    assert torch.allclose(warm.intercept, cold.intercept, atol=1e-6)
    again = fit_logistic(x, y, CLASSES, 0.1, start=(cold.weights, cold.intercept), tolerance=1e-9)
    assert again.steps == 0


def test_whole_sample_weights_are_copies() -> None:
    x, y = _problem(40)
    weights = torch.tensor([1, 2, 3]).repeat(14)[:40]
    weighted = fit_logistic(x, y, CLASSES, 1.0, weights.double(), tolerance=1e-9)
    copied = fit_logistic(
        x.repeat_interleave(weights, 0), y.repeat_interleave(weights), CLASSES, 1.0, tolerance=1e-9
    )
    assert torch.allclose(weighted.weights, copied.weights, atol=1e-6)


def test_stopping_early_is_reported() -> None:
    x, y = _problem()
    fit = fit_logistic(x, y, CLASSES, 1e-3, tolerance=1e-8, max_steps=2)
    assert not fit.converged
    assert fit.steps == 2
    assert fit.gradient > 1e-8


@pytest.mark.parametrize("samples", [torch.ones(12, 3), torch.zeros(12, 3)])
def test_constant_features_leave_the_intercept(samples: torch.Tensor) -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [2] * 3)
    fit = fit_logistic(samples.double(), labels, 3, 1.0, tolerance=1e-8)
    shares = (samples[:1].double() @ fit.weights.T + fit.intercept).softmax(dim=1)
    assert fit.converged
    assert shares[0].tolist() == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


def test_cosine_rows_are_of_length_one_and_stationary() -> None:
    x, y = _problem(spread=0.8)
    fit = fit_cosine(x, y, torch.eye(CLASSES, DIM), temperature=8.0, tolerance=1e-8)
    assert fit.converged
    assert fit.weights.norm(dim=1).tolist() == pytest.approx([1.0] * CLASSES)
    assert not fit.intercept.any()
    rows = fit.weights.clone().requires_grad_()
    loss = F.cross_entropy(8 * F.normalize(x, dim=1) @ F.normalize(rows, dim=1).T, y)
    (gradient,) = torch.autograd.grad(loss, rows)
    assert float(gradient.abs().max()) <= 1e-7
    start = F.cross_entropy(8 * F.normalize(x, dim=1) @ torch.eye(CLASSES, DIM).double().T, y)
    assert float(loss.detach()) < 0.8 * float(start)


def test_the_length_of_a_cosine_rows_start_does_not_matter_and_zero_is_a_start() -> None:
    x, y = _problem(spread=0.8)
    start = torch.eye(CLASSES, DIM)
    fit = fit_cosine(x, y, start, 8.0)
    assert torch.allclose(fit.weights, fit_cosine(x, y, 7 * start, 8.0).weights)
    assert torch.isfinite(fit_cosine(x, y, 0 * start, 8.0).weights).all()
