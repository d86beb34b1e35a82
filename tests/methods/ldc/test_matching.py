from __future__ import annotations

import numpy as np
import ot
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm, wasserstein_distance

from fscil_bench.methods.ldc import matching

LOSSES = ("kl", "js", "hellinger", "emd")
PAIRS = [(0.0, 1.0, 0.0, 1.0), (0.3, 0.5, -0.2, 2.0), (3.0, 0.2, 0.0, 1.5), (0.0, 1.0, 0.1, 0.01)]


def _scalars(*values: float) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(value, dtype=torch.float64) for value in values)


def _sets(n: int = 12, m: int = 12, dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    return torch.randn(2, n, dim, **draw), 1.5 * torch.randn(2, m, dim, **draw) + 0.3


def _directions(dim: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return matching.random_directions(dim, dim, generator).double()


@pytest.mark.parametrize(("m1", "v1", "m2", "v2"), PAIRS)
def test_gaussian_divergences_equal_their_integrals(
    m1: float, v1: float, m2: float, v2: float
) -> None:
    p, q = norm(m1, v1**0.5), norm(m2, v2**0.5)
    low, high = (s * 12 * max(v1, v2) ** 0.5 + m for s, m in ((-1, min(m1, m2)), (1, max(m1, m2))))

    def integral(f) -> float:
        spots = sorted({m1, m2, m2 - v2**0.5, m2 + v2**0.5})
        return quad(f, low, high, points=spots, limit=500)[0]

    def js(x: float) -> float:
        a, b = p.logpdf(x), q.logpdf(x)
        middle = np.logaddexp(a, b) - np.log(2)
        return 0.5 * (np.exp(a) * (a - middle) + np.exp(b) * (b - middle))

    kl = integral(lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)))
    overlap = integral(lambda x: np.exp((p.logpdf(x) + q.logpdf(x)) / 2))
    args = _scalars(m1, v1, m2, v2)
    assert float(matching.gaussian_kl(*args)) == pytest.approx(kl, rel=1e-6, abs=1e-9)
    bhattacharyya = float(matching.gaussian_bhattacharyya(*args))
    assert bhattacharyya == pytest.approx(-np.log(overlap), rel=1e-6, abs=1e-9)
    assert float(matching.gaussian_js(*args)) == pytest.approx(integral(js), rel=0.02, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(12, 12), (12, 7), (5, 10), (1, 4)])
def test_emd_equals_scipys_and_pots(n: int, m: int) -> None:
    u, v = _sets(n, m)
    distances = matching.emd_1d(u, v)
    for c in range(2):
        for k in range(3):
            columns = u[c, :, k].numpy(), v[c, :, k].numpy()
            assert float(distances[c, k]) == pytest.approx(wasserstein_distance(*columns))
            assert float(distances[c, k]) == pytest.approx(ot.emd2_1d(*columns, metric="euclidean"))
        assert np.allclose(distances[c], ot.wasserstein_1d(u[c].numpy(), v[c].numpy(), p=1))


def test_sliced_emd_is_the_mean_over_axes_and_directions() -> None:
    (u, v), directions = _sets(), _directions()
    every = torch.cat([torch.eye(3, dtype=torch.float64), directions], dim=1)
    each = [
        ot.sliced_wasserstein_distance(
            u[c].numpy(), v[c].numpy(), projections=every[:, k : k + 1].numpy(), p=1
        )
        for c in range(2)
        for k in range(6)
    ]
    loss = matching.matching_loss(u, v, "emd", directions)
    assert float(loss) == pytest.approx(np.mean(each))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("full", [False, True])
def test_losses_vanish_on_identical_samples_and_nowhere_else(
    loss: matching.Loss, full: bool
) -> None:
    u, v = _sets(40, 40)
    directions = None if full else _directions()
    assert float(matching.matching_loss(u, u, loss, directions)) == pytest.approx(0, abs=1e-9)
    assert float(matching.matching_loss(u, v, loss, directions)) > 0.01
    shifts = [float(matching.matching_loss(u + s, u, loss, directions)) for s in (0.1, 0.5, 2.0)]
    assert shifts == sorted(shifts)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("full", [False, True])
