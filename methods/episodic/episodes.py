"""CEC's pseudo-incremental episodes: base classes play new ones, rotated copies of them too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Checkpoint, Terms

from .._shared.stage import Part, epochs_left
from .attention import GraphAttention, GraphParams

Embed = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Gives the features (n, D) of base samples (n,), turned by so many quarter turns (n,)."""

HALVING = 20
"""Epochs after which the learning rates are halved: CEC's."""

SHOWN = 3
"""How often an epoch may show a base sample, on average: few samples make a short epoch."""


@dataclass(frozen=True)
class MetaParams(GraphParams):
    """How the graph is learnt: SGD with Nesterov momentum 0.9, rates halved every 20 epochs.

    Attributes:
        epochs: epochs of the meta stage.
        episodes: episodes of an epoch; fewer where the base session has so few samples that an
            epoch would show each of them more than three times.
        ways: base classes of an episode, and rotated copies beside them; all, if there are fewer.
        queries: queries for each class of an episode; fewer where a class has no more.
        lr: learning rate of the graph.
        weight_decay: of everything that is trained.
    """

    epochs: Annotated[int, Field(ge=0)] = 100
    episodes: Annotated[int, Field(gt=0)] = 50
    ways: Annotated[int, Field(gt=1)] = 15
    queries: Annotated[int, Field(gt=0)] = 15
    lr: Annotated[float, Field(gt=0)] = 2e-4
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4


@dataclass(frozen=True)
class Episodes:
    """What episodes are drawn from: the indices of each base class's samples, and the sizes."""

    members: tuple[torch.Tensor, ...]
    ways: int
    shots: int
    queries: int

    @property
    def samples(self) -> int:
        """Base samples that one episode shows (each of them twice: as it is, and turned)."""
        return self.ways * (self.shots + self.queries)

    def draw(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return samples (ways, shots + queries) of random classes, and turns (ways,) of 1 to 3."""
        chosen = torch.randperm(len(self.members), generator=generator)[: self.ways]
        picks = []
        for c in chosen.tolist():
            order = torch.randperm(len(self.members[c]), generator=generator)
            picks.append(self.members[c][order[: self.shots + self.queries]])
        return torch.stack(picks), torch.randint(1, 4, (len(picks),), generator=generator)


def check_episodes(name: str, params: GraphParams, terms: Terms) -> None:
    """Refuse more shots than the smallest base class can give beside a query.

    Raises:
        UsageError: it cannot.
    """
    if params.shots >= terms.base_images:
        raise UsageError(
            f"{name}: a base class has {terms.base_images} training images, an episode needs "
            f"shots + 1 = {params.shots + 1} of them; lower shots"
        )


def base_episodes(labels: torch.Tensor, ids: tuple[int, ...], p: MetaParams) -> Episodes:
    """Return the episodes of a base session with these labels (n,) and class ids."""
    members = tuple((labels == c).nonzero()[:, 0] for c in ids)
    left = min(map(len, members)) - p.shots
    return Episodes(members, min(p.ways, len(ids)), p.shots, min(p.queries, left))


def episode_features(
    embed: Embed, samples: torch.Tensor, turns: torch.Tensor, shots: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an episode's prototypes (2·ways, D) and queries (2·ways, q, D).

    The first half are the classes as they are, the second their copies, all samples of a class
    turned alike, which play the new classes.
    """
    ways, size = samples.shape
    both = torch.cat([samples, samples]).flatten()
    turned = torch.cat([torch.zeros_like(turns), turns]).repeat_interleave(size)
    features = embed(both, turned).view(2 * ways, size, -1)
    return features[:, :shots].mean(dim=1), features[:, shots:]


def train_on_episodes(
    attention: GraphAttention,
    embed: Embed,
    episodes: Episodes,
    params: MetaParams,
    generator: torch.Generator,
    progress: Callable[[float], None],
    others: Mapping[str, Any] | None = None,
    checkpoint: Checkpoint | None = None,
) -> torch.Tensor:
    """Train the graph in place; return the mean loss of every epoch (epochs,).

    Args:
        attention: the graph, at its initialisation.
        embed: gives features; those of a network that is trained along carry gradients.
        episodes: what to draw from.
        params: rates and sizes.
        generator: what all draws come from.
        progress: takes the fraction that is done.
        others: a parameter group of the optimiser (`params`, `lr`) that is trained along.
        checkpoint: where the state of a stage is kept that is stopped.

    Raises:
        FscilError: the loss is not finite.
    """
    groups: list[dict[str, Any]] = [{"params": list(attention.parameters()), "lr": params.lr}]
    groups += [dict(others)] if others else []
    optimiser = torch.optim.SGD(
        groups, lr=params.lr, momentum=0.9, nesterov=True, weight_decay=params.weight_decay
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, HALVING, 0.5)
    losses = torch.zeros(params.epochs)
    along = dict(enumerate(others["params"])) if others else {}
    parts: dict[str, Part] = {
        "graph": attention,
        "optimiser": optimiser,
        "schedule": schedule,
        "losses": losses,
        **{f"others.{number}": parameter for number, parameter in along.items()},
    }
    for epoch in epochs_left(params.epochs, parts, generator, progress, checkpoint):
        found = []
        for loss in _epoch(attention, embed, episodes, params, generator):
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            found.append(loss.detach())
        schedule.step()
        losses[epoch] = torch.stack(found).mean()
        if not bool(torch.isfinite(losses[epoch])):
            rates = f"lr = {params.lr:g}" + (f" or encoder_lr = {others['lr']:g}" if others else "")
            raise FscilError(
                f"the loss of the episodes is {float(losses[epoch])} in epoch {epoch + 1}; lower "
                f"{rates}"
            )
    return losses


def episodes_per_epoch(episodes: Episodes, wanted: int) -> int:
    """Return how many episodes an epoch has where `wanted` are asked for."""
    total = sum(len(members) for members in episodes.members)
    return max(1, min(wanted, SHOWN * total // episodes.samples))


def _epoch(
    attention: GraphAttention,
    embed: Embed,
    episodes: Episodes,
    params: MetaParams,
    generator: torch.Generator,
) -> Iterator[torch.Tensor]:
    """Yield the loss of each of an epoch's episodes."""
    for _ in range(episodes_per_epoch(episodes, params.episodes)):
        samples, turns = episodes.draw(generator)
        prototypes, queries = episode_features(embed, samples, turns, episodes.shots)
        classes = torch.arange(len(queries), device=queries.device)
        targets = classes.repeat_interleave(queries.shape[1])
        cosines = attention(prototypes, queries.flatten(0, 1))
        yield F.cross_entropy(params.temperature * cosines, targets)
