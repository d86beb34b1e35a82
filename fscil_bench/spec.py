"""The specification of a run, and its key: a hash of everything that can change the result."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from fscil_bench.backbone import Transform
from fscil_bench.protocol import FEATURES, ImageSpec, Protocol, Recipe

Precision = Literal["fp32", "bf16"]
Views = Literal["plain", "flip"]
"""How features are read: of the image alone, or averaged with those of its mirror image."""
UNMATCHED = "labels and order of samples as the file of features has them"
"""The flag of a run whose features were held against no copy of the data set."""


class RepresentationSpec(BaseModel):
    """What decides a trained representation: data, recipe, objective, seed, precision, code.

    `transform` is how images become the backbone's input, where that is not as `images` says;
    `network` is the title and digest of a network that is taken as it is, if one is; `devices` is
    among how many each batch of the training was divided.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    params: dict[str, Any]
    seed: int
    dataset: str
    data_fingerprint: str
    base_classes: int
    class_order: str = "dataset"
    backbone: str
    pretraining: str
    images: ImageSpec
    recipe: Recipe
    precision: Precision
    code: str
    engine: str
    backbone_code: str = ""
    transform: Transform | None = None
    network: str = ""
    devices: Annotated[int, Field(ge=1)] = 1

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Records of before lack them, and keep their keys.
        later = {"backbone_code": "", "transform": None, "network": "", "devices": 1}
        return {k: v for k, v in dump(self).items() if k not in later or v != later[k]}

    @property
    def key(self) -> str:
        """Identify the representation."""
        return digest_of(self.model_dump())

    @property
    def network_title(self) -> str:
        """The title of a network that is taken, without its digest; empty if none is."""
        return self.network.partition(" (sha256 ")[0]

    def shared(self, *apart: str) -> dict[str, Any]:
        """Return, as JSON values, what seeds and versions of the code share, but some fields."""
        data = self.model_dump(
            mode="json", exclude={"seed", "code", "engine", "backbone_code", *apart}
        )
        return data | ({"network": self.network_title} if self.network else {})

    @property
    def training(self) -> str:
        """Identify what is trained, in whatever precision and by whatever version of the code.

        Reports take one network of each.
        """
        return digest_of(self.model_dump(exclude={"precision", "code", "engine", "backbone_code"}))


class RunSpec(BaseModel):
    """What decides a run's predictions.

    Attributes:
        split: `canonical` or `seeded`, as resolved.
        shots: digest of the canonical table's rows, or None.
        seed: which shots are drawn (split `seeded`), and the method's own noise.
        views: how the frozen features are read, for training and test images alike.
        code: digest of the method's code, wherever it lies.
        engine: digest of the engine's code that takes a method through the sessions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    params: dict[str, Any]
    protocol: Protocol
    representation: RepresentationSpec
    split: str
    shots: str | None
    seed: int
    views: Views = "plain"
    code: str
    engine: str

    @property
    def key(self) -> str:
        """Identify the run: 16 hexadecimal digits."""
        return digest_of(self.model_dump())

    @property
    def row(self) -> str:
        """Identify the table row: everything but axes of chance, precision and digests of code."""
        data = self.model_dump(exclude={"seed", "code", "engine", "shots"})
        return digest_of(data | {"representation": self.representation.shared("precision")})

    @property
    def version(self) -> str:
        """Identify the code, and the table of canonical shots, that the run was made with."""
        rep = self.representation
        return digest_of(
            [self.code, self.engine, self.shots, rep.code, rep.engine, rep.backbone_code]
        )


def features_name(brought: RepresentationSpec) -> str:
    """Return the name of the file that features come from; empty if they come from a network."""
    from_file = brought.backbone == FEATURES
    return brought.pretraining.partition(" (sha256 ")[0] if from_file else ""


def brought_title(brought: RepresentationSpec) -> str:
    """Return what stands before a method, as people call it: a representation, or such a file."""
    name = features_name(brought)
    return f"{FEATURES} {name}" if name else brought.name


def digest_of(value: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
