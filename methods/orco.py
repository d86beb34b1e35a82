"""OrCo: targets as far apart as can be, kept for classes to come, and contrast towards them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Method, MethodContext, Needs, Network, Terms, batches
from fscil_bench.protocol import LabelledSamples, Queries, Session
from fscil_bench.representation import Representation, TrainingBatch

from ._shared.contrast import contrast
from ._shared.cosine import RunningMeans, drawn_layer
from ._shared.etf import simplex_etf
from ._shared.network import EVALUATION_BATCH, shuffled
from ._shared.stage import Part, epochs_left
from ._shared.state import part_of, prefixed
from ._shared.statistics import class_means, classifier_rows, in_space

SHARPNESS = 0.07
"""Temperature of the contrast with perturbed targets (released code)."""

SLOW = 3e-5
"""Learning rate with which a warm-up begins (released code)."""


class Orco(Method):
    """Orthogonality and contrast (OrCo): classes are matched to targets that are spread out.

    Ahmed, Kukleva and Schiele, "OrCo: Towards Better Generalization via Orthogonality and Contrast
    for Few-Shot Class-Incremental Learning", CVPR 2024, phases 2 and 3. Phase 1 is representation
    `orco`.

    Unit targets are fixed as far from each other as they can be. Each base class gets the target
    that its projected mean is nearest to, in the best matching of all; the others are kept for
    classes to come. A projector of two layers behind the frozen features learns to send images to
    their target: contrast, in which free targets, perturbed, are classes of their own; uniform
    spread of the batch's class means among the other targets; and cross-entropy over cosines. A
    session matches its means to free targets and trains the projector, from where the base session
    left it, on its shots and on five images of every earlier class.

    **It keeps images' features** of every class seen, in `views` augmented views, which are what it
    trains on later: 4·views·5·C·D bytes, beside targets 4·P·d, twice the projector, and the
    network. With `targets = all` **it must know the final class count**; tables flag that.

    Deviations: the backbone is frozen throughout (released: so on CIFAR100 and mini-ImageNet, not
    on CUB200); views are drawn once, by the protocol's augmentation; targets are the closed form of
    what the released code descends to; the last epoch counts. Details: docs/methods/orco.md.
    """

    name = "orco"
    title = "OrCo"
    bibtex = """@inproceedings{ahmed2024orco,
  author = {Ahmed, Noor and Kukleva, Anna and Schiele, Bernt},
  title = {{OrCo}: Towards Better Generalization via Orthogonality and Contrast for Few-Shot
           Class-Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2024}
}"""
    needs = Needs(images=True, final_class_count=True)
    pretrain_params = (
        *("width", "dim", "targets", "views", "noise"),
        *("base_epochs", "base_lr", "base_batch", "base_decay", "base_warm_up"),
    )
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {
            "dim": 256,
            "targets": "full",
            "base_epochs": 100,
            "base_lr": 0.025,
            "base_warm_up": 3,
            "lr": 0.05,
            "batch": 32,
            "weight_decay": 1e-5,
            "base_weight": 0.6,
        },
        "cifar100": {"base_lr": 0.25, "noise": 9e-5},
        "mini_imagenet": {"base_decay": 1e-4},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (0.01, 0.1),
        "base_weight": (0.0, 0.5),
    }

    @dataclass(frozen=True)
    class Params:
        """Targets and how the projector learns: SGD, momentum and dampening 0.9.

        Attributes:
            width: of the projector's hidden layer.
            dim: d, of the targets.
            targets: how many there are: of `all` classes to come, or as many as `dim`.
            views: augmented views of an image whose features are taken, of which a step shows two.
            noise: width of the uniform noise on the entries of free targets.
            base_epochs: passes over the base images.
            base_lr: learning rate there.
            base_batch: images of a step there.
            base_decay: weight decay there.
            base_warm_up: epochs of rising rate there, half a cosine following; 0 keeps the rate.
            epochs: passes over a session's images and those that are kept.
            lr: learning rate in sessions, which rises for ten epochs and falls as half a cosine.
            batch: images of a step.
            weight_decay: in sessions.
            base_weight: weight of base classes' cross-entropy in sessions.
            novel_weight: of the others'.
            exemplars: images of a base class that are kept.
        """

        width: Annotated[int, Field(gt=0)] = 2048
        dim: Annotated[int, Field(gt=1)] = 128
        targets: Literal["all", "full"] = "all"
        views: Annotated[int, Field(ge=2)] = 4
        noise: Annotated[float, Field(ge=0)] = 1e-2
        base_epochs: Annotated[int, Field(ge=0)] = 10
        base_lr: Annotated[float, Field(gt=0)] = 0.1
        base_batch: Annotated[int, Field(gt=0)] = 128
        base_decay: Annotated[float, Field(ge=0)] = 5e-4
        base_warm_up: Annotated[int, Field(ge=0)] = 0
        epochs: Annotated[int, Field(ge=0)] = 100
        lr: Annotated[float, Field(gt=0)] = 0.1
        batch: Annotated[int, Field(gt=0)] = 64
        weight_decay: Annotated[float, Field(ge=0)] = 1e-4
        base_weight: Annotated[float, Field(ge=0)] = 0.0
        novel_weight: Annotated[float, Field(ge=0)] = 0.5
        exemplars: Annotated[int, Field(gt=0)] = 5

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None or context.final_class_count is None:
            raise ValueError("orco needs a network and the final class count")
        self.network: Network = context.network
        self.network.backbone.eval()
        generator = context.base_random.torch("projector")
        self.projector = projector(
            context.feature_dim, self.params.width, self.params.dim, generator
        )
        self.projector.to(context.device)
        self.aligned = copy.deepcopy(self.projector)
        self.targets = torch.empty(0, self.params.dim, device=context.device)
        self.base_classes = 0
        self.kept = Pool.empty(self.params.views, context.feature_dim, context.device)

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse targets of too few dimensions."""
        if params.dim < terms.classes:
            raise UsageError(
                f"orco: {terms.classes} classes need targets of as many dimensions; set dim = "
                f"{terms.classes} or more"
            )

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Fix the targets, match the base classes to them, and align the projector (phase 2)."""
        p, random = self.params, self.context.base_random
        assert base.images is not None and self.context.final_class_count is not None
        count = p.dim if p.targets == "full" else self.context.final_class_count
        targets = simplex_etf(count, p.dim, random.torch("targets")).to(self.context.device)
        model = copy.deepcopy(self.projector)
        targets = matched(self._means(base, model), targets, 0)
        classes, device = base.way, self.context.device
        pool = self._pool(base.images, classifier_rows(base, 0, device), random.torch("views"))
        optimiser = _sgd(model, p.base_lr, p.base_decay)
        generator = random.torch("alignment")
        parts: dict[str, Part] = {"projector": model, "optimiser": optimiser}
        kept = self.context.checkpoint
        for epoch in epochs_left(p.base_epochs, parts, generator, progress, kept):
            _set_rate(optimiser, rate(p.base_lr, epoch, p.base_epochs, p.base_warm_up))
            for indices in shuffled(len(pool.rows), p.base_batch, generator):
                views, rows = pool.pair(indices, generator)
                units = _units(model, views)
                free = targets[classes:]
                labels = torch.arange(classes, len(targets), device=device)
                loss = self._contrast(units, rows, free, labels, generator)
                loss = loss + uniformity(units[0], rows, targets, classes)
                logits = units.flatten(0, 1) @ targets[:classes].T
                _step(
                    optimiser, loss + F.cross_entropy(logits, rows.repeat(2)), "base_lr", p.base_lr
                )
        _refuse_diverged(self._means(base, model), "base_lr", p.base_lr)
        learnt = {k: v.detach().cpu() for k, v in prefixed("projector.", model).items()}
        return {"targets": targets.cpu(), **learnt}

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take targets and projector as `pretrain` left them."""
        self.targets = tensors["targets"].to(self.context.device)
        for model in (self.projector, self.aligned):
            model.load_state_dict(part_of(tensors, "projector."))

    def learn_base(self, base: Session) -> None:
        """Keep some images of every base class."""
        self._features(base)
        assert base.images is not None
        generator = self.context.random.torch("exemplars")
        picks = []
        for c in base.class_ids:
            own = (base.labels == c).nonzero()[:, 0]
            picks.append(
                own[torch.randperm(len(own), generator=generator)[: self.params.exemplars]]
            )
        chosen = torch.cat(picks)
        rows = classifier_rows(base, 0, self.context.device)[chosen.to(self.context.device)]
        self.kept = self._pool(base.images[chosen], rows, generator)
        self.base_classes = base.way

    def learn_session(self, session: Session) -> None:
        """Match the new classes to free targets, and train the projector anew (phase 3)."""
        self._features(session)
        assert session.images is not None
        generator = self.context.random.torch("session", session.index)
        earlier = session.classes_seen - session.way
        self.projector.load_state_dict(self.aligned.state_dict())
        self.targets = matched(self._means(session, self.projector), self.targets, earlier)
        rows = classifier_rows(session, earlier, self.context.device)
        self.kept = self.kept.joined(self._pool(session.images, rows, generator))
        self._train(session.classes_seen, generator)
        _refuse_diverged(self._means(session, self.projector), "lr", self.params.lr)

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the cosine (n, classes seen) of projected features and targets."""
        seen = int(self.kept.rows.max()) + 1
        with torch.no_grad():
            return _units(self.projector, self._features(queries)) @ self.targets[:seen].T

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return targets (P, d), classes seen first, kept features, projectors and network."""
        tensors = {
            "targets": self.targets,
            "base_classes": torch.tensor(self.base_classes, dtype=torch.int32),
            "kept_features": self.kept.features,
            "kept_rows": self.kept.rows.int(),
            **prefixed("projector.", self.projector),
            **prefixed("aligned.", self.aligned),
            **prefixed("backbone.", self.network.backbone),
        }
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore them."""
        device = self.context.device
        self.targets = state["targets"].clone().to(device)
        self.base_classes = int(state["base_classes"])
        features, rows = state["kept_features"].clone(), state["kept_rows"].long()
        self.kept = Pool(features.to(device), rows.to(device))
        self.projector.load_state_dict(part_of(state, "projector."))
        self.aligned.load_state_dict(part_of(state, "aligned."))
        self.network.backbone.load_state_dict(part_of(state, "backbone."))

    def _train(self, seen: int, generator: torch.Generator) -> None:
        p, base = self.params, self.base_classes
        optimiser = _sgd(self.projector, p.lr, p.weight_decay)
        labels = torch.arange(base, len(self.targets), device=self.context.device)
        for epoch in range(p.epochs):
            _set_rate(optimiser, rate(p.lr, epoch, p.epochs, 10))
            for indices in shuffled(len(self.kept.rows), p.batch, generator):
                views, rows = self.kept.pair(indices, generator)
                units, new = _units(self.projector, views), rows >= base
                loss = self._contrast(units, rows, self.targets[base:], labels, generator)
                loss = loss + uniformity(units[0][new], rows[new], self.targets, seen)
                logits = units.flatten(0, 1) @ self.targets[:seen].T
                for weight, own in ((p.novel_weight, new), (p.base_weight, ~new)):
                    if weight and bool(own.any()):
                        both = own.repeat(2)
                        loss = loss + weight * F.cross_entropy(logits[both], rows.repeat(2)[both])
                _step(optimiser, loss, "lr", p.lr)

    def _contrast(
        self,
        units: torch.Tensor,
        rows: torch.Tensor,
        targets: torch.Tensor,
        labels: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Return the contrast of two views (2, b, d) of classes (b,) and perturbed targets (m, d).

        There are as many perturbed targets as images, in two draws each; `labels` (m,) are theirs.
        """
        drawn = drawn_targets(len(targets), len(rows), generator).to(targets.device)
        noise = torch.rand(2, len(rows), targets.shape[1], generator=generator) - 0.5
        moved = targets[drawn] + self.params.noise * noise.to(targets.device)
        points = torch.cat([units, F.normalize(moved, dim=2)], dim=1).flatten(0, 1)
        groups = torch.cat([rows, labels[drawn]]).repeat(2)
        return contrast(points @ points.T, groups, SHARPNESS)

    @torch.no_grad()
    def _pool(self, images: torch.Tensor, rows: torch.Tensor, generator: torch.Generator) -> Pool:
        """Return augmented views' features of images (n, H, W, 3), whose classes' rows are (n,)."""
        backbone, views = self.network.backbone, []
        for _ in range(self.params.views):
            parts = [
                backbone(self.network.train_pixels(images[part], generator)).float()
                for part in batches(len(images), EVALUATION_BATCH)
            ]
            views.append(torch.cat(parts))
        return Pool(torch.stack(views), rows)

    @torch.no_grad()
    def _means(self, session: Session, model: nn.Module) -> torch.Tensor:
        """Return the mean projections (way, d) of a session's classes."""
        projected = model(self._features(session))
        labels = session.labels.to(projected.device)
        return class_means(projected, labels, session.class_ids).float()

    def _features(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        return in_space(samples, device=self.context.device)


@dataclass(frozen=True)
class Pool:
    """Features (views, n, D) of images in augmented views, and their classes' rows (n,)."""

    features: torch.Tensor
    rows: torch.Tensor

    @staticmethod
    def empty(views: int, dim: int, device: torch.device) -> Pool:
        """Return one without images."""
        rows = torch.empty(0, dtype=torch.long, device=device)
        return Pool(torch.empty(views, 0, dim, device=device), rows)

    def joined(self, other: Pool) -> Pool:
        """Return one of both's images."""
        features = torch.cat([self.features, other.features], dim=1)
        return Pool(features, torch.cat([self.rows, other.rows]))

    def pair(
        self, indices: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return two different views (2, b, D) of each of the images (b,), and their rows (b,)."""
        count = len(self.features)
        first = torch.randint(count, (len(indices),), generator=generator)
        step = torch.randint(1, count, (len(indices),), generator=generator)
        views = torch.stack([first, (first + step) % count]).to(self.rows.device)
        indices = indices.to(self.rows.device)
        return self.features[views, indices], self.rows[indices]


class OrcoRepresentation(Representation):
    """Supervised contrast behind a projector, mixed with contrast between images (OrCo, phase 1).

    Ahmed et al. (OrCo), CVPR 2024.

    The loss is (1 − `self_weight`) · L(class) + `self_weight` · L(image), where L is −log of the
    share that the samples of one's own class, or the other views of one's own image, have of
    Σ exp(cos / temperature) over the batch: the sum over positives is within the logarithm. The
    projector (D → 2,048 → 128) is dropped afterwards.

    Deviations: recipe and augmentation are the protocol's (released: LARS, batch 512, 300 epochs on
    CIFAR100 and 400 on mini-ImageNet, AutoAugment or RandAugment and erasing); on CUB200 there is
    no phase 1, but ImageNet weights. The base classifier handed on is the running mean of unit
    features.
    """

    name = "orco"
    bibtex = Orco.bibtex
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar100": {"views": 4},
        "mini_imagenet": {"views": 2},
    }

    @dataclass(frozen=True)
    class Params:
        """`views` of each image, which pass one after the other; `temperature` divides cosines."""

        views: Annotated[int, Field(ge=2)] = 2
        temperature: Annotated[float, Field(gt=0)] = 0.2
        self_weight: Annotated[float, Field(ge=0, le=1)] = 0.1
        width: Annotated[int, Field(gt=0)] = 2048
        dim: Annotated[int, Field(gt=0)] = 128

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return projector and running means."""
        return OrcoHead(feature_dim, classes, self.params.width, self.params.dim, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the mixed contrast of all views."""
        assert isinstance(head, OrcoHead)
        p, images = self.params, torch.arange(len(batch.labels), device=batch.labels.device)
        shown = [batch.images, *(batch.augment() for _ in range(p.views - 1))]
        features = torch.cat([backbone(view).float() for view in shown])
        labels = batch.labels.repeat(p.views)
        head.means.follow(features.detach(), labels)
        with torch.autocast(features.device.type, enabled=False):
            units = _units(head.projector, features)
            logits = units @ units.T / p.temperature
            of_class = share_of_positives(logits, labels)
            of_image = share_of_positives(logits, images.repeat(p.views))
        return (1 - p.self_weight) * of_class + p.self_weight * of_image

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the running class means (classes, D)."""
        assert isinstance(head, OrcoHead)
        return head.means.rows

    def scale(self) -> float:
        """Return CEC's factor, as this loss has no class logits."""
        return 16.0


class OrcoHead(nn.Module):
    """Projector and running means."""

    def __init__(
        self, feature_dim: int, classes: int, width: int, dim: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.projector = projector(feature_dim, width, dim, generator)
        self.means = RunningMeans(feature_dim, classes)


def share_of_positives(logits: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Return the mean of −log(Σ_positives e^s / Σ_others e^s) over samples.

    Others are all samples but oneself, positives those of them in one's own group.

    Args:
        logits: s (n, n).
        groups: (n,); each has two samples or more.
    """
    same = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    others = logits.masked_fill(same, -torch.inf)
    apart = groups[:, None] != groups
    return (others.logsumexp(dim=1) - others.masked_fill(apart, -torch.inf).logsumexp(dim=1)).mean()


def projector(inputs: int, width: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """Return an MLP of two layers with a ReLU between them."""
    first = drawn_layer(inputs, width, generator)
    return nn.Sequential(first, nn.ReLU(), drawn_layer(width, outputs, generator))


def matched(means: torch.Tensor, targets: torch.Tensor, taken: int) -> torch.Tensor:
    """Return the targets (P, d) with those for new classes in front of what is left of the free.

    The matching of means (w, d) with the targets from row `taken` on whose cosines have the largest
    sum; target `taken + i` is then that of class i. The order of the others stays.
    """
    from scipy.optimize import linear_sum_assignment  # slow to load, and every command loads this

    free = targets[taken:]
    cosines = F.normalize(means, dim=1) @ free.T
    _, columns = linear_sum_assignment(cosines.double().cpu().numpy(), maximize=True)
    chosen = torch.as_tensor(columns, device=targets.device)
    left = torch.ones(len(free), dtype=torch.bool, device=targets.device)
    left[chosen] = False
    return torch.cat([targets[:taken], free[chosen], free[left]])


def uniformity(
    units: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor, assigned: int
) -> torch.Tensor:
    """Return the mean of log Σ exp(cos) over targets, the batch's class means in place of theirs.

    Args:
        units: (b, d).
        rows: their classes' rows (b,), below `assigned`.
        targets: (P, d), unit.
        assigned: how many belong to classes.
    """
    members = F.one_hot(rows, len(targets)).to(units.dtype)
    means = F.normalize(members.T @ units, dim=1)
    there = (members.sum(dim=0) > 0) & (torch.arange(len(targets), device=rows.device) < assigned)
    points = torch.where(there[:, None], means, targets)
    return (points @ points.T).logsumexp(dim=1).mean()


def drawn_targets(count: int, wanted: int, generator: torch.Generator) -> torch.Tensor:
    """Return which of `count` targets are drawn (wanted,), none more often than need be."""
    order = torch.randperm(count, generator=generator)
    return order.repeat(math.ceil(wanted / count))[:wanted]


def rate(lr: float, epoch: int, epochs: int, warm_up: int) -> float:
    """Return an epoch's rate: linear from nearly 0 for `warm_up` epochs, then half a cosine to 0.

    Constant where `warm_up` is 0.
    """
    if warm_up == 0:
        return lr
    if epoch < warm_up:
        return SLOW + (lr - SLOW) * epoch / max(1, warm_up - 1)
    return lr * (1 + math.cos(math.pi * (epoch - warm_up) / max(1, epochs - warm_up))) / 2


def _units(model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    return F.normalize(model(features), dim=-1)


def _sgd(model: nn.Module, lr: float, weight_decay: float) -> torch.optim.SGD:
    parameters = model.parameters()
    return torch.optim.SGD(parameters, lr, momentum=0.9, dampening=0.9, weight_decay=weight_decay)


def _set_rate(optimiser: torch.optim.SGD, lr: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr


def _step(optimiser: torch.optim.SGD, loss: torch.Tensor, name: str, lr: float) -> None:
    if not bool(torch.isfinite(loss)):
        raise FscilError(
            f"method 'orco' diverges: the loss is {loss.item()}; lower {name} = {lr:g}"
        )
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _refuse_diverged(projected: torch.Tensor, name: str, lr: float) -> None:
    """Refuse a projector by what it gives (n, d): the last step may have spoilt it unseen."""
    if not bool(torch.isfinite(projected.norm(dim=1)).all()):
        raise FscilError(
            f"method 'orco' diverges: the length of a projection is not finite; lower {name} = "
            f"{lr:g}"
        )
