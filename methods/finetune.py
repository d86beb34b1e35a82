"""Fine-tuning of the whole network: the lower anchor of every table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.method import Method, MethodContext, Needs, Network
from fscil_bench.protocol import Queries, Session


class Finetune(Method):
    """Ft-CNN: the whole network is trained on each session's few images, and forgets.

    Tao et al., "Few-Shot Class-Incremental Learning" (TOPIC), CVPR 2020, the baseline Ft-CNN.

    In every session a classifier row is appended for each new class (normal, σ = 0.001), and
    backbone and rows are trained with cross-entropy over all classes seen, on the session's
    images alone, in one batch, with the protocol's augmentation. Nothing protects the old
    classes, so predictions drift to the newest ones: catastrophic forgetting as a number.

    Deviations: the classifier is the representation's scaled cosine, not a linear layer on unit
    features; batch normalisation keeps its base statistics, since a handful of images cannot
    estimate any. Rate 0.1 and 70 epochs (steps, as a session is one batch) are TOPIC's for
    CIFAR100; it chose epochs on test data, here the last one counts.

    It stores the whole network and the rows.
    """

    name = "finetune"
    needs = Needs(features=(), images=True)

    @dataclass(frozen=True)
    class Params:
        """SGD with Nesterov momentum 0.9; `epochs` are steps on the session's one batch."""

        epochs: Annotated[int, Field(ge=0)] = 70
        lr: Annotated[float, Field(ge=0)] = 0.1
        weight_decay: Annotated[float, Field(ge=0)] = 5e-4

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError("finetune needs a network")
        self.network: Network = context.network
        self.rows = nn.Parameter(context.network.classifier.to(context.device))

    def learn_base(self, base: Session) -> None:
        """Keep the base network as it was trained."""
        del base

    def learn_session(self, session: Session) -> None:
        """Append rows for the new classes and train everything on the session's images."""
        generator = self.context.random.torch("session", session.index)
        new = 0.001 * torch.randn(session.way, self.context.feature_dim, generator=generator)
        self.rows = nn.Parameter(torch.cat([self.rows.data, new.to(self.context.device)]))
        backbone = self.network.backbone.eval()
        optimiser = torch.optim.SGD(
            [*backbone.parameters(), self.rows],
            lr=self.params.lr,
            momentum=0.9,
            weight_decay=self.params.weight_decay,
            nesterov=True,
        )
        assert session.images is not None
        labels = session.labels.to(self.context.device)
        for _ in range(self.params.epochs):
            pixels = self.network.train_pixels(session.images, generator)
            loss = F.cross_entropy(self._logits(pixels), labels)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the logits (n, classes seen) of the current network."""
        assert queries.images is not None
        self.network.backbone.eval()
        with torch.no_grad():
            return self._logits(self.network.test_pixels(queries.images))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the network's tensors and the classifier's rows."""
        backbone = {f"backbone.{k}": v for k, v in self.network.backbone.state_dict().items()}
        return {**backbone, "rows": self.rows.data}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore network and rows."""
        prefix = "backbone."
        own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        self.network.backbone.load_state_dict(own)
        self.rows = nn.Parameter(state["rows"].clone().to(self.context.device))

    def _logits(self, pixels: torch.Tensor) -> torch.Tensor:
        with self.network.autocast():
            features = self.network.backbone(pixels)
        unit = F.normalize(features.float(), dim=1)
        return self.network.scale * unit @ F.normalize(self.rows, dim=1).T
