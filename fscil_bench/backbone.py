"""The backbone contract: a network that turns images into features, and what it expects of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.contract import Contract

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fscil_bench.protocol import ImageSpec

Interpolation = Literal["bilinear", "bicubic"]
Pool = Literal["default", "avg", "token", "max"]
"""How a network's maps or tokens become a vector: its own way, their mean, the class token, or
their maximum."""


@dataclass(frozen=True)
class Transform:
    """What a network takes: squares of `size` pixels; `mean` and `std` of values in [0, 1]."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: Interpolation = "bilinear"

    @classmethod
    def of(cls, images: ImageSpec) -> Transform:
        """Return a protocol's own: its images as they are, normalised as it says."""
        return cls(images.size, images.mean, images.std)


@dataclass(frozen=True)
class Published:
    """Pre-trained weights that others have published.

    Attributes:
        data: what they were trained on: ("ImageNet-1k",).
        source: whose they are, and which.
        address: where the file of them can be fetched, by its name; "" where a library keeps them.
        digest: how its SHA-256 begins.
        tensors: returns the state of `build()`'s network, where a library keeps them; raises
            `DataError` if they are neither on this machine nor can be fetched.
    """

    data: tuple[str, ...]
    source: str
    address: str = ""
    digest: str = ""
    tensors: Callable[[], Mapping[str, torch.Tensor]] | None = None

    @property
    def title(self) -> str:
        """What keys and tables call them."""
        return f"{', '.join(self.data)} ({self.source})"


@dataclass(frozen=True)
class Reading:
    """How a network is to be read, where that is not as it was published.

    `pool` makes a vector of its maps or tokens; `size` is the side of its input in pixels, 0 its
    own.
    """

    pool: Pool = "default"
    size: int = 0


class Backbone(Contract):
    """A network that maps normalised images (n, 3, S, S) to features (n, D).

    A subclass sets `name` and builds the network. One that stands for many has `variants`, and is
    asked for as `name:variant`.
    """

    kind = "backbone"
    variants: ClassVar[bool] = False
    """Whether it stands for many networks, told apart by what follows the colon."""
    pools: ClassVar[tuple[Pool, ...]] = ("default",)
    """The ways of pooling that `build` can take."""

    def __init__(self, variant: str = "", reading: Reading = Reading()) -> None:
        self.variant, self.reading = variant, reading
        if reading.pool not in self.pools:
            raise UsageError(
                f"backbone {self.called!r} cannot be read with pool = {reading.pool}; it offers "
                f"{', '.join(self.pools)}"
            )

    @abstractmethod
    def build(self) -> nn.Module:
        """Return the network with random weights, drawn from PyTorch's global generator."""

    @property
    def dim(self) -> int:
        """D; measured on a network without values unless a subclass states it."""
        return _measured_dim(type(self), self.variant, self.reading)

    @property
    def transform(self) -> Transform | None:
        """What it expects of images; None takes them as the protocol says."""
        return None

    @property
    def published(self) -> Published | None:
        """Weights that it can start from, if there are any."""
        return None

    @property
    def called(self) -> str:
        """What users call it: its name, with the variant if there is one."""
        return f"{self.name}:{self.variant}" if self.variant else self.name

    def input_of(self, images: ImageSpec) -> Transform | None:
        """Return how images become its input, or None if as the protocol says."""
        size, own = self.reading.size, self.transform
        if own is None and size:
            own = Transform.of(images)
        return replace(own, size=size) if own and size else own

    def fresh(self, seed: int) -> nn.Module:
        """Return the network initialised from a seed, channels-last; the global state is kept.

        Raises:
            UsageError: it cannot be built.
        """
        import torch

        with torch.random.fork_rng(devices=[]), _building(self):
            torch.manual_seed(seed)
            network = self.build()
        return network.to(memory_format=torch.channels_last)

    def parameters(self) -> int:
        """Return the number of its parameters."""
        import torch

        with torch.device("meta"):
            return count_parameters(self.build())


@contextmanager
def _building(backbone: Backbone) -> Iterator[None]:
    """Name the backbone in what anybody's code raises."""
    try:
        yield
    except FscilError:
        raise
    except Exception as error:
        raise UsageError(
            f"backbone {backbone.called!r} cannot be built: {type(error).__name__}: {error}; "
            "--debug shows where"
        ) from error


@runtime_checkable
class Staged(Protocol):
    """A network that can be entered half-way: `late(early(x))` is its output.

    The cut is after the second stage, where manifold mixup mixes (FACT's released code).
    """

    def early(self, x: torch.Tensor) -> torch.Tensor:
        """Map images (n, 3, H, W) to the second stage's output (n, channels, h, w)."""

    def late(self, x: torch.Tensor) -> torch.Tensor:
        """Map the second stage's output to features (n, D)."""


def count_parameters(network: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


SIDE = 224
"""Pixels of an image without values, for a network that takes any."""


@cache
def _measured_dim(backbone: type[Backbone], variant: str, reading: Reading) -> int:
    import torch

    made = backbone(variant, reading)
    side = reading.size or (made.transform.size if made.transform else SIDE)
    with torch.device("meta"), torch.no_grad(), _building(made):
        features: torch.Tensor = made.build().eval()(torch.empty(1, 3, side, side))
    return features.shape[-1]
