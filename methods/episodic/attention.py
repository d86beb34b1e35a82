"""CEC's graph: one self-attention layer over the class prototypes and a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.method import batches

CHUNK_BYTES = 64 * 2**20
"""Memory that the intermediate results of one chunk of queries may take, about."""

TINY = 1e-12
"""Smallest squared length by which is divided."""


@dataclass(frozen=True)
class GraphParams:
    """What a graph compares, and how.

    Attributes:
        shots: samples that a prototype is the mean of while the graph learns.
        temperature: factor on the cosines.
        layer_norm: whether the graph's output is normalised, as published.
    """

    shots: Annotated[int, Field(gt=0)] = 1
    temperature: Annotated[float, Field(gt=0)] = 16.0
    layer_norm: bool = True


@dataclass(frozen=True)
class Lines:
    """Vectors u_qi = a_i + g_qi·(z_q − b_i) of queries q and classes i, which are never formed.

    There are n·C of them, of D entries; all that is asked of them are products, which are matrix
    products of what makes them up.

    Attributes:
        start: a (C, D).
        away: b (C, D).
        towards: z (n, D).
        share: g (n, C).
    """

    start: torch.Tensor
    away: torch.Tensor
    towards: torch.Tensor
    share: torch.Tensor

    def centred(self) -> Lines:
        """Return these vectors less the mean of their own entries."""
        return self._each(lambda x: x - x.mean(dim=1, keepdim=True))

    def scaled(self, factors: torch.Tensor) -> Lines:
        """Return these vectors, each entry times its factor (D,)."""
        return self._each(lambda x: x * factors)

    def dot(self, other: torch.Tensor) -> torch.Tensor:
        """Return the products (n, C) with a vector for each query (n, D), or one for all (1, D)."""
        moved = (other * self.towards).sum(dim=1, keepdim=True) - other @ self.away.T
        return other @ self.start.T + self.share * moved

    def squared(self) -> torch.Tensor:
        """Return the squared lengths (n, C), at least `TINY`."""
        crossed = self.towards @ self.start.T - (self.start * self.away).sum(dim=1)
        moved = self.towards.square().sum(dim=1, keepdim=True) - 2 * self.towards @ self.away.T
        moved = moved + self.away.square().sum(dim=1)
        total = self.start.square().sum(dim=1) + self.share * (2 * crossed + self.share * moved)
        return total.clamp(min=TINY)

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Lines:
        return Lines(change(self.start), change(self.away), change(self.towards), self.share)


class GraphAttention(nn.Module):
    """Single-head self-attention over sets {C prototypes, one query}, with residual connection.

    Every member x of a set becomes LN(x + O·Σ_j softmax_j(⟨Qx, Kx_j⟩/√D)·Vx_j + o), as in the
    released code of CEC (Zhang et al., CVPR 2021). Its dropout is left out: there the network is
    in evaluation mode throughout, so that it never acts.

    Args:
        dim: D.
        layer_norm: whether LN is there; without it, and with O and o zero, nothing changes.
        generator: what Q, K, V, O and o are drawn from, as the released code draws them.
    """

    def __init__(self, dim: int, layer_norm: bool, generator: torch.Generator) -> None:
        super().__init__()

        def drawn() -> nn.Parameter:
            return nn.Parameter(dim**-0.5 * torch.randn(dim, dim, generator=generator))

        self.query, self.key, self.value, self.output = drawn(), drawn(), drawn(), drawn()
        bias = torch.empty(dim).uniform_(-(dim**-0.5), dim**-0.5, generator=generator)
        self.bias = nn.Parameter(bias)
        self.norm = nn.LayerNorm(dim) if layer_norm else nn.Identity()

    def forward(self, prototypes: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        """Return the cosines (n, C) of each adapted query and the prototypes adapted to it."""
        return self.compared(prototypes, queries)[0]

    def compared(
        self, prototypes: torch.Tensor, queries: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return these cosines (n, C), and the adapted queries (n, D).

        The sets of all queries (n, D) share their prototypes (C, D). What these attend to among
        themselves is computed once; a query adds one member to that, with weight σ(b − log Σ e^a)
        for its logit b beside the logits a of the prototypes.
        """
        asked = prototypes @ self.query.T * prototypes.shape[1] ** -0.5
        keys, values = prototypes @ self.key.T, prototypes @ self.value.T
        own_keys, own_values = queries @ self.key.T, queries @ self.value.T
        among = asked @ keys.T
        shared = torch.softmax(among, dim=1) @ values @ self.output.T
        weights = torch.sigmoid(own_keys @ asked.T - torch.logsumexp(among, dim=1))
        start = prototypes + self.bias + shared
        adapted = Lines(start, shared, own_values @ self.output.T, weights)
        moved = self.norm(self._adapted_queries(queries, keys, values, own_keys, own_values))
        return self._cosines(adapted, moved), moved

    def _cosines(self, adapted: Lines, queries: torch.Tensor) -> torch.Tensor:
        """Return the cosines (n, C) of adapted queries (n, D) and normalised prototypes."""
        units = F.normalize(queries, dim=1)
        if not isinstance(self.norm, nn.LayerNorm):
            return adapted.dot(units) * adapted.squared().rsqrt()
        gain, offset = self.norm.weight, self.norm.bias
        centred = adapted.centred()
        scale = (centred.squared() / len(gain) + self.norm.eps).rsqrt()
        scaled = centred.scaled(gain)
        product = scale * scaled.dot(units) + units @ offset[:, None]
        across = 2 * scaled.dot(offset[None])
        square = scale * (scale * scaled.squared() + across) + offset.square().sum()
        return product * square.clamp(min=TINY).rsqrt()

    def _adapted_queries(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        own_keys: torch.Tensor,
        own_values: torch.Tensor,
    ) -> torch.Tensor:
        asked = queries @ self.query.T * queries.shape[1] ** -0.5
        own = (asked * own_keys).sum(dim=1, keepdim=True)
        weights = torch.softmax(torch.cat([asked @ keys.T, own], dim=1), dim=1)
        attended = weights[:, :-1] @ values + weights[:, -1:] * own_values
        return queries + attended @ self.output.T + self.bias


@torch.no_grad()
def adapted_cosines(
    attention: GraphAttention, prototypes: torch.Tensor, queries: torch.Tensor
) -> torch.Tensor:
    """Return the cosines (n, C) of any number of queries, in chunks of bounded memory."""
    size = max(1, CHUNK_BYTES // (4 * 8 * sum(prototypes.shape)))
    parts = [attention(prototypes, queries[part]) for part in batches(len(queries), size)]
    return torch.cat(parts) if parts else queries.new_empty(0, len(prototypes))
