"""Image encoders of CLIP, by open_clip's names: `clip:ViT-B-32/laion2b_s34b_b79k`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fscil_bench.backbone import Backbone, Interpolation, Published, Reading, Transform
from fscil_bench.errors import DataError, UsageError, nearest

DATA = {
    "openai": "OpenAI's WebImageText",
    "laion2b": "LAION-2B",
    "laion5b": "LAION-5B",
    "laion400m": "LAION-400M",
    "laion": "LAION",
    "datacomp": "DataComp-1B",
    "dfn2b": "DFN-2B",
    "dfn5b": "DFN-5B",
    "webli": "WebLI",
    "metaclip": "MetaCLIP's web images",
    "cc12m": "CC-12M",
    "yfcc15m": "YFCC-15M",
    "merged2b": "Merged-2B",
}
"""How a tag of open_clip's begins -> the data that it stands for."""


class Clip(Backbone):
    """The image encoder of any CLIP, `clip:NAME/TAG`; install it with the extra [clip].

    Features are the projected ones, before they are brought to length 1 (Radford et al., 2021).
    """

    name = "clip"
    variants = True
    bibtex = """@software{ilharco2021openclip,
  author = {Ilharco, Gabriel and Wortsman, Mitchell and Wightman, Ross and others},
  title = {{OpenCLIP}},
  year = {2021},
  doi = {10.5281/zenodo.5143773},
}"""

    def __init__(self, variant: str = "", reading: Reading = Reading()) -> None:
        super().__init__(variant, reading)
        self.network, _, tag = variant.partition("/")
        known = _library().list_models()
        if self.network not in known:
            raise UsageError(
                f"open_clip has no network {self.network!r}; {nearest(self.network, known)}"
            )
        self.tags = list(_library().list_pretrained_tags_by_model(self.network))
        if tag and tag not in self.tags:
            raise UsageError(
                f"backbone {self.called!r}: open_clip has no weights {tag!r}; "
                f"{nearest(tag, self.tags)}"
            )
        self.tag = tag or ("openai" if "openai" in self.tags else next(iter(self.tags), ""))

    def build(self) -> nn.Module:
        """Return the image encoder with its projection."""
        return self._made(None)

    @property
    def transform(self) -> Transform:
        """What its weights were trained with."""
        library = _library()
        side = library.get_model_config(self.network)["vision_cfg"].get("image_size", 224)
        config = library.get_pretrained_cfg(self.network, self.tag) if self.tag else {}
        constants = library.constants
        mean = config.get("mean") or constants.OPENAI_DATASET_MEAN
        std = config.get("std") or constants.OPENAI_DATASET_STD
        kind: Interpolation = "bilinear" if config.get("interpolation") == "bilinear" else "bicubic"
        return Transform(side, tuple(mean), tuple(std), kind)

    @property
    def published(self) -> Published | None:
        """The weights of its tag; without one OpenAI's, where there are some."""
        if not self.tag:
            return None
        data = next((DATA[word] for word in DATA if self.tag.startswith(word)), "")
        source = f"open_clip {self.network}/{self.tag}"
        known = data or f"data that open_clip's tag {self.tag!r} does not name"
        return Published((known,), source, tensors=self._tensors)

    def _tensors(self) -> Mapping[str, torch.Tensor]:
        try:
            found: dict[str, torch.Tensor] = self._made(self.tag).state_dict()
        except Exception as error:  # of whatever library fetches them
            raise DataError(
                f"the weights of {self.called!r} are not on this machine and cannot be fetched "
                f"({type(error).__name__}: {str(error).partition(chr(10))[0]}); where there is a "
                'network, run python -c "import open_clip; open_clip.create_model('
                f"'{self.network}', '{self.tag}')\" and copy its cache, or give a file of them "
                "with --weights FILE"
            ) from error
        return found

    def _made(self, tag: str | None) -> nn.Module:
        size = self.reading.size
        sized = {"force_image_size": size} if size else {}
        device = torch.empty(0).device  # that of the context, which the library does not ask
        whole = _library().create_model(self.network, pretrained=tag, device=device, **sized)
        network: nn.Module = whole.visual
        return network


def _library() -> Any:
    try:
        return import_module("open_clip")
    except ImportError as error:
        raise UsageError(
            "backbones clip:NAME need open_clip, which is not installed: "
            "pip install 'fscil-bench[clip]'"
        ) from error
