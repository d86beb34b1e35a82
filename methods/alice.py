"""The ALICE representation: an angular margin, two views, and a projector that is thrown away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.representation import Representation, TrainingBatch

from ._shared import citations
from ._shared.augmentation import drawn_share
from ._shared.cosine import cosine_logits, drawn_rows

RUNNING = 0.9
"""What a step leaves of the running class means."""

MIXES = 4
"""Mixtures drawn from a batch (released code)."""

SHARE_SHAPE = 20.0
"""The share of the first image is drawn from Beta(20, 20) (released code)."""

SHARE_RANGE = (0.4, 0.6)
"""Shares outside are replaced by one half (released code)."""


class Alice(Representation):
    """An angular margin on two augmented views, behind a projector that only training uses.

    Peng et al., "Few-Shot Class-Incremental Learning from an Open-Set Perspective" (ALICE), ECCV
    2022.

    Logits are scale · cos(feature, row), with `margin` taken off the cosine of the true class
    (CosFace, Wang et al., CVPR 2018), which makes classes compact and leaves room between them.
    The loss is the mean over two augmented views of each image. A projector of two layers stands
    between backbone and rows, and is dropped afterwards: methods read the backbone's features.
    With `fusion` mixtures of two classes are further classes (harmful for fine-grained data).

    Deviations: since its rows live behind the projector, the base classifier handed on is the
    running mean of each class's unit backbone features; fusion is off unless asked for, as it
    multiplies the cost by three (the paper uses it on CIFAR100 and mini-ImageNet, not on CUB200);
    there are no rows but for base classes and their pairs. Scale 30, margin 0.4 and width 2,048
    are the released code's.
    """

    name = "alice"
    bibtex = citations.ALICE

    @dataclass(frozen=True)
    class Params:
        """`width` is that of the projector's two layers; `views` how many an image is shown in."""

        temperature: Annotated[float, Field(gt=0)] = 30.0
        margin: Annotated[float, Field(ge=0, lt=1)] = 0.4
        views: Annotated[int, Field(ge=1, le=2)] = 2
        fusion: bool = False
        width: Annotated[int, Field(gt=0)] = 2048

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return projector, rows (with one for each pair of classes if fused), running means."""
        rows = classes + (pair_count(classes) if self.params.fusion else 0)
        return AliceHead(feature_dim, classes, rows, self.params.width, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the margin loss, averaged over all images shown."""
        assert isinstance(head, AliceHead)
        further = [batch.augment() for _ in range(self.params.views - 1)]
        images = torch.cat([batch.images, *further])
        labels = batch.labels.repeat(self.params.views)
        count = len(labels)
        if self.params.fusion:
            classes = len(head.means)
            mixed, names = fused(batch.images, batch.labels, classes, batch.generator)
            images, labels = torch.cat([images, mixed]), torch.cat([labels, names])
        features = backbone(images).float()
        head.follow(features[:count].detach(), labels[:count])
        with torch.autocast(features.device.type, enabled=False):
            projected = head.projector(features)
        return margin_loss(
            projected, head.rows.weight, labels, self.params.temperature, self.params.margin
        )

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the running class means (classes, D)."""
        assert isinstance(head, AliceHead)
        return head.means

    def scale(self) -> float:
        """Return the factor on the cosine."""
        return self.params.temperature


class AliceHead(nn.Module):
    """The projector, the rows behind it, and running means (classes, D) of unit features."""

    means: torch.Tensor

    def __init__(
        self, feature_dim: int, classes: int, rows: int, width: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.projector = nn.Sequential(
            drawn_rows(feature_dim, width, generator),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            drawn_rows(width, width, generator),
            nn.BatchNorm1d(width, affine=False),
        )
        self.rows = drawn_rows(width, rows, generator)
        self.register_buffer("means", torch.zeros(classes, feature_dim))

    @torch.no_grad()
    def follow(self, features: torch.Tensor, labels: torch.Tensor) -> None:
        """Move the running means towards those of a batch, (n, D) with labels (n,)."""
        unit = F.normalize(features, dim=1)
        members = F.one_hot(labels, len(self.means)).to(unit.dtype)
        counts = members.sum(dim=0)[:, None]
        there = counts[:, 0] > 0
        batch_means = (members.T @ unit / counts.clamp(min=1))[there]
        fresh = (self.means[there] == 0).all(dim=1, keepdim=True)
        moved = RUNNING * self.means[there] + (1 - RUNNING) * batch_means
        self.means[there] = torch.where(fresh, batch_means, moved)


def margin_loss(
    features: torch.Tensor,
    rows: torch.Tensor,
    labels: torch.Tensor,
    temperature: float,
    margin: float,
) -> torch.Tensor:
    """Return the cross-entropy of temperature · (cos − margin at the true class) (CosFace, eq. 4).

    Args:
        features: (n, d).
        rows: (classes, d).
        labels: (n,).
        temperature: the factor on the cosine.
        margin: what is taken off the true class's cosine.
    """
    logits = cosine_logits(features, rows, temperature)
    own = F.one_hot(labels, len(rows)).to(logits.dtype)
    return F.cross_entropy(logits - temperature * margin * own, labels)


def pair_count(classes: int) -> int:
    """Return the number of unordered pairs of different classes."""
    return classes * (classes - 1) // 2


def pair_labels(first: torch.Tensor, second: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the labels (n,) of pairs of different classes: `classes` and upwards, one a pair.

    Pairs are numbered row by row above the diagonal: (0, 1), (0, 2), ..., (1, 2), ...
    """
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    before = low * (2 * classes - low - 1) // 2
    return classes + before + high - low - 1


def fused(
    images: torch.Tensor, labels: torch.Tensor, classes: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mixtures (m, 3, H, W) of images of different classes, and their labels (m,).

    Class fusion, section 3.3: mixtures of two base classes become classes of their own.
    """
    found: list[torch.Tensor] = []
    names: list[torch.Tensor] = []
    for _ in range(MIXES):
        partner = torch.randperm(len(labels), generator=generator).to(labels.device)
        rows = torch.nonzero(labels != labels[partner]).flatten()
        share = _fusion_share(generator)
        other = partner[rows]
        found.append(share * images[rows] + (1 - share) * images[other])
        names.append(pair_labels(labels[rows], labels[other], classes))
    return torch.cat(found), torch.cat(names)


def _fusion_share(generator: torch.Generator) -> float:
    share = drawn_share(SHARE_SHAPE, generator)
    low, high = SHARE_RANGE
    return share if low <= share <= high else 0.5
