"""The representation contract: what is trained on the base classes, and what comes out of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fscil_bench.backbone import Reading
from fscil_bench.plugins.contract import Contract

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class TrainingBatch:
    """One step's images: `images` (b, 3, H, W) augmented and normalised, `labels` (b,).

    `augment` draws another augmented view of the same images, by the recipe's operations or by
    those that it is given (names, or functions of whole batches, see `augment.Operation`);
    `generator` is the step's own. `episode(ways, shots)` draws images (w·k, 3, H, W), class by
    class, and their classes (w,): of fewer ways or shots where the base session has no more.
    """

    images: torch.Tensor
    labels: torch.Tensor
    epoch: int
    augment: Callable[..., torch.Tensor]
    generator: torch.Generator
    episode: Callable[[int, int], tuple[torch.Tensor, torch.Tensor]] | None = None


class Representation(Contract):
    """A recipe's objective: the head beside the backbone, and the loss that trains both.

    The engine owns the loop (data order, augmentation, schedule, checkpoints), so that two
    representations differ in what they learn and in nothing else.
    """

    kind = "representation"
    extras: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors that `extra_tensors` returns."""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Protocol -> the parameters that the paper states for it, laid over the defaults."""
    final_class_count: ClassVar[bool] = False
    """Whether it sizes itself by the number of classes at the end; tables flag it."""
    pretrained: ClassVar[bool] = False
    """Whether it starts from the backbone's published weights, whatever the protocol says."""

    mean_over_images: ClassVar[bool] = False
    """Whether the loss is a mean over images of which each could stand alone in a batch, so that
    devices can share one. A subclass with a loss of its own says so anew.
    """

    def __init__(self, params: Any) -> None:
        self.params = params

    @abstractmethod
    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return whatever is trained beside the backbone, initialised from `generator`."""

    def begin(self, backbone: nn.Module, head: nn.Module) -> None:
        """Set up what depends on the backbone at its start, such as a momentum encoder of `head`.

        Called once, before any training and before a checkpoint is restored.
        """
        del backbone, head

    @abstractmethod
    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the scalar training loss of one batch."""

    @abstractmethod
    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the base classifier's rows (classes, D)."""

    @abstractmethod
    def scale(self) -> float:
        """Return the factor on the cosine logits during training."""

    def reading(self) -> Reading:
        """Return how the backbone is to be read."""
        return Reading()

    def is_trained(self) -> bool:
        """Return whether anything is trained; if not, the backbone is taken as it starts."""
        return True

    def tuned(self, backbone: nn.Module) -> Sequence[nn.Module]:
        """Return the parts of the backbone that are trained; the rest keeps its statistics too."""
        return (backbone,)

    def extra_tensors(self, head: nn.Module) -> dict[str, torch.Tensor]:
        """Return the named tensors that methods may ask for."""
        del head
        return {}


@dataclass(frozen=True)
class TrainedRepresentation:
    """A backbone as trained, in evaluation mode, with what came out beside it.

    `key` identifies it; `log` is the training record (epochs, seconds, losses, environment).
    """

    key: str
    backbone: nn.Module
    classifier: torch.Tensor
    scale: float
    extras: dict[str, torch.Tensor] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
