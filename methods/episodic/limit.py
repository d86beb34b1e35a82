"""LIMIT: a graph learns, with the network, to calibrate prototypes that stand among learnt rows."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.method import Network
from fscil_bench.params import words
from fscil_bench.protocol import Session

from .._shared.network import embedded, shuffled
from .._shared.stage import Part, epochs_left
from .._shared.state import prefixed
from .._shared.statistics import class_means, classifier_rows
from .attention import GraphAttention, GraphParams
from .evolved import ENCODER, GRAPH, TrainedClassifier, images_of


@dataclass(frozen=True)
class LimitParams(GraphParams):
    """How graph, network and rows learn: SGD with Nesterov momentum 0.9.

    Attributes:
        epochs: passes over the base images.
        tasks: fake tasks of a step.
        ways: base classes that play new ones in a task; all, if there are fewer.
        batch: base images of a step, which every task classifies.
        lr: learning rate of graph and rows.
        encoder_lr: of the network.
        milestones: epochs after which both are multiplied by `factor`, separated by commas.
        factor: that.
        weight_decay: of everything that is trained.
        score: `cosine` of adapted query and prototype; with `dot` the query's length counts too.
        chained: whether, as in the released code, all tasks of a step replace the same classes, and
            each starts from the queries that the one before it adapted; otherwise each task
            replaces classes of its own.
    """

    epochs: Annotated[int, Field(ge=0)] = 20
    tasks: Annotated[int, Field(gt=0)] = 32
    ways: Annotated[int, Field(gt=0)] = 16
    batch: Annotated[int, Field(gt=0)] = 128
    lr: Annotated[float, Field(gt=0)] = 2e-4
    encoder_lr: Annotated[float, Field(ge=0)] = 2e-4
    milestones: Annotated[str, Field(pattern=r"^(\d+(,\d+)*)?$")] = "2,4,6"
    factor: Annotated[float, Field(gt=0)] = 0.3
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    score: Literal["cosine", "dot"] = "cosine"
    chained: bool = True


class Limit(TrainedClassifier):
    """LIMIT: fake few-shot tasks teach network and graph to put prototypes beside learnt rows.

    Zhou, Ye, Ma, Xie, Pu and Zhan, "Few-Shot Class-Incremental Learning by Sampling Multi-Phase
    Tasks", TPAMI 2023.

    In a fake task some base classes play new ones: their rows of the base classifier give way to
    the means of a few images. CEC's graph (there a transformer), one layer of self-attention,
    adapts all rows and the query to each other, and the task is to classify base images over all
    base classes. Network, graph and rows learn from that; after every epoch the rows are set to the
    class means. In sessions nothing is trained: the new classes' means join the graph.

    As in `cec`, **the scores of old classes change when classes are added**.

    **Stored between sessions** (float32): prototypes 4·C·D, graph 16·D² + 12·D, and the network.

    **Deviations.** Rows of classes not yet seen are left out of the graph (released: attention runs
    over random rows for all classes to come, so that it must know their number); the last epoch
    counts (released: the best on test images of session 1); images are shown under the test
    transform (released: from the second epoch on). The paper's tasks differ, those of the released
    code are one and the same, chained (`chained`). Details: docs/methods/limit.md.
    """

    name = "limit"
    title = "LIMIT"
    bibtex = """@article{zhou2023limit,
  author = {Zhou, Da-Wei and Ye, Han-Jia and Ma, Liang and Xie, Di and Pu, Shiliang and
            Zhan, De-Chuan},
  title = {Few-Shot Class-Incremental Learning by Sampling Multi-Phase Tasks},
  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},
  volume = {45},
  number = {11},
  year = {2023}
}"""
    Params = LimitParams
    pretrain_params = tuple(field.name for field in fields(LimitParams))
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {
            "epochs": 40,
            "milestones": "20",
            "factor": 0.5,
            "score": "dot",
            "temperature": 1 / 16,
        },
        "cifar100": {"score": "cosine", "temperature": 16.0},
        "mini_imagenet": {"milestones": "3,6,9,12", "score": "dot", "temperature": 2.0},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "encoder_lr": (2e-4, 2e-3),
        "chained": (True, False),
    }

    params: LimitParams

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train graph, network and rows on fake tasks of base images.

        Raises:
            FscilError: the loss is not finite.
        """
        p, device = self.params, self.context.device
        # The method's own network stays as it is until it is given what was learnt.
        network = replace(self.network, backbone=copy.deepcopy(self.network.backbone).eval())
        graph, rows = self.new_attention(), nn.Parameter(network.classifier.to(device, copy=True))
        optimiser = self._optimiser(network, graph, rows)
        milestones = [int(word) for word in words(p.milestones)]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, p.factor)
        generator = self.context.base_random.torch("graph", "tasks")
        members = [(base.labels == c).nonzero()[:, 0] for c in base.class_ids]
        labels = classifier_rows(base, 0, device)
        parts: dict[str, Part] = {
            "graph": graph,
            "encoder": network.backbone,
            "rows": rows,
            "optimiser": optimiser,
            "schedule": schedule,
        }
        kept = self.context.checkpoint
        for epoch in epochs_left(p.epochs, parts, generator, progress, kept):
            if epoch:
                rows.data = self._class_means(network, base)
            for indices in shuffled(len(labels), p.batch, generator):
                tasks = drawn_tasks(1 if p.chained else p.tasks, base.way, p.ways, generator)
                shown = tasks.any(dim=0).nonzero()[:, 0]
                shots = torch.cat([drawn(members[c], p.shots, generator) for c in shown.tolist()])
                features = self._features(network, base, torch.cat([shots, indices]))
                means = features[: len(shots)].view(len(shown), p.shots, -1).mean(dim=1)
                mixed = rows.index_copy(0, shown.to(device), means)
                classifiers = torch.where(tasks.to(device)[:, :, None], mixed, rows)
                loss = task_loss(graph, classifiers, features[len(shots) :], labels[indices], p)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            schedule.step()
            self._check_loss(float(loss.detach()), epoch)
        learnt = {**prefixed(GRAPH, graph), **prefixed(ENCODER, network.backbone)}
        return {name: value.detach().cpu() for name, value in learnt.items()}

    def _optimiser(
        self, network: Network, graph: GraphAttention, rows: torch.Tensor
    ) -> torch.optim.SGD:
        p = self.params
        groups: list[dict[str, Any]] = [
            {"params": list(network.backbone.parameters()), "lr": p.encoder_lr},
            {"params": [*graph.parameters(), rows]},
        ]
        return torch.optim.SGD(
            groups, lr=p.lr, momentum=0.9, nesterov=True, weight_decay=p.weight_decay
        )

    def _features(self, network: Network, base: Session, indices: torch.Tensor) -> torch.Tensor:
        """Return the features (n, D) of base samples (n,), with gradients."""
        pixels = network.test_pixels(images_of(base)[indices])
        with network.autocast():
            features: torch.Tensor = network.backbone(pixels)
        return features.float()

    def _class_means(self, network: Network, base: Session) -> torch.Tensor:
        features = embedded(network, images_of(base))
        return class_means(features, base.labels.to(features.device), base.class_ids).float()

    def _check_loss(self, loss: float, epoch: int) -> None:
        if not math.isfinite(loss):
            raise FscilError(
                f"the loss of LIMIT's fake tasks is {loss} in epoch {epoch + 1}; lower "
                f"lr = {self.params.lr:g} or encoder_lr = {self.params.encoder_lr:g}"
            )


