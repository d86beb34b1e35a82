"""The networks of torchvision, by its names: `torchvision:resnet50`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fscil_bench.backbone import Backbone, Interpolation, Published, Reading, Transform
from fscil_bench.errors import DataError, UsageError, nearest


class Torchvision(Backbone):
    """Any classifier of torchvision, `torchvision:NAME`, without its last layer."""

    name = "torchvision"
    variants = True

    def __init__(self, variant: str = "", reading: Reading = Reading()) -> None:
        super().__init__(variant, reading)
        models = _models()
        known = models.list_models(module=models)
        if variant not in known:
            raise UsageError(f"torchvision has no network {variant!r}; {nearest(variant, known)}")

    def build(self) -> nn.Module:
        """Return the network with the identity for its last linear layer."""
        return self._made(None)

    @property
    def transform(self) -> Transform:
        """What its weights were trained with."""
        preset = self._weights().transforms()
        kind: Interpolation = "bicubic" if preset.interpolation.value == "bicubic" else "bilinear"
        return Transform(preset.crop_size[0], tuple(preset.mean), tuple(preset.std), kind)

    @property
    def published(self) -> Published:
        """The weights that torchvision takes by default."""
        name = str(self._weights().name)
        data = ("Instagram-3.6B", "ImageNet-1k") if "SWAG" in name else ("ImageNet-1k",)
        return Published(data, f"torchvision {name}", tensors=self._tensors)

    def _weights(self) -> Any:
        return _models().get_model_weights(self.variant).DEFAULT

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        weights = self._weights()
        try:
            found: dict[str, torch.Tensor] = self._made(weights).state_dict()
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"the weights of {self.called!r} are not on this machine and cannot be fetched "
                f"from {weights.url} ({error}); fetch that file elsewhere and give --weights FILE"
            ) from error
        return found

    def _made(self, weights: Any) -> nn.Module:
        network: nn.Module = _models().get_model(self.variant, weights=weights)
        linear = [name for name, each in network.named_modules() if isinstance(each, nn.Linear)]
        owner, _, last = linear[-1].rpartition(".") if linear else ("none", "", "")
        if owner.partition(".")[0] not in ("", "classifier", "heads", "head"):
            raise UsageError(f"backbone {self.called!r}: it does not end in a linear layer")
        setattr(network.get_submodule(owner), last, nn.Identity())
        return network


def _models() -> Any:
    return import_module("torchvision.models")
