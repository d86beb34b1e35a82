"""NC-FSCIL's neck: an MLP that takes pooled features to the directions of the ETF."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError

from .etf import class_balance, dot_regression

LOSS_WEIGHT = 10.0
"""Factor on the loss: NC-FSCIL's code."""

MIX = 0.5
"""Share of a sample in a mixture of two: NC-FSCIL's code, for CIFAR100."""

WARM_UP, FLOOR = 0.1, 0.01
"""The rate at the first step and at the last, as fractions of the rate: NC-FSCIL's code."""


class Neck(nn.Module):
    """D → 2D → 2D → d with LayerNorm and LeakyReLU 0.1, beside a linear shortcut D → d.

    Args:
        feature_dim: D.
        dim: d.
        generator: what the weights are drawn from, as `torch.nn.Linear` draws its own.
    """

    def __init__(self, feature_dim: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        wide = 2 * feature_dim
        self.body = nn.Sequential(
            _linear(feature_dim, wide, True, generator),
            nn.LayerNorm(wide),
            nn.LeakyReLU(0.1),
            _linear(wide, wide, True, generator),
            nn.LayerNorm(wide),
            nn.LeakyReLU(0.1),
            _linear(wide, dim, False, generator),
        )
        self.shortcut = _linear(feature_dim, dim, False, generator)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the outputs (n, d), of any length, for features (n, D)."""
        out: torch.Tensor = self.body(features) + self.shortcut(features)
        return out


@dataclass(frozen=True)
class NeckTraining:
    """How a neck is trained: SGD with momentum 0.9, a short warm-up, then half a cosine.

    Attributes:
        steps: optimiser steps.
        lr: the highest learning rate.
        weight_decay: of all weights.
        batch_size: samples in a step, all of them where there are fewer.
        warm_up: steps over which the rate rises from a tenth.
        mixup: the probability that a step's outputs are mixed in pairs.
        balanced: whether every class of a batch weighs the same.
    """

    steps: int
    lr: float
    weight_decay: float
    batch_size: int
    warm_up: int
    mixup: float = 0.0
    balanced: bool = False

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if step < self.warm_up:
            return self.lr * (WARM_UP + (1 - WARM_UP) * step / self.warm_up)
        fraction = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        return self.lr * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * fraction)) / 2)


def train_neck(
    neck: Neck,
    features: torch.Tensor,
    labels: torch.Tensor,
    etf: torch.Tensor,
    training: NeckTraining,
    generator: torch.Generator,
    progress: Callable[[float], None] = lambda _: None,
    rate: str = "base_lr",
) -> None:
    """Train a neck in place on features (n, D) with the ETF's rows (C, d) of their labels (n,).

    `rate` names the parameter that sets the learning rate, for messages.

    Raises:
        FscilError: the loss or a weight is not finite.
    """
    optimiser = torch.optim.SGD(
        neck.parameters(), lr=training.lr, momentum=0.9, weight_decay=training.weight_decay
    )
    source = _batches(len(features), training.batch_size, generator)
    for step in range(training.steps):
        for group in optimiser.param_groups:
            group["lr"] = training.rate(step)
        batch = next(source).to(features.device)
        loss = _loss(neck(features[batch]), labels[batch], etf, training, generator)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        progress((step + 1) / training.steps)
    if not training.steps:
        return
    if not all(bool(torch.isfinite(each).all()) for each in (loss, *neck.parameters())):
        raise FscilError(
            f"method 'nc_fscil': the neck diverges (loss {float(loss.detach()):g}); lower {rate} = "
            f"{training.lr:g}"
        )


def _loss(
    outputs: torch.Tensor,
    labels: torch.Tensor,
    etf: torch.Tensor,
    training: NeckTraining,
    generator: torch.Generator,
) -> torch.Tensor:
    if training.mixup == 0 or float(torch.rand(1, generator=generator)) >= training.mixup:
        return _aligned(outputs, labels, etf, training.balanced)
    partner = torch.randperm(len(labels), generator=generator).to(labels.device)
    mixed = MIX * outputs + (1 - MIX) * outputs[partner]
    first = _aligned(mixed, labels, etf, training.balanced)
    return MIX * first + (1 - MIX) * _aligned(mixed, labels[partner], etf, training.balanced)


def _aligned(
    outputs: torch.Tensor, labels: torch.Tensor, etf: torch.Tensor, balanced: bool
) -> torch.Tensor:
    weights = class_balance(labels) if balanced else None
    return LOSS_WEIGHT * dot_regression(F.normalize(outputs, dim=1), etf[labels], weights)


def _batches(count: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield batches of indices without end, epoch after epoch; a last short one is left out."""
    size = min(size, count)
    while True:
        order = torch.randperm(count, generator=generator)
        for start in range(0, count - size + 1, size):
            yield order[start : start + size]


def _linear(inputs: int, outputs: int, bias: bool, generator: torch.Generator) -> nn.Linear:
    # Made empty, as a layer would otherwise draw its weights from the global generator.
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer
