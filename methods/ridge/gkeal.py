"""GKEAL: ridge regression on Gaussian kernels around base samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from fscil_bench.method import Terms
from fscil_bench.protocol import Session

from .._shared.statistics import classifier_rows
from .ridge import RidgeMethod, expansion, require_memory

PositiveFloat = Annotated[float, Field(gt=0)]

RELEASED = 8192
"""Centres of the released code."""

MEDIAN_OF = 1000
"""Base samples whose distances to the centres the median is taken of."""


@dataclass(frozen=True)
class GKEALParams:
    """Parameters of the kernels and of the regression.

    Attributes:
        centres: M, base samples that kernels stand on; all, where there are fewer. If it is not
            set, 16 for each dimension, up to the released 8,192.
        width: σ over the median distance of base samples to centres.
        ridge: λ (γ in the released code).
        balance: how much a new class's shots together count, over a base class's samples; each
            shot counts once at least.
    """

    centres: Annotated[int, Field(gt=0)] | None = None
    width: PositiveFloat = 0.5
    ridge: PositiveFloat = 0.1
    balance: Annotated[float, Field(ge=0)] = 1.0


class GKEAL(RidgeMethod):
    """GKEAL: Gaussian kernel embedded analytic learning.

    Zhuang, Weng, He, Lin and Zeng, "GKEAL: Gaussian Kernel Embedded Analytic Learning for Few-Shot
    Class Incremental Task", CVPR 2023.

    A feature is expanded to its similarities with M centres, features of base samples drawn at
    random, h_m = exp(−‖x − c_m‖²/(2σ²)); classes are ridge regression on these. The sums of the
    regression grow by each session's shots and are never taken back, so that its weights are those
    of all samples at once: the paper updates (G + λI)⁻¹ recursively, which is the same. Beside
    hundreds of base samples few shots count little; the paper concatenates features of many
    augmented copies of each, and on frozen features each counts as many times.

    It stores G, 8·M² bytes (537 MB at M = 8,192), Q, 8·M·C, and the centres, 4·D·M, which are base
    samples' features; three times G is held while weights are solved for.

    **Deviations** from the released code, which is for sessions of many samples and without the
    concatenation: σ there is an absolute 10 ("5 to 15 on CIFAR-100 and ImageNet"), which depends
    on how long features are; here it is in medians of distances, and `notes` tells it. Its centres
    are the first M base samples, and where there are fewer, random mixtures of them make up the
    number. Provenance, costs: docs/methods/ridge.md.
    """

    name = "gkeal"
    title = "GKEAL"
    bibtex = """@inproceedings{zhuang2023gkeal,
  author = {Zhuang, Huiping and Weng, Zhenyu and He, Run and Lin, Zhiping and Zeng, Ziqian},
  title = {{GKEAL}: {G}aussian Kernel Embedded Analytic Learning for Few-Shot Class Incremental
           Task},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR)},
  year = {2023}
}"""
    Params = GKEALParams
    map_name = "centres"
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "width": (0.25, 0.5, 1.0),
        "ridge": (0.1, 1.0),
        "balance": (0.3, 1.0, 3.0),
    }

    params: GKEALParams
    centres: torch.Tensor
    sigma: float
    base_samples: float

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse more centres than the machine has memory for."""
        wanted = expansion(params.centres, RELEASED, terms.feature_dim)
        require_memory("gkeal: centres", min(wanted, terms.base_classes * terms.base_images))

    def learn_base(self, base: Session) -> None:
        """Draw the centres, take σ from distances to them, and fit the base classes."""
        features, rows = self._embed(base), classifier_rows(base, 0, self.context.device)
        order = torch.randperm(len(features), generator=self.context.random.torch("centres"))
        self.centres = features[
            order[: expansion(self.params.centres, RELEASED, features.shape[1])]
        ]
        some = features[order[-MEDIAN_OF:]]
        median = float(squared_distances(some, self.centres).sqrt().median())
        self.sigma, self.ridge = self.params.width * (median or 1.0), self.params.ridge
        self.base_samples = len(base) / base.way
        self._begin(len(self.centres))
        self._add(features, rows, base.way)
        self._solve()

    def learn_session(self, session: Session) -> None:
        """Add the shots to the sums, and solve for all classes' weights."""
        rows = classifier_rows(session, self.moments.shape[1], self.context.device)
        weight = max(1.0, self.params.balance * self.base_samples * session.way / len(session))
        self._add(self._embed(session), rows, session.classes_seen, weight)
        self._solve()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return G (M, M), Q (M, C), λ, the centres (M, D), σ, and samples of a base class."""
        numbers = torch.tensor([self.sigma, self.base_samples], dtype=torch.float64)
        return super().state_dict() | {"numbers": numbers}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned, and solve for the weights."""
        self.sigma, self.base_samples = state["numbers"].tolist()
        super().load_state_dict(state)

    def notes(self) -> dict[str, int | float | str]:
        """Return σ, in the unit of features, λ, and how often it had to be raised."""
        return super().notes() | {"sigma": self.sigma}

    def _expanded(self, features: torch.Tensor) -> torch.Tensor:
        return (squared_distances(features, self.centres) / (-2 * self.sigma**2)).exp_()


def squared_distances(features: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return squared Euclidean distances (n, M), float64, of features (n, D) to centres (M, D)."""
    x, c = features.double(), centres.double()
    lengths = x.square().sum(dim=1, keepdim=True) + c.square().sum(dim=1)
    return torch.addmm(lengths, x, c.T, alpha=-2).clamp_(min=0)
