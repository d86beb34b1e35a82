"""F2M: base training looks for a flat minimum, and sessions do not leave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from fscil_bench.method import MethodContext
from fscil_bench.representation import Representation, TrainingBatch

from .._shared.cosine import RunningMeans
from .nearest_mean import TrainedNearestMean

LEVELS = 5
"""Values that the noise on a weight takes, from one end of its range to the other."""

SHAPES = (0.3, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
"""What both parameters of the noise's beta distribution are drawn from (released code)."""

ROW_SPREAD = 0.001
"""Standard deviation of the linear rows at the start (released code)."""

ANCHOR = "anchor."
"""How the base session's weights are prefixed in the state."""
UNMOVED = "sessions_unmoved"
"""The note on sessions in which nothing was trained."""

Noise = Mapping[str, torch.Tensor]
"""What is added to each of some weights, by name."""


class F2m(TrainedNearestMean):
    """Finding flat minima (F2M): sessions move some weights, within a range known to be flat.

    Shi, Chen, Zhang, Zhan and Wu, "Overcoming Catastrophic Forgetting in Incremental Few-Shot
    Learning by Finding Flat Minima", NeurIPS 2021. The base training is representation `f2m`.

    Around a flat minimum the base classes' loss hardly changes, so a session may use that room. It
    trains the last `layers` convolutions' weights alone, on cross-entropy over minus the squared
    distances of its images to its own means and to those of other classes; after each step weights
    are brought back to within ± `width` / 2 of what they were after the base session.

    It stores the means, 4·C·D bytes, the network, the base session's `layers` weights, and
    `exemplars` images of each new class.

    As released, where the paper leaves it open: the shots of new classes are kept, so that sessions
    train on all of them, against the base means alone, and renew their means; gradients are rounded
    to multiples of `width` / 4 a step; queries meet means that are brought to length 1, which is
    the cosine (not on CUB200); on CUB200 and mini-ImageNet sessions train nothing (`epochs` 0). See
    docs/methods/f2m.md.
    """

    name = "f2m"
    title = "F2M"
    bibtex = """@inproceedings{shi2021f2m,
  author = {Shi, Guangyuan and Chen, Jiaxin and Zhang, Wenlong and Zhan, Li-Ming and
            Wu, Xiao-Ming},
  title = {Overcoming Catastrophic Forgetting in Incremental Few-Shot Learning by Finding Flat
           Minima},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2021}
}"""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"layers": 8, "width": 2e-4, "epochs": 0, "cosine": False},
        "cifar100": {"layers": 4, "width": 0.01, "epochs": 6, "lr": 1e-2},
        "mini_imagenet": {"layers": 8, "width": 0.016, "epochs": 0},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"lr": (1e-3, 1e-2, 1e-1)}
    alarms: ClassVar[Mapping[str, str]] = {
        UNMOVED: "in so many sessions no weight moved, and means alone were added, as every step "
        "was rounded to none or left the range; try a higher lr or another width"
    }

    @dataclass(frozen=True)
    class Params:
        """How a session trains: SGD with momentum 0.9, all its images in one step.

        Attributes:
            layers: last convolutions that are trained, shortcuts not counted.
            width: of the range of their weights.
            epochs: steps of a session.
            lr: learning rate.
            weight_decay: of the weights that are trained.
            exemplars: shots of each new class that later sessions train on too.
            cosine: whether queries and means are brought to length 1 before they are compared.
        """

        layers: Annotated[int, Field(gt=0)] = 4
        width: Annotated[float, Field(ge=0)] = 0.01
        epochs: Annotated[int, Field(ge=0)] = 6
        lr: Annotated[float, Field(gt=0)] = 1e-2
        weight_decay: Annotated[float, Field(ge=0)] = 5e-4
        exemplars: Annotated[int, Field(ge=0)] = 5
        cosine: bool = True

    params: Params

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.weights = last_weights(self.network.backbone, self.params.layers)
        self.anchors = {name: x.detach().clone() for name, x in self.weights.items()}
        self._unmoved = 0

    def train(
        self, images: torch.Tensor, rows: torch.Tensor, fixed: torch.Tensor, session: int
    ) -> None:
        """Train the last weights within their range."""
        p, generator = self.params, self.context.random.torch("session", session)
        if not p.width or not p.epochs:
            return
        weights = list(self.weights.values())
        before = [weight.detach().clone() for weight in weights]
        optimiser = torch.optim.SGD(weights, p.lr, momentum=0.9, weight_decay=p.weight_decay)
        for _ in range(p.epochs):
            pixels = self.network.train_pixels(images, generator)
            with self.network.autocast():
                features = self.network.backbone(pixels)
            loss = prototype_loss(features.float(), rows, fixed)
            for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.grad = rounded(slope, p.lr, p.width / (LEVELS - 1))
            optimiser.step()
            for name, weight in self.weights.items():
                weight.data = held(weight.data, self.anchors[name], p.width / 2)
        self._unmoved += all(map(torch.equal, before, weights))

    def notes(self) -> dict[str, int | float | str]:
        """Return in how many sessions no weight moved, if there is one."""
        return {UNMOVED: self._unmoved} if self._unmoved else {}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return means, network, and the weights after the base session."""
        return super().state_dict() | {ANCHOR + name: x for name, x in self.anchors.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore them."""
        super().load_state_dict(state)
        device = self.context.device
        self.anchors = {name: state[ANCHOR + name].clone().to(device) for name in self.anchors}


