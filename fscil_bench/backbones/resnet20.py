"""The ResNet-20 of the CIFAR protocols."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.backbone import Backbone


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


class ResNet20Backbone(Backbone):
    """The ResNet-20 for 32×32 images (He et al., 2016, section 4.2)."""

    name = "resnet20"
    title = "ResNet-20"
    dim = 64

    def build(self) -> nn.Module:
        """Return the network, drawn by He's initialisation."""
        return ResNet20()
