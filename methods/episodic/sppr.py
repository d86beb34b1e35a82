"""SPPR: prototypes that are refined by attention, and compared by a learnt relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.method import Method, MethodContext, Needs, batches
from fscil_bench.protocol import LabelledSamples, Queries, Session
from fscil_bench.representation import Representation, TrainingBatch

from .._shared.cosine import RunningMeans, drawn_rows
from .._shared.statistics import class_means, in_space

HIDDEN = 64
"""Width of the relation's two hidden layers (released code)."""

CHUNK = 500
"""Queries whose relation to all classes is computed at once."""

LEARNT = ("rows", "into", "out", "relation1", "relation2", "relation3")
"""What the representation brings, each name after `sppr_`."""

Tensors = Mapping[str, torch.Tensor]


class Sppr(Method):
    """Self-promoted prototype refinement (SPPR): new prototypes attend to the old ones.

    Zhu, Cao, Zhai, Cheng and Zha, "Self-Promoted Prototype Refinement for Few-Shot
    Class-Incremental Learning", CVPR 2021.

    Base classes keep the rows that representation `sppr` learnt. In a session the new classes'
    means join them, and one layer of attention moves every prototype by what it attends to among
    all prototypes, and among the base rows once more. A learnt relation of a unit query and a unit
    prototype, an MLP of three layers, is the score. Nothing is trained: sessions take the base rows
    and all new means, and refine them from the start.

    `base_rows = kept` leaves the base rows as they are, as the released code does for CUB200.

    It stores rows and means 4·C·D, the attention 16·D·512, and the relation
    4·(2·D·64 + 64·66 + 65) bytes; no images.

    Deviations: shots are those of a class's own session, under the test transform (released: every
    session draws shots of all new classes anew, earlier ones included, and crops them at random).
    Few-shot episodes refine the base rows with the means of the episode's classes and score these
    alone. See docs/methods/sppr.md.
    """

    name = "sppr"
    title = "SPPR"
    bibtex = """@inproceedings{zhu2021sppr,
  author = {Zhu, Kai and Cao, Yang and Zhai, Wei and Cheng, Jie and Zha, Zheng-Jun},
  title = {Self-Promoted Prototype Refinement for Few-Shot Class-Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2021}
}"""
    needs = Needs(extras=tuple(f"sppr_{name}" for name in LEARNT))
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cub200": {"base_rows": "kept"}}
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"base_rows": ("refined", "kept")}

    @dataclass(frozen=True)
    class Params:
        """`base_rows`: whether sessions refine the base rows too."""

        base_rows: Literal["refined", "kept"] = "refined"

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.learnt = {k: v.to(context.device) for k, v in context.extras.items()}
        self.means = torch.empty(0, context.feature_dim, device=context.device)

    def learn_base(self, base: Session) -> None:
        """Keep the rows that the representation learnt; check that features are numbers."""
        self._embed(base)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' means."""
        self.means = torch.cat([self.means, self._means(session)])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the relation (n, classes seen) of queries and refined prototypes."""
        return self._relation(queries, self._prototypes(self.means))

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return the relation (n, way) of queries and an episode's refined prototypes."""
        rows = len(self.learnt["sppr_rows"])
        return self._relation(queries, self._prototypes(self._means(shots))[rows:])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the new means (new classes, D) and what the representation brought."""
        return {name: x.cpu() for name, x in (self.learnt | {"means": self.means}).items()}

    def load_state_dict(self, state: Tensors) -> None:
        """Restore both."""
        copies = {name: x.clone().to(self.context.device) for name, x in state.items()}
        self.means = copies.pop("means")
        self.learnt = copies

    def _prototypes(self, means: torch.Tensor) -> torch.Tensor:
        """Return the prototypes (C0 + m, D) of base classes and of m others with these means."""
        rows = self.learnt["sppr_rows"]
        if not len(means):
            return rows
        into, out = self.learnt["sppr_into"], self.learnt["sppr_out"]
        prototypes = refined(torch.cat([rows, means]), rows, into, out)
        if self.params.base_rows == "kept":
            return torch.cat([rows, prototypes[len(rows) :]])
        return prototypes

    def _relation(self, queries: Queries, prototypes: torch.Tensor) -> torch.Tensor:
        features = self._embed(queries)
        layers = [self.learnt[f"sppr_relation{number}"] for number in (1, 2, 3)]
        chunks = batches(len(features), CHUNK)
        parts = [related(features[part], prototypes, layers) for part in chunks]
        return torch.cat(parts) if parts else features.new_empty(0, len(prototypes))

    def _means(self, session: Session) -> torch.Tensor:
        labels = session.labels.to(self.context.device)
        return class_means(self._embed(session), labels, session.class_ids).float()

    def _embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        return in_space(samples, device=self.context.device)


class SpprRepresentation(Representation):
    """Random episodes in which some base classes play the new ones (SPPR).

    Zhu et al. (SPPR), CVPR 2021.

    Each of `tasks` episodes of a step takes the rows of `replaced` base classes away, puts the mean
    of `shots` images in their place, refines all prototypes by attention, and classifies the batch
    by the relation of its features to them: cross-entropy over all base classes. So the network
    learns features whose class means work as prototypes beside learnt rows.

    As released: the classes are drawn from `replaced + spare`, whose images are shown once a step;
    the rows taken away stay among what is attended to, as zeros; rows start at zero; there is
    dropout on the attention's weights and output (0.1) and on the relation's hidden layers (0.5).
    The released code encodes the batch once an episode, with the same result each time; here it is
    encoded once, so that the cost is that of `cosine` and of the shots.

    Deviations: the recipe is the protocol's (released: no momentum, batch 128, lr 0.1, half a
    cosine over 70 epochs on CUB200, 56 on CIFAR100, 68 on mini-ImageNet, so few that the first
    session is no better than TOPIC's); CIFAR100 is not enlarged to 224 pixels. The base classifier
    handed on is the running mean of unit features, as the rows are read by the relation alone.
    """

    name = "sppr"
    bibtex = Sppr.bibtex
    extras = Sppr.needs.extras
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cub200": {"replaced": 10}}

    @dataclass(frozen=True)
    class Params:
        """How episodes are drawn, and how wide the attention is.

        Attributes:
            tasks: episodes of a step.
            replaced: classes whose rows give way to the mean of their shots; the protocol's way.
            spare: how many classes more a step draws images of.
            shots: images of each.
            latent: width of the attention's queries, keys and values.
            attention_dropout: of the attention's weights and output.
            relation_dropout: of the relation's hidden layers.
        """

        tasks: Annotated[int, Field(gt=0)] = 3
        replaced: Annotated[int, Field(gt=0)] = 5
        spare: Annotated[int, Field(ge=0)] = 3
        shots: Annotated[int, Field(gt=0)] = 5
        latent: Annotated[int, Field(gt=0)] = 512
        attention_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
        relation_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return rows, attention, relation, and running means."""
        return SpprHead(feature_dim, classes, self.params.latent, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the cross-entropy of the batch, averaged over the episodes."""
        assert isinstance(head, SpprHead) and batch.episode is not None
        params, generator = self.params, batch.generator
        images, classes = batch.episode(params.replaced + params.spare, params.shots)
        support = backbone(images).float().view(len(classes), -1, head.rows.shape[1]).mean(dim=1)
        features = backbone(batch.images).float()
        head.means.follow(features.detach(), batch.labels)
        losses = []
        with torch.autocast(features.device.type, enabled=False):
            for _ in range(params.tasks):
                chosen = torch.randperm(len(classes), generator=generator)[: params.replaced]
                chosen = chosen.to(classes.device)
                prototypes = self._prototypes(head, support[chosen], classes[chosen], generator)
                logits = head.relation(features, prototypes, params.relation_dropout, generator)
                losses.append(F.cross_entropy(logits, batch.labels))
        return torch.stack(losses).mean()

    def _prototypes(
        self,
        head: SpprHead,
        means: torch.Tensor,
        classes: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Return the refined prototypes (C0, D), with these means (w, D) of classes (w,)."""
        kept = head.rows.index_fill(0, classes, 0.0)
        mixed = kept.index_copy(0, classes, means)
        rate = self.params.attention_dropout
        return refined(mixed, kept, head.into, head.out, rate, generator)

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the running class means (classes, D)."""
        assert isinstance(head, SpprHead)
        return head.means.rows

    def extra_tensors(self, head: nn.Module) -> dict[str, torch.Tensor]:
        """Return rows, attention, and the relation's layers with the normalisation in them."""
        assert isinstance(head, SpprHead)
        layers = zip(LEARNT[3:], head.relation.layers(), strict=True)
        tensors = {"rows": head.rows, "into": head.into, "out": head.out, **dict(layers)}
        return {f"sppr_{name}": tensor.detach() for name, tensor in tensors.items()}

    def scale(self) -> float:
        """Return CEC's factor, as these logits are no cosines."""
        return 16.0


class SpprHead(nn.Module):
    """Rows (C0, D), attention `into` (3, L, D) and `out` (D, L), relation, and running means."""

    def __init__(
        self, feature_dim: int, classes: int, latent: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(classes, feature_dim))
        # Glorot's normal initialisation, as released for all four.
        spread = (2 / (feature_dim + latent)) ** 0.5
        into = torch.randn(3, latent, feature_dim, generator=generator)
        self.into = nn.Parameter(spread * into)
        out = torch.randn(feature_dim, latent, generator=generator)
        self.out = nn.Parameter(spread * out)
        self.relation = Relation(feature_dim, generator)
        self.means = RunningMeans(feature_dim, classes)


class Relation(nn.Module):
    """How much a feature is of a prototype's class: an MLP 2·D → 64 → 64 → 1 on both, unit length.

    The first layer is computed for features and prototypes apart, and added.
    """

    def __init__(self, feature_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = (2 * feature_dim, HIDDEN, HIDDEN, 1)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for inputs, outputs in pairwise(widths):
            self.weights.append(drawn_rows(inputs, outputs, generator).weight)
            self.biases.append(torch.rand(outputs, generator=generator).mul(2).sub(1) / inputs**0.5)
        self.norm1, self.norm2 = nn.BatchNorm1d(HIDDEN), nn.BatchNorm1d(HIDDEN)

    def forward(
        self,
        features: torch.Tensor,
        prototypes: torch.Tensor,
        dropout: float,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Return the logits (n, C) of features (n, D) and prototypes (C, D)."""
        hidden = _first(features, prototypes, self.weights[0]) + self.biases[0]
        shape = hidden.shape
        hidden = F.relu(self.norm1(hidden.flatten(0, 1)))
        hidden = F.linear(dropped(hidden, dropout, generator), self.weights[1], self.biases[1])
        hidden = dropped(F.relu(self.norm2(hidden)), dropout, generator)
        return F.linear(hidden, self.weights[2], self.biases[2]).view(shape[:2])

    def layers(self) -> list[torch.Tensor]:
        """Return the layers' weights, biases as last column, the normalisation multiplied in."""
        layers = []
        norms = (self.norm1, self.norm2, None)
        for weight, bias, norm in zip(self.weights, self.biases, norms, strict=True):
            layer = torch.cat([weight, bias[:, None]], dim=1).detach()
            if norm is not None:
                assert norm.running_var is not None and norm.running_mean is not None
                factor = norm.weight.detach() * (norm.running_var + norm.eps).rsqrt()
                layer = factor[:, None] * layer
                layer[:, -1] += norm.bias.detach() - factor * norm.running_mean
            layers.append(layer)
        return layers


def related(
    features: torch.Tensor, prototypes: torch.Tensor, layers: list[torch.Tensor]
) -> torch.Tensor:
    """Return the relation (n, C) of features (n, D) and prototypes (C, D), nothing dropped.

    `layers` are what `Relation.layers` returns.
    """
    hidden = F.relu(_first(features, prototypes, layers[0][:, :-1]) + layers[0][:, -1])
    hidden = F.relu(F.linear(hidden, layers[1][:, :-1], layers[1][:, -1]))
    return F.linear(hidden, layers[2][:, :-1], layers[2][:, -1])[..., 0]


def _first(features: torch.Tensor, prototypes: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the first layer's product (n, C, H) with every feature beside every prototype."""
    of_features, of_prototypes = weight.chunk(2, dim=1)
    first = F.normalize(features, dim=1) @ of_features.T
    return first[:, None] + F.normalize(prototypes, dim=1) @ of_prototypes.T


def refined(
    prototypes: torch.Tensor,
    kept: torch.Tensor,
    into: torch.Tensor,
    out: torch.Tensor,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return prototypes (C, D), each with what it attends to added.

    Attended to are all prototypes, and `kept` (C0, D) beside them. `into` (3, L, D) makes queries,
    keys and values of width L, `out` (D, L) brings these back.
    """
    beside = torch.cat([prototypes, kept])
    asked, keys, values = prototypes @ into[0].T, beside @ into[1].T, beside @ into[2].T
    weights = torch.softmax(asked @ keys.T * len(into[0]) ** -0.5, dim=1)
    attended = dropped(weights, dropout, generator) @ values @ out.T
    return prototypes + dropped(attended, dropout, generator)


def dropped(values: torch.Tensor, rate: float, generator: torch.Generator | None) -> torch.Tensor:
    """Return values with a share `rate` of them set to 0, and the others enlarged to make up."""
    if rate == 0:
        return values
    kept = torch.rand(values.shape, generator=generator) >= rate
    return values * kept.to(values.device) / (1 - rate)
