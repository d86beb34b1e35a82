"""Scaled cosine logits, and the classifier rows that they are taken with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.representation import Representation, TrainingBatch

RUNNING = 0.9
"""What a step leaves of the running class means."""


class RunningMeans(nn.Module):
    """Running means `rows` (classes, D) of each class's unit features.

    What a representation hands on as classifier whose own rows live elsewhere, behind a projector
    say.
    """

    rows: torch.Tensor

    def __init__(self, feature_dim: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(classes, feature_dim))

    @torch.no_grad()
    def follow(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        """Move the means towards those of a batch, (n, D) with labels (n,)."""
        unit = F.normalize(features, dim=1)
        members = F.one_hot(labels, len(self.rows)).to(unit.dtype)
        counts = members.sum(dim=0)[:, None]
        there = counts[:, 0] > 0
        batch_means = (members.T @ unit / counts.clamp(min=1))[there]
        fresh = (self.rows[there] == 0).all(dim=1, keepdim=True)
        moved = RUNNING * self.rows[there] + (1 - RUNNING) * batch_means
        self.rows[there] = torch.where(fresh, batch_means, moved)


def drawn_rows(feature_dim: int, classes: int, generator: torch.Generator) -> nn.Linear:
    """Return classifier rows (classes, D) without bias, drawn as `torch.nn.Linear` draws them."""
    rows = nn.Linear(feature_dim, classes, bias=False)
    bound = feature_dim**-0.5
    with torch.no_grad():
        rows.weight.uniform_(-bound, bound, generator=generator)
    return rows


def drawn_layer(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a layer with bias, drawn as `torch.nn.Linear` draws it."""
    # Made empty, as a layer would otherwise draw its weights from the global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer


def cosine_logits(features: torch.Tensor, rows: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return temperature · cos(feature, row), (n, classes), in float32 whatever the precision.

    Args:
        features: (n, D).
        rows: (classes, D).
        temperature: the factor.
    """
    with torch.autocast(features.device.type, enabled=False):
        return temperature * F.normalize(features.float(), dim=1) @ F.normalize(rows, dim=1).T


class CosineRepresentation(Representation):
    """Cross-entropy on scaled cosine logits; `params.temperature` is the scale.

    A subclass is named, has parameters with a temperature, and may change the loss.
    """

    mean_over_images = True

    params: Any

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return the classifier's rows, drawn as `torch.nn.Linear` draws its weights."""
        return drawn_rows(feature_dim, classes, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the cross-entropy of the scaled cosine logits, computed in float32."""
        rows = self.classifier(head)
        logits = cosine_logits(backbone(batch.images), rows, self.params.temperature)
        return F.cross_entropy(logits, batch.labels)

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the rows (classes, D)."""
        weight: torch.Tensor = head.weight  # type: ignore[assignment]
        return weight

    def scale(self) -> float:
        """Return the temperature."""
        temperature: float = self.params.temperature
        return temperature
