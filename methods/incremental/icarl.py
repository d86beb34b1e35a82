"""iCaRL: exemplars, distillation, and the nearest mean of exemplars; and what tables call iCaRL."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch.nn import functional as F

from fscil_bench.errors import UsageError
from fscil_bench.method import MethodContext, Terms
from fscil_bench.protocol import Queries, Session

from .._shared import citations
from .._shared.network import (
    BatchNorm,
    Head,
    NetworkMethod,
    Schedule,
    TrainingParams,
    last_block,
    shuffled,
)

Teacher = Callable[[torch.Tensor], torch.Tensor]
"""Maps normalised images (n, 3, H, W) to the logits (n, old classes) of before the session."""


class Icarl(NetworkMethod):
    """iCaRL: nearest mean of herded exemplars, on a network that distillation holds back.

    Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017.

    Some images of every class are stored, chosen by herding: their mean feature stays as near the
    class's mean as it can. A session trains the network on its images and the stored ones, with
    cross-entropy over all classes and, for all of them, the divergence of the old classes'
    softened probabilities from those of the network as it was before. Then exemplars of the new
    classes are chosen, and a query belongs to the class whose exemplars' mean, of unit features,
    is nearest. The classifier serves training only.

    **Deviations.** Cross-entropy on a softmax with Hinton's distillation (2015) stands where the
    paper has sigmoids, as in most later code; 5 exemplars a class, few epochs and a low rate are
    this suite's, chosen for cost: docs/methods/icarl.md. The rows called iCaRL in tables of
    few-shot class-incremental learning are another method; see `icarl_softmax`.

    It stores network, rows, exemplars and their means. The old network is a copy made when a
    session begins, and is not kept.
    """

    name = "icarl"
    title = "iCaRL"
    bibtex = """@inproceedings{rebuffi2017icarl,
  author = {Rebuffi, Sylvestre-Alvise and Kolesnikov, Alexander and Sperl, Georg and
            Lampert, Christoph H.},
  title = {{iCaRL}: Incremental Classifier and Representation Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2017}
}"""
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lr": (0.0003, 0.001, 0.003)}

    @dataclass(frozen=True)
    class Params(TrainingParams):
        """Parameters beside those of every trained network.

        Attributes:
            exemplars: stored images of a class; of one with fewer, all.
            budget: stored images in all, shared equally by the classes seen, in place of
                `exemplars`; 0 sets no such limit.
            keep_new: whether exemplars of new classes are stored; with False the base classes'
                stay as they were chosen, and `budget` is theirs.
            replay: `mixed` trains on exemplars as on the session's images, and distils on both.
                `distilled` has cross-entropy on the session's images alone, and in every step
                distils on all exemplars, under the test transform.
            kd_weight: weight of distillation.
            kd_temperature: what softens the probabilities.
            trained: `all` of the network, or its `last_block`; rows always.
            classifier: `nearest_mean` of the exemplars, or `softmax`, the trained rows.
        """

        epochs: Annotated[int, Field(ge=0)] = 30
        lr: Annotated[float, Field(ge=0)] = 0.001
        schedule: Schedule = "cosine"
        head: Head = "cosine"
        exemplars: Annotated[int, Field(ge=0)] = 5
        budget: Annotated[int, Field(ge=0)] = 0
        keep_new: bool = True
        replay: Literal["mixed", "distilled"] = "mixed"
        kd_weight: Annotated[float, Field(ge=0)] = 1.0
        kd_temperature: Annotated[float, Field(gt=0)] = 2.0
        trained: Literal["all", "last_block"] = "all"
        classifier: Literal["nearest_mean", "softmax"] = "nearest_mean"

    params: Params

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse means without exemplars, and a budget that does not go round the classes."""
        p = params
        if p.classifier == "nearest_mean" and not (p.keep_new and (p.exemplars or p.budget)):
            raise UsageError(
                f"{cls.name}: classifier=nearest_mean takes exemplars of every class (exemplars = "
                f"{p.exemplars}, budget = {p.budget}, keep_new = {str(p.keep_new).lower()}); store "
                "some, or use classifier=softmax"
            )
        classes = terms.classes if p.keep_new else terms.base_classes
        if 0 < p.budget < classes:
            raise UsageError(
                f"{cls.name}: budget = {p.budget} exemplars do not go round {classes} classes, one "
                f"each; set budget to {classes} or more, or use exemplars=N, a number per class"
            )

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if self.params.trained == "last_block":
            self.trained = last_block(self.network.backbone)
            self.network.backbone.requires_grad_(False)
            self.trained.requires_grad_(True)
        none = torch.empty(0, dtype=torch.int32)
        self.exemplars = Exemplars(none.to(torch.uint8), none)
        self.means = torch.empty(0, context.feature_dim, device=context.device)

    def learn_base(self, base: Session) -> None:
        """Choose the base classes' exemplars; the network stays as it was trained."""
        self.exemplars = self._chosen(base, self._per_class(base.classes_seen))
        self._update_means()

    def learn_session(self, session: Session) -> None:
        """Train on the session's images and the exemplars, then choose exemplars of the new."""
        generator = self.context.random.torch("session", session.index)
        keep_new = self.params.keep_new
        count = self._per_class(session.classes_seen) if keep_new else 0
        teacher = self._frozen()
        self.append_rows(session.way, generator)
        if self.params.replay == "mixed":
            self._train_mixed(session, teacher, generator)
        else:
            self._train_distilled(session, teacher, generator)
        if keep_new:
            new = self._chosen(session, count)
            self.exemplars = self.exemplars.first(count).with_more(new)
        self._update_means()

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return cosines (n, classes seen) to the exemplars' means, or the logits."""
        if self.params.classifier == "softmax":
            return super().scores(queries)
        assert queries.images is not None
        return F.normalize(self.embed(queries.images), dim=1) @ self.means.T

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return network, rows, exemplars with labels, and their means."""
        return {
            **super().state_dict(),
            "exemplars": self.exemplars.images,
            "exemplar_labels": self.exemplars.labels,
            "means": self.means,
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        images, labels = state["exemplars"].clone(), state["exemplar_labels"].clone()
        self.exemplars = Exemplars(images, labels)
        self.means = state["means"].clone().to(self.context.device)

    def _per_class(self, classes: int) -> int:
        """Return how many exemplars each of `classes` classes may have."""
        budget = self.params.budget
        return budget // classes if budget else self.params.exemplars

    def _chosen(self, session: Session, count: int) -> Exemplars:
        assert session.images is not None
        if not count:
            return Exemplars(session.images[:0].clone(), session.labels[:0].int())
        return choose(session.images, session.labels, self.embed(session.images), count)

    def _update_means(self) -> None:
        if self.params.classifier == "nearest_mean":
            features = self.embed(self.exemplars.images)
            self.means = exemplar_means(features, self.exemplars.labels)

    def _frozen(self) -> Teacher:
        """Return the network as it is, apart from what training will make of it."""
        backbone = copy.deepcopy(self.network.backbone).eval().requires_grad_(False)
        rows = self.rows.detach().clone()

        @torch.no_grad()
        def teacher(pixels: torch.Tensor) -> torch.Tensor:
            with self.network.autocast():
                features = backbone(pixels)
            return self.head_logits(features.float(), rows)

        return teacher

    def _train_mixed(self, session: Session, teacher: Teacher, generator: torch.Generator) -> None:
        p = self.params
        assert session.images is not None
        images, labels = session.images, session.labels
        if len(self.exemplars):
            images = torch.cat([images, self.exemplars.images])
            labels = torch.cat([labels, self.exemplars.labels.long()])

        def loss(indices: torch.Tensor) -> torch.Tensor:
            pixels = self.network.train_pixels(images[indices], generator)
            logits = self.logits(pixels)
            value = F.cross_entropy(logits, labels[indices].to(logits.device))
            if p.kd_weight:
                divergence = distillation(logits, teacher(pixels), p.kd_temperature)
                value = value + p.kd_weight * divergence
            return value

        self.train(session, lambda: shuffled(len(labels), p.batch_size, generator), loss)

    def _train_distilled(
        self, session: Session, teacher: Teacher, generator: torch.Generator
    ) -> None:
        p = self.params
        assert session.images is not None
        images, labels = session.images, session.labels
        distilled = bool(p.kd_weight and len(self.exemplars))
        if distilled:
            stored = self.network.test_pixels(self.exemplars.images)
            wanted = teacher(stored)

        def loss(indices: torch.Tensor) -> torch.Tensor:
            logits = self.logits(self.network.train_pixels(images[indices], generator))
            value = F.cross_entropy(logits, labels[indices].to(logits.device))
            if distilled:
                divergence = distillation(self.logits(stored), wanted, p.kd_temperature)
                value = value + p.kd_weight * divergence
            return value

        self.train(session, lambda: shuffled(len(labels), p.batch_size, generator), loss)


class IcarlSoftmax(Icarl):
    """What tables of few-shot class-incremental learning call iCaRL: distillation, and a softmax.

    Tao et al., "Few-Shot Class-Incremental Learning" (TOPIC), CVPR 2020; the rows that later
    papers copy from it (21.16 / 13.73 / 17.21 %), as its released trainers make them.

    400 base images are stored and stay as they are. A session trains with cross-entropy on its
    own images and, with weight 1 and Hinton's T² = 4, distillation (temperature 2) on all stored
    ones, whose old logits are those of when it began. Of the network only the last residual block
    is trained, and the classifier, whose softmax predicts: no exemplar of a new class is kept,
    nothing is compared with a mean. All else is as in `icarl`, and any of its parameters can be
    set here.

    Values are those of TOPIC's scripts. Deviations: the 400 are herded, 400 // C0 a base class, and
    Hinton's distillation stands in, as neither is released; the last epoch counts, where it chose
    one on test data. See docs/methods/icarl.md.

    It stores network, rows and the base exemplars.
    """

    name = "icarl_softmax"
    title = "iCaRL-softmax"
    bibtex = citations.TOPIC
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"epochs": 100, "lr": 0.01, "schedule": "constant"},
        "cifar100": {"epochs": 70, "lr": 0.1, "schedule": "step", "milestone": 60},
        "mini_imagenet": {"epochs": 100, "lr": 0.1, "schedule": "step", "milestone": 90},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lr": (0.001, 0.01, 0.1)}

    @dataclass(frozen=True)
    class Params(Icarl.Params):
        """As of `icarl`, with TOPIC's values; `kd_weight` has Hinton's T² in it."""

        epochs: Annotated[int, Field(ge=0)] = 70
        lr: Annotated[float, Field(ge=0)] = 0.1
        schedule: Schedule = "step"
        milestone: Annotated[int, Field(ge=0)] = 60
        head: Head = "linear"
        batch_norm: BatchNorm = "trained"
        budget: Annotated[int, Field(ge=0)] = 400
        keep_new: bool = False
        replay: Literal["mixed", "distilled"] = "distilled"
        kd_weight: Annotated[float, Field(ge=0)] = 4.0
        trained: Literal["all", "last_block"] = "last_block"
        classifier: Literal["nearest_mean", "softmax"] = "softmax"

    params: Params


@dataclass(frozen=True)
class Exemplars:
    """Stored images uint8 (n, H, W, 3) with labels int32 (n,), class by class, best first."""

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Exemplars:
        """Return the best `count` of each class, or all where a class has fewer."""
        kept = [members[:count] for members in by_class(self.labels)]
        indices = torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64)
        return Exemplars(self.images[indices], self.labels[indices])

    def with_more(self, other: Exemplars) -> Exemplars:
        """Return these and those of further classes."""
        images = torch.cat([self.images, other.images])
        return Exemplars(images, torch.cat([self.labels, other.labels]))


def herd(features: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices (min(count, n),) of samples whose running mean stays nearest the mean.

    Herding (Rebuffi et al., iCaRL, CVPR 2017, algorithm 4): the k-th exemplar is the sample, not
    chosen yet, for which the mean of the first k features is nearest the mean of all. Each prefix
    is a good choice itself, so that exemplars are dropped from the end.

    Args:
        features: (n, D) of one class.
        count: how many to choose.
    """
    features = features.double()
    mean, total = features.mean(dim=0), torch.zeros_like(features[0])
    free = torch.ones(len(features), dtype=torch.bool, device=features.device)
    chosen = []
    for k in range(1, min(count, len(features)) + 1):
        distances = (mean - (features + total) / k).norm(dim=1)
        best = int(distances.masked_fill(~free, torch.inf).argmin())
        free[best] = False
        total = total + features[best]
        chosen.append(best)
    return torch.tensor(chosen, dtype=torch.int64)


