"""The VAE's bound against the evidence of a model that can be solved, and what it learns."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from fscil_bench.methods.sfms.vae import ConditionalVae, elbo, train


def test_the_divergence_is_that_of_normal_distributions() -> None:
    x, mean = torch.rand(3, 4), torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    log_variance = torch.tensor([[0.3, -1.0], [0.0, 0.0], [1.0, 2.0]])
    apart = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum(dim=1)
    torch.testing.assert_close(elbo(x, x, mean, log_variance), -apart)


def test_the_bound_is_the_evidence_where_the_posterior_is_exact() -> None:
    # x = W z + noise with orthogonal columns: the posterior of z is known, and diagonal.
    weights = torch.tensor([[2.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    x = torch.tensor([1.5, -1.0, 0.3])
    variance = 1 / (1 + weights.square().sum(dim=0))
    mean = variance * (x @ weights)
    draws = 200_000
    codes = mean + variance.sqrt() * torch.randn(
        draws, 2, generator=torch.Generator().manual_seed(0)
    )
    shape = (draws, 2)
    bounds = elbo(
        x.expand(draws, 3), codes @ weights.T, mean.expand(shape), variance.log().expand(shape)
    )
    evidence = MultivariateNormal(torch.zeros(3), torch.eye(3) + weights @ weights.T).log_prob(x)
    constant = 1.5 * torch.log(torch.tensor(2 * torch.pi))
    assert float(bounds.mean()) == pytest.approx(float(evidence + constant), abs=0.01)
    # Any other posterior has a lower bound.
    off = (mean + 0.5).expand(shape)
    bounds = elbo(x.expand(draws, 3), (codes + 0.5) @ weights.T, off, variance.log().expand(shape))
    assert float(bounds.mean()) < float(evidence + constant) - 0.1


def test_the_decoder_makes_the_features_of_each_class() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[2.0, 0.0, -1.0], [-1.0, 1.0, 2.0]])
    labels = torch.arange(2).repeat(100)
    features = centres[labels] + 0.3 * torch.randn(200, 3, generator=generator)
    vectors = torch.eye(2)
    vae = ConditionalVae(3, 2, 16, 2, generator)
    first = train(vae, features, vectors[labels], 1, 1e-2, 50, generator)
    last = train(vae, features, vectors[labels], 40, 1e-2, 50, generator)
    assert float(last) > float(first) + 0.5
    codes = torch.randn(200, 2, generator=generator)
    for c, centre in enumerate(centres):
        made = vae.decoder(codes, vectors[c].expand(200, 2)).detach()
        assert float((made.mean(dim=0) - centre).norm()) < 0.25
