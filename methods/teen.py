"""TEEN: new prototypes are moved towards the base prototypes that resemble them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field

from fscil_bench.method import MethodContext
from fscil_bench.protocol import Session

from ._shared.prototypes import PrototypeMethod, PrototypeParams, base_similarities


@dataclass(frozen=True)
class TEENParams(PrototypeParams):
    """Parameters of the calibration, beside those of the means.

    Attributes:
        alpha: α, how far a new prototype is moved: 0 leaves it, 1 replaces it.
        kappa: κ, sharpness of the weights: 0 takes all base prototypes alike, a large one the
            nearest alone.
    """

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.1
    kappa: Annotated[float, Field(ge=0)] = 16.0


class TEEN(PrototypeMethod):
    """TEEN: training-free calibration of new prototypes by base prototypes.

    Wang, Zhou, Zhang, Zhan and Ye, "Few-Shot Class-Incremental Learning via Training-Free
    Prototype Calibration", NeurIPS 2023.

    The mean of a few shots is a poor prototype, and samples of new classes are mostly mistaken for
    base classes; which base class, follows how alike they are. So a new prototype borrows from the
    well-estimated base prototypes b_j. With c the new mean, both of length 1: weights
    s_j = softmax_j(κ·⟨c, b_j⟩), Δ the vector Σ_j s_j·b_j brought to length 1, and the prototype is
    w = (1−α)·c + α·Δ. That is done once, when the class is new, with base classes alone as donors;
    base prototypes stay. Queries are compared by cosine, so w need not have length 1. α = 0 is
    `ncm`. A few-shot episode's prototypes are calibrated likewise.

    It stores the prototypes, 4·C·D bytes.

    Deviations: none in the calibration; its base training is no part of the method here. Provenance
    of the defaults, and accuracies: docs/methods/prototypes.md.
    """

    name = "teen"
    title = "TEEN"
    bibtex = """@inproceedings{wang2023teen,
  author = {Wang, Qi-Wei and Zhou, Da-Wei and Zhang, Yi-Kai and Zhan, De-Chuan and Ye, Han-Jia},
  title = {Few-Shot Class-Incremental Learning via Training-Free Prototype Calibration},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023}
}"""
    Params = TEENParams
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cub200": {"alpha": 0.5},
        "cifar100": {"alpha": 0.1},
        "mini_imagenet": {"alpha": 0.5},
    }
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "alpha": (0.1, 0.2, 0.3, 0.5),
        "kappa": (4.0, 16.0, 64.0),
    }

    params: TEENParams

    def __init__(self, params: TEENParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self._base_classes = 0

    def learn_base(self, base: Session) -> None:
        """Take the base classes' means as prototypes."""
        super().learn_base(base)
        self._base_classes = base.way

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the prototypes of base classes (C0, D) and of new ones (C − C0, D)."""
        base, new = self.prototypes[: self._base_classes], self.prototypes[self._base_classes :]
        return {"base_prototypes": base, "new_prototypes": new}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore the prototypes."""
        self.prototypes = torch.cat([state["base_prototypes"], state["new_prototypes"]])
        self._base_classes = len(state["base_prototypes"])

    def _new_rows(self, session: Session, rivals: torch.Tensor) -> torch.Tensor:
        del rivals
        base = self.prototypes[: self._base_classes]
        return calibrated(self._means(session), base, self.params.alpha, self.params.kappa)


def calibrated(
    new_means: torch.Tensor, base_means: torch.Tensor, alpha: float, kappa: float
) -> torch.Tensor:
    """Return calibrated prototypes w (way, D) of new classes.

    Args:
        new_means: means of the new classes (way, D), of any length.
        base_means: means of the base classes (C0, D), of any length.
        alpha: α, the share of what is borrowed.
        kappa: κ, sharpness of the weights of base classes.
    """
    weights = base_similarities(new_means, base_means, kappa)
    borrowed = F.normalize(weights @ F.normalize(base_means, dim=1), dim=1)
    return (1 - alpha) * F.normalize(new_means, dim=1) + alpha * borrowed
