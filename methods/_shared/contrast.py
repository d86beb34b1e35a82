"""Supervised contrast between the samples of a batch."""

from __future__ import annotations

import torch


def contrast(cosines: torch.Tensor, groups: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the loss that draws samples of one group together, away from all others.

    Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, equation 2: for each sample the
    mean of −log softmax(cos / temperature) over the others of its group, the softmax over all but
    itself; the mean over samples that have such others. InfoNCE, where a group is an image's views.

    Args:
        cosines: (n, n) between the samples.
        groups: (n,), a number for each group.
        temperature: by which cosines are divided.
    """
    same = torch.eye(len(cosines), dtype=torch.bool, device=cosines.device)
    logs = (cosines / temperature).masked_fill(same, -torch.inf).log_softmax(dim=1)
    positive = (groups[:, None] == groups) & ~same
    counts = positive.sum(dim=1)
    losses = -logs.masked_fill(~positive, 0.0).sum(dim=1) / counts.clamp(min=1)
    return losses.sum() / (counts > 0).sum().clamp(min=1)
