from __future__ import annotations

import pytest
import torch

from fscil_bench.methods._shared.lbfgs import Objective, minimise


def _same(gradient: torch.Tensor) -> torch.Tensor:
    return gradient


def _quadratic(scales: torch.Tensor, optimum: torch.Tensor) -> Objective:
    def objective(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        gradient = scales * (x - optimum)
        return 0.5 * float((gradient * (x - optimum)).sum()), gradient

    return objective


def test_a_quadratic_is_minimised_and_the_exact_inverse_curvature_takes_one_step() -> None:
    scales, optimum = torch.tensor([1.0, 10.0, 1000.0]).double(), torch.tensor([1.0, -2.0, 3.0])
    objective, start = _quadratic(scales, optimum), torch.zeros(3)
    plain = minimise(objective, start, _same, 1e-9, 200)
    assert torch.allclose(plain.point, optimum.double(), atol=1e-9)
    assert 1 < plain.steps < 60
    exact = minimise(objective, start, lambda g: g / scales, 1e-9, 200)
    assert exact.steps == 1
    assert exact.gradient <= 1e-9


def test_a_curved_valley_is_followed_to_its_end() -> None:
    def rosenbrock(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        x = x.detach().requires_grad_()
        value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        (gradient,) = torch.autograd.grad(value, x)
        return float(value.detach()), gradient

    found = minimise(rosenbrock, torch.tensor([-1.2, 1.0]), _same, 1e-8, 300)
    assert torch.allclose(found.point, torch.ones(2).double(), atol=1e-7)


def test_too_few_steps_are_reported_with_the_gradient_where_they_end() -> None:
    objective = _quadratic(torch.tensor([1.0, 50.0]).double(), torch.ones(2).double())
    found = minimise(objective, torch.zeros(2), _same, 1e-9, 2)
    assert found.steps == 2
    assert found.gradient == pytest.approx(float(objective(found.point)[1].abs().max()))
    assert found.gradient > 1e-9


def test_a_start_at_the_optimum_is_left_where_it_is() -> None:
    optimum = torch.tensor([2.0, 3.0]).double()
    found = minimise(_quadratic(torch.ones(2).double(), optimum), optimum, _same, 1e-9, 10)
    assert found.steps == 0
    assert torch.equal(found.point, optimum)


def test_it_gives_up_where_no_step_decreases_the_objective() -> None:
    def wrong(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        return float(x.sum()), -torch.ones_like(x)

    found = minimise(wrong, torch.zeros(2), _same, 1e-9, 50)
    assert found.steps == 0
    assert found.gradient == 1.0
