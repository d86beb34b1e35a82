"""ADBS: nearest class means whose cosines each class scales by a factor that it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field

from fscil_bench.method import MethodContext
from fscil_bench.protocol import Queries, Session

from ._shared.prototypes import PrototypeMethod, PrototypeParams
from ._shared.softmax import minimised
from ._shared.statistics import classifier_rows

MOMENTUM = DAMPENING = 0.9
"""Of SGD in sessions: a step follows the running mean of the gradients."""

DECAY = 5e-4
"""Weight decay of base training, which holds the scales of base classes too."""

TOLERANCE = 1e-5
"""On the gradient of the base scales' objective."""


@dataclass(frozen=True)
class ADBSParams(PrototypeParams):
    """Parameters of the scales, beside those of the means.

    Attributes:
        steps: full-batch steps of a session on the new classes' scales; 0 leaves them at the mean.
        lr: SGD's learning rate there.
        constraint: weight of the inter-class constraint beside the cross-entropy.
        temperature: factor on the scaled cosines, under the cross-entropy.
    """

    steps: Annotated[int, Field(ge=0)] = 1
    lr: Annotated[float, Field(gt=0)] = 0.001
    constraint: Annotated[float, Field(ge=0)] = 0.01
    temperature: Annotated[float, Field(gt=0)] = 16.0


