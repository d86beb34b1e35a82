"""The feature spaces that a method on frozen features can work in."""

from __future__ import annotations

from typing import Literal

import torch

from ._statistics import require_finite, require_non_negative, tukey

Space = Literal["tukey", "raw"]
"""`raw` is the feature as it is, `tukey` its power x^β."""


def in_space(
    features: torch.Tensor,
    space: Space,
    beta: float,
    device: torch.device,
    labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return features (n, D) in a space, float32, on a device; checked before.

    Args:
        features: finite features (n, D), non-negative for `tukey`.
        space: where to take them.
        beta: the exponent β of `tukey`.
        device: where to put them.
        labels: their classes (n,), so that an error can name one.

    Raises:
        DataError: a feature is NaN, infinite, or negative where the space forbids it.
    """
    require_finite(features, labels)
    if space == "tukey":
        require_non_negative(features, labels)
    features = features.to(device, torch.float32)
    return features.clone() if space == "raw" else tukey(features, beta)
