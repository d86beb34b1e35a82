"""A mixture of subspaces: clusters of features, each around an affine subspace of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Subspaces:
    """Subspaces through `means` (K, D) along orthonormal `bases` (K, q, D).

    `variance` () is that of a feature about its subspace, in each direction.
    """

    means: torch.Tensor
    bases: torch.Tensor
    variance: torch.Tensor

    def residuals(self, features: torch.Tensor) -> torch.Tensor:
        """Return the squared distances (n, K) of features (n, D) from the subspaces."""
        centred = features[:, None] - self.means
        along = torch.einsum("nkd,kqd->nkq", centred, self.bases)
        return (centred.square().sum(dim=2) - along.square().sum(dim=2)).clamp(min=0)

    def posterior(self, features: torch.Tensor) -> torch.Tensor:
        """Return how likely features (n, D) are of each subspace, rows summing to 1 (n, K).

        The subspaces are equally likely beforehand, and features normal about them.
        """
        return torch.softmax(-self.residuals(features) / (2 * self.variance), dim=1)


def fitted(
    features: torch.Tensor, count: int, dims: int, rounds: int, generator: torch.Generator
) -> Subspaces:
    """Return subspaces fitted by turns: features to the nearest, then each to its features.

    Args:
        features: (n, D).
        count: K; n where that is less.
        dims: q, below D.
        rounds: how often.
        generator: what draws the features that clusters begin at.
    """
    drawn = torch.randperm(len(features), generator=generator)[:count].to(features.device)
    bases = torch.eye(dims, features.shape[1], device=features.device)
    found = Subspaces(features[drawn], bases.repeat(len(drawn), 1, 1), features.new_ones(()))
    owners = torch.cdist(features, features[drawn]).argmin(dim=1)
    for _ in range(rounds):
        found = _around(features, owners, found)
        owners = found.residuals(features).argmin(dim=1)
    return found


def _around(features: torch.Tensor, owners: torch.Tensor, before: Subspaces) -> Subspaces:
    """Return the principal subspaces of the features that each owns, by `owners` (n,).

    One that owns none stays as it was.
    """
    means, bases = before.means.clone(), before.bases.clone()
    dims, dim = bases.shape[1:]
    for k in range(len(means)):
        own = features[owners == k]
        if len(own):
            means[k] = own.mean(dim=0)
            centred = (own - means[k]).double()
            vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors
            bases[k] = vectors[:, -dims:].T.to(features.dtype)
    found = Subspaces(means, bases, before.variance)
    nearest = found.residuals(features).amin(dim=1)
    floor = torch.finfo(features.dtype).tiny
    return Subspaces(means, bases, (nearest.mean() / (dim - dims)).clamp(min=floor))