def choose(
    images: torch.Tensor, labels: torch.Tensor, features: torch.Tensor, count: int
) -> Exemplars:
    """Return the herded exemplars of every class, on unit features.

    Args:
        images: uint8 (n, H, W, 3).
        labels: (n,).
        features: (n, D) of the images.
        count: exemplars of a class; a class with fewer images gives them all.
    """
    unit, chosen = F.normalize(features, dim=1), []
    for members in by_class(labels):
        chosen.append(members[herd(unit[members.to(unit.device)], count)])
    indices = torch.cat(chosen)
    return Exemplars(images[indices], labels[indices].int())


def by_class(labels: torch.Tensor) -> list[torch.Tensor]:
    """Return the indices of each class's samples, by ascending class id."""
    return [torch.nonzero(labels == c).flatten() for c in sorted(set(labels.tolist()))]


def exemplar_means(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return unit class means (C, D) of unit features, in the order of the classes' ids.

    Args:
        features: (n, D) of the exemplars.
        labels: (n,), each of 0..C-1 at least once.
    """
    labels = labels.long().to(features.device)
    sums = torch.zeros(int(labels.max()) + 1, features.shape[1], device=features.device)
    sums.index_add_(0, labels, F.normalize(features, dim=1))
    return F.normalize(sums, dim=1)


def distillation(logits: torch.Tensor, old: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return KL(old ‖ new) of the old classes' softened probabilities, a mean over samples.

    Hinton et al., "Distilling the Knowledge in a Neural Network", 2015, without their factor T²,
    as in PyCIL's iCaRL, whose cross-entropy has the same gradient.

    Args:
        logits: (n, classes seen) of the network that learns.
        old: (n, old classes) of the one before; the first columns stand for the same classes.
        temperature: T.
    """
    new = F.log_softmax(logits[:, : old.shape[1]] / temperature, dim=1)
    target = F.log_softmax(old / temperature, dim=1)
    return F.kl_div(new, target, reduction="batchmean", log_target=True)
