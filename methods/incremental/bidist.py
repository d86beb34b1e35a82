"""BiDist: a session learns from the base network and the last one, and both branches predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.method import Method, MethodContext, Needs, Network
from fscil_bench.protocol import Queries, Session

from .._shared.cosine import drawn_layer
from .._shared.network import ROWS, embedded
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means, classifier_rows
from .icarl import distillation

CURRENT, BASE, MERGER = "backbone.", "base.", "merger."
"""Prefixes in the state: the network, what of it base training left, and what merges the two."""


class Bidist(Method):
    """Class-aware bilateral distillation (BiDist): two teachers, and two branches that predict.

    Zhao, Lu, Xu, Cheng, Guo, Niu and Fang, "Few-Shot Class-Incremental Learning via Class-Aware
    Bilateral Distillation", CVPR 2023.

    The base network with class means stays as a branch of its own. A session trains the network's
    last stage and all rows on its shots and on one image of every earlier class. It distils
    from the base branch, which overfits nothing, mixed with the network before the session, which
    knows the earlier sessions' classes; how much of each depends on a new class's similarity to
    the base classes, through a small network. A second small network is told by both branches'
    probabilities whether an image is of a base class, and its two outputs weigh both branches'
    scores.

    **It keeps an image** of every class, H·W·3 bytes each, beside two sets of rows, 8·C·D bytes,
    the network, a second last stage, and the weighing network.

    As released where the paper leaves it open. Deviations: the factor on cosines is that of the
    representation (released: learnt, from 10); a session's shots and exemplars are shown in the
    protocol's augmentation. See docs/methods/bidist.md.
    """

    name = "bidist"
    title = "BiDist"
    bibtex = """@inproceedings{zhao2023bidist,
  author = {Zhao, Linglan and Lu, Jing and Xu, Yunlu and Cheng, Zhanzhan and Guo, Dashan and
            Niu, Yi and Fang, Xiangzhong},
  title = {Few-Shot Class-Incremental Learning via Class-Aware Bilateral Distillation},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2023}
}"""
    needs = Needs(features=(), images=True)
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "mini_imagenet": {"steps": 100, "lr": 1e-3}
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (1e-3, 1e-2),
        "distilled": (10.0, 100.0),
    }

    @dataclass(frozen=True)
    class Params:
        """How a session trains: SGD with Nesterov momentum 0.9, all its shots in every step.

        Attributes:
            steps: of a session.
            lr: learning rate of the last stage and the rows.
            small_lr: of the two small networks.
            weight_decay: of everything that is trained.
            hidden: width of the small networks.
            exemplars: earlier classes' images of a step, half of them base classes' from the second
                session on, drawn with replacement.
            current: shots that are distilled on, beside the exemplars.
            temperature: of the distillation.
            distilled: weight of the distillation.
            replayed: of the exemplars' cross-entropy.
            merged: of the merged scores' cross-entropy.
            told: of the cross-entropy that tells base from new classes.
            trusted: of how little the base branch is trusted with new classes.
        """

        steps: Annotated[int, Field(ge=0)] = 100
        lr: Annotated[float, Field(gt=0)] = 1e-3
        small_lr: Annotated[float, Field(gt=0)] = 1e-2
        weight_decay: Annotated[float, Field(ge=0)] = 5e-4
        hidden: Annotated[int, Field(gt=0)] = 64
        exemplars: Annotated[int, Field(gt=1)] = 50
        current: Annotated[int, Field(ge=0)] = 5
        temperature: Annotated[float, Field(gt=0)] = 16.0
        distilled: Annotated[float, Field(ge=0)] = 100.0
        replayed: Annotated[float, Field(ge=0)] = 5.0
        merged: Annotated[float, Field(ge=0)] = 5.0
        told: Annotated[float, Field(ge=0)] = 50.0
        trusted: Annotated[float, Field(ge=0)] = 1.0

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError("bidist needs a network")
        self.network: Network = context.network
        backbone = self.network.backbone.eval()
        self.base = replace(self.network, backbone=copy.deepcopy(backbone))
        self.rows = torch.empty(0, context.feature_dim, device=context.device)
        self.fixed = self.rows
        self.merger: nn.Sequential | None = None
        self.kept = torch.empty(0, dtype=torch.uint8)
        self.base_classes = 0

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Return the base classes' unit means (C0, D) and the image (C0, H, W, 3) nearest each."""
        rows = unit_means(self.network, base)
        progress(1.0)
        return {"rows": rows.cpu(), "kept": nearest_images(self.network, base, rows)}

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take means and images."""
        self.rows = tensors["rows"].to(self.context.device)
        self.fixed, self.kept = self.rows.clone(), tensors["kept"]
        self.base_classes = len(self.rows)

    def learn_base(self, base: Session) -> None:
        """Keep what pretraining found."""
        del base

    def learn_session(self, session: Session) -> None:
        """Train last stage, rows and small networks, then keep an image of each new class.

        Raises:
            FscilError: the loss, a weight or a row is no longer finite.
        """
        self.fixed = torch.cat([self.fixed, unit_means(self.base, session)])
        self.rows = torch.cat([self.rows, unit_means(self.network, session)])
        small = self._train(session)
        self._refuse_diverged([*self.network.backbone.parameters(), self.rows], session, "lr")
        self._refuse_diverged(small, session, "small_lr")
        new = nearest_images(self.network, session, self.rows[-session.way :])
        self.kept = torch.cat([self.kept, new])

    @torch.no_grad()
    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the merged scores (n, classes seen); the base session's are the network's."""
        assert queries.images is not None
        current = self._cosines(embedded(self.network, queries.images), self.rows)
        if self.merger is None:
            return current
        fixed = self._cosines(embedded(self.base, queries.images), self.fixed)
        return merged(fixed, current, self.merger)[0]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return both sets of rows, the images kept, network, base stage, and merger."""
        base = self.base.backbone.state_dict()
        state = {
            "rows": self.rows,
            "fixed": self.fixed,
            "kept": self.kept,
            "base_classes": torch.tensor(self.base_classes, dtype=torch.int32),
            **prefixed(CURRENT, self.network.backbone),
            **{BASE + name: base[name] for name in last_stage(self.base.backbone)},
            **(prefixed(MERGER, self.merger) if self.merger is not None else {}),
        }
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore them."""
        device = self.context.device
        self.rows, self.fixed = (state[name].clone().to(device) for name in ("rows", "fixed"))
        self.kept, self.base_classes = state["kept"].clone(), int(state["base_classes"])
        current = part_of(state, CURRENT)
        self.network.backbone.load_state_dict(current)
        self.base.backbone.load_state_dict(current | part_of(state, BASE))
        weights = part_of(state, MERGER)
        self.merger = self._small(2 * len(self.rows), torch.Generator()) if weights else None
        if self.merger is not None:
            self.merger.load_state_dict(weights)

    def _train(self, session: Session) -> list[nn.Parameter]:
        """Train last stage, rows and small networks; return the small networks' weights."""
        assert session.images is not None
        p, device = self.params, self.context.device
        generator = self.context.random.torch("session", session.index)
        first = len(self.rows) - session.way
        rows, before = nn.Parameter(self.rows), copy.deepcopy(self.network.backbone)
        self.merger = self._small(2 * len(rows), generator)
        mixer = self._small(self.base_classes, generator)
        units = F.normalize(self.fixed, dim=1)
        likeness = units @ units[: self.base_classes].T
        labels = classifier_rows(session, first, device)
        small = [*self.merger.parameters(), *mixer.parameters()]
        optimiser = self._optimiser(rows, small)
        for _ in range(p.steps):
            order = torch.randperm(len(labels), generator=generator)
            drawn = drawn_exemplars(self.base_classes, first, p.exemplars, generator)
            images = torch.cat([session.images[order], self.kept[drawn].to(session.images.device)])
            pixels = self.network.train_pixels(images, generator)
            targets = torch.cat([labels[order.to(device)], drawn.to(device)])
            current = self._logits(self.network.backbone, rows, pixels)
            with torch.no_grad():
                fixed = self._logits(self.base.backbone, self.fixed, pixels)
                earlier = first > self.base_classes
                previous = self._logits(before, self.rows, pixels) if earlier else None
            branches = Branches(current, fixed, previous)
            loss = session_loss(branches, targets, len(order), self.merger, mixer, likeness, p)
            self._refuse_diverged([current], session, "lr")
            self._refuse_diverged([loss], session, "small_lr")
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        self.rows = rows.detach()
        return small

    @torch.no_grad()
    def _refuse_diverged(
        self, tensors: Iterable[torch.Tensor], session: Session, name: str
    ) -> None:
        """Refuse tensors whose lengths are not finite, after steps at the rate of this name."""
        if not bool(torch.isfinite(torch.stack([x.norm() for x in tensors])).all()):
            raise FscilError(
                f"method 'bidist' diverges in session {session.index}: the loss, a weight or a row "
                f"is not finite; lower {name} = {getattr(self.params, name):g}"
            )

    def _optimiser(self, rows: nn.Parameter, small: list[nn.Parameter]) -> torch.optim.SGD:
        backbone = self.network.backbone.requires_grad_(False)
        parameters = dict(backbone.named_parameters())
        stage = [parameters[name] for name in last_stage(backbone) if name in parameters]
        for parameter in stage:
            parameter.requires_grad_(True)
        groups: list[dict[str, Any]] = [
            {"params": [*stage, rows], "lr": self.params.lr},
            {"params": small, "lr": self.params.small_lr},
        ]
        decay = self.params.weight_decay
        return torch.optim.SGD(groups, momentum=0.9, nesterov=True, weight_decay=decay)

    def _small(self, inputs: int, generator: torch.Generator) -> nn.Sequential:
        """Return a network of one hidden layer and two outputs."""
        hidden = drawn_layer(inputs, self.params.hidden, generator)
        layers = nn.Sequential(hidden, nn.ReLU(), drawn_layer(self.params.hidden, 2, generator))
        return layers.to(self.context.device)

    def _logits(
        self, backbone: nn.Module, rows: torch.Tensor, pixels: torch.Tensor
    ) -> torch.Tensor:
        with self.network.autocast():
            features = backbone(pixels)
        return self._cosines(features.float(), rows)

    def _cosines(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return self.network.scale * F.normalize(features, dim=1) @ F.normalize(rows, dim=1).T


@dataclass(frozen=True)
class Branches:
    """Logits (n, C) of the same images: of the network that learns, of the base one, and before.

    `previous` is None in the first session, before which there is the base network alone.
    """

    current: torch.Tensor
    fixed: torch.Tensor
    previous: torch.Tensor | None


def session_loss(
    branches: Branches,
    labels: torch.Tensor,
    shots: int,
    merger: nn.Module,
    mixer: nn.Module,
    likeness: torch.Tensor,
    params: Bidist.Params,
) -> torch.Tensor:
    """Return the loss of a step.

    Args:
        branches: logits of the shots, and of the exemplars after them.
        labels: their rows (n,).
        shots: how many are shots.
        merger: weighs the branches, see `merged`.
        mixer: maps likeness (m, C0) to (m, 2), whose first column's sigmoid is the base branch's
            share in the teacher.
        likeness: cosines (C, C0) of all classes' rows with the base classes'.
        params: weights of the loss's parts.
    """
    p, current = params, branches.current
    loss = F.cross_entropy(current[:shots], labels[:shots])
    loss = loss + p.replayed * F.cross_entropy(current[shots:], labels[shots:])
    # Only the merger learns from this: both branches' scores are taken as they are.
    scores, told = merged(branches.fixed, current.detach(), merger)
    loss = loss + p.merged * F.cross_entropy(scores, labels)
    loss = loss + p.told * F.cross_entropy(told, (labels >= likeness.shape[1]).long())
    seen = slice(max(0, shots - p.current), None)
    teacher = branches.fixed[seen]
    if branches.previous is not None:
        shares = base_shares(labels[seen], likeness, mixer)
        teacher = shares * teacher + (1 - shares) * branches.previous[seen]
        new = labels[seen] >= likeness.shape[1]
        loss = loss + p.trusted * ((1 - shares[:, 0]) * new).sum() / new.sum().clamp(min=1)
    divergence = distillation(current[seen], teacher, p.temperature)
    return loss + p.distilled * p.temperature**2 * divergence


def base_shares(labels: torch.Tensor, likeness: torch.Tensor, mixer: nn.Module) -> torch.Tensor:
    """Return the base branch's share (n, 1) in the teacher of each image: 1 for base classes."""
    learnt = torch.sigmoid(mixer(likeness[labels])[:, :1])
    return torch.where(labels[:, None] < likeness.shape[1], 1.0, learnt)


def merged(
    fixed: torch.Tensor, current: torch.Tensor, merger: nn.Module
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both branches' scores (n, C), weighed, and the weights' logits (n, 2).

    The merger sees both branches' probabilities (n, 2·C).
    """
    told = merger(torch.cat([fixed.softmax(dim=1), current.softmax(dim=1)], dim=1))
    weights = told.softmax(dim=1)
    return weights[:, :1] * fixed + weights[:, 1:] * current, told


def drawn_exemplars(
    base_classes: int, classes: int, count: int, generator: torch.Generator
) -> torch.Tensor:
    """Return the classes (count,) whose images a step replays, some more than once.

    All are base classes if there are no others, else half of them.
    """
    base = count if classes == base_classes else count // 2
    drawn = torch.randint(base_classes, (base,), generator=generator)
    if base == count:
        return drawn
    others = torch.randint(base_classes, classes, (count - base,), generator=generator)
    return torch.cat([drawn, others])


def unit_means(network: Network, session: Session) -> torch.Tensor:
    """Return the means (way, D) of a session's classes' unit features."""
    assert session.images is not None
    features = F.normalize(embedded(network, session.images), dim=1)
    return class_means(features, session.labels.to(features.device), session.class_ids).float()


def nearest_images(network: Network, session: Session, rows: torch.Tensor) -> torch.Tensor:
    """Return the image (way, H, W, 3) of each class whose feature has the highest cosine to it."""
    assert session.images is not None
    features = F.normalize(embedded(network, session.images), dim=1)
    cosines = features @ F.normalize(rows, dim=1).T
    own = classifier_rows(session, 0, features.device)[:, None] == torch.arange(
        len(rows), device=features.device
    )
    chosen = cosines.masked_fill(~own, -torch.inf).argmax(dim=0)
    return session.images[chosen.to(session.images.device)].cpu()


def last_stage(network: nn.Module) -> list[str]:
    """Return the names of the tensors of the last row of blocks, and of all that follows it.

    Of a residual network its last stage; of a network without rows the last layer.
    """
    parts = [(k, x) for k, x in network.named_children() if any(True for _ in x.parameters())]
    if not parts:
        return list(network.state_dict())
    if len(parts) == 1 and not isinstance(parts[0][1], ROWS):  # what the network wraps
        ((name, part),) = parts
        return [f"{name}.{own}" for own in last_stage(part)]
    rows = [number for number, (_, part) in enumerate(parts) if isinstance(part, ROWS)]
    chosen = parts[rows[-1] if rows else -1 :]
    return [f"{name}.{own}" for name, part in chosen for own in part.state_dict()]
