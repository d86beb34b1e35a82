"""Joint training that gives every class the same weight: what storing all images can reach."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from fscil_bench.method import MethodContext
from fscil_bench.protocol import Session

from ._joint import JointMethod, JointParams
from ._network_training import shuffled
from ._prefixed import part_of


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

    The defaults are this suite's, chosen for cost and not tuned: 2 epochs a session (each as many
    images as are stored) at rates 0.01 and 0.005; the representation's own classifier, whose
    rows have no lengths that could grow with a class's images; batch normalisation trained along.
    With sampling, a new class's few images come some hundred times an epoch, which is what lets
    2 epochs do. To judge what many epochs reach, set epochs and rate to those of `joint_naive`'s
    published rows.

    It stores the network twice (as of now, and as the base session left it), rows, and every
    image.
    """

    name = "joint_balanced"
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
