"""FSLL: a session trains the network's least important weights alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch.nn import functional as F

from .nearest_mean import TrainedNearestMean


class Fsll(TrainedNearestMean):
    """Few-shot lifelong learning (FSLL): the smallest weights of each layer learn a session.

    Mazumder, Singh and Rai, "Few-Shot Lifelong Learning", AAAI 2021.

    Classes are represented by their mean features, and a query belongs to the nearest. In a
    session the `share` of each convolution's weights that are smallest in magnitude, and matter
    least to what the network knows, learn from the new images; all others keep what they are. The
    loss draws images of a class together and classes apart (triplets), turns the new classes'
    means away from the earlier ones (cosine), and, weighted by `penalty`, holds weights at what
    they were (L1). Means of earlier classes are not renewed, though the network moves
    (`exemplars` = 5 keeps shots of new classes and renews theirs, as F2M's re-implementation does).

    The base session is a representation's matter: the paper adds four-way rotation prediction to
    cross-entropy, which is `rotation` with `turns = all`.

    It stores the means, 4·C·D bytes, and the network.

    Only the base script is official. Epochs, rates and the Euclidean distance are those of F2M's
    re-implementation (Shi et al., NeurIPS 2021), whose L1 term has no gradient, so that it ran
    with `penalty` 0, the default here; λ = 5 holds all weights where they are. Undefined, and how
    it is settled: docs/methods/fsll.md.
    """

    name = "fsll"
    title = "FSLL"
    bibtex = """@inproceedings{mazumder2021fsll,
  author = {Mazumder, Pratik and Singh, Pravendra and Rai, Piyush},
  title = {Few-Shot Lifelong Learning},
  booktitle = {AAAI Conference on Artificial Intelligence},
  year = {2021}
}"""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"epochs": 10, "lr": 5e-4},
        "cifar100": {"epochs": 15, "lr": 1e-3},
        "mini_imagenet": {"epochs": 15, "lr": 1e-3},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "lr": (1e-3, 1e-2, 1e-1),
        "cosine": (False, True),
    }

    @dataclass(frozen=True)
    class Params:
        """How a session trains: SGD with momentum 0.9, all its images in one step.

        Attributes:
            share: of each convolution's weights, the smallest, that are trained.
            epochs: steps of a session.
            lr: learning rate.
            weight_decay: of the weights that are trained.
            margin: by how much an image of another class shall be farther than one of its own.
            separation: weight of the mean cosine between new and earlier means.
            penalty: λ, weight of the L1 distance from the weights before the session.
            cosine: whether queries and means are brought to length 1 before they are compared.
            exemplars: shots of each new class that later sessions train on too.
        """

        share: Annotated[float, Field(ge=0, le=1)] = 0.1
        epochs: Annotated[int, Field(ge=0)] = 15
        lr: Annotated[float, Field(ge=0)] = 1e-3
        weight_decay: Annotated[float, Field(ge=0)] = 5e-4
        margin: Annotated[float, Field(ge=0)] = 0.0
        separation: Annotated[float, Field(ge=0)] = 1.0
        penalty: Annotated[float, Field(ge=0)] = 0.0
        cosine: bool = False
        exemplars: Annotated[int, Field(ge=0)] = 0

    params: Params

    def train(
        self, images: torch.Tensor, rows: torch.Tensor, fixed: torch.Tensor, session: int
    ) -> None:
        """Train the smallest weights."""
        p, generator = self.params, self.context.random.torch("session", session)
        weights = [x for x in self.network.backbone.parameters() if x.dim() > 1]
        trained = [smallest(x.detach(), p.share) for x in weights]
        before = [x.detach().clone() for x in weights]
        optimiser = torch.optim.SGD(weights, lr=p.lr, momentum=0.9, weight_decay=p.weight_decay)
        for _ in range(p.epochs if p.share else 0):
            pixels = self.network.train_pixels(images, generator)
            with self.network.autocast():
                features = self.network.backbone(pixels)
            loss = session_loss(features.float(), rows, fixed, p.margin, p.separation)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            for weight, own, old in zip(weights, trained, before, strict=True):
                weight.data.copy_(torch.where(own, held(weight.data, old, p.lr * p.penalty), old))


def smallest(weight: torch.Tensor, share: float) -> torch.Tensor:
    """Return which entries of a weight are among the `share` of it that is smallest in magnitude.

    bool, of the weight's shape; of equal magnitudes the first, rounded down.
    """
    chosen = torch.zeros(weight.numel(), dtype=torch.bool, device=weight.device)
    order = weight.abs().flatten().argsort(stable=True)
    chosen[order[: int(share * weight.numel())]] = True
    return chosen.view(weight.shape)


def held(weight: torch.Tensor, before: torch.Tensor, step: float) -> torch.Tensor:
    """Return a weight moved by up to `step` towards what it was: the proximal step of an L1 term.

    A gradient step on the term would overshoot, and never rest.
    """
    moved = weight - before
    return before + moved.sign() * (moved.abs() - step).clamp(min=0)


def session_loss(
    features: torch.Tensor,
    labels: torch.Tensor,
    earlier: torch.Tensor,
    margin: float,
    separation: float,
) -> torch.Tensor:
    """Return the triplet loss of a session's images, plus what keeps their means apart from others.

    Args:
        features: (n, D).
        labels: (n,).
        earlier: means (C, D) of earlier classes.
        margin: of the triplets.
        separation: weight of the mean cosine between the classes' means and the earlier ones.
    """
    _, own = torch.unique(labels, return_inverse=True)
    members = F.one_hot(own).to(features.dtype)
    means = (members / members.sum(dim=0)).T @ features
    cosines = F.normalize(means, dim=1) @ F.normalize(earlier, dim=1).T
    return triplet_loss(features, labels, margin) + separation * cosines.mean()


def triplet_loss(features: torch.Tensor, labels: torch.Tensor, margin: float) -> torch.Tensor:
    """Return the mean of max(0, d(a, p) − d(a, n) + margin) over all triplets, d Euclidean.

    a and p ≠ a are of one class, n is of another; 0 where there is no such triplet.

    Args:
        features: (n, D).
        labels: (n,).
        margin: added to the difference.
    """
    squared = (features[:, None] - features[None]).square().sum(dim=2)
    # The root has no gradient at 0, where an image is compared with itself.
    distances = squared.clamp(min=1e-12).sqrt()
    alike = labels[:, None] == labels[None]
    own = alike & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    triplets = own[:, :, None] & ~alike[:, None, :]
    excess = F.relu(distances[:, :, None] - distances[:, None, :] + margin)
    return (excess * triplets).sum() / triplets.sum().clamp(min=1)
