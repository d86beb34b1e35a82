"""Joint training on all images so far: as TOPIC does it, and balanced over classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.method import MethodContext
from fscil_bench.protocol import Session

from .._shared import citations
from .._shared.network import (
    BatchNorm,
    Epoch,
    Head,
    NetworkMethod,
    Schedule,
    TrainingParams,
    shuffled,
)
from .._shared.state import part_of


@dataclass(frozen=True)
class JointParams(TrainingParams):
    """As of every trained network; an epoch shows as many images as are kept."""

    epochs: Annotated[int, Field(ge=0)] = 2
    lr: Annotated[float, Field(ge=0)] = 0.01
    schedule: Schedule = "cosine"
    head: Head = "cosine"
    batch_norm: BatchNorm = "trained"


class JointMethod(NetworkMethod):
    """A network with every image it was ever handed: uint8 (n, H, W, 3), and labels (n,)."""

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.images = torch.empty(0, dtype=torch.uint8)
        self.labels = torch.empty(0, dtype=torch.int32)

    def learn_base(self, base: Session) -> None:
        """Keep the base network as it was trained, and the base images."""
        assert base.images is not None
        self.images, self.labels = base.images.clone(), base.labels.int()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return network and rows, and all images with their labels."""
        return {**super().state_dict(), "images": self.images, "labels": self.labels}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.images, self.labels = state["images"].clone(), state["labels"].clone()

    def remember(self, session: Session) -> None:
        """Keep a session's images."""
        assert session.images is not None
        self.images = torch.cat([self.images, session.images])
        self.labels = torch.cat([self.labels, session.labels.int()])

    def fit(
        self,
        session: Session,
        epoch: Epoch,
        generator: torch.Generator,
        adjustment: torch.Tensor | None = None,
    ) -> None:
        """Train with cross-entropy on all images that are kept.

        Args:
            session: the session, for messages.
            epoch: what an epoch consists of.
            generator: where augmentation is drawn from.
            adjustment: (classes seen,), added to the logits in training.
        """
        labels = self.labels.long()

        def loss(indices: torch.Tensor) -> torch.Tensor:
            logits = self.logits(self.network.train_pixels(self.images[indices], generator))
            if adjustment is not None:
                logits = logits + adjustment
            return F.cross_entropy(logits, labels[indices].to(logits.device))

        self.train(session, epoch, loss)


class JointNaive(JointMethod):
    """Joint-CNN: each session trains on with the base images and all few-shot images so far.

    Tao et al., "Few-Shot Class-Incremental Learning" (TOPIC), CVPR 2020, the baseline Joint-CNN.

    Every image is stored. A session appends rows for its classes and goes on from the last
    session's weights, with plain cross-entropy on the merged set. A base class has a hundred
    times the images of a new one, and nothing counters that, so that new classes are rarely
    predicted: TOPIC's rows (35.60 / 38.90 / 36.80 %) lie below those of nearest class means. It
    is no upper bound; see `joint_balanced`.

    The published values cost as much as the base training, every session; the defaults are this
    suite's, chosen for cost and not tuned. The last epoch counts, where TOPIC chose one on test
    data. See docs/methods/joint.md.

    It stores network, rows and every image.
    """

    name = "joint_naive"
    title = "Joint-CNN"
    bibtex = citations.TOPIC
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"epochs": 100, "lr": 0.1, "schedule": "constant", "head": "linear"},
        "cifar100": {
            "epochs": 70,
            "lr": 0.1,
            "schedule": "step",
            "milestone": 60,
            "head": "linear",
        },
        "mini_imagenet": {
            "epochs": 50,
            "lr": 0.1,
            "schedule": "step",
            "milestone": 45,
            "head": "linear",
        },
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lr": (0.003, 0.01, 0.03, 0.1)}

    Params = JointParams

    params: JointParams

    def learn_session(self, session: Session) -> None:
        """Append rows for the new classes and train on with all images so far."""
        generator = self.context.random.torch("session", session.index)
        self.remember(session)
        self.append_rows(session.way, generator)
        size = self.params.batch_size
        self.fit(session, lambda: shuffled(len(self.labels), size, generator), generator)


class JointBalanced(JointMethod):
    """Joint training from the base network, balanced over classes: the reference from above.

    Tables of the field have `joint_naive`, which the base classes' many images bias to them. Two
    remedies for long-tailed data are offered. `balance = sampling` draws every class equally
    often, with replacement. `balance = logit` trains on the images as they are, and adds the log
    of each class's share of them to the logits in training only, so that they are fitted to
    balanced classes (Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, eq. 10
    with τ = 1).

    Every session starts again from the base-trained network, with new rows for all classes since,
    so that errors of earlier sessions do not add up.

    The defaults are this suite's, chosen for cost and not tuned: docs/methods/joint.md.

    It stores the network twice (as of now, and as the base session left it), rows, and every
    image.
    """

    name = "joint_balanced"
    title = "Joint-balanced"
    bibtex = """@inproceedings{menon2021logit,
  author = {Menon, Aditya Krishna and Jayasumana, Sadeep and Rawat, Ankit Singh and
            Jain, Himanshu and Veit, Andreas and Kumar, Sanjiv},
  title = {Long-tail Learning via Logit Adjustment},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2021}
}"""
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "balance": ("sampling", "logit"),
        "lr": (0.003, 0.01, 0.03),
    }

    @dataclass(frozen=True)
    class Params(JointParams):
        """`balance` is how classes are made to weigh the same."""

        balance: Literal["sampling", "logit"] = "sampling"

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.start = {name: tensor.clone() for name, tensor in self.network_state().items()}

    def learn_session(self, session: Session) -> None:
        """Start from the base network, and train it on all images so far."""
        generator = self.context.random.torch("session", session.index)
        self.remember(session)
        self.load_network(self.start)
        self.append_rows(session.classes_seen - len(self.rows), generator)
        counts = self.labels.bincount(minlength=session.classes_seen)
        size = self.params.batch_size
        if self.params.balance == "sampling":
            self.fit(session, lambda: balanced(self.labels, counts, size, generator), generator)
        else:
            adjustment = log_prior(counts).to(self.rows.device)
            self.fit(
                session,
                lambda: shuffled(len(self.labels), size, generator),
                generator,
                adjustment,
            )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the networks of now and of the base session, and all images with labels."""
        start = {f"start.{name}": tensor for name, tensor in self.start.items()}
        return {**super().state_dict(), **start}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        device = self.context.device
        self.start = {k: v.clone().to(device) for k, v in part_of(state, "start.").items()}


def balanced(
    labels: torch.Tensor, counts: torch.Tensor, size: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Yield the batches of an epoch in which every class is as likely as any other.

    Args:
        labels: (n,) of the images.
        counts: (C,), images of each class.
        size: images of a batch.
        generator: where they are drawn from.

    An epoch has n draws, with replacement.
    """
    weights = 1 / counts.double()[labels.long()]
    drawn = torch.multinomial(weights, len(labels), replacement=True, generator=generator)
    for batch in range(math.ceil(len(labels) / size)):
        yield drawn[batch * size : (batch + 1) * size]


def log_prior(counts: torch.Tensor) -> torch.Tensor:
    """Return the log of each class's share of the images (C,), up to a constant.

    The constant makes it 0 for the largest class, and so, where all are equal, for all.
    """
    return (counts.double() / counts.max()).log().float()
