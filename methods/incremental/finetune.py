"""Fine-tuning of the whole network: the lower anchor of every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.protocol import Session

from .._shared import citations
from .._shared.network import BatchNorm, NetworkMethod, Schedule, TrainingParams, shuffled


class Finetune(NetworkMethod):
    """Ft-CNN: the whole network is trained on each session's few images, and forgets.

    Tao et al., "Few-Shot Class-Incremental Learning" (TOPIC), CVPR 2020, the baseline Ft-CNN.

    In every session a classifier row is appended for each new class (normal, σ = 0.001), and
    backbone and rows are trained with cross-entropy over all classes seen, on the session's
    images alone, with the protocol's augmentation. Nothing protects the old classes, so
    predictions move to the newest ones: catastrophic forgetting as a number.

    Values are TOPIC's, read in its released scripts; deviation: the last epoch counts, where TOPIC
    chose one on test data. The rate decides how much is forgotten (docs/methods/joint.md): `tune`
    chooses rate and classifier on the pseudo-incremental split.

    It stores the network and the rows.
    """

    name = "finetune"
    title = "Ft-CNN"
    bibtex = citations.TOPIC
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"epochs": 100, "lr": 0.1, "schedule": "constant"},
        "cifar100": {"epochs": 70, "lr": 0.1, "schedule": "step", "milestone": 60},
        "mini_imagenet": {"epochs": 50, "lr": 0.1, "schedule": "constant"},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (1e-4, 1e-3, 1e-2, 1e-1),
        "head": ("linear", "cosine"),
    }

    @dataclass(frozen=True)
    class Params(TrainingParams):
        """As of every trained network; `epochs` are steps where the session is one batch."""

        schedule: Schedule = "step"
        milestone: Annotated[int, Field(ge=0)] = 60
        batch_norm: BatchNorm = "trained"

    params: Params

    def learn_base(self, base: Session) -> None:
        """Keep the base network as it was trained."""
        del base

    def learn_session(self, session: Session) -> None:
        """Append rows for the new classes and train everything on the session's images."""
        generator = self.context.random.torch("session", session.index)
        self.append_rows(session.way, generator)
        assert session.images is not None
        images, labels = session.images, session.labels

        def loss(indices: torch.Tensor) -> torch.Tensor:
            pixels = self.network.train_pixels(images[indices], generator)
            return F.cross_entropy(self.logits(pixels), labels[indices].to(self.rows.device))

        size = self.params.batch_size
        self.train(session, lambda: shuffled(len(labels), size, generator), loss)
