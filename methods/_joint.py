"""Training on all images so far: what the two joint methods share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.method import MethodContext
from fscil_bench.protocol import Session

from ._network_training import (
    BatchNorm,
    Epoch,
    Head,
    NetworkMethod,
    Schedule,
    TrainingParams,
)


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
