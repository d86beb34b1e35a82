"""Distillation: the old classes' probabilities held to those of the network before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

Teacher = Callable[[torch.Tensor], torch.Tensor]
"""Maps normalised images (n, 3, H, W) to the logits (n, old classes) of before the session."""


def distillation(logits: torch.Tensor, old: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return T² · KL(old ‖ new) of the old classes' softened probabilities, a mean over samples.

    Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; T² keeps gradients of the
    same size whatever the temperature.

    Args:
        logits: (n, classes seen) of the network that learns.
        old: (n, old classes) of the one before; the first columns stand for the same classes.
        temperature: T.
    """
    new = F.log_softmax(logits[:, : old.shape[1]] / temperature, dim=1)
    target = F.log_softmax(old / temperature, dim=1)
    return temperature**2 * F.kl_div(new, target, reduction="batchmean", log_target=True)
