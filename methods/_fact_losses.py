"""FACT's losses: reserving room for classes to come, as pure functions of logits.

Zhou et al., "Forward Compatible Few-Shot Class-Incremental Learning" (FACT), CVPR 2022. Columns of
`logits` are the C0 base classes, then the V virtual prototypes.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

FORBIDDEN = float("-inf")


def draw_links(classes: int, virtual: int, each: int, generator: torch.Generator) -> torch.Tensor:
    """Return which virtual prototype may stand for which base class, bool (classes, virtual).

    Every virtual prototype is linked to `each` base classes drawn at random (all, if fewer).
    """
    links = torch.zeros(classes, virtual, dtype=torch.bool)
    for column in range(virtual):
        links[torch.randperm(classes, generator=generator)[:each], column] = True
    return links


def second_choice_loss(
    logits: torch.Tensor, labels: torch.Tensor, links: torch.Tensor
) -> torch.Tensor:
    """Return the loss that makes a virtual prototype each sample's second choice (section 4.1).

    The sample's own class is taken out, and what is left shall be the best virtual prototype that
    is linked to the class (any of them, for a class without links).

    Args:
        logits: (n, C0 + V).
        labels: (n,) base classes.
        links: bool (C0, V).
    """
    classes = len(links)
    allowed = links[labels]
    allowed = allowed | ~allowed.any(dim=1, keepdim=True)
    virtual = logits[:, classes:].masked_fill(~allowed, FORBIDDEN)
    target = classes + virtual.argmax(dim=1)
    own = F.one_hot(labels, logits.shape[1]).bool()
    return F.cross_entropy(logits.masked_fill(own, FORBIDDEN), target)


def virtual_instance_loss(logits: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the loss on mixed samples, which stand for classes to come (section 4.1).

    A mixed sample belongs to its best virtual prototype and, with that one taken out, to its best
    base class.

    Args:
        logits: (n, C0 + V) of mixed samples.
        classes: C0.
    """
    virtual = classes + logits[:, classes:].argmax(dim=1)
    known = logits[:, :classes].argmax(dim=1)
    taken = F.one_hot(virtual, logits.shape[1]).bool()
    rest = logits.masked_fill(taken, FORBIDDEN)
    return F.cross_entropy(logits, virtual) + F.cross_entropy(rest, known)


def mixing_pairs(
    labels: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the members of random pairs (m,), (m,) of samples with different labels."""
    partner = torch.randperm(len(labels), generator=generator).to(labels.device)
    mixed = torch.nonzero(labels != labels[partner]).flatten()
    return mixed, partner[mixed]