class F2mRepresentation(Representation):
    """Cross-entropy at weights with noise on them, so that what is found is flat (F2M).

    Shi et al. (F2M), NeurIPS 2021.

    A step draws `draws` noises for the last `layers` convolutions' weights. The loss is the mean
    over them of the cross-entropy of a linear classifier at the perturbed weights, plus `drift`
    times how far the batch's class means move, squared, plus `deviation` times the losses' standard
    deviation. Gradients at perturbed weights move the weights themselves.

    A noise takes five values from −`width` / 2 to `width` / 2, as often as a beta distribution
    falls into five equal parts; both its parameters are drawn from 0.3 to 5, once a weight tensor.

    As released: the drift has no gradient, for its value alone is added, and so acts through the
    deviation only (`drift_gradient` gives it one, as the paper writes it). Sessions are method
    `f2m`. The cost is three forward passes and two backward ones.

    Deviations: batches and recipe are the protocol's (released: 16 classes of 16 images, 32 of 8 on
    CUB200); all five levels occur (a fault of the released sampler sends −`width` / 4 to `width` /
    2); one draw has no deviation. The base classifier handed on is the running mean of unit
    features, as sessions read the features by their means. See docs/methods/f2m.md.
    """

    name = "f2m"
    bibtex = F2m.bibtex
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"layers": 8, "width": 2e-4},
        "cifar100": {"layers": 4, "width": 0.01},
        "mini_imagenet": {"layers": 8, "width": 0.016},
    }

    @dataclass(frozen=True)
    class Params:
        """The noise, and the loss.

        Attributes:
            layers: last convolutions whose weights get noise, shortcuts not counted.
            width: of the noise's range.
            draws: noises of a step.
            drift: weight of the class means' movement.
            drift_gradient: whether that has a gradient.
            deviation: weight of the losses' standard deviation.
        """

        layers: Annotated[int, Field(gt=0)] = 4
        width: Annotated[float, Field(ge=0)] = 0.01
        draws: Annotated[int, Field(gt=0)] = 2
        drift: Annotated[float, Field(ge=0)] = 1.0
        drift_gradient: bool = False
        deviation: Annotated[float, Field(ge=0)] = 2.0

    params: Params

    def build_head(self, feature_dim: int, classes: int, generator: torch.Generator) -> nn.Module:
        """Return linear rows with bias, and running means."""
        return F2mHead(feature_dim, classes, generator)

    def loss(self, backbone: nn.Module, head: nn.Module, batch: TrainingBatch) -> torch.Tensor:
        """Return the loss at noises drawn for this step."""
        assert isinstance(head, F2mHead)
        weights = last_weights(backbone, self.params.layers)
        noises = [
            drawn_noise(weights, self.params.width, batch.generator)
            for _ in range(self.params.draws)
        ]
        return flat_loss(backbone, head, batch.images, batch.labels, noises, self.params)

    def classifier(self, head: nn.Module) -> torch.Tensor:
        """Return the running class means (classes, D)."""
        assert isinstance(head, F2mHead)
        return head.means.rows

    def scale(self) -> float:
        """Return CEC's factor, as these logits are no cosines."""
        return 16.0