def drawn_tasks(count: int, classes: int, ways: int, generator: torch.Generator) -> torch.Tensor:
    """Return which classes play new ones in each task, bool (count, classes), `ways` of each."""
    return torch.rand(count, classes, generator=generator).argsort(dim=1) < ways


def drawn(members: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return `count` different entries of `members` (n,)."""
    return members[torch.randperm(len(members), generator=generator)[:count]]


def task_loss(
    graph: GraphAttention,
    classifiers: torch.Tensor,
    queries: torch.Tensor,
    labels: torch.Tensor,
    params: LimitParams,
) -> torch.Tensor:
    """Return the mean cross-entropy of all queries in all tasks.

    Args:
        graph: adapts a task's rows, and the queries to them.
        classifiers: the tasks' rows (t, C, D); chained tasks share those of one (1, C, D).
        queries: features (n, D).
        labels: their rows (n,).
        params: how adapted queries and rows are compared, and whether tasks are chained.
    """
    if not params.chained:
        cosines, adapted = torch.vmap(graph.compared, (0, None))(classifiers, queries)
        logits = scaled(cosines, adapted, params).flatten(0, 1)
        return F.cross_entropy(logits, labels.repeat(len(classifiers)))
    losses = []
    for _ in range(params.tasks):
        cosines, queries = graph.compared(classifiers[0], queries)
        losses.append(F.cross_entropy(scaled(cosines, queries, params), labels))
    return torch.stack(losses).mean()


def scaled(cosines: torch.Tensor, adapted: torch.Tensor, params: LimitParams) -> torch.Tensor:
    """Return the logits (..., n, C) of cosines (..., n, C) with adapted queries (..., n, D)."""
    logits = params.temperature * cosines
    return logits * adapted.norm(dim=-1, keepdim=True) if params.score == "dot" else logits
