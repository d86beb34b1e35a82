"""Exemplars: the few images of earlier classes that iCaRL stores, and how they are chosen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F


@dataclass(frozen=True)
class Exemplars:
    """Stored images uint8 (n, H, W, 3) with labels int32 (n,), class by class, best first."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Exemplars:
        """Return the best `count` of each class, or all where a class has fewer."""
        kept = [members[:count] for members in by_class(self.labels)]
        indices = torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64)
        return Exemplars(self.images[indices], self.labels[indices])

    def with_more(self, other: Exemplars) -> Exemplars:
        """Return these and those of further classes."""
        images = torch.cat([self.images, other.images])
        return Exemplars(images, torch.cat([self.labels, other.labels]))


def herd(features: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices (min(count, n),) of samples whose running mean stays nearest the mean.

    Herding (Rebuffi et al., iCaRL, CVPR 2017, algorithm 4): the k-th exemplar is the sample, not
    chosen yet, for which the mean of the first k features is nearest the mean of all. Each prefix
    is a good choice itself, so that exemplars are dropped from the end.

    Args:
        features: (n, D) of one class.
        count: how many to choose.
    """
    features = features.double()
    mean, total = features.mean(dim=0), torch.zeros_like(features[0])
    free = torch.ones(len(features), dtype=torch.bool, device=features.device)
    chosen = []
    for k in range(1, min(count, len(features)) + 1):
        distances = (mean - (features + total) / k).norm(dim=1)
        best = int(distances.masked_fill(~free, torch.inf).argmin())
        free[best] = False
        total = total + features[best]
        chosen.append(best)
    return torch.tensor(chosen, dtype=torch.int64)


def choose(
    images: torch.Tensor, labels: torch.Tensor, features: torch.Tensor, count: int
) -> Exemplars:
    """Return the herded exemplars of every class, on unit features.

    Args:
        images: uint8 (n, H, W, 3).
        labels: (n,).
        features: (n, D) of the images.
        count: exemplars of a class; a class with fewer images gives them all.
    """
    unit, chosen = F.normalize(features, dim=1), []
    for members in by_class(labels):
        chosen.append(members[herd(unit[members.to(unit.device)], count)])
    indices = torch.cat(chosen)
    return Exemplars(images[indices], labels[indices].int())


def by_class(labels: torch.Tensor) -> list[torch.Tensor]:
    """Return the indices of each class's samples, by ascending class id."""
    return [torch.nonzero(labels == c).flatten() for c in sorted(set(labels.tolist()))]


def exemplar_means(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return unit class means (C, D) of unit features, in the order of the classes' ids.

    Args:
        features: (n, D) of the exemplars.
        labels: (n,), each of 0..C-1 at least once.
    """
    labels = labels.long().to(features.device)
    sums = torch.zeros(int(labels.max()) + 1, features.shape[1], device=features.device)
    sums.index_add_(0, labels, F.normalize(features, dim=1))
    return F.normalize(sums, dim=1)
