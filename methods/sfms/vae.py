"""A conditional variational autoencoder of features, given their class's vector."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError

from .._shared.cosine import drawn_layer
from .._shared.network import shuffled


class ConditionalVae(nn.Module):
    """Encoder and decoder of one hidden layer each; both see the class's vector.

    Args:
        dim: D, of features.
        condition: E, of vectors.
        hidden: width of the hidden layers.
        latent: Z, dimensions of the code.
        generator: what weights are drawn from.
    """

    def __init__(
        self, dim: int, condition: int, hidden: int, latent: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.into = drawn_layer(dim + condition, hidden, generator)
        self.mean = drawn_layer(hidden, latent, generator)
        self.log_variance = drawn_layer(hidden, latent, generator)
        self.decoder = Decoder(dim, condition, hidden, latent, generator)

    def encode(
        self, features: torch.Tensor, vectors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and log variance (n, Z) of the codes of features (n, D), vectors (n, E)."""
        hidden = F.relu(self.into(torch.cat([features, vectors], dim=1)))
        return self.mean(hidden), self.log_variance(hidden)


class Decoder(nn.Module):
    """What makes features; arguments as of `ConditionalVae`."""

    def __init__(
        self, dim: int, condition: int, hidden: int, latent: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.into = drawn_layer(latent + condition, hidden, generator)
        self.out = drawn_layer(hidden, dim, generator)

    def forward(self, codes: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """Return the mean features (n, D) of codes (n, Z) and vectors (n, E)."""
        made: torch.Tensor = self.out(F.relu(self.into(torch.cat([codes, vectors], dim=1))))
        return made


def elbo(
    features: torch.Tensor, decoded: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor
) -> torch.Tensor:
    """Return the evidence lower bounds (n,) of features, up to the constant −D/2·log 2π.

    log N(x; decoded, I) − KL(N(mean, variance) ‖ N(0, I)); Kingma and Welling, "Auto-Encoding
    Variational Bayes", ICLR 2014, equation 10, for one draw of the code.

    Args:
        features: (n, D).
        decoded: their reconstruction (n, D) from a code drawn from the posterior.
        mean: of the posterior (n, Z).
        log_variance: of it (n, Z).
    """
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
    return -(features - decoded).square().sum(dim=1) / 2 - divergence


def train(
    vae: ConditionalVae,
    features: torch.Tensor,
    vectors: torch.Tensor,
    epochs: int,
    lr: float,
    batch: int,
    generator: torch.Generator,
) -> torch.Tensor:
    """Maximise the mean bound with Adam; return its mean over the last epoch's batches, ().

    Args:
        vae: trained in place.
        features: (n, D).
        vectors: of their classes (n, E).
        epochs: passes.
        lr: learning rate.
        batch: samples of a step.
        generator: what order and codes are drawn from.

    Raises:
        FscilError: the bound or a weight is not finite.
    """
    optimiser = torch.optim.Adam(vae.parameters(), lr=lr)
    bound = features.new_zeros(())
    for epoch in range(epochs):
        bounds = []
        for indices in shuffled(len(features), batch, generator):
            own = indices.to(features.device)
            mean, log_variance = vae.encode(features[own], vectors[own])
            noise = torch.randn(mean.shape, generator=generator).to(mean.device)
            decoded = vae.decoder(mean + (log_variance / 2).exp() * noise, vectors[own])
            loss = -elbo(features[own], decoded, mean, log_variance).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            bounds.append(-loss.detach())
        bound = torch.stack(bounds).mean()
        lengths = torch.stack([bound, *(x.detach().norm() for x in vae.parameters())])
        if not bool(torch.isfinite(lengths).all()):
            raise FscilError(
                f"method 'sfms': the VAE diverges in epoch {epoch + 1} of its training (loss "
                f"{-float(bound):g}); lower vae_lr = {lr:g}"
            )
    return bound