class ADBS(PrototypeMethod):
    """ADBS: the adaptive decision boundary strategy, on frozen features.

    Li, Tan, Yang, Cheng, Dong and Yang, "Adaptive Decision Boundary for Few-Shot Class-Incremental
    Learning", AAAI 2025.

    With class means compared by cosine the boundary between two classes lies half-way, however far
    each of them spreads. Here a class multiplies its cosine by a scale of its own, m_c·cos(x, w_c).
    Scales minimise cross-entropy at a temperature, plus a constraint that keeps prototypes apart:
    the mean over pairs i, j of max(0, (1 − u) − (m_j − m_i·u)) with u = cos(w_i, w_j), by which
    prototype j prefers its own class to class i by no less than without scales.

    Base scales are fitted to the base samples. A new class starts from the mean of all earlier
    scales, and only the session's own scales are trained, on its shots, over all classes seen:
    what old classes score stays. In a few-shot episode its classes start from the mean of base
    scales and are trained on its shots alone.

    It stores prototypes and scales, 4·C·(D + 1) bytes.

    **Deviations**: the paper trains base scales with the network, by SGD and weight decay; on
    frozen features they are the optimum of the same objective, which is convex in them. Sessions
    train on features as they are, where the released code augments the shots. Provenance of the
    defaults: docs/methods/prototypes.md.
    """

    name = "adbs"
    title = "ADBS"
    bibtex = """@inproceedings{li2025adbs,
  author = {Li, Linhao and Tan, Yongzhang and Yang, Siyuan and Cheng, Hao and Dong, Yongfeng and
            Yang, Liang},
  title = {Adaptive Decision Boundary for Few-Shot Class-Incremental Learning},
  booktitle = {Proceedings of the AAAI Conference on Artificial Intelligence},
  year = {2025}
}"""
    Params = ADBSParams
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar100": {"steps": 10, "lr": 0.01},
        "cub200": {"steps": 1, "lr": 0.01},
        "mini_imagenet": {"steps": 6, "lr": 0.1},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "steps": (1, 3, 10),
        "lr": (0.001, 0.003, 0.01),
    }

    params: ADBSParams

    def __init__(self, params: ADBSParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.scales = torch.empty(0)
        self._base_classes = self._not_converged = 0

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as prototypes, and fit their scales."""
        super().learn_base(base)
        self._base_classes = base.way
        labels = classifier_rows(base, 0, self.prototypes.device)
        cosines = self._cosines(base, self.prototypes)
        self.scales, converged = base_scales(cosines, labels, self.prototypes, self.params)
        self._not_converged = int(not converged)

    def learn_session(self, session: Session) -> None:
        """Append the new classes' means, and their scales."""
        super().learn_session(session)
        self.scales = self._scales(session, self.prototypes, self.scales, self.scales.mean())

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the scaled cosines (n, classes seen)."""
        return super().scores(queries) * self.scales

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return the scaled cosines (n, way) for an episode's classes."""
        rows, start = self._means(shots), self.scales[: self._base_classes].mean()
        return self._cosines(queries, rows) * self._scales(shots, rows, self.scales[:0], start)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the scales (classes seen,) and prototypes of base (C0, D) and new classes."""
        base, new = self.prototypes.tensor_split([self._base_classes])
        return {"scales": self.scales, "base_prototypes": base, "new_prototypes": new}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore scales and prototypes."""
        self.prototypes = torch.cat([state["base_prototypes"], state["new_prototypes"]])
        self._base_classes, self.scales = len(state["base_prototypes"]), state["scales"].clone()

    def notes(self) -> dict[str, int | float | str]:
        """Return whether the fit of the base scales stopped short of the optimum."""
        return {"fits_not_converged": self._not_converged}

    def _scales(
        self, session: Session, rows: torch.Tensor, earlier: torch.Tensor, start: torch.Tensor
    ) -> torch.Tensor:
        """Return all scales, of `earlier` classes and of a session's; rows are both's."""
        labels = classifier_rows(session, len(earlier), rows.device)
        new = start.expand(session.way)
        return trained(new, earlier, self._cosines(session, rows), labels, rows, self.params)


def base_scales(
    cosines: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, params: ADBSParams
) -> tuple[torch.Tensor, bool]:
    """Return the scales (C0,) of the least base loss with weight decay, and whether they are it.

    Args:
        cosines: of base samples with the prototypes (n, C0).
        labels: rows of their classes (n,).
        rows: prototypes (C0, D).
        params: temperature and weight of the constraint.
    """
    exact = cosines.double()
    between = F.normalize(rows.double(), dim=1)
    between = between @ between.T

    def objective(at: torch.Tensor, precision: torch.dtype) -> tuple[float, torch.Tensor]:
        del precision
        with torch.enable_grad():
            scales = at.clone().requires_grad_()
            loss = scaled_loss(scales[:, 0], exact, labels, between, params)
            loss = loss + DECAY / 2 * scales.square().sum()
            (gradient,) = torch.autograd.grad(loss, scales)
        return float(loss.detach()), gradient

    start = exact.new_ones(len(rows), 1)
    curvature = params.temperature**2 * exact.square().mean() / len(rows) + DECAY
    fit = minimised(objective, start, curvature.view(1, 1), exact.dtype, TOLERANCE, 1000)
    return fit.weights[:, 0].float(), fit.converged


def trained(
    new: torch.Tensor,
    earlier: torch.Tensor,
    cosines: torch.Tensor,
    labels: torch.Tensor,
    rows: torch.Tensor,
    params: ADBSParams,
) -> torch.Tensor:
    """Return earlier and new scales (C,), the new ones trained on their shots by full batches.

    Args:
        new: where the new scales start (way,).
        earlier: scales of earlier classes (C − way,), which stay as they are.
        cosines: of the shots with all prototypes (n, C).
        labels: rows of their classes (n,).
        rows: all prototypes (C, D).
        params: steps, learning rate, temperature and weight of the constraint.
    """
    units = F.normalize(rows, dim=1)
    between = units @ units.T
    velocity = torch.zeros_like(new)
    for step in range(params.steps):
        with torch.enable_grad():
            moving = new.detach().clone().requires_grad_()
            scales = torch.cat([earlier, moving])
            loss = scaled_loss(scales, cosines, labels, between, params)
            (gradient,) = torch.autograd.grad(loss, moving)
        # As in PyTorch's SGD, which the released code uses, the first step is not dampened.
        velocity = MOMENTUM * velocity + (1 - DAMPENING) * gradient if step else gradient
        new = new - params.lr * velocity
    return torch.cat([earlier, new])


def scaled_loss(
    scales: torch.Tensor,
    cosines: torch.Tensor,
    labels: torch.Tensor,
    between: torch.Tensor,
    params: ADBSParams,
) -> torch.Tensor:
    """Return the cross-entropy of scaled cosines plus the inter-class constraint.

    Args:
        scales: m (C,).
        cosines: of samples with prototypes (n, C).
        labels: rows of the samples' classes (n,).
        between: cosines of prototypes with one another (C, C).
        params: temperature and weight of the constraint.
    """
    fit = F.cross_entropy(params.temperature * cosines * scales, labels)
    short = (1 - between) - (scales - scales[:, None] * between)
    return fit + params.constraint * short.relu().mean()
