"""Scaled cosine logits, and the classifier rows that they are taken with."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def drawn_rows(feature_dim: int, classes: int, generator: torch.Generator) -> nn.Linear:
    """Return classifier rows (classes, D) without bias, drawn as `torch.nn.Linear` draws them."""
    rows = nn.Linear(feature_dim, classes, bias=False)
    bound = feature_dim**-0.5
    with torch.no_grad():
        rows.weight.uniform_(-bound, bound, generator=generator)
    return rows


def cosine_logits(features: torch.Tensor, rows: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return temperature · cos(feature, row), (n, classes), in float32 whatever the precision.

    Args:
        features: (n, D).
        rows: (classes, D).
        temperature: the factor.
    """
    with torch.autocast(features.device.type, enabled=False):
        return temperature * F.normalize(features.float(), dim=1) @ F.normalize(rows, dim=1).T
