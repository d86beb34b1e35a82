from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fscil_bench.methods.ldc import sampler as pcu_sampler
from fscil_bench.methods.ldc import unit as pcu

DIM = 8
SHAPE = pcu.UnitShape(mapped=True, steps=1, hidden=4, kernel=1)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _root() -> torch.Tensor:
    """Return a symmetric positive definite matrix, the root of some covariance."""
    mixing = torch.randn(DIM, DIM, generator=_generator(2)) / DIM**0.5
    return mixing @ mixing.T + 0.1 * torch.eye(DIM)


def _sampler(
    classes: int = 9, calls: list[int] | None = None, shape: pcu.UnitShape = SHAPE
) -> pcu_sampler.GaussianSampler:
    """Return a sampler whose unit does something; `calls` takes the classes of each evaluation."""
    unit, root = pcu.CalibrationUnit(shape, _generator(5)), _root()
    for part in (unit.mapping, unit.calibration):
        torch.nn.init.normal_(part.last, std=0.1, generator=_generator(1))

    def factors(means: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if calls is not None:
            calls.extend(numbers.tolist())
        return unit.factors(means, root)

    means = torch.rand(classes, DIM, generator=_generator())
    counts = torch.arange(classes) + 1.0
    return pcu_sampler.GaussianSampler(unit, means, factors, counts=counts)


def test_steps_start_with_the_gaussian_and_end_with_what_is_drawn() -> None:
    sampler = _sampler()
    first, last = sampler.draw_steps(4, _generator(1))
    noise = sampler.noise(4, _generator(1))
    factors = sampler.unit.factors(sampler.means, _root())
    assert torch.allclose(first, sampler.means[:, None] + noise @ factors, atol=1e-5)
    assert torch.equal(last, sampler.draw(4, _generator(1)))
    assert not torch.allclose(first, last, atol=1e-3)


@pytest.mark.parametrize("sees_shots", [False, True])
def test_sampler_gives_the_same_in_any_chunking(
    sees_shots: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = replace(SHAPE, sees_shots=sees_shots)
    whole = _sampler(shape=shape).draw(4, _generator(1))
    monkeypatch.setattr(pcu_sampler, "CHUNK_BYTES", 1)
    monkeypatch.setattr(pcu_sampler, "CACHE_BYTES", 0)
    calls: list[int] = []
    chunked = _sampler(calls=calls, shape=shape).draw(4, _generator(1))
    assert whole.shape == (9, 4, DIM)
    assert calls == list(range(9))
    assert torch.allclose(chunked, whole, atol=1e-5)


def test_released_noise_lies_on_a_line_through_the_mean() -> None:
    root = _root()
    sigma = root @ root
    unit = pcu.CalibrationUnit(pcu.UnitShape(False, 0, 4, 1), _generator())
    means = torch.rand(2, DIM, generator=_generator())

    def factors(rows: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return pcu_sampler.released_factors(unit.factors(rows, root))

    sampler = pcu_sampler.GaussianSampler(unit, means, factors, rank=1)
    samples = sampler.draw(50, _generator(1))
    z = sampler.noise(50, _generator(1))
    line = torch.ones(DIM) @ sigma
    assert z.shape == (2, 50, 1)
    assert torch.allclose(samples, means[:, None] + z * line, atol=1e-5)
    gaps = samples - means[:, None]
    assert torch.linalg.matrix_rank(gaps[0], rtol=1e-4) == 1