class F2mHead(nn.Module):
    """Linear rows (classes, D) with bias, and running means."""

    def __init__(self, feature_dim: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        rows = ROW_SPREAD * torch.randn(classes, feature_dim, generator=generator)
        self.rows, self.bias = nn.Parameter(rows), nn.Parameter(torch.zeros(classes))
        self.means = RunningMeans(feature_dim, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, classes) of features (n, D)."""
        return F.linear(features, self.rows, self.bias)


def last_weights(backbone: nn.Module, count: int) -> dict[str, nn.Parameter]:
    """Return the last `count` weights of convolutions or linear maps, without 1×1 shortcuts."""
    named = list(backbone.named_parameters())
    maps = {k: x for k, x in named if x.dim() > 1 and not (x.dim() == 4 and x.shape[-1] == 1)}
    return dict(list(maps.items())[-count:])


def drawn_noise(
    weights: Mapping[str, torch.Tensor], width: float, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Return a noise for every weight, of its shape, all values among the five levels.

    That a beta variable falls into each fifth is looked up, which gives the same noise as drawing
    the variables and costs a uniform number each.
    """
    from scipy.special import betainc  # slow to load, and every command loads every method

    noise = {}
    for name, weight in weights.items():
        first, second = torch.randint(len(SHAPES), (2,), generator=generator).tolist()
        ends = torch.arange(1, LEVELS, dtype=torch.float64) / LEVELS
        bounds = torch.as_tensor(betainc(SHAPES[first], SHAPES[second], ends.numpy())).float()
        seed = int(torch.randint(2**62, (1,), generator=generator))
        own = torch.Generator(weight.device).manual_seed(seed)
        draws = torch.rand(weight.shape, generator=own, device=weight.device)
        level = torch.bucketize(draws, bounds.to(weight.device))
        noise[name] = width * (level / (LEVELS - 1) - 0.5)
    return noise


def flat_loss(
    backbone: nn.Module,
    head: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    noises: Sequence[Noise],
    params: F2mRepresentation.Params,
) -> torch.Tensor:
    """Return the mean loss under noises, plus `deviation` times its standard deviation.

    Args:
        backbone: maps images to features.
        head: maps features to logits; its running means, if it has some, follow the features.
        images: (n, 3, H, W).
        labels: (n,).
        noises: what is added to weights of the backbone, in each of the passes.
        params: weights of the loss's parts.
    """
    weights = dict(backbone.named_parameters())
    shown = [
        functional_call(backbone, {k: weights[k] + e for k, e in noise.items()}, (images,)).float()
        for noise in noises
    ]
    # Last, as autocast would hand weights that it cast without gradient on to the passes above.
    with torch.set_grad_enabled(params.drift_gradient):
        still = backbone(images).float()
    if isinstance(head, F2mHead):
        head.means.follow(still.detach(), labels)
    _, own = torch.unique(labels, return_inverse=True)
    members = F.one_hot(own).float()
    averaging = (members / members.sum(dim=0)).T
    losses = []
    with torch.autocast(images.device.type, enabled=False):
        for features in shown:
            drift = (averaging @ (features - still)).square().sum(dim=1).mean()
            drift = drift if params.drift_gradient else drift.detach()
            losses.append(F.cross_entropy(head(features), labels) + params.drift * drift)
    total = torch.stack(losses)
    if len(losses) < 2:
        return total.mean()
    # The root has no gradient at 0, where all losses are equal.
    return total.mean() + params.deviation * total.var().clamp(min=1e-16).sqrt()


def prototype_loss(
    features: torch.Tensor, labels: torch.Tensor, earlier: torch.Tensor
) -> torch.Tensor:
    """Return the cross-entropy over minus the squared distances to class means.

    Args:
        features: (n, D).
        labels: (n,).
        earlier: means (C, D) of other classes, beside those of the features' own.
    """
    _, own = torch.unique(labels, return_inverse=True)
    members = F.one_hot(own).to(features.dtype)
    means = torch.cat([(members / members.sum(dim=0)).T @ features, earlier])
    return F.cross_entropy(-(features[:, None] - means).square().sum(dim=2), own)


def rounded(gradient: torch.Tensor, lr: float, unit: float) -> torch.Tensor:
    """Return the gradient whose step of rate `lr` is the nearest multiple of `unit` everywhere.

    If all would be 0, the multiple nearest twice the step is taken.
    """
    steps = torch.round(gradient * lr / unit)
    if not bool(steps.any()):
        steps = torch.round(2 * gradient * lr / unit)
    # Of no step the gradient is 0, however small the rate is.
    return torch.where(steps == 0, 0.0, steps * unit / lr)


def held(weight: torch.Tensor, anchor: torch.Tensor, reach: float) -> torch.Tensor:
    """Return a weight with every entry brought to within `reach` of the anchor's."""
    return torch.minimum(torch.maximum(weight, anchor - reach), anchor + reach)
