"""How far features are from their class's row of the ETF.

Yang et al., "Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot Class-Incremental
Learning" (NC-FSCIL), ICLR 2023, equation 5.
"""

from __future__ import annotations

import torch


def dot_regression(
    units: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of ½·(⟨h, e_y⟩ − 1)² over samples: 0 if and only if every h is its e_y.

    Args:
        units: h (n, d), of length 1.
        targets: e_y (n, d), of length 1.
        weights: of the samples (n,), with mean 1; equal by default.
    """
    losses = 0.5 * ((units * targets).sum(dim=1) - 1).square()
    return losses.mean() if weights is None else (weights * losses).mean()


def class_balance(labels: torch.Tensor) -> torch.Tensor:
    """Return weights (n,) with mean 1 that make each class of the labels (n,) weigh the same."""
    counts = torch.bincount(labels)
    classes = int((counts > 0).sum())
    weights: torch.Tensor = len(labels) / classes / counts[labels]
    return weights
