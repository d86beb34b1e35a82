"""The ALICE representation: an angular margin, two views, and a projector that is thrown away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.representation import Representation, TrainingBatch

from ._shared.augmentation import drawn_shares
from ._shared.cosine import RunningMeans, cosine_logits, drawn_rows

MIXES = 4
"""Partners that each image of a batch is mixed with (released code)."""

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
    The loss is the mean over two augmented views of each image, which pass one after the other. A
    projector of two layers stands between backbone and rows, and is dropped afterwards: methods
    read the backbone's features. With `fusion` mixtures of two classes are further classes (harmful
    for fine-grained data): the same pairs in both views, each with a share of its own. Its balanced
    classifier, class means of as many images of a base class as a new one has, is `ncm` with
    `balanced=5`.

    Deviations: since its rows live behind the projector, the base classifier handed on is the
    running mean of each class's unit backbone features; fusion is off unless asked for, as it
    multiplies the cost by five (the paper uses it on CIFAR100 and mini-ImageNet, not on CUB200);
    augmentation is the protocol's (docs/methods/alice.md); there are no rows but for base classes
    and their pairs. Scale 30, margin 0.4 and width 2,048 are the released code's.
    """

    name = "alice"
    bibtex = """@inproceedings{peng2022alice,
  author = {Peng, Can and Zhao, Kun and Wang, Tianren and Li, Meng and Lovell, Brian C.},
  title = {Few-Shot Class-Incremental Learning from an Open-Set Perspective},
  booktitle = {European Conference on Computer Vision (ECCV)},
  year = {2022}
}"""

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
        """Return the margin loss, averaged over the views."""
        assert isinstance(head, AliceHead)
        views = [batch.images, *(batch.augment() for _ in range(self.params.views - 1))]
        labels, pairs = batch.labels, None
        if self.params.fusion:
            pairs = fusion_pairs(labels, batch.generator)
            first, second = labels[pairs.rows]
            labels = torch.cat([labels, pair_labels(first, second, len(head.means.rows))])
        losses = []
        for view in views:
            images = view if pairs is None else torch.cat([view, pairs.mixed(view)])
            losses.append(self._view_loss(backbone(images).float(), head, labels, len(view)))
        return torch.stack(losses).mean()

    def _view_loss(
        self, features: torch.Tensor, head: AliceHead, labels: torch.Tensor, unmixed: int
    ) -> torch.Tensor:
        head.means.follow(features[:unmixed].detach(), labels[:unmixed])
        with torch.autocast(features.device.type, enabled=False):
            projected = head.projector(features)
        return margin_loss(
            projected, head.rows.weight, labels, self.params.temperature, self.params.margin
        )

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the running class means (classes, D)."""
        assert isinstance(head, AliceHead)
        return head.means.rows

    def scale(self) -> float:
        """Return the factor on the cosine."""
        return self.params.temperature


class AliceHead(nn.Module):
    """The projector, the rows behind it, and running means of unit features."""

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
        self.means = RunningMeans(feature_dim, classes)


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


@dataclass(frozen=True)
class FusionPairs:
    """The two images of each pair, by their rows (2, m) in a batch, and the first's share (m,)."""

    rows: torch.Tensor
    share: torch.Tensor

    def mixed(self, images: torch.Tensor) -> torch.Tensor:
        """Return the mixtures (m, 3, H, W) of a view (b, 3, H, W)."""
        share = self.share.to(images)[:, None, None, None]
        return share * images[self.rows[0]] + (1 - share) * images[self.rows[1]]


def fusion_pairs(labels: torch.Tensor, generator: torch.Generator) -> FusionPairs:
    """Return pairs of images of different classes; each image has up to `MIXES` partners.

    Class fusion, section 3.3: mixtures of two base classes become classes of their own. As
    released, every pair has a share of its own.
    """
    parts = []
    for _ in range(MIXES):
        partner = torch.randperm(len(labels), generator=generator).to(labels.device)
        first = torch.nonzero(labels != labels[partner]).flatten()
        parts.append(torch.stack([first, partner[first]]))
    rows = torch.cat(parts, dim=1)
    share = drawn_shares(SHARE_SHAPE, rows.shape[1], generator)
    low, high = SHARE_RANGE
    share = torch.where((share >= low) & (share <= high), share, 0.5)
    return FusionPairs(rows, share)
