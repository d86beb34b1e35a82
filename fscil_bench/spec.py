"""The specification of a run, and its key: a hash of everything that can change the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

import fscil_bench
from fscil_bench.protocol import Protocol

Precision = Literal["fp32", "bf16"]
_RESULT_MODULES = (
    "augment",
    "backbones",
    "data",
    "features",
    "method",
    "protocol",
    "representation",
    "runner",
    "seeding",
    "sessions",
    "training",
)
"""Engine modules whose code can change a prediction."""


class RepresentationSpec(BaseModel):
    """What decides a trained representation: data, recipe, objective, seed, precision, code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    params: dict[str, Any]
    seed: int
    dataset: str
    data_fingerprint: str
    base_classes: int
    backbone: str
    pretraining: str
    images: dict[str, Any]
    recipe: dict[str, Any]
    precision: Precision
    code: str
    engine: str

    @property
    def key(self) -> str:
        """Identify the representation."""
        return digest_of(self.model_dump())


class RunSpec(BaseModel):
    """What decides a run's predictions.

    Attributes:
        split: `canonical` or `seeded`, as resolved.
        shots: digest of the canonical table's rows, or None.
        seed: which shots are drawn (split `seeded`), and the method's own noise.
        code: digests of the method's and the data-set reader's files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    params: dict[str, Any]
    protocol: Protocol
    representation: RepresentationSpec
    split: str
    shots: str | None = None
    seed: int
    code: dict[str, str]
    engine: str

    @property
    def key(self) -> str:
        """Identify the run: 16 hexadecimal digits."""
        return digest_of(self.model_dump())

    @property
    def row(self) -> str:
        """Identify the table row: everything but the axes of chance and the code's digests."""
        data = self.model_dump(exclude={"seed", "code", "engine", "shots"})
        for name in ("seed", "code", "engine"):
            data["representation"].pop(name)
        return digest_of(data)

    @property
    def version(self) -> str:
        """Identify the code that the run was made with."""
        rep = self.representation
        return digest_of([self.code, self.engine, rep.code, rep.engine])


def digest_of(value: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def engine_digest() -> str:
    """Return the engine's version with a digest of its modules that can change a prediction."""
    folder = Path(__file__).parent
    joined = b"\0".join((folder / f"{name}.py").read_bytes() for name in _RESULT_MODULES)
    return f"{fscil_bench.__version__}+{hashlib.sha256(joined).hexdigest()[:12]}"


def command_for(spec: RunSpec, defaults: Mapping[str, Any]) -> str:
    """Return the command line that makes a run like `spec`.

    `defaults` are the method's default parameters; only what differs from them is written.
    """
    words = ["fscil-bench run", f"--method {spec.method}", f"--protocol {spec.protocol.name}"]
    if spec.representation.name != "cosine":
        words.append(f"--representation {spec.representation.name}")
    if spec.split != spec.protocol.split:
        words.append(f"--split {spec.split}")
    words.append(f"--seeds {spec.seed}")
    if spec.representation.seed:
        words.append(f"--representation-seed {spec.representation.seed}")
    changed = {name: v for name, v in spec.params.items() if defaults.get(name, v) != v}
    words += [f"--set {name}={value}" for name, value in changed.items()]
    return " ".join(words)