def test_losses_are_differentiable(loss: matching.Loss, full: bool) -> None:
    u, v = _sets(9, 7)
    directions = None if full else _directions()
    u.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: matching.matching_loss(x, v, loss, directions), (u,), fast_mode=True
    )


NORMAL = torch.distributions.MultivariateNormal


def _fitted(samples: torch.Tensor, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    rows = samples.numpy()
    return rows.mean(axis=0), np.cov(rows.T) + ridge * np.eye(rows.shape[1])


def test_kl_is_that_of_gaussians_fitted_to_the_samples() -> None:
    u, v = _sets(40, 30)
    found = matching.full_divergence(u, v, "kl", torch.tensor(0.1))
    for c in range(2):
        (m1, s1), (m2, s2) = _fitted(u[c], 0.1), _fitted(v[c], 0.1)
        inverse, gap = np.linalg.inv(s2), m2 - m1
        logs = np.linalg.slogdet(s2)[1] - np.linalg.slogdet(s1)[1]
        expected = 0.5 * (np.trace(inverse @ s1) + gap @ inverse @ gap - 3 + logs)
        assert float(found[c]) == pytest.approx(expected)


def test_hellinger_is_the_bhattacharyya_distance_of_the_fitted_gaussians() -> None:
    u, v = _sets(40, 30)
    found = matching.full_divergence(u, v, "hellinger", torch.tensor(0.1))
    for c in range(2):
        (m1, s1), (m2, s2) = _fitted(u[c], 0.1), _fitted(v[c], 0.1)
        middle, gap = (s1 + s2) / 2, m2 - m1
        logs = [np.linalg.slogdet(s)[1] for s in (middle, s1, s2)]
        expected = gap @ np.linalg.inv(middle) @ gap / 8 + logs[0] / 2 - (logs[1] + logs[2]) / 4
        assert float(found[c]) == pytest.approx(expected)


def test_js_of_one_dimension_approaches_the_quadrature() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 1, 40_000, 1, generator=generator, dtype=torch.float64)
    p = NORMAL(torch.zeros(1, 1).double(), torch.ones(1, 1, 1).double())
    q = NORMAL(torch.ones(1, 1).double(), 4 * torch.ones(1, 1, 1).double())
    estimate = matching.full_js(p, q, z[0], 1 + 2 * z[1])
    m1, v1, m2, v2 = (torch.tensor(value, dtype=torch.float64) for value in (0.0, 1.0, 1.0, 4.0))
    assert float(estimate) == pytest.approx(float(matching.gaussian_js(m1, v1, m2, v2)), rel=0.05)


def test_exact_emd_is_pots_and_zero_on_a_permutation() -> None:
    u, v = _sets(9, 6)
    expected = ot.emd2([], [], ot.dist(u[0].numpy(), v[0].numpy(), metric="euclidean"))
    assert float(matching.exact_emd(u[0], v[0])) == pytest.approx(expected)
    assert float(matching.exact_emd(u[0], u[0].flip(0))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("loss", ["kl", "emd"])
def test_axes_stand_in_for_all_dimensions(loss: matching.Loss) -> None:
    generated, real = _sets(dim=8)
    axes = matching.random_axes(8, 3, torch.Generator().manual_seed(2))
    assert axes is not None and len(set(axes.tolist())) == 3
    without = torch.zeros(3, 0, dtype=torch.float64)
    expected = matching.matching_loss(generated[..., axes], real[..., axes], loss, without)
    few = matching.matching_loss(generated, real, loss, torch.zeros(8, 0).double(), axes=axes)
    assert torch.equal(few, expected)


def test_all_axes_are_taken_without_a_draw_where_there_are_no_more() -> None:
    generator = torch.Generator().manual_seed(2)
    before = generator.get_state()
    assert matching.random_axes(8, 8, generator) is None
    assert torch.equal(generator.get_state(), before)
