"""The method contract: learn the base classes, learn each session, score queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from fscil_bench.errors import UsageError
from fscil_bench.plugins.contract import Contract

if TYPE_CHECKING:
    import numpy as np
    import torch

    from fscil_bench.protocol import Queries, Session
    from fscil_bench.seeding import Randomness


@dataclass(frozen=True)
class Needs:
    """What a method must be handed.

    Attributes:
        features: the views of the frozen features that it reads; none for an image method.
        base_views: further views of the base session's training samples alone.
        images: whether it needs the images themselves and a trainable copy of the backbone.
        extras: named tensors that the representation must bring (FACT's virtual prototypes, say).
        final_class_count: whether it sizes itself by the number of classes at the end, which no
            method can know in earnest; tables flag it.
    """

    features: tuple[str, ...] = ("plain",)
    base_views: tuple[str, ...] = ()
    images: bool = False
    extras: tuple[str, ...] = ()
    final_class_count: bool = False


@dataclass(frozen=True)
class Terms:
    """What is known of a run before it, for `Method.check`.

    Attributes:
        feature_dim: D.
        base_classes: classes of the base session.
        classes: of all sessions.
        shot: images of each new class.
        base_images: training images of the smallest base class.
        heldout: whether some base training images are held out.
    """

    feature_dim: int
    base_classes: int
    classes: int
    shot: int
    base_images: int
    heldout: bool


@dataclass(frozen=True)
class Network:
    """The trained backbone for a method that needs images.

    Attributes:
        backbone: maps float images (n, 3, H, W) to features (n, D); the method's own copy.
        classifier: the base classifier's rows (C0, D) as trained, before any replacement.
        scale: the factor on the cosine logits that the classifier was trained with.
        train_pixels: uint8 images (n, H, W, 3) and a generator to augmented, normalised floats.
        test_pixels: uint8 images (n, H, W, 3) to normalised floats under the test transform.
        autocast: context in which the network computes at the run's precision.
    """

    backbone: torch.nn.Module
    classifier: torch.Tensor
    scale: float
    train_pixels: Callable[[torch.Tensor, torch.Generator], torch.Tensor]
    test_pixels: Callable[[torch.Tensor], torch.Tensor]
    autocast: Callable[[], AbstractContextManager[Any]]


class Checkpoint(Protocol):
    """Keeps what a long `pretrain` needs to go on after a stop; gone once it has ended."""

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last; None at a first start."""

    def save(self, state: dict[str, Any]) -> None:
        """Keep tensors, numbers and texts, in lists and dictionaries."""


@dataclass(frozen=True)
class MethodContext:
    """What a method is given once, before the base session.

    Attributes:
        feature_dim: D.
        random: the run's randomness, from the axes seed, split and method.
        base_random: randomness that all seeds share, for what is learnt from base data alone.
        device: where to compute.
        extras: the representation's named tensors that the method declared.
        network: the trainable network, for a method that declared `images`.
        final_class_count: only for a method that declared it.
        nonnegative: whether no plain feature of a base training sample is negative.
        checkpoint: where `pretrain` may keep its state; None where nothing is kept.
    """

    feature_dim: int
    random: Randomness
    base_random: Randomness
    device: torch.device
    extras: Mapping[str, torch.Tensor] = field(default_factory=dict)
    network: Network | None = None
    final_class_count: int | None = None
    nonnegative: bool = True
    checkpoint: Checkpoint | None = None


class Method(Contract):
    """A method: one file, one class, a citation and the idea in its docstring.

    A subclass sets `name`, may set `Params` (a frozen dataclass with defaults) and `needs`, and
    implements `learn_base`, `learn_session`, `scores` and the pair `state_dict` /
    `load_state_dict`. Between sessions it may keep nothing that is not in its state: that is what
    the reported bytes count. With `episode_scores` it does ordinary few-shot classification too.
    """

    kind = "method"
    needs: ClassVar[Needs] = Needs()
    pretrain_params: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters that shape what `pretrain` returns; they key its cache."""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Protocol -> the parameters that the paper states for it, laid over the defaults."""
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Parameters worth tuning with the values to try; `fscil-bench tune` tries all combinations."""
    alarms: ClassVar[Mapping[str, str]] = {}
    """Names of `notes` -> what it means, and what may help, if one is neither 0 nor empty: that the
    method did less than it was asked for, which a run says when it ends."""

    @classmethod
    def check_declaration(cls) -> None:
        """Refuse parameters that the method does not have, wherever it names some."""
        known = {field.name for field in fields(cls.Params)}
        stated = [name for params in cls.published.values() for name in params]
        named = {"pretrain_params": cls.pretrain_params, "tuning_grid": cls.tuning_grid}
        for where, names in {**named, "published": stated}.items():
            for name in names:
                if name not in known:
                    raise UsageError(f"{where} names {name!r}, which Params lacks")

    def __init__(self, params: Any, context: MethodContext) -> None:
        self.params = params
        self.context = context

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse parameters that cannot work on a run's terms; asked before anything is trained.

        Raises:
            UsageError: they cannot; the message says which, and what to set instead.
        """

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Learn what depends on base data alone; cached by representation and `pretrain_params`.

        Draw from `context.base_random` only. `progress` takes the fraction that is done;
        `context.checkpoint` keeps the state of what takes long.
        """
        raise NotImplementedError  # the runner calls this only where a subclass defines it

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take what `pretrain` returned; called before `learn_base`."""
        raise NotImplementedError

    @abstractmethod
    def learn_base(self, base: Session) -> None:
        """Learn the base classes from all their training samples."""

    @abstractmethod
    def learn_session(self, session: Session) -> None:
        """Learn the new classes from their few shots; earlier samples are gone."""

    @abstractmethod
    def scores(self, queries: Queries) -> torch.Tensor:
        """Return a score (n, classes seen) for every query and class, columns in class order."""

    @abstractmethod
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return every tensor that must be kept for the next session, as it would be saved."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned, into a new object with the same context."""

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return scores (n, way) of queries for an episode's classes alone; columns as class_ids.

        Ordinary few-shot classification: every query belongs to one of the classes of `shots`,
        which come as those of a first session would (ids from the number of base classes on).
        Asked for after `learn_base` for one episode after the other; whatever was learnt from the
        base session may be used, and nothing of the state may change. `shots.index` numbers the
        episode, so that noise drawn by it differs between episodes.
        """
        raise NotImplementedError  # called only where a subclass defines it

    def state_bytes(self) -> int:
        """Return the bytes kept between sessions, measured on the state."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state_dict().values())

    def artifacts(self) -> dict[str, np.ndarray]:
        """Return named arrays of this session worth looking at (loss curves, generated features).

        Asked for after every session, and only when the run was started with `--artifacts`.
        """
        return {}

    def notes(self) -> dict[str, int | float | str]:
        """Return what a reader of the run should know: repairs made, steps not converged."""
        return {}

    @classmethod
    def has_pretraining(cls) -> bool:
        """Return whether the method learns something from base data alone that can be cached."""
        return cls.pretrain is not Method.pretrain

    @classmethod
    def learns_episodes(cls) -> bool:
        """Return whether the method does ordinary few-shot classification, episode by episode."""
        return cls.episode_scores is not Method.episode_scores


def batches(count: int, size: int) -> Iterator[slice]:
    """Yield the slices that cut `count` samples into batches of `size`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
