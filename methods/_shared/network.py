"""A network that sessions train: what the image methods share.

The classifier is one row a class on unit features, as in TOPIC's code (Tao et al., CVPR 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.method import Method, MethodContext, Needs, Network, batches
from fscil_bench.protocol import Queries, Session
from fscil_bench.training.loop import epoch_batches

from .state import part_of, prefixed

EVALUATION_BATCH = 250
"""Images that go through the network at once where nothing is learnt."""

NEW_ROW_SPREAD = 0.001
"""Standard deviation of a new linear row's entries, TOPIC's."""

MILESTONE_FACTOR = 0.1
"""What the rate is multiplied by at a milestone, TOPIC's."""

Epoch = Callable[[], Iterable[torch.Tensor]]
"""Returns the batches of one epoch, each the indices (b,) of its samples."""

Loss = Callable[[torch.Tensor], torch.Tensor]
"""Maps the indices (b,) of a batch's samples to a scalar loss."""

ROWS = (nn.Sequential, nn.ModuleList)
"""What holds blocks one after the other."""

Schedule = Literal["constant", "step", "cosine"]
Head = Literal["linear", "cosine"]
BatchNorm = Literal["frozen", "trained"]


@dataclass(frozen=True)
class TrainingParams:
    """How a session trains: SGD with Nesterov momentum 0.9 on cross-entropy.

    Attributes:
        epochs: passes over the images that a session trains on.
        lr: learning rate at the start.
        schedule: `constant`; `step`, a tenth from epoch `milestone` on; `cosine`, half a cosine
            from `lr` towards 0.
        milestone: epoch (counted from 0) of `step`; 0 is none.
        weight_decay: of backbone and rows.
        batch_size: images of a step.
        head: `linear` scores by ⟨unit feature, row⟩, where a row's length counts; `cosine` by the
            scaled cosine that the representation was trained with.
        batch_norm: `frozen` keeps the base session's statistics; `trained` normalises by the
            batch, and updates them.
    """

    epochs: Annotated[int, Field(ge=0)] = 70
    lr: Annotated[float, Field(ge=0)] = 0.1
    schedule: Schedule = "constant"
    milestone: Annotated[int, Field(ge=0)] = 0
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    batch_size: Annotated[int, Field(gt=0)] = 128
    head: Head = "linear"
    batch_norm: BatchNorm = "frozen"

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        passed = self.schedule == "step" and 0 < self.milestone <= epoch
        return self.lr * (MILESTONE_FACTOR if passed else 1.0)


