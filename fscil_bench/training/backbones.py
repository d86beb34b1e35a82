"""Backbones: networks that turn normalised images (n, 3, H, W) into features (n, D)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import UsageError, nearest


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a residual; the shortcut is a 1×1 convolution where shapes differ.

    He et al. (2016), section 3.3, option B.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, inputs, H, W) to (n, width, H/stride, W/stride)."""
        out: torch.Tensor = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet20(nn.Module):
    """The ResNet-20 for 32×32 images: three stages of three blocks, 64 features after pooling.

    He et al. (2016), section 4.2, with 1×1 convolutions as shortcuts; 271,824 parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._stage(16, 16, stride=1)
        self.layer2 = self._stage(16, 32, stride=2)
        self.layer3 = self._stage(32, 64, stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(inputs: int, width: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            BasicBlock(inputs, width, stride),
            BasicBlock(width, width, 1),
            BasicBlock(width, width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (n, 3, H, W) to non-negative features (n, 64)."""
        return self.late(self.early(x))

    def early(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (n, 3, H, W) to the second stage's output (n, 32, H/2, W/2)."""
        x = self.relu(self.bn1(self.conv1(x)))
        out: torch.Tensor = self.layer2(self.layer1(x))
        return out

    def late(self, x: torch.Tensor) -> torch.Tensor:
        """Map the second stage's output to features (n, 64)."""
        out: torch.Tensor = self.layer3(x)
        return out.mean(dim=(2, 3))


@runtime_checkable
class Staged(Protocol):
    """A backbone that can be entered half-way: `late(early(x))` is its output.

    The cut is after the second stage, where manifold mixup mixes (FACT's released code).
    """

    def early(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (n, 3, H, W) to the second stage's output (n, channels, h, w)."""

    def late(self, x: torch.Tensor) -> torch.Tensor:
        """Map the second stage's output to features (n, D)."""


def _resnet18() -> nn.Module:
    # torchvision takes over a second to import, which a run on 32×32 images never needs.
    from torchvision.models.resnet import BasicBlock as Block
    from torchvision.models.resnet import ResNet

    class ResNet18(ResNet):  # type: ignore[misc]  # torchvision has no types
        def early(self, x: torch.Tensor) -> torch.Tensor:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            out: torch.Tensor = self.layer2(self.layer1(x))
            return out

        def late(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.avgpool(self.layer4(self.layer3(x)))
            return out.flatten(1)

    network: nn.Module = ResNet18(Block, [2, 2, 2, 2])
    network.fc = nn.Identity()
    return network


BACKBONES: Mapping[str, tuple[Callable[[], nn.Module], int, str]] = {
    "resnet20": (ResNet20, 64, "ResNet-20"),
    "resnet18": (_resnet18, 512, "ResNet-18 (7×7 stem)"),
}
"""Name -> constructor, feature dimension, title."""


def feature_dim(name: str) -> int:
    """Return D of a backbone.

    Raises:
        UsageError: no backbone has that name.
    """
    if name not in BACKBONES:
        raise UsageError(f"unknown backbone {name!r}; {nearest(name, BACKBONES)}")
    return BACKBONES[name][1]


def backbone_title(name: str) -> str:
    """Return the name of a backbone as tables print it."""
    return BACKBONES[name][2] if name in BACKBONES else name


def build_backbone(name: str, seed: int) -> nn.Module:
    """Return a freshly initialised backbone in channels-last memory format.

    The global random state is left as it was.

    Raises:
        UsageError: no backbone has that name.
    """
    feature_dim(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = BACKBONES[name][0]()
    return network.to(memory_format=torch.channels_last)


def count_parameters(network: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
