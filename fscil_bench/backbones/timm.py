"""The networks of timm, by its names: `timm:vit_base_patch16_224`, with a tag for its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fscil_bench.backbone import Backbone, Interpolation, Pool, Published, Reading, Transform
from fscil_bench.errors import DataError, UsageError, nearest

DATA = {
    "in1k": "ImageNet-1k",
    "mae": "ImageNet-1k",
    "dino": "ImageNet-1k",
    "in12k": "ImageNet-12k",
    "in21k": "ImageNet-21k",
    "in22k": "ImageNet-21k",
    "laion2b": "LAION-2B",
    "laion400m": "LAION-400M",
    "datacompxl": "DataComp-1B",
    "datacomp1b": "DataComp-1B",
    "yfcc15m": "YFCC-15M",
    "yfcc100m": "YFCC-100M",
    "jft": "JFT-300M",
    "dfn2b": "DFN-2B",
    "dfn5b": "DFN-5B",
    "openai": "OpenAI's WebImageText",
    "webli": "WebLI",
    "metaclip": "MetaCLIP's web images",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
    "sa1b": "SA-1B",
    "ig1b": "Instagram-1B",
    "swsl": "Instagram-1B",
    "ssl": "YFCC-100M",
    "merged2b": "Merged-2B",
    "merged30m": "Merged-30M",
}
"""A part of a tag of timm's -> the data that it stands for."""
POOLS: Mapping[Pool, str] = {"avg": "avg", "token": "token", "max": "max"}


class Timm(Backbone):
    """Any network of timm, `timm:NAME` or `timm:NAME.TAG`; install it with the extra [timm]."""

    name = "timm"
    variants = True
    pools = ("default", "avg", "token", "max")
    bibtex = """@misc{wightman2019timm,
  author = {Wightman, Ross},
  title = {{PyTorch} Image Models},
  year = {2019},
  doi = {10.5281/zenodo.4414861},
}"""

    def __init__(self, variant: str = "", reading: Reading = Reading()) -> None:
        super().__init__(variant, reading)
        known = _library().list_models()
        name = variant.partition(".")[0]
        if name not in known:
            raise UsageError(f"timm has no network {name!r}; {nearest(name, known)}")
        tags = [full.partition(".")[2] for full in _library().list_pretrained(f"{name}.*")]
        tag = variant.partition(".")[2]
        if tag and tag not in tags:
            raise UsageError(
                f"backbone {self.called!r}: timm has no weights {tag!r}; {nearest(tag, tags)}"
            )

    def build(self) -> nn.Module:
        """Return the network without its classifier."""
        return self._made(pretrained=False)

    @cached_property
    def transform(self) -> Transform:
        """What its weights were trained with."""
        config = _library().get_pretrained_cfg(self.variant)
        if config is None or not config.input_size:
            return Transform(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic")
        bilinear = config.interpolation == "bilinear"
        kind: Interpolation = "bilinear" if bilinear else "bicubic"
        return Transform(config.input_size[-1], tuple(config.mean), tuple(config.std), kind)

    @property
    def published(self) -> Published | None:
        """The weights of its tag, or those that timm takes without one."""
        config = _library().get_pretrained_cfg(self.variant)
        if config is None or not config.has_weights:
            return None
        tag = config.tag or ""
        full = f"{self.variant.partition('.')[0]}.{tag}" if tag else self.variant
        return Published(data_of(tag), f"timm {full}", tensors=self._tensors)

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        try:
            found: dict[str, torch.Tensor] = self._made(pretrained=True).state_dict()
        except Exception as error:  # of whatever library fetches them
            raise DataError(
                f"the weights of {self.called!r} are not on this machine and cannot be fetched "
                f"({type(error).__name__}: {_first_line(error)}); where there is a network, run "
                f"python -c \"import timm; timm.create_model('{self.variant}', pretrained=True)\" "
                "and copy its cache, or give a file of them with --weights FILE"
            ) from error
        return found

    def _made(self, pretrained: bool) -> nn.Module:
        options: dict[str, Any] = {"num_classes": 0, "pretrained": pretrained}
        if self.reading.pool != "default":
            options["global_pool"] = POOLS[self.reading.pool]
        sized = {"img_size": self.reading.size} if self.reading.size else {}
        try:
            try:
                network: nn.Module = _library().create_model(self.variant, **options, **sized)
            except TypeError:  # a network that takes any size knows no size
                network = _library().create_model(self.variant, **options)
        except (AssertionError, TypeError, ValueError) as error:
            raise UsageError(
                f"backbone {self.called!r} cannot be built with pool = {self.reading.pool}, "
                f"size = {self.reading.size}: {_first_line(error)}"
            ) from error
        return network


def data_of(tag: str) -> tuple[str, ...]:
    """Return the data that a tag of timm's names, in its order; the tag itself if it names none."""
    found = [DATA[part] for part in re.split(r"[_.]", tag) if part in DATA]
    return tuple(dict.fromkeys(found)) or (f"data that timm's tag {tag!r} does not name",)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _library() -> Any:
    try:
        return import_module("timm")
    except ImportError as error:
        raise UsageError(
            "backbones timm:NAME need timm, which is not installed: pip install 'fscil-bench[timm]'"
        ) from error
