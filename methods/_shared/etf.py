"""The simplex equiangular tight frame (ETF): fixed classifier rows that lie as far apart as can be.

Yang et al., "Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot Class-Incremental
Learning" (NC-FSCIL), ICLR 2023, equation 1.
"""

from __future__ import annotations

import math

import torch


def simplex_etf(classes: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Return unit rows e_c (C, d) with ⟨e_c, e_k⟩ = −1/(C−1) for any two classes.

    √(C/(C−1))·(I − 11ᵀ/C)·Uᵀ, where U (d, C) has orthonormal columns in random directions: the
    QR decomposition of normal draws. U needs d ≥ C, although such rows exist for d ≥ C − 1.

    Raises:
        ValueError: there are fewer than two classes, or d < C.
    """
    if classes < 2 or dim < classes:
        raise ValueError(f"an ETF needs C >= 2 and d >= C; C = {classes}, d = {dim}")
    draws = torch.randn(dim, classes, generator=generator, dtype=torch.float64)
    columns, _ = torch.linalg.qr(draws)
    centred = columns - columns.mean(dim=1, keepdim=True)
    rows: torch.Tensor = math.sqrt(classes / (classes - 1)) * centred.T
    return rows.float().contiguous()
