"""Images turned by quarters, and how much of each of two samples a mixture takes."""

from __future__ import annotations

import numpy as np
import torch


def drawn_share(beta: float, generator: torch.Generator) -> float:
    """Return a coefficient from Beta(beta, beta), its randomness taken from `generator`."""
    return float(drawn_shares(beta, 1, generator))


def drawn_shares(beta: float, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return coefficients (count,), float64, from Beta(beta, beta)."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).beta(beta, beta, count))


def turned(pixels: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return square images (n, 3, S, S), each turned counter-clockwise by its quarters (n,)."""
    result = pixels.clone()
    for number in range(1, 4):
        own = (turns == number).nonzero()[:, 0].to(pixels.device)
        result[own] = torch.rot90(pixels[own], number, dims=(2, 3))
    return result
