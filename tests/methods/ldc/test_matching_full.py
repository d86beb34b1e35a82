from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

from fscil_bench.methods.ldc import matching as full
from fscil_bench.methods.ldc import matching as matching

NORMAL = torch.distributions.MultivariateNormal


def _sets(n: int = 9, m: int = 6, dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    draw = {"generator": torch.Generator().manual_seed(0), "dtype": torch.float64}
    return torch.randn(2, n, dim, **draw), 1.5 * torch.randn(2, m, dim, **draw) + 0.3


def _fitted(samples: torch.Tensor, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    rows = samples.numpy()
    return rows.mean(axis=0), np.cov(rows.T) + ridge * np.eye(rows.shape[1])


def test_kl_is_that_of_gaussians_fitted_to_the_samples() -> None:
    u, v = _sets(40, 30)
    found = full.full_divergence(u, v, "kl", torch.tensor(0.1))
    for c in range(2):
        (m1, s1), (m2, s2) = _fitted(u[c], 0.1), _fitted(v[c], 0.1)
        inverse, gap = np.linalg.inv(s2), m2 - m1
        logs = np.linalg.slogdet(s2)[1] - np.linalg.slogdet(s1)[1]
        expected = 0.5 * (np.trace(inverse @ s1) + gap @ inverse @ gap - 3 + logs)
        assert float(found[c]) == pytest.approx(expected)


def test_hellinger_is_the_bhattacharyya_distance_of_the_fitted_gaussians() -> None:
    u, v = _sets(40, 30)
    found = full.full_divergence(u, v, "hellinger", torch.tensor(0.1))
    for c in range(2):
        (m1, s1), (m2, s2) = _fitted(u[c], 0.1), _fitted(v[c], 0.1)
        middle, gap = (s1 + s2) / 2, m2 - m1
        logs = [np.linalg.slogdet(s)[1] for s in (middle, s1, s2)]
        expected = gap @ np.linalg.inv(middle) @ gap / 8 + logs[0] / 2 - (logs[1] + logs[2]) / 4
        assert float(found[c]) == pytest.approx(expected)


def test_divergences_of_diagonal_gaussians_add_up_over_dimensions() -> None:
    generator = torch.Generator().manual_seed(0)
    m1, v1, m2, v2 = torch.rand(4, 2, 4, generator=generator, dtype=torch.float64) + 0.5
    p = NORMAL(m1, scale_tril=torch.diag_embed(v1.sqrt()))
    q = NORMAL(m2, scale_tril=torch.diag_embed(v2.sqrt()))
    expected = matching.gaussian_bhattacharyya(m1, v1, m2, v2).sum(dim=1)
    assert torch.allclose(full.full_bhattacharyya(p, q), expected)


def test_js_of_one_dimension_approaches_the_quadrature() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 1, 40_000, 1, generator=generator, dtype=torch.float64)
    p = NORMAL(torch.zeros(1, 1).double(), torch.ones(1, 1, 1).double())
    q = NORMAL(torch.ones(1, 1).double(), 4 * torch.ones(1, 1, 1).double())
    estimate = full.full_js(p, q, z[0], 1 + 2 * z[1])
    m1, v1, m2, v2 = (torch.tensor(value, dtype=torch.float64) for value in (0.0, 1.0, 1.0, 4.0))
    assert float(estimate) == pytest.approx(float(matching.gaussian_js(m1, v1, m2, v2)), rel=0.05)


def test_exact_emd_is_pots_and_zero_on_a_permutation() -> None:
    u, v = _sets()
    expected = ot.emd2([], [], ot.dist(u[0].numpy(), v[0].numpy(), metric="euclidean"))
    assert float(full.exact_emd(u[0], v[0])) == pytest.approx(expected)
    assert float(full.exact_emd(u[0], u[0].flip(0))) == pytest.approx(0, abs=1e-12)


def test_a_solver_that_stops_early_is_counted_and_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    u, v = _sets()
    convergence = full.Convergence()
    full.exact_emd(u[0], v[0], convergence)
    assert (convergence.solved, convergence.stopped) == (1, 0)
    monkeypatch.setattr(full, "EMD_ITERATIONS", 1)
    with pytest.warns(UserWarning, match="numItermax"):
        distance = full.exact_emd(u[0], v[0], convergence)
    assert (convergence.solved, convergence.stopped) == (2, 1)
    assert torch.isfinite(distance)
