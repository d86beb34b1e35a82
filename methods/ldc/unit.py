"""LDC's calibration unit (PCU): mapping, Gaussian noise, recurrent calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from fscil_bench.method import batches

LOG_FACTOR_LIMIT = 4.0
"""The mapping scales an entry by at most e⁴, also for means unlike any it was trained on."""

BLOCK_ENTRIES = 2**16
"""Entries of hidden channels computed at once on a CPU, so that they stay in its cache."""

Mapping: TypeAlias = Literal["auto", "entries", "columns"]

COLUMNS_FROM = 512
"""Feature dimension from which `auto` maps columns of S instead of its entries."""


@dataclass(frozen=True)
class UnitShape:
    """What decides which parameters a unit has.

    Attributes:
        mapped: whether it has the mapping M; without it, every class has the stored covariance.
        steps: R, how often the recurrent calibration is applied; with 0 it does not exist.
        hidden: channels between the two convolutions, of either part.
        kernel: side of the convolutions' kernels.
        sees_shots: whether the recurrent calibration is also told the class's mean and its
            standard error.
        mapping: whether M maps every entry of S, or two of each column.
    """

    mapped: bool
    steps: int
    hidden: int
    kernel: int
    sees_shots: bool = False
    mapping: Mapping = "entries"

    @property
    def learnable(self) -> bool:
        """Whether the unit has parameters at all."""
        return self.mapped or self.steps > 0

    def by_columns(self, dim: int) -> bool:
        """Whether M maps columns, for features of `dim` dimensions."""
        small = dim < COLUMNS_FROM or self.kernel > 1
        return self.mapping == "columns" or (self.mapping == "auto" and not small)


@dataclass(frozen=True)
class ColumnFactors:
    """Factors A_i = S·diag(scale_i) + diag(shift_i) of n classes, without their n·D² entries.

    Attributes:
        root: S (D, D), the same for all classes.
        scale: factor (n, D) on each column.
        shift: what is added to the diagonal (n, D).
    """

    root: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor

    def dense(self) -> torch.Tensor:
        """Return A_i (n, D, D)."""
        return self.root * self.scale[:, None] + torch.diag_embed(self.shift)

    def times(self, noise: torch.Tensor) -> torch.Tensor:
        """Return zA_i for noise z (n, samples, D)."""
        return (noise @ self.root) * self.scale[:, None] + noise * self.shift[:, None]

    def variances(self) -> torch.Tensor:
        """Return the diagonals of Σ_i = A_iᵀA_i (n, D)."""
        diagonal = self.root.diagonal()
        beside = self.root.square().sum(dim=0) - diagonal.square()
        return self.scale.square() * beside + (self.scale * diagonal + self.shift).square()

    def shared_where(self, chosen: torch.Tensor) -> ColumnFactors:
        """Return the same with A_i = S for the classes that are chosen (n,)."""
        scale = self.scale.masked_fill(chosen[:, None], 1.0)
        return ColumnFactors(self.root, scale, self.shift.masked_fill(chosen[:, None], 0.0))


Factors: TypeAlias = torch.Tensor | ColumnFactors
"""A_i of n classes, (n, rank, D)."""


def dense(factors: Factors) -> torch.Tensor:
    """Return A_i (n, rank, D) entry by entry."""
    return factors if isinstance(factors, torch.Tensor) else factors.dense()


def variances(factors: Factors) -> torch.Tensor:
    """Return the diagonals of Σ_i = A_iᵀA_i (n, D)."""
    if isinstance(factors, torch.Tensor):
        return factors.square().sum(dim=1)
    return factors.variances()


class ConvReluConv(nn.Module):
    """Conv-ReLU-Conv from `channels` maps of D (or D×D) entries to one; it starts at zero.

    Feature order carries no meaning, so the kernel is one entry wide unless asked otherwise.
    """

    def __init__(
        self, channels: int, hidden: int, kernel: int, dims: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        window = (kernel,) * dims
        bound = 1 / math.sqrt(channels * kernel**dims)
        first = torch.empty(hidden, channels, *window).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(hidden).uniform_(-bound, bound, generator=generator)
        self.first, self.first_bias = nn.Parameter(first), nn.Parameter(bias)
        self.last = nn.Parameter(torch.zeros(1, hidden, *window))
        self.last_bias = nn.Parameter(torch.zeros(1))

    def forward(self, *maps: torch.Tensor) -> torch.Tensor:
        """Map `channels` tensors of one shape (n, D) or (n, D, D) to one of that shape."""
        if self.first[0, 0].numel() == 1:
            return self._pointwise(*maps)
        conv: Callable[..., torch.Tensor] = F.conv1d if maps[0].ndim == 2 else F.conv2d
        x = torch.stack(maps, dim=1)
        hidden = F.relu(conv(x, self.first, self.first_bias, padding="same"))
        return conv(hidden, self.last, self.last_bias, padding="same").squeeze(1)

    def _pointwise(self, *maps: torch.Tensor) -> torch.Tensor:
        x = torch.stack([m.flatten() for m in maps])
        weights = self.first.flatten(1), self.first_bias, self.last.flatten(), self.last_bias
        out: torch.Tensor = _Pointwise.apply(x, *weights)
        return out.view(maps[0].shape)


class _Pointwise(torch.autograd.Function):
    """The 1×1 case of Conv-ReLU-Conv, on entries x (channels, n), without its hidden channels.

    Hidden channels of D×D maps would fill gigabytes; made block by block, and made again for the
    gradient, they stay in the processor's cache, which is also faster.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        first: torch.Tensor,
        bias: torch.Tensor,
        last: torch.Tensor,
        last_bias: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, first, bias, last)
        out = x.new_empty(x.shape[1])
        for part in _blocks(x, len(first)):
            hidden = torch.addmm(bias[:, None], first, x[:, part]).relu_()
            out[part] = last @ hidden
        return out.add_(last_bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, first, bias, last = ctx.saved_tensors
        d_first, d_bias, d_last = (torch.zeros_like(t) for t in (first, bias, last))
        d_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        for part in _blocks(x, len(first)):
            hidden = torch.addmm(bias[:, None], first, x[:, part]).relu_()
            d_last += hidden @ grad[part]
            d_hidden = torch.outer(last, grad[part]).mul_(hidden > 0)
            d_bias += d_hidden.sum(dim=1)
            d_first += d_hidden @ x[:, part].T
            if d_x is not None:
                d_x[:, part] = first.T @ d_hidden
        return d_x, d_first, d_bias, d_last, grad.sum().view(1)


def _blocks(x: torch.Tensor, hidden: int) -> Iterator[slice]:
    size = max(1, BLOCK_ENTRIES // hidden) if x.device.type == "cpu" else x.shape[1]
    return batches(x.shape[1], size)


class CalibrationUnit(nn.Module):
    """The PCU: θ_m in `mapping`, θ_r in `calibration`, and the scales that their inputs have.

    It starts as the Gaussian sampler with the shared covariance: the mapping multiplies the
    square root of Σ by exp 0, and the recurrent step adds 0.
    """

    scales: torch.Tensor

    def __init__(self, shape: UnitShape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        hidden, kernel = shape.hidden, shape.kernel
        if shape.mapped:
            self.mapping = ConvReluConv(2, hidden, kernel, 2, generator)
        if shape.steps > 0:
            channels = 3 if shape.sees_shots else 1
            self.calibration = ConvReluConv(channels, hidden, kernel, 1, generator)
        if shape.learnable:
            self.register_buffer("scales", torch.ones(2))

    def set_scales(self, means: torch.Tensor, root: torch.Tensor) -> None:
        """Take the root mean squares of class means (C, D) and of the diagonal of S (D, D)."""
        values = [means.square().mean().sqrt(), root.diagonal().square().mean().sqrt()]
        self.scales.copy_(torch.stack(values).clamp(min=1e-6))

    def factors(self, means: torch.Tensor, root: torch.Tensor) -> Factors:
        """Return A_i (n, D, D) for each class mean (n, D), with Σ_i = A_iᵀA_i.

        M(w_i, Σ; θ_m): channel 0 is w_i repeated over the rows, so that entry (i, j) sees w_j
        and can scale the noise of dimension j; channel 1 is the symmetric square root S of Σ
        (`root`, D×D). The factor form makes Σ_i positive semi-definite whatever θ_m is.

        By columns, M is evaluated at (w_j, s_jj) and (w_j, 0) alone: entries beside the diagonal
        are near 0, and their D² evaluations a class cost most of the training.
        """
        shared = root.expand(len(means), *root.shape)
        if not self.shape.mapped:
            return shared
        if self.shape.by_columns(len(root)):
            return self._column_factors(means, root)
        rows = (means / self.scales[0])[:, None, :].expand(shared.shape)
        log_factor: torch.Tensor = self.mapping(rows, shared / self.scales[1])
        return shared * log_factor.clamp(-LOG_FACTOR_LIMIT, LOG_FACTOR_LIMIT).exp()

    def _column_factors(self, means: torch.Tensor, root: torch.Tensor) -> ColumnFactors:
        diagonal = root.diagonal()
        shape = len(means), 2, len(root)
        entries = torch.stack([torch.zeros_like(diagonal), diagonal / self.scales[1]])
        rows = (means / self.scales[0])[:, None, :].expand(shape)
        log_factor: torch.Tensor = self.mapping(rows, entries.expand(shape))
        limited = log_factor.clamp(-LOG_FACTOR_LIMIT, LOG_FACTOR_LIMIT).exp()
        beside, on = limited.unbind(dim=1)
        return ColumnFactors(root, beside, diagonal * (on - beside))

    def calibrate(self, samples: torch.Tensor, *context: torch.Tensor) -> torch.Tensor:
        """Return one recurrent step's X' = X̃ + f(X̃; θ_r) for samples (classes, n, D).

        `context` are the further maps (classes, 1, D) that f sees, each in its own unit.
        """
        maps = [samples / self.scales[0], *(each.expand(samples.shape) for each in context)]
        change: torch.Tensor = self.calibration(*(each.flatten(0, -2) for each in maps))
        return samples + self.scales[0] * change.view(samples.shape)

    def steps(
        self,
        means: torch.Tensor,
        factors: Factors,
        noise: torch.Tensor,
        counts: torch.Tensor | None = None,
    ) -> list[torch.Tensor]:
        """Return the samples (classes, n, D) after 0, 1, …, R recurrent steps.

        Args:
            means: w_i (classes, D).
            factors: A_i (classes, rank, D).
            noise: standard normal z (classes, n, rank); x̃ = w_i + zA_i.
            counts: how many samples (classes,) each w_i is the mean of, for a unit that sees
                shots; w_i and the roots of Σ_i's diagonal over them are then inputs of f.
        """
        if isinstance(factors, torch.Tensor):
            samples = [torch.baddbmm(means[:, None], noise, factors)]
        else:
            samples = [means[:, None] + factors.times(noise)]
        context: tuple[torch.Tensor, ...] = ()
        if self.shape.sees_shots and counts is not None:
            errors = (variances(factors) / counts[:, None]).sqrt()
            context = (means[:, None] / self.scales[0], errors[:, None] / self.scales[1])
        for _ in range(self.shape.steps):
            samples.append(self.calibrate(samples[-1], *context))
        return samples
