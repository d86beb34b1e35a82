"""Subspaces: residuals and posterior by hand, and a mixture that is found again."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from fscil_bench.methods.sfms.subspaces import Subspaces, fitted


def test_residuals_are_distances_from_affine_subspaces() -> None:
    lines = Subspaces(
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]]),
        torch.tensor(2.0),
    )
    found = lines.residuals(torch.tensor([[3.0, 4.0], [1.6, 1.8]]))
    # (2, 3) from the second mean: 13 − (1.2 + 2.4)².
    torch.testing.assert_close(found, torch.tensor([[16.0, 13 - 3.6**2], [1.8**2, 0.0]]))
    weights = torch.exp(-found / 4)
    expected = weights / weights.sum(dim=1, keepdim=True)
    torch.testing.assert_close(lines.posterior(torch.tensor([[3.0, 4.0], [1.6, 1.8]])), expected)


def test_the_posterior_is_that_of_normal_distributions_flat_along_the_subspace() -> None:
    basis = torch.tensor([[0.6, 0.8, 0.0]])
    mixture = Subspaces(
        torch.tensor([[0.0, 0.0, 0.0], [0.5, -0.5, 1.0]]),
        torch.stack([basis, basis]),
        torch.tensor(0.4),
    )
    wide = 0.4 * torch.eye(3) + 1e5 * basis.T @ basis
    x = torch.tensor([[0.3, 0.2, 0.6]])
    logs = torch.stack([MultivariateNormal(m, wide).log_prob(x[0]) for m in mixture.means])
    torch.testing.assert_close(mixture.posterior(x)[0], logs.softmax(0), atol=1e-3, rtol=1e-3)


def test_a_mixture_is_found_again() -> None:
    generator = torch.Generator().manual_seed(0)
    means = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 9.0, 9.0, 0.0]])
    directions = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.6, 0.8]])
    owners = torch.arange(2).repeat(300)
    along = 3 * torch.randn(600, 1, generator=generator) * directions[owners]
    features = means[owners] + along + 0.2 * torch.randn(600, 4, generator=generator)
    found = fitted(features, 2, 1, 20, generator)
    chosen = found.posterior(features).argmax(dim=1)
    swap = int(chosen[0] != owners[0])
    assert float((chosen == (owners ^ swap)).float().mean()) > 0.99
    cosines = (found.bases[:, 0] * directions[[swap, 1 - swap]]).sum(dim=1).abs()
    assert float(cosines.min()) > 0.99
    assert float(found.variance) == pytest.approx(0.04, rel=0.1)


def test_more_subspaces_than_features_are_one_each() -> None:
    found = fitted(torch.rand(3, 4), 9, 2, 3, torch.Generator())
    assert len(found.means) == 3 and bool(torch.isfinite(found.posterior(torch.rand(5, 4))).all())
