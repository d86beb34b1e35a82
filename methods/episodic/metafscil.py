"""MetaFSCIL: sequences of pseudo-sessions teach a network to learn a session in a few steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Method, MethodContext, Needs, Network, Terms
from fscil_bench.protocol import Queries, Session

from .._shared.cosine import cosine_logits, drawn_layer
from .._shared.network import embedded
from .._shared.stage import Part, epochs_left
from .._shared.state import part_of, prefixed
from .._shared.statistics import class_means, classifier_rows

MODEL = "model."
"""How the tensors of network and gates are prefixed in the state."""

Tensors = Mapping[str, torch.Tensor]


class MetaFscil(Method):
    """MetaFSCIL: a network that was trained to be trained by sessions.

    Chi, Gu, Liu, Wang, Yu and Tang, "MetaFSCIL: A Meta-Learning Approach for Few-Shot Class
    Incremental Learning", CVPR 2022. A reconstruction: there is no official code.

    A meta stage plays sequences of sessions with the base classes: a third or more of them are
    the pseudo-base classes, the others come a few at a time with a few shots. Each pseudo-session
    takes some gradient steps on its shots (the inner loop); the loss of what comes out, on queries
    of all pseudo-classes seen, is then descended through these steps (the outer loop), so that
    what the steps start from neither forgets nor overfits. Gates modulate the features half-way
    and at the end; they look at the features and at the network's weights, and learn in the outer
    loop alone. A real session warms its new rows up, and takes the inner steps. Logits are scaled
    cosines.

    It stores network, gates and rows.

    What the paper leaves open is settled after an unofficial code for mini-ImageNet, or here;
    gates stand in for its bi-directional guided modulation. See docs/methods/metafscil.md.
    """

    name = "metafscil"
    title = "MetaFSCIL"
    bibtex = """@inproceedings{chi2022metafscil,
  author = {Chi, Zhixiang and Gu, Li and Liu, Huan and Wang, Yang and Yu, Yuanhao and Tang, Jin},
  title = {{MetaFSCIL}: A Meta-Learning Approach for Few-Shot Class Incremental Learning},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2022}
}"""
    needs = Needs(features=(), images=True)
    pretrain_params = (
        *("epochs", "sessions", "ways", "shots", "support", "queries", "meta_lr", "order"),
        *("modulated", "warm_up", "warm_up_lr", "steps", "lr"),
    )
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cub200": {"ways": 10}}
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "meta_lr": (1e-4, 1e-3),
        "lr": (1e-3, 1e-2),
    }

    @dataclass(frozen=True)
    class Params:
        """The meta stage (Adam), and how a session is learnt (plain gradient steps).

        Attributes:
            epochs: sequences of the meta stage.
            sessions: pseudo-sessions of a sequence; fewer where less than a third of the base
                classes would be left.
            ways: classes of a pseudo-session; at most a third of the base classes.
            shots: images of each.
            support: images that the row of a pseudo-base class is the mean of, its queries not
                among them.
            queries: images of each class seen, in the outer loop.
            meta_lr: learning rate of the outer loop.
            order: whether it goes through the inner steps (`second`), or takes the gradient at
                where they end (`first`).
            modulated: whether there are gates.
            warm_up: steps of the new rows alone, with which a session begins.
            warm_up_lr: their learning rate.
            steps: inner steps, of network and rows.
            lr: their learning rate.
        """

        epochs: Annotated[int, Field(ge=0)] = 200
        sessions: Annotated[int, Field(gt=0)] = 8
        ways: Annotated[int, Field(gt=0)] = 5
        shots: Annotated[int, Field(gt=0)] = 5
        support: Annotated[int, Field(gt=0)] = 50
        queries: Annotated[int, Field(gt=0)] = 10
        meta_lr: Annotated[float, Field(gt=0)] = 1e-3
        order: Literal["first", "second"] = "second"
        modulated: bool = True
        warm_up: Annotated[int, Field(ge=0)] = 20
        warm_up_lr: Annotated[float, Field(ge=0)] = 0.1
        steps: Annotated[int, Field(ge=0)] = 5
        lr: Annotated[float, Field(ge=0)] = 1e-3

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        if context.network is None:
            raise ValueError("metafscil needs a network")
        self.network: Network = context.network
        self.model: Modulated
        self.rows = torch.empty(0, context.feature_dim, device=context.device)

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse one base class, and more shots than one can give beside a query."""
        if terms.base_classes < 2:
            raise UsageError("metafscil: the meta stage needs two base classes or more")
        if params.shots >= terms.base_images:
            raise UsageError(
                f"metafscil: a base class has {terms.base_images} training images, a "
                f"pseudo-session needs shots + 1 = {params.shots + 1} of them; lower shots"
            )

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train network and gates on sequences, then take the base classes' rows.

        Raises:
            FscilError: a loss, a weight, a row or a feature is no longer finite.
        """
        assert base.images is not None
        generator = self.context.base_random.torch("sequences")
        model = self._new_model(base.images[:1], generator)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.params.meta_lr)
        members = [(base.labels == c).nonzero()[:, 0] for c in base.class_ids]
        epochs, kept = self.params.epochs, self.context.checkpoint
        parts: dict[str, Part] = {"model": model, "optimiser": optimiser}
        for epoch in epochs_left(epochs, parts, generator, progress, kept):
            when = f"in sequence {epoch + 1} of the meta stage"
            self._play(model, optimiser, base.images, members, generator, when)
        features = embedded(replace(self.network, backbone=model), base.images)
        rows = class_means(features, base.labels.to(features.device), base.class_ids).float()
        learnt = {"rows": rows, **prefixed(MODEL, model)}
        return {name: tensor.detach().cpu().clone() for name, tensor in learnt.items()}

    def load_pretrained(self, tensors: Tensors) -> None:
        """Take network, gates and rows as the meta stage left them."""
        self.load_state_dict(tensors)

    def learn_base(self, base: Session) -> None:
        """Keep what the meta stage learnt."""
        del base

    def learn_session(self, session: Session) -> None:
        """Append the new classes' means as rows, warm them up, and take the inner steps.

        Raises:
            FscilError: a weight, a row or a feature is no longer finite.
        """
        assert session.images is not None
        first, device = len(self.rows), self.context.device
        labels = classifier_rows(session, first, device)
        pixels = self.network.test_pixels(session.images)
        when = f"in session {session.index}"
        rows = self._warmed(self.model, self.rows, pixels, labels, when, "lr")
        start = adaptable(self.model)
        p, scale = self.params, self.network.scale
        params, rows = adapted(
            *(self.model, start, rows, pixels, labels, p.steps, p.lr, scale), second=False
        )
        self.rows = rows.detach()
        with torch.no_grad():
            for name, parameter in start.items():
                parameter.copy_(params[name])
        self._refuse_diverged([*params.values(), self.rows], when, "lr")

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the scaled cosine (n, classes seen) of modulated features and rows."""
        assert queries.images is not None
        features = embedded(replace(self.network, backbone=self.model), queries.images)
        return cosine_logits(features, self.rows, self.network.scale)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the rows (classes seen, D) and the tensors of network and gates."""
        state = {"rows": self.rows, **prefixed(MODEL, self.model)}
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def load_state_dict(self, state: Tensors) -> None:
        """Restore them."""
        tensors = part_of(state, MODEL)
        widths = [len(x) for name, x in tensors.items() if name.endswith("out.bias")]
        backbone = self.network.backbone.requires_grad_(True)
        self.model = Modulated(backbone, widths, torch.Generator()).eval()
        self.model.load_state_dict(tensors)
        self.model.to(self.context.device)
        self.rows = state["rows"].clone().to(self.context.device)

    def _new_model(self, image: torch.Tensor, generator: torch.Generator) -> Modulated:
        """Return a copy of the network, with gates of the widths that an image (1, H, W, 3) shows.

        The method's own network stays as it is until it is given what was learnt.
        """
        backbone: Any = copy.deepcopy(self.network.backbone).eval().requires_grad_(True)
        widths = [self.context.feature_dim]
        with torch.no_grad():
            pixels = self.network.test_pixels(image)
            if hasattr(backbone, "early"):
                widths.insert(0, backbone.early(pixels).shape[1])
        model = Modulated(backbone, widths if self.params.modulated else [], generator)
        return model.to(self.context.device).eval()

    def _play(
        self,
        model: Modulated,
        optimiser: torch.optim.Optimizer,
        images: torch.Tensor,
        members: list[torch.Tensor],
        generator: torch.Generator,
        when: str,
    ) -> None:
        """Play one sequence: an outer step for each pseudo-session."""
        p, scale = self.params, self.network.scale
        shuffled = [x[torch.randperm(len(x), generator=generator)] for x in members]
        queries = [x[p.shots :][: p.queries] for x in shuffled]
        others = [torch.cat([x[: p.shots], x[p.shots + p.queries :]]) for x in shuffled]
        seen, sessions = sequence(len(members), p.ways, p.sessions, generator)
        rows = self._means(model, [images[others[c][: p.support]] for c in seen])
        for new in sessions:
            shots = [shuffled[c][: p.shots] for c in new]
            pixels = self.network.test_pixels(images[torch.cat(shots)])
            labels = _numbered(shots, len(rows)).to(rows.device)
            rows = self._warmed(model, rows, pixels, labels, when, "meta_lr")
            start = adaptable(model)
            params, rows = adapted(
                *(model, start, rows, pixels, labels, p.steps, p.lr, scale, p.order == "second")
            )
            seen = seen + new
            asked = [queries[c] for c in seen]
            pixels = self.network.test_pixels(images[torch.cat(asked)])
            features = torch.func.functional_call(model, params, (pixels,))
            logits = cosine_logits(features, rows, scale)
            loss = F.cross_entropy(logits, _numbered(asked, 0).to(rows.device))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [x.grad for x in model.parameters() if x.grad is not None]
            self._refuse_diverged([*params.values(), rows, loss, *gradients], when, "lr")
            optimiser.step()
            self._refuse_diverged(model.parameters(), when, "meta_lr")
            rows = rows.detach()

    def _means(self, model: Modulated, images: list[torch.Tensor]) -> torch.Tensor:
        """Return the mean features (C, D) of classes with these images (n, H, W, 3) each."""
        features = embedded(replace(self.network, backbone=model), torch.cat(images))
        labels = _numbered(images, 0).to(features.device)
        return class_means(features, labels, range(len(images))).float()

    def _warmed(
        self,
        model: Modulated,
        rows: torch.Tensor,
        pixels: torch.Tensor,
        labels: torch.Tensor,
        when: str,
        earlier: str,
    ) -> torch.Tensor:
        """Return the rows with those of new classes, begun at their means, and warmed up.

        `when` this is, and the rate that the network has learnt at (`earlier`), are for messages.
        """
        with torch.no_grad():
            features = model(pixels).float()
        self._refuse_diverged([features], when, earlier)
        new = range(len(rows), int(labels.max()) + 1)
        means = class_means(features, labels, new).float()
        p, scale = self.params, self.network.scale
        warm = warmed(means, features, labels - len(rows), p.warm_up, p.warm_up_lr, scale)
        self._refuse_diverged([warm], when, "warm_up_lr")
        return torch.cat([rows, warm])

    @torch.no_grad()
    def _refuse_diverged(self, tensors: Iterable[torch.Tensor], when: str, name: str) -> None:
        """Refuse tensors whose lengths are not finite, after steps at the rate of this name."""
        if not bool(torch.isfinite(torch.stack([x.norm() for x in tensors])).all()):
            raise FscilError(
                f"method 'metafscil' diverges {when}: a loss, a weight, a row or a feature is not "
                f"finite; lower {name} = {getattr(self.params, name):g}"
            )


class Modulated(nn.Module):
    """A network with gates half-way, if it can be entered there, and at its end.

    Args:
        backbone: maps images to features (n, D).
        widths: channels at the gates; none for no gate.
        generator: what the gates' weights are drawn from.
    """

    def __init__(self, backbone: nn.Module, widths: list[int], generator: torch.Generator) -> None:
        super().__init__()
        self.backbone = backbone
        self.gates = nn.ModuleList(Gate(width, generator) for width in widths)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return modulated features (n, D) of normalised images."""
        if len(self.gates) < 2:
            features: torch.Tensor = self.backbone(pixels)
        else:
            staged: Any = self.backbone
            middle = staged.early(pixels)
            features = staged.late(self.gates[0](middle, self._weights(middle)))
        return self.gates[-1](features, self._weights(features)) if len(self.gates) else features

    def _weights(self, activations: torch.Tensor) -> torch.Tensor:
        """Return the mean magnitude (C,) of each channel's weights in layers as wide as these."""
        width = activations.shape[1]
        layers = [x for x in self.backbone.parameters() if x.dim() > 1 and len(x) == width]
        means = [x.abs().flatten(1).mean(dim=1) for x in layers]
        return torch.stack(means).mean(dim=0) if means else activations.new_zeros(width)


