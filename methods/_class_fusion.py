"""ALICE's class fusion: mixtures of two base classes become classes of their own.

Peng et al., "Few-Shot Class-Incremental Learning from an Open-Set Perspective" (ALICE), ECCV 2022,
section 3.3.
"""

from __future__ import annotations

import torch

from ._mixing import drawn_share

MIXES = 4
"""Mixtures drawn from a batch (released code)."""

SHARE_SHAPE = 20.0
"""The share of the first image is drawn from Beta(20, 20) (released code)."""

SHARE_RANGE = (0.4, 0.6)
"""Shares outside are replaced by one half (released code)."""


def pair_count(classes: int) -> int:
    """Return the number of unordered pairs of different classes."""
    return classes * (classes - 1) // 2


def pair_labels(first: torch.Tensor, second: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the labels (n,) of pairs of different classes: `classes` and upwards, one a pair.

    Pairs are numbered row by row above the diagonal: (0, 1), (0, 2), ..., (1, 2), ...
    """
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    before = low * (2 * classes - low - 1) // 2
    return classes + before + high - low - 1


def fused(
    images: torch.Tensor, labels: torch.Tensor, classes: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mixtures (m, 3, H, W) of images of different classes, and their labels (m,)."""
    found: list[torch.Tensor] = []
    names: list[torch.Tensor] = []
    for _ in range(MIXES):
        partner = torch.randperm(len(labels), generator=generator).to(labels.device)
        rows = torch.nonzero(labels != labels[partner]).flatten()
        share = _fusion_share(generator)
        other = partner[rows]
        found.append(share * images[rows] + (1 - share) * images[other])
        names.append(pair_labels(labels[rows], labels[other], classes))
    return torch.cat(found), torch.cat(names)


def _fusion_share(generator: torch.Generator) -> float:
    share = drawn_share(SHARE_SHAPE, generator)
    low, high = SHARE_RANGE
    return share if low <= share <= high else 0.5
