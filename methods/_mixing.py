"""How much of each of two samples a mixture takes."""

from __future__ import annotations

import numpy as np
import torch


def drawn_share(beta: float, generator: torch.Generator) -> float:
    """Return a coefficient from Beta(beta, beta), its randomness taken from `generator`."""
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return float(np.random.default_rng(seed).beta(beta, beta))