class Gate(nn.Module):
    """Factors between 0 and 2 on channels, from their activation and their weights; 1 at first."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.into = drawn_layer(2 * width, max(1, width // 2), generator)
        self.out = drawn_layer(max(1, width // 2), width, generator)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return activations (n, C) or (n, C, h, w), gated; `weights` are (C,)."""
        pooled = x.flatten(2).mean(dim=2) if x.dim() > 2 else x
        seen = torch.cat([pooled, weights.expand_as(pooled)], dim=1)
        factors = 2 * torch.sigmoid(self.out(F.relu(self.into(seen))))
        return x * factors.view(*factors.shape, *[1] * (x.dim() - 2))


def sequence(
    classes: int, ways: int, sessions: int, generator: torch.Generator
) -> tuple[list[int], list[list[int]]]:
    """Return the pseudo-base classes, and those of each pseudo-session, all different.

    Of `classes` a third or more are pseudo-base classes, one at least; a pseudo-session has at
    most a third, one at least.
    """
    ways = min(ways, max(1, classes // 3))
    count = min(sessions, (classes - max(1, classes // 3)) // ways)
    order = torch.randperm(classes, generator=generator).tolist()
    base = classes - count * ways
    return order[:base], [order[first : first + ways] for first in range(base, classes, ways)]


def adaptable(model: Modulated) -> dict[str, torch.Tensor]:
    """Return the parameters that inner steps change: the network's, not the gates'."""
    return {f"backbone.{name}": x for name, x in model.backbone.named_parameters()}


def adapted(
    model: nn.Module,
    params: Tensors,
    rows: torch.Tensor,
    pixels: torch.Tensor,
    labels: torch.Tensor,
    steps: int,
    rate: float,
    scale: float,
    second: bool,
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return parameters and rows after gradient steps on the cross-entropy of scaled cosines.

    Args:
        model: maps images to features (n, D).
        params: the parameters that change, by name.
        rows: (C, D), which change too.
        pixels: images (n, 3, H, W), all in each step.
        labels: rows (n,) of their classes.
        steps: how many.
        rate: their length.
        scale: factor on the cosines.
        second: whether gradients of what is returned go through the steps' own gradients.
    """
    params, rows = dict(params), rows.detach().requires_grad_()
    for _ in range(steps):
        features = torch.func.functional_call(model, params, (pixels,))
        loss = F.cross_entropy(cosine_logits(features, rows, scale), labels)
        gradients = torch.autograd.grad(
            loss, [*params.values(), rows], create_graph=second, materialize_grads=True
        )
        pairs = zip(params.items(), gradients, strict=False)
        params = {name: value - rate * gradient for (name, value), gradient in pairs}
        rows = rows - rate * gradients[-1]
    return params, rows


def warmed(
    rows: torch.Tensor,
    features: torch.Tensor,
    labels: torch.Tensor,
    steps: int,
    rate: float,
    scale: float,
) -> torch.Tensor:
    """Return rows (w, D) after gradient steps on the cross-entropy of features (n, D), (n,)."""
    for _ in range(steps):
        rows = rows.detach().requires_grad_()
        loss = F.cross_entropy(cosine_logits(features, rows, scale), labels)
        rows = rows - rate * torch.autograd.grad(loss, rows)[0]
    return rows.detach()


def _numbered(parts: list[torch.Tensor], first: int) -> torch.Tensor:
    """Return the labels of samples class by class: `first` for all of the first part, and so on."""
    sizes = torch.tensor([len(part) for part in parts])
    return torch.arange(first, first + len(parts)).repeat_interleave(sizes)
