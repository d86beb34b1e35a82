"""The ResNet-18 of the photographs' protocols, as torchvision builds it."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlparse

import torch
from torch import nn

from fscil_bench.backbone import Backbone, Published


class ResNet18Backbone(Backbone):
    """The ResNet-18 with a 7×7 stem, for photographs (He et al., 2016, section 4.1)."""

    name = "resnet18"
    title = "ResNet-18 (7×7 stem)"
    dim = 512

    def build(self) -> nn.Module:
        """Return torchvision's network, which can be entered half-way, without its classifier."""
        # torchvision takes over a second to import, which a run on 32×32 images never needs.
        from torchvision.models.resnet import BasicBlock, ResNet

        class ResNet18(ResNet):  # type: ignore[misc]  # torchvision has no types
            def early(self, x: torch.Tensor) -> torch.Tensor:
                x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
                out: torch.Tensor = self.layer2(self.layer1(x))
                return out

            def late(self, x: torch.Tensor) -> torch.Tensor:
                out: torch.Tensor = self.avgpool(self.layer4(self.layer3(x)))
                return out.flatten(1)

        network: nn.Module = ResNet18(BasicBlock, [2, 2, 2, 2])
        network.fc = nn.Identity()
        return network

    @property
    def published(self) -> Published:
        """Torchvision's weights for ImageNet."""
        from torchvision.models import ResNet18_Weights

        address = str(ResNet18_Weights.IMAGENET1K_V1.url)
        digest = PurePosixPath(urlparse(address).path).stem.rpartition("-")[2]
        return Published(("ImageNet-1k",), "torchvision IMAGENET1K_V1", address, digest)
