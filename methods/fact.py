"""FACT: a representation that keeps room for classes to come, and its inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.backbone import Staged
from fscil_bench.method import Method, MethodContext, Needs
from fscil_bench.protocol import Queries, Session
from fscil_bench.representation import Representation, TrainingBatch

from ._shared.augmentation import drawn_share
from ._shared.cosine import cosine_logits
from ._shared.statistics import class_means

LINKED_CLASSES = 3
"""Base classes that one virtual prototype may stand for, as in the released code."""

FORBIDDEN = float("-inf")


class Fact(Method):
    """Class means whose scores also look at how a query resembles the virtual prototypes.

    Zhou et al., "Forward Compatible Few-Shot Class-Incremental Learning" (FACT), CVPR 2022,
    section 4.2.

    Classes are represented by their mean feature, as in `ncm`. A query's probability of a class is
    (1 − η) · softmax(τ · cos(query, class mean)) + η · softmax(Σ_v s_v · cos(v, class mean)),
    where s_v is the query's cosine similarity to virtual prototype v, the `top` largest of which
    are kept: two samples that resemble the same virtual prototypes belong together. The virtual
    prototypes come from representation `fact`.

    That is `resemblance=cosine`. The released trainer divides the class means (C, D) by the length
    of each of their D columns in place of each row, so that a feature weighs the less the more
    classes share it: `resemblance=published`, the default.

    It stores the means and the virtual prototypes, 4·D·(C + V) bytes.

    Deviations: the released code leaves the second term out before the first session, here all
    sessions are scored alike. `eta` 0.1, `top` 40 and `temperature` 16 are those of the released
    code for all three data sets (docs/methods/fact.md).
    """

    name = "fact"
    title = "FACT"
    bibtex = """@inproceedings{zhou2022fact,
  author = {Zhou, Da-Wei and Wang, Fu-Yun and Ye, Han-Jia and Ma, Liang and Pu, Shiliang and
            Zhan, De-Chuan},
  title = {Forward Compatible Few-Shot Class-Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2022}
}"""
    needs = Needs(extras=("virtual",))
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"eta": (0.0, 0.05, 0.1, 0.2, 0.4)}

    @dataclass(frozen=True)
    class Params:
        """Parameters of the inference.

        Attributes:
            eta: weight of the virtual term.
            resemblance: whether its class means are of length 1 by feature, as `published`, or by
                class (`cosine`).
            top: how many similarities to virtual prototypes are kept.
            temperature: factor on the cosines.
        """

        eta: Annotated[float, Field(ge=0, le=1)] = 0.1
        resemblance: Literal["published", "cosine"] = "published"
        top: Annotated[int, Field(gt=0)] = 40
        temperature: Annotated[float, Field(gt=0)] = 16.0

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.virtual = context.extras["virtual"]
        self.prototypes = torch.empty(0, context.feature_dim)

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as prototypes."""
        self.prototypes = self._means(base)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' means."""
        self.prototypes = torch.cat([self.prototypes, self._means(session)])

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return probabilities (n, classes seen)."""
        return self._probabilities(queries, self.prototypes)

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return probabilities (n, way) of an episode's classes."""
        return self._probabilities(queries, self._means(shots))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the prototypes (classes seen, D) and the virtual ones (V, D)."""
        return {"prototypes": self.prototypes, "virtual": self.virtual}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore both."""
        self.prototypes = state["prototypes"].clone()
        self.virtual = state["virtual"].clone()

    def _means(self, session: Session) -> torch.Tensor:
        return class_means(session.features, session.labels, session.class_ids).float()

    def _probabilities(self, queries: Queries, prototypes: torch.Tensor) -> torch.Tensor:
        features, params = queries.features, self.params
        direct = cosine_logits(features, prototypes, params.temperature).softmax(dim=1)
        similarity = strongest(cosine_logits(features, self.virtual, 1.0), params.top)
        units = F.normalize(prototypes, dim=0 if params.resemblance == "published" else 1)
        resemblance = similarity @ (F.normalize(self.virtual, dim=1) @ units.T)
        return (1 - params.eta) * direct + params.eta * resemblance.softmax(dim=1)


