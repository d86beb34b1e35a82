from __future__ import annotations

import pytest
import torch

from fscil_bench.methods.ldc import new_means

DIM = 6


def _draws(count: int, covariance: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Return draws (count, D) of N(0, covariance), float64."""
    noise = torch.randn(
        count, len(covariance), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return noise @ torch.linalg.cholesky(covariance).T


def _covariance(scale: float = 1.0, seed: int = 3) -> torch.Tensor:
    mixing = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(seed)).double()
    return scale * (mixing @ mixing.T / DIM + 0.2 * torch.eye(DIM, dtype=torch.float64))


def test_borrowed_means_lie_between_the_shots_and_the_nearest_base_means() -> None:
    base = torch.tensor([[2.0, 0.0], [3.0, 3.0], [0.0, 1.0], [-1.0, 0.0]])
    shots = torch.tensor([[4.0, 1.0], [1.0, 4.0]])
    # By cosine (4, 1) is nearest to (2, 0) and (3, 3), (1, 4) to (0, 1) and (3, 3), though by
    # distance it is not.
    found = new_means.borrowed_means(shots, base, 0.25, 2)
    assert found.tolist() == [
        [0.75 * 4 + 0.25 * 2.5, 0.75 * 1 + 0.25 * 1.5],
        [0.75 * 1 + 0.25 * 1.5, 0.75 * 4 + 0.25 * 2.0],
    ]
    assert torch.equal(new_means.borrowed_means(shots, base, 0.0, 2), shots)
    assert new_means.borrowed_means(shots, base, 1.0, 1).tolist() == [[2.0, 0.0], [0.0, 1.0]]


def test_one_class_or_equal_classes_have_no_spread() -> None:
    for rows in (torch.rand(1, DIM), torch.full((4, DIM), 0.3)):
        shrunk, _ = new_means.shrunk_covariance(rows)
        assert torch.equal(shrunk, torch.zeros(DIM, DIM, dtype=torch.float64))


def test_prior_finds_the_class_means_covariance_beneath_sampling_noise() -> None:
    between, within, size = _covariance(), _covariance(4.0, seed=5), 10
    true = _draws(20_000, between) + 2
    sampled = true + _draws(20_000, within / size, seed=1)
    prior = new_means.fit_prior(sampled, within, torch.full((20_000,), size))
    assert torch.allclose(prior.mean, torch.full((DIM,), 2.0).double(), atol=0.05)
    assert torch.allclose(prior.covariance, between, atol=0.06)
    assert prior.shrinkage < 0.01


def test_prior_is_positive_semi_definite_where_noise_exceeds_the_spread() -> None:
    means = _draws(5, _covariance(0.01))
    prior = new_means.fit_prior(means, _covariance(5.0), torch.full((5,), 2))
    values = torch.linalg.eigvalsh(prior.covariance)
    assert values.min() > -1e-12
    assert torch.linalg.matrix_rank(prior.covariance) < DIM


def test_posterior_of_one_dimension_is_the_textbook_one() -> None:
    prior = new_means.MeanPrior(torch.tensor([1.0]), torch.tensor([[4.0]]))
    found = new_means.posterior_means(
        prior, torch.tensor([[6.0]]), torch.tensor([[[10.0]]]), torch.tensor([5]), weight=1.0
    )
    # Precisions: 1/4 of the prior at 1, 5/10 of the shots at 6.
    assert float(found) == pytest.approx((0.25 * 1 + 0.5 * 6) / 0.75)


def test_posterior_equals_the_precision_weighted_mean() -> None:
    between, own = _covariance(), _covariance(3.0, seed=7)
    means, m0 = _draws(2, between), torch.full((DIM,), 0.5, dtype=torch.float64)
    found = new_means.posterior_means(
        new_means.MeanPrior(m0, between), means, own.expand(2, -1, -1), torch.tensor([5, 1]), 1.0
    )
    for i, shots in enumerate((5, 1)):
        precisions = torch.linalg.inv(between), torch.linalg.inv(own / shots)
        total = precisions[0] @ m0 + precisions[1] @ means[i]
        assert torch.allclose(found[i], torch.linalg.solve(sum(precisions), total))


def test_weight_moves_from_the_shots_to_the_prior() -> None:
    prior = new_means.MeanPrior(torch.zeros(DIM), _covariance())
    means = torch.ones(1, DIM)
    own, counts = torch.eye(DIM)[None], torch.tensor([5])
    lengths = [
        float(new_means.posterior_means(prior, means, own, counts, weight).norm())
        for weight in (1e-9, 0.3, 1.0, 3.0, 1e9)
    ]
    assert lengths[0] == pytest.approx(DIM**0.5)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] == pytest.approx(0, abs=1e-6)