class NetworkMethod(Method):
    """A method that keeps a network and classifier rows (classes seen, D), and trains both.

    A subclass implements `learn_base` and `learn_session`.
    """

    needs = Needs(features=(), images=True)

    params: TrainingParams

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError(f"{self.name} needs a network")
        self.network: Network = context.network
        self.network.backbone.eval()
        self.trained: nn.Module = self.network.backbone
        rows = context.network.classifier.to(context.device)
        if self.params.head == "linear":
            rows = self.network.scale * F.normalize(rows, dim=1)
        self.rows = nn.Parameter(rows)

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the logits (n, classes seen) of the network as it is."""
        assert queries.images is not None
        return self.head_logits(self.embed(queries.images)).detach()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the network's tensors and the classifier's rows."""
        return self.network_state()

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore network and rows."""
        self.load_network(state)

    def network_state(self) -> dict[str, torch.Tensor]:
        """Return the tensors of network and rows, not copied."""
        backbone = prefixed("backbone.", self.network.backbone)
        return {**backbone, "rows": self.rows.data}

    def load_network(self, state: Mapping[str, torch.Tensor]) -> None:
        """Set network and rows to copies of what `network_state` returned."""
        self.network.backbone.load_state_dict(part_of(state, "backbone."))
        self.rows = nn.Parameter(state["rows"].clone().to(self.context.device))

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """Return the network's features (n, D) of uint8 images, see `embedded`."""
        return embedded(self.network, images)

    def logits(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes seen) of normalised images, at the run's precision."""
        with self.network.autocast():
            features = self.network.backbone(pixels)
        return self.head_logits(features.float())

    def head_logits(self, features: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logits (n, classes) of features (n, D), by these rows or the present ones."""
        unit, rows = F.normalize(features, dim=1), self.rows if rows is None else rows
        if self.params.head == "linear":
            return unit @ rows.T
        return self.network.scale * unit @ F.normalize(rows, dim=1).T

    def append_rows(self, count: int, generator: torch.Generator) -> None:
        """Append a row for each of `count` new classes.

        Linear ones are near zero. Of a cosine only the direction counts, but the shorter the row,
        the further a step turns it; so it gets the mean length of those that are there.
        """
        new = torch.randn(count, self.context.feature_dim, generator=generator)
        if self.params.head == "linear":
            new = NEW_ROW_SPREAD * new
        else:
            new = self.rows.detach().norm(dim=1).mean().cpu() * F.normalize(new, dim=1)
        self.rows = nn.Parameter(torch.cat([self.rows.data, new.to(self.context.device)]))

    def train(self, session: Session, epoch: Epoch, loss: Loss) -> None:
        """Train `trained` (the backbone, or a part of it) and the rows.

        Args:
            session: for messages.
            epoch: what an epoch consists of.
            loss: called for every batch.

        Raises:
            FscilError: the loss, a weight or a feature is not finite, or a square of one.
        """
        p = self.params
        optimiser = torch.optim.SGD(
            [*self.trained.parameters(), self.rows],
            lr=p.lr,
            momentum=0.9,
            weight_decay=p.weight_decay,
            nesterov=True,
        )
        self.trained.train(p.batch_norm == "trained")
        for number in range(p.epochs):
            for group in optimiser.param_groups:
                group["lr"] = p.rate(number)
            for indices in epoch():
                value = loss(indices)
                optimiser.zero_grad(set_to_none=True)
                value.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            if not bool(torch.isfinite(value)):
                raise self._diverged(session, f"the loss is {value.item()} in epoch {number + 1}")
        self.trained.eval()
        if p.epochs:
            self._check_finite(session)

    def _check_finite(self, session: Session) -> None:
        """Refuse a network that the last step spoilt, which no loss has seen.

        Lengths are looked at, as features are divided by theirs.
        """
        assert session.images is not None
        tensors = {**self.network_state(), "features": self.embed(session.images)}
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor.float().norm())):
                raise self._diverged(session, f"the length of {name} is not finite")

    def _diverged(self, session: Session, what: str) -> FscilError:
        return FscilError(
            f"method {self.name!r} diverges in session {session.index}: {what}; lower lr = "
            f"{self.params.lr:g}"
        )


@torch.no_grad()
def embedded(network: Network, images: torch.Tensor) -> torch.Tensor:
    """Return float32 features (n, D) of uint8 images under the test transform.

    Always in full precision, as the frozen methods' features are.
    """
    backbone = network.backbone.eval()
    parts = batches(len(images), EVALUATION_BATCH)
    return torch.cat([backbone(network.test_pixels(images[part])).float() for part in parts])


def shuffled(count: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield the batches of an epoch, indices (b,), every sample once and in a random order."""
    return map(torch.from_numpy, epoch_batches(count, size, generator))


def last_block(backbone: nn.Module) -> nn.Module:
    """Return the part nearest the output that has parameters: a residual network's last block."""
    block = backbone
    while block is backbone or isinstance(block, nn.Sequential):
        block = [child for child in block.children() if any(True for _ in child.parameters())][-1]
    return block


def last_parts(network: nn.Module) -> list[nn.Module]:
    """Return the last block of the last row of blocks, and all with parameters that follows it.

    Of a residual network its last block; of a transformer that and the final normalisation.
    """
    trained = [child for child in network.children() if any(True for _ in child.parameters())]
    if isinstance(network, ROWS):
        return last_parts(trained[-1]) if isinstance(trained[-1], ROWS) else [trained[-1]]
    if len(trained) < 2:  # the one is what the network wraps
        return last_parts(trained[0]) if trained else [network]
    rows = [number for number, child in enumerate(trained) if isinstance(child, ROWS)]
    if not rows:
        return [trained[-1]]
    return [*last_parts(trained[rows[-1]]), *trained[rows[-1] + 1 :]]
