"""Neural gas: nodes that spread over features, and edges between those that answer together.

Martinetz and Schulten, "A 'neural-gas' network learns topologies", Artificial Neural Networks,
1991, as Tao et al. (TOPIC), CVPR 2020, section 4.1, use it. Of a batch of features the ranks are
taken at once; all else is as if they came one after the other: a batch of one is the published
rule.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from fscil_bench.method import batches


def adapted(
    centroids: torch.Tensor, features: torch.Tensor, rate: float, decay: float
) -> torch.Tensor:
    """Return the centroids (N, D) after a batch of features (b, D).

    m ← m + rate·exp(−rank/decay)·(f − m) for each feature f in turn; the nearest has rank 1
    (equation 3 of TOPIC).
    """
    order = torch.cdist(features, centroids).argsort(dim=1, stable=True)
    ranks = torch.empty_like(order)
    numbers = torch.arange(1, len(centroids) + 1, device=order.device)
    ranks.scatter_(1, order, numbers.expand_as(order))
    steps = rate * torch.exp(-ranks / decay)
    # What is left of a step when the later ones have been made: products from behind.
    left = (1 - steps).flip(0).cumprod(dim=0).flip(0)
    after = torch.cat([left[1:], torch.ones_like(left[:1])])
    return left[0][:, None] * centroids + (steps * after).T @ features


def aged(ages: torch.Tensor, first: torch.Tensor, second: torch.Tensor, limit: int) -> torch.Tensor:
    """Return the ages (N, N) of the edges after a batch, 0 where there is no edge.

    Each feature in turn makes the edge of the node that is nearest to it, `first` (b,), and the
    second nearest, `second` (b,), of age 1; the first's other edges age by 1, and go when they are
    older than `limit` (equations 4 and 5 of TOPIC).
    """
    count, nodes = len(first), len(ages)
    last = ages.new_full((nodes, nodes), -1, dtype=torch.int64)
    times = torch.arange(count, device=ages.device)
    for one, two in ((first, second), (second, first)):
        last.view(-1).scatter_reduce_(0, one * nodes + two, times, "amax")
    wins = F.one_hot(first, nodes).flip(0).cumsum(dim=0).flip(0)
    wins = torch.cat([wins, wins.new_zeros(1, nodes)])  # row k: wins from feature k on
    since = wins.gather(0, last + 1)
    made = last >= 0
    found = torch.where(made, 1, ages) + since + since.T
    return torch.where((made | (ages > 0)) & (found <= limit), found, 0)


def two_nearest(
    centroids: torch.Tensor, features: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nearest and the second nearest node (n,) of each feature (n, D)."""
    nearest = torch.cdist(features, centroids).topk(2, dim=1, largest=False).indices
    return nearest[:, 0], nearest[:, 1]


def grown(
    features: torch.Tensor,
    nodes: int,
    passes: int,
    batch: int,
    rate: float,
    decay: float,
    limit: int,
    generator: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the centroids (N, D) and the ages of the edges (N, N) of a gas grown on features.

    Args:
        features: (n, D); some of them are the centroids at the start.
        nodes: N; n where that is less.
        passes: how often every feature is shown, in a new order each time.
        batch: features of a step.
        rate: of the centroids.
        decay: how fast that falls with the rank.
        limit: greatest age of an edge.
        generator: what draws and orders come from.
    """
    order = torch.randperm(len(features), generator=generator).to(features.device)
    centroids = features[order[:nodes]]
    ages = torch.zeros(len(centroids), len(centroids), dtype=torch.int64, device=features.device)
    for _ in range(passes):
        order = torch.randperm(len(features), generator=generator).to(features.device)
        for part in batches(len(order), batch):
            shown = features[order[part]]
            ages = aged(ages, *two_nearest(centroids, shown), limit)
            centroids = adapted(centroids, shown, rate, decay)
    return centroids, ages


def described(
    centroids: torch.Tensor, features: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what nodes stand for: classes (N,), variances (N, D), nearest features (N,).

    A node's class is that of most features nearest to it, or of the one that it is nearest to,
    where there is none.

    Args:
        centroids: (N, D).
        features: (n, D).
        labels: (n,), from 0 on.
    """
    distances = torch.cdist(features, centroids)
    owners, examples = distances.argmin(dim=1), distances.argmin(dim=0)
    members = F.one_hot(owners, len(centroids)).to(features.dtype)
    votes = members.T @ F.one_hot(labels).to(features.dtype)
    classes = torch.where(members.any(dim=0), votes.argmax(dim=1), labels[examples])
    return classes, variances(centroids, features, owners), examples


def variances(
    centroids: torch.Tensor, features: torch.Tensor, owners: torch.Tensor
) -> torch.Tensor:
    """Return the diagonal variance (N, D) of each node's features around it.

    The mean of all variances counts as one feature more, so that a node of one feature has some.

    Args:
        centroids: (N, D).
        features: (n, D).
        owners: the node (n,) that each feature belongs to.
    """
    members = F.one_hot(owners, len(centroids)).to(features.dtype)
    squares = (features - centroids[owners]).square()
    mean = squares.mean().clamp(min=torch.finfo(squares.dtype).tiny)
    return (members.T @ squares + mean) / (members.sum(dim=0)[:, None] + 1)
