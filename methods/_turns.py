"""Images turned by quarters."""

from __future__ import annotations

import torch


def turned(pixels: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return square images (n, 3, S, S), each turned counter-clockwise by its quarters (n,)."""
    result = pixels.clone()
    for number in range(1, 4):
        own = (turns == number).nonzero()[:, 0].to(pixels.device)
        result[own] = torch.rot90(pixels[own], number, dims=(2, 3))
    return result
