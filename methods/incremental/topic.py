"""TOPIC: a neural gas holds the features of old classes in place, and grows with new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.method import MethodContext
from fscil_bench.protocol import Session

from .._shared import citations
from .._shared.network import (
    BatchNorm,
    NetworkMethod,
    Schedule,
    TrainingParams,
    embedded,
    last_block,
    shuffled,
)
from .._shared.statistics import class_means, classifier_rows
from .neural_gas import aged, described, grown, two_nearest, variances

OLDEST = 255
"""Greatest age that an edge can be asked to reach: ages are kept as bytes."""


class Topic(NetworkMethod):
    """TOPIC: a neural gas of base features, whose nodes anchor the network while it learns.

    Tao et al., "Few-Shot Class-Incremental Learning", CVPR 2020. A reconstruction: neural gas and
    losses were never released, only trainers that call them, and their scripts.

    The base session spreads 400 nodes over the unit features of base images; each keeps centroid,
    diagonal variance, class, and the image nearest to it, and edges join nodes that answer
    together. A session adds a node for each new class and trains the network's last block and the
    new rows: cross-entropy on the shots, an anchor loss that holds the nodes' images at their
    features, and the min-max loss, which draws the shots to their class's node ("min") and pushes
    that node from nodes of other classes that it has edges with ("max"). The softmax predicts.

    It stores the network, the rows, and the nodes, N·(8·D + 4 + H·W·3) + N² bytes.

    Values are those of the released scripts. Deviations: the last epoch counts, where TOPIC chose
    one on test data. Undefined, and how it is settled: docs/methods/topic.md.
    """

    name = "topic"
    title = "TOPIC"
    bibtex = citations.TOPIC
    pretrain_params = ("nodes", "passes", "gas_batch", "gas_rate", "decay", "max_age")
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {
            "epochs": 120,
            "lr": 0.01,
            "milestone": 110,
            "min_weight": 5e-5,
            "max_weight": 1e-6,
            "node_lr": 0.5,
        },
        "cifar100": {"epochs": 70, "milestone": 60, "max_weight": 1e-4},
        "mini_imagenet": {"epochs": 100, "milestone": 90, "max_weight": 1e-5},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (0.001, 0.01, 0.1),
        "anchor_weight": (350.0, 3500.0),
    }

    @dataclass(frozen=True)
    class Params(TrainingParams):
        """As of every trained network, and the gas.

        Attributes:
            nodes: of the base classes, N0.
            passes: how often the gas sees each base feature.
            gas_batch: features of a step of the gas.
            gas_rate: η, how far a feature moves its nearest node.
            decay: α, of that with a node's rank.
            max_age: T, of an edge.
            anchor: what holds a node's image: `released`, its feature before the session; `paper`,
                the node's centroid, each dimension by its variance.
            anchor_weight: of the anchor loss.
            min_weight: of what draws shots to their node.
            max_weight: of what pushes nodes apart.
            margin: ξ, the distance at which nodes are far enough apart.
            node_lr: learning rate of new nodes' centroids, divided by the number of shots.
        """

        schedule: Schedule = "step"
        milestone: Annotated[int, Field(ge=0)] = 60
        batch_norm: BatchNorm = "frozen"
        nodes: Annotated[int, Field(ge=2)] = 400
        passes: Annotated[int, Field(ge=0)] = 5
        gas_batch: Annotated[int, Field(gt=0)] = 32
        gas_rate: Annotated[float, Field(gt=0, le=1)] = 0.05
        decay: Annotated[float, Field(gt=0)] = 10.0
        max_age: Annotated[int, Field(gt=0, le=OLDEST)] = 200
        anchor: Literal["released", "paper"] = "released"
        anchor_weight: Annotated[float, Field(ge=0)] = 350.0
        min_weight: Annotated[float, Field(ge=0)] = 0.3
        max_weight: Annotated[float, Field(ge=0)] = 1e-4
        margin: Annotated[float, Field(ge=0)] = 0.5
        node_lr: Annotated[float, Field(ge=0)] = 0.1

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.trained = last_block(self.network.backbone)
        self.network.backbone.requires_grad_(False)
        self.trained.requires_grad_(True)
        self.nodes: Nodes

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Return the nodes of a gas grown on the base images' unit features."""
        assert base.images is not None
        p, random = self.params, self.context.base_random.torch("gas")
        features = F.normalize(embedded(self.network, base.images), dim=1)
        centroids, ages = grown(
            *(features, p.nodes, p.passes, p.gas_batch, p.gas_rate, p.decay, p.max_age, random)
        )
        rows = classifier_rows(base, 0, features.device)
        classes, spread, examples = described(centroids, features, rows)
        images = base.images[examples.to(base.images.device)]
        progress(1.0)
        return Nodes(centroids, spread, classes, images, ages).tensors()

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the gas."""
        self.nodes = Nodes.of(tensors, self.context.device)

    def learn_base(self, base: Session) -> None:
        """Keep the base network as it was trained."""
        del base

    def learn_session(self, session: Session) -> None:
        """Add nodes and rows of the new classes, train, and keep what the nodes have become.

        Raises:
            FscilError: the loss, a weight or a feature is not finite.
        """
        assert session.images is not None
        generator = self.context.random.torch("session", session.index)
        first, device = len(self.rows), self.context.device
        rows = classifier_rows(session, first, device)
        self.append_rows(session.way, generator)
        features = self._unit(session.images)
        new = range(first, first + session.way)
        centroids = class_means(features, rows, new).float()
        ages = F.pad(self.nodes.ages, (0, session.way) * 2)
        everything = torch.cat([self.nodes.centroids, centroids])
        ages = aged(ages, *two_nearest(everything, features), self.params.max_age)
        centroids = self._train(session, rows, centroids, ages, generator)
        features, own = self._unit(session.images), rows - first
        distances = torch.cdist(features, centroids)
        others = own[:, None] != torch.arange(session.way, device=device)
        examples = distances.masked_fill(others, torch.inf).argmin(dim=0)
        images = session.images[examples.to(session.images.device)]
        classes, spread = torch.tensor(new, device=device), variances(centroids, features, own)
        self.nodes = self.nodes.joined(Nodes(centroids, spread, classes, images, ages))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the tensors of network, rows and nodes."""
        return {**super().state_dict(), **self.nodes.tensors()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore them."""
        super().load_state_dict(state)
        self.nodes = Nodes.of(state, self.context.device)

    def _unit(self, images: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.embed(images), dim=1)

    def _train(
        self,
        session: Session,
        rows: torch.Tensor,
        centroids: torch.Tensor,
        ages: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Train the last block and the new rows; return the new nodes' centroids (way, D).

        `ages` are of all nodes' edges, the new ones last.
        """
        assert session.images is not None
        p, images = self.params, session.images
        old, added = self.rows.data[: -session.way], nn.Parameter(self.rows.data[-session.way :])
        centroids = nn.Parameter(centroids)
        optimiser = torch.optim.SGD(
            [*self.trained.parameters(), added],
            lr=p.lr,
            momentum=0.9,
            weight_decay=p.weight_decay,
            nesterov=True,
        )
        mover = torch.optim.SGD([centroids], lr=p.node_lr / len(images))
        anchored = self._anchor()
        self.trained.train(p.batch_norm == "trained")
        for epoch in range(p.epochs):
            optimiser.param_groups[0]["lr"] = p.rate(epoch)
            for indices in shuffled(len(images), p.batch_size, generator):
                pixels = self.network.train_pixels(images[indices], generator)
                features, own = self._features(pixels), rows[indices.to(rows.device)]
                # Constant: the logits of earlier classes would tear features out of their places.
                earlier = self.head_logits(features, old).detach()
                logits = torch.cat([earlier, self.head_logits(features, added)], dim=1)
                loss = F.cross_entropy(logits, own) + p.anchor_weight * anchored()
                if not bool(torch.isfinite(loss)):
                    raise self._diverged(session, f"the loss is {loss.item()} in epoch {epoch + 1}")
                pulled = pull(features, centroids, own - len(old))
                pushed = push(centroids, self.nodes.centroids, ages > 0, p.margin)
                loss = loss + p.min_weight * pulled + p.max_weight * pushed
                self._check_nodes(session, loss)
                for each in (optimiser, mover):
                    each.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                for each in (optimiser, mover):
                    each.step()
        self.trained.eval()
        self.rows = nn.Parameter(torch.cat([old, added.data]))
        self._check_nodes(session, centroids)
        self._check_finite(session)
        return centroids.detach()

    def _check_nodes(self, session: Session, value: torch.Tensor) -> None:
        """Refuse what new nodes have spoilt: their centroids, or a loss that is finite without."""
        if not bool(torch.isfinite(value.detach().norm())):
            raise FscilError(
                f"method 'topic' diverges in session {session.index}: the new nodes' centroids "
                f"have lengths that are not finite; lower node_lr = {self.params.node_lr:g}"
            )

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return unit features (n, D) of normalised images, at the run's precision."""
        with self.network.autocast():
            features = self.network.backbone(pixels)
        return F.normalize(features.float(), dim=1)

    def _anchor(self) -> Callable[[], torch.Tensor]:
        """Return what gives the anchor loss of the network as it is at the time."""
        nodes = self.nodes
        if not self.params.anchor_weight:
            return lambda: nodes.centroids.new_zeros(())
        pixels = self.network.test_pixels(nodes.images)
        if self.params.anchor == "paper":
            return lambda: anchor_loss(self._features(pixels), nodes.centroids, nodes.variances)
        wanted = self._unit(nodes.images)
        return lambda: anchor_loss(self._features(pixels), wanted, torch.ones_like(wanted))


@dataclass(frozen=True)
class Nodes:
    """What is kept of the nodes of a gas.

    `centroids` and `variances` (N, D), classifier rows `classes` (N,), `images` uint8
    (N, H, W, 3), and `ages` of their edges (N, N), 0 where there is none.
    """

    centroids: torch.Tensor
    variances: torch.Tensor
    classes: torch.Tensor
    images: torch.Tensor
    ages: torch.Tensor

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return them by name, as they are kept."""
        return {
            "centroids": self.centroids.cpu().clone(),
            "variances": self.variances.cpu().clone(),
            "node_classes": self.classes.cpu().int(),
            "node_images": self.images.cpu().clone(),
            "ages": self.ages.cpu().to(torch.uint8),
        }

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], device: torch.device) -> Nodes:
        """Return the nodes that `tensors` returned."""
        return cls(
            tensors["centroids"].clone().to(device),
            tensors["variances"].clone().to(device),
            tensors["node_classes"].long().to(device),
            tensors["node_images"].clone(),
            tensors["ages"].long().to(device),
        )

    def joined(self, new: Nodes) -> Nodes:
        """Return these nodes and new ones, whose `ages` are of both."""
        return Nodes(
            torch.cat([self.centroids, new.centroids]),
            torch.cat([self.variances, new.variances]),
            torch.cat([self.classes, new.classes]),
            torch.cat([self.images, new.images]),
            new.ages,
        )


def anchor_loss(
    features: torch.Tensor, wanted: torch.Tensor, variances: torch.Tensor
) -> torch.Tensor:
    """Return the mean over nodes and dimensions of (f − wanted)² / variance, all (N, D)."""
    return ((features - wanted).square() / variances).mean()


def pull(features: torch.Tensor, centroids: torch.Tensor, owners: torch.Tensor) -> torch.Tensor:
    """Return half the mean squared distance of features (n, D) from the nodes that own them (n,).

    The centre loss of Wen et al., ECCV 2016; `centroids` are (w, D).
    """
    return (features - centroids[owners]).square().sum(dim=1).mean() / 2


def push(
    centroids: torch.Tensor, others: torch.Tensor, edges: torch.Tensor, margin: float
) -> torch.Tensor:
    """Return the sum of max(0, margin − distance) over the edges of new nodes.

    Args:
        centroids: of the new nodes (w, D), each of a class of its own.
        others: of the old ones (N, D).
        edges: between all (N + w, N + w), the new ones last.
        margin: ξ.
    """
    # An edge between two new nodes counts once.
    joined = edges[len(others) :].tril(len(others) - 1)
    squared = (centroids[:, None] - torch.cat([others, centroids])).square().sum(dim=2)
    # The root has no gradient at 0, where a node is compared with itself.
    return (F.relu(margin - squared.clamp(min=1e-12).sqrt()) * joined).sum()