class FactRepresentation(Representation):
    """Cosine classification that reserves room: virtual prototypes and manifold mixup.

    Zhou et al. (FACT), CVPR 2022, section 4.1.

    Beside the rows of the base classes, `virtual` rows stand for classes to come. Every sample's
    second choice shall be a virtual prototype; and samples mixed half-way through the network
    (manifold mixup after the second stage, pairs of different classes, one Beta-distributed
    coefficient a batch) shall belong to virtual prototypes too, so that base classes draw together
    and room is left between them. Loss: L1 + gamma · (L2 + L3 + L4) from epoch `start_epoch` on.

    `virtual` is the number of classes to come, which nobody knows in earnest; tables flag it.

    Deviations: forbidden logits are set to −∞ (the released code multiplies by 0, so that they win
    where all others are negative); a class that no virtual prototype is linked to may choose any.
    Defaults are the released values that two of the three data sets share; `start_epoch` (150 of
    1,000 for mini-ImageNet there) is counted in epochs of the protocol's own recipe, so that 0
    holds for all protocols here. For L2 the released code compares with virtual rows as they were
    drawn, which its move to a GPU parts from those that L3 and L4 train and inference reads:
    `second_choice=frozen`, as published. With `trained`, L2 trains these, too.
    """

    name = "fact"
    bibtex = Fact.bibtex
    extras = ("virtual",)
    final_class_count = True
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"gamma": 0.01, "beta": 2.0, "virtual": 100},
        "cifar100": {"gamma": 0.001, "beta": 0.5, "virtual": 40},
        "mini_imagenet": {"gamma": 0.01, "beta": 0.5, "virtual": 40},
    }

    @dataclass(frozen=True)
    class Params:
        """`beta` shapes the mixing coefficient, Beta(beta, beta); `second_choice`: see above."""

        temperature: Annotated[float, Field(gt=0)] = 16.0
        virtual: Annotated[int, Field(gt=0)] = 40
        gamma: Annotated[float, Field(ge=0)] = 0.01
        beta: Annotated[float, Field(gt=0)] = 0.5
        start_epoch: Annotated[int, Field(ge=0)] = 0
        second_choice: Literal["frozen", "trained"] = "frozen"

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return base and virtual rows, orthogonal as far as D allows, and their links."""
        return FactHead(feature_dim, classes, self.params.virtual, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return FACT's loss; that of `cosine` where gamma is 0.

        Raises:
            TypeError: the backbone cannot be entered half-way.
        """
        assert isinstance(head, FactHead)
        if not isinstance(backbone, Staged):
            raise TypeError("representation 'fact' mixes inside the backbone, which has no stages")
        params, classes = self.params, len(head.rows)
        half_way = backbone.early(batch.images)
        virtual = head.drawn if params.second_choice == "frozen" else head.virtual
        rows = torch.cat([head.rows, virtual])
        logits = cosine_logits(backbone.late(half_way), rows, params.temperature)
        loss = F.cross_entropy(logits[:, :classes], batch.labels)
        if params.gamma == 0 or batch.epoch < params.start_epoch:
            return loss
        reserved = second_choice_loss(logits, batch.labels, head.links)
        first, second = mixing_pairs(batch.labels, batch.generator)
        if len(first) > 1:  # batch normalisation cannot learn from one
            share = drawn_share(params.beta, batch.generator)
            mixed = share * half_way[first] + (1 - share) * half_way[second]
            mixed_logits = cosine_logits(backbone.late(mixed), head.all_rows(), params.temperature)
            reserved = reserved + virtual_instance_loss(mixed_logits, classes)
        return loss + params.gamma * reserved

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the base rows (classes, D)."""
        assert isinstance(head, FactHead)
        return head.rows

    def extra_tensors(self, head: nn.Module) -> dict[str, torch.Tensor]:
        """Return `virtual`, the virtual prototypes (V, D)."""
        assert isinstance(head, FactHead)
        return {"virtual": head.virtual}

    def scale(self) -> float:
        """Return the temperature."""
        return self.params.temperature


class FactHead(nn.Module):
    """Rows of base classes and virtual prototypes; `links` says which may stand for which.

    `drawn` are the virtual prototypes as they were before any training.
    """

    links: torch.Tensor
    drawn: torch.Tensor

    def __init__(
        self, feature_dim: int, classes: int, virtual: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        drawn = torch.empty(classes + virtual, feature_dim)
        nn.init.orthogonal_(drawn, generator=generator)
        self.rows = nn.Parameter(drawn[:classes].clone())
        self.virtual = nn.Parameter(drawn[classes:].clone())
        self.register_buffer("drawn", drawn[classes:].clone())
        self.register_buffer("links", draw_links(classes, virtual, LINKED_CLASSES, generator))

    def all_rows(self) -> torch.Tensor:
        """Return base, then virtual rows (C0 + V, D)."""
        return torch.cat([self.rows, self.virtual])


def strongest(similarity: torch.Tensor, count: int) -> torch.Tensor:
    """Return similarities (n, V) with all but each row's `count` largest set to 0."""
    if count >= similarity.shape[1]:
        return similarity
    kept = similarity.topk(count, dim=1).indices
    return torch.zeros_like(similarity).scatter(1, kept, similarity.gather(1, kept))


def draw_links(classes: int, virtual: int, each: int, generator: torch.Generator) -> torch.Tensor:
    """Return which virtual prototype may stand for which base class, bool (classes, virtual).

    Every virtual prototype is linked to `each` base classes drawn at random (all, if fewer).
    """
    links = torch.zeros(classes, virtual, dtype=torch.bool)
    for column in range(virtual):
        links[torch.randperm(classes, generator=generator)[:each], column] = True
    return links


def second_choice_loss(
    logits: torch.Tensor, labels: torch.Tensor, links: torch.Tensor
) -> torch.Tensor:
    """Return the loss that makes a virtual prototype each sample's second choice (section 4.1).

    The sample's own class is taken out, and what is left shall be the best virtual prototype that
    is linked to the class (any of them, for a class without links).

    Args:
        logits: (n, C0 + V).
        labels: (n,) base classes.
        links: bool (C0, V).
    """
    classes = len(links)
    allowed = links[labels]
    allowed = allowed | ~allowed.any(dim=1, keepdim=True)
    virtual = logits[:, classes:].masked_fill(~allowed, FORBIDDEN)
    target = classes + virtual.argmax(dim=1)
    own = F.one_hot(labels, logits.shape[1]).bool()
    return F.cross_entropy(logits.masked_fill(own, FORBIDDEN), target)


def virtual_instance_loss(logits: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the loss on mixed samples, which stand for classes to come (section 4.1).

    A mixed sample belongs to its best virtual prototype and, with that one taken out, to its best
    base class.

    Args:
        logits: (n, C0 + V) of mixed samples.
        classes: C0.
    """
    virtual = classes + logits[:, classes:].argmax(dim=1)
    known = logits[:, :classes].argmax(dim=1)
    taken = F.one_hot(virtual, logits.shape[1]).bool()
    rest = logits.masked_fill(taken, FORBIDDEN)
    return F.cross_entropy(logits, virtual) + F.cross_entropy(rest, known)


def mixing_pairs(
    labels: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the members of random pairs (m,), (m,) of samples with different labels."""
    partner = torch.randperm(len(labels), generator=generator).to(labels.device)
    mixed = torch.nonzero(labels != labels[partner]).flatten()
    return mixed, partner[mixed]
