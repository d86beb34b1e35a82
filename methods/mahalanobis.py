"""Nearest class mean by Mahalanobis distance, with one covariance or one a class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from fscil_bench.method import Method, MethodContext
from fscil_bench.protocol import Queries, Session

from ._shared.prototypes import base_similarities
from ._shared.statistics import (
    Space,
    class_means,
    covariance,
    in_space,
    settled_space,
    space_notes,
    squared_distances,
    whitening,
    within_class_covariance,
)

NonNegativeFloat = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class MahalanobisParams:
    """Parameters of the distance.

    Attributes:
        covariance: `shared` is the mean of the base classes' covariances, for every class;
            `per_class` is each class's own.
        space: `raw` is the feature as it is, `tukey` its power x^β, for non-negative features,
            `auto` that where base features allow it; features are brought to length 1.
        beta: β; unused in space `raw`.
        gamma1: γ1, shrinkage: how many times the mean variance is added to the variances.
        gamma2: γ2, how many times the mean covariance is added to the covariances; where it
            exceeds γ1, the sum need not be positive definite, and `notes` counts repairs.
        correlation: whether a shrunk covariance is reduced to the correlation matrix.
        borrowed: λ, the part of a new class's covariance that comes from base classes, the rest
            being its shots' own; for `per_class`.
        kappa: κ, sharpness of the weights of base classes, of which a large one takes the nearest
            alone; for `per_class`.
    """

    covariance: Literal["shared", "per_class"] = "shared"
    space: Space = "auto"
    beta: Annotated[float, Field(gt=0, le=1)] = 0.5
    gamma1: NonNegativeFloat = 1.0
    gamma2: NonNegativeFloat = 1.0
    correlation: bool = False
    borrowed: Annotated[float, Field(ge=0, le=1)] = 0.5
    kappa: NonNegativeFloat = 16.0


class Mahalanobis(Method):
    """Nearest class mean by Mahalanobis distance: the FeCAM family.

    Goswami, Liu, Twardowski and van de Weijer, "FeCAM: Exploiting the Heterogeneity of Class
    Distributions in Exemplar-Free Continual Learning", NeurIPS 2023. What few-shot classes borrow
    is from Goswami, Twardowski and van de Weijer, "Calibrating Higher-Order Statistics for
    Few-Shot Class-Incremental Learning with Pre-trained Vision Transformers", 2024.

    A frozen network spreads the samples of a class more in some directions than in others, and
    those of a new class much like those of base classes. Distances to class means are therefore
    measured in units of that spread: d² = (x − μ_c)ᵀ·Σ_c⁻¹·(x − μ_c), and the nearest class wins.
    Features are first raised to the power β and brought to length 1, as their means are. Σ is
    shrunk, since few samples leave directions without any variance: Σ + γ1·V1·I + γ2·V2·(11ᵀ − I),
    with V1 its mean variance and V2 its mean covariance; `correlation` then divides out the
    variances, which makes the matrices of different classes alike in size.

    With `shared`, Σ is the mean of the base classes' covariances, for all classes. With
    `per_class`, a base class has its own, and a new one λ·Σ_j s_j·Σ_j + (1 − λ)·S, where S is that
    of its shots (K − 1 degrees of freedom) and s_j = softmax_j(κ·cos(μ_c, μ_j)) says how much base
    class j is like it. A class of one shot borrows all (a base class of one sample has the mean of
    the others'). Scores of earlier classes stay when classes are added. Episodes are classified in
    the same way, with base covariances.

    **Stored** (float32): means 4·C·D bytes, and `shared` one covariance, 4·D²; `per_class` those
    of base classes, 4·C0·D², and, for λ < 1, how far each new shot lies off its class's mean and
    which class it is of, 4·(D+1). Matrices that whiten are derived from these at work.

    **Deviations** from FeCAM's code: means are taken, and covariances, of features of length 1 in
    the space, where it takes means before the power and covariances of lengths as they are; as
    there, means are brought to length 1 again. Every covariance is shrunk once, where it shrinks
    those of classes twice; the one covariance is within base classes. These and the provenance of
    the defaults: docs/methods/mahalanobis.md.

    Features that are NaN, infinite, or negative in Tukey space are refused (`DataError`).
    """

    name = "mahalanobis"
    title = "Mahalanobis"
    bibtex = """@inproceedings{goswami2023fecam,
  author = {Goswami, Dipam and Liu, Yuyang and Twardowski, Bart{\\l}omiej and
            van de Weijer, Joost},
  title = {{FeCAM}: Exploiting the Heterogeneity of Class Distributions in Exemplar-Free
           Continual Learning},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023}
}"""
    Params = MahalanobisParams
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "covariance": ("shared", "per_class"),
        "space": ("raw", "auto"),
        "gamma1": (1.0, 10.0, 100.0),
        "correlation": (False, True),
    }

    params: MahalanobisParams

    def __init__(self, params: MahalanobisParams, context: MethodContext) -> None:
        super().__init__(params, context)
        dim, device = context.feature_dim, context.device
        self.means = self.deviations = torch.empty(0, dim, device=device)
        self.owners = torch.empty(0, dtype=torch.int32, device=device)
        self.covariances = self._factors = torch.empty(0, dim, dim, device=device)
        self._raised = self._without_covariance = 0

    def learn_base(self, base: Session) -> None:
        """Store the base classes' means, and their covariances or the mean of these."""
        features, labels = self._embed(base), base.labels.to(self.context.device)
        self.means = F.normalize(class_means(features, labels, base.class_ids), dim=1).float()
        shared, count = within_class_covariance(features, labels, base.class_ids)
        self._without_covariance += base.way - count
        matrices = [shared.float()]
        if self.params.covariance == "per_class":
            samples = [features[labels == c] for c in base.class_ids]
            matrices = [(covariance(x) if len(x) > 1 else shared).float() for x in samples]
        self.covariances = torch.stack(matrices)
        self._factors = self._of_base()

    def learn_session(self, session: Session) -> None:
        """Store the new classes' means and what their covariances are made of."""
        first = len(self.means)
        means, deviations, owners = self._described(session, first)
        self.means = torch.cat([self.means, means])
        if self.params.covariance == "per_class":
            self._without_covariance += session.way - len(set(owners.tolist()))
            if self.params.borrowed < 1:
                self.deviations = torch.cat([self.deviations, deviations])
                self.owners = torch.cat([self.owners, owners])
            self._factors = torch.cat(
                [self._factors, self._of_new(means, deviations, owners - first)]
            )

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return minus the squared distance to every class mean, over D (n, classes seen)."""
        return self._scores(queries, self.means, self._factors)

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return minus the squared distance to an episode's means, over D (n, way)."""
        means, deviations, owners = self._described(shots, 0)
        shared = self.params.covariance == "shared"
        factors = self._factors if shared else self._of_new(means, deviations, owners)
        return self._scores(queries, means, factors)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return means (C, D), covariances (1 or C0, D, D), and new shots' deviations (n, D)."""
        state = {"means": self.means, "covariances": self.covariances}
        if self.params.covariance == "per_class" and self.params.borrowed < 1:
            state |= {"deviations": self.deviations, "owners": self.owners}
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned, and derive the whitening matrices."""
        for name, value in state.items():
            setattr(self, name, value.clone().to(self.context.device))
        self._factors = self._of_base()
        if self.params.covariance == "per_class":
            base = len(self.covariances)
            new = self._of_new(self.means[base:], self.deviations, self.owners - base)
            self._factors = torch.cat([self._factors, new])

    def notes(self) -> dict[str, int | float | str]:
        """Return how many eigenvalues were raised, and how many classes had one sample only."""
        return {
            "eigenvalues_raised": self._raised,
            "classes_without_covariance": self._without_covariance,
            **space_notes(self.params.space, self.context),
        }

    @property
    def _space(self) -> Literal["tukey", "raw"]:
        return settled_space(self.params.space, self.context)

    def _embed(self, samples: Session | Queries) -> torch.Tensor:
        features = in_space(samples, self._space, self.params.beta, self.context.device)
        return F.normalize(features, dim=1)

    def _described(
        self, session: Session, first: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return new classes' means (way, D), and their shots' deviations (n, D) and rows (n,).

        Means have length 1, but the shots' deviations are from the mean as it was. Rows are counted
        from `first` on. A class's only shot deviates by nothing and is left out.
        """
        features, labels = self._embed(session), session.labels.to(self.context.device)
        means = class_means(features, labels, session.class_ids).float()
        deviations, owners = [features[:0]], [self.owners[:0]]
        for row, class_id in enumerate(session.class_ids):
            own = features[labels == class_id] - means[row]
            if len(own) > 1:
                deviations.append(own)
                owners.append(self.owners.new_full((len(own),), first + row))
        return F.normalize(means, dim=1), torch.cat(deviations), torch.cat(owners)

    def _of_base(self) -> torch.Tensor:
        """Return the whitening matrices (1 or C0, D, D) of the stored covariances."""
        return torch.stack([self._factor(each.double()) for each in self.covariances])

    def _of_new(
        self, means: torch.Tensor, deviations: torch.Tensor, owners: torch.Tensor
    ) -> torch.Tensor:
        """Return the whitening matrices (c, D, D) of new classes; `owners` counts them from 0.

        One class after the other: the sum over base covariances must not be rounded otherwise when
        a state is restored.
        """
        factors = [self._factors[:0]]
        for row, mean in enumerate(means):
            own = deviations[owners == row]
            factors.append(self._factor(self._calibrated(mean, own))[None])
        return torch.cat(factors)

    def _calibrated(self, mean: torch.Tensor, deviations: torch.Tensor) -> torch.Tensor:
        """Return a new class's covariance (D, D), float64, from its mean (D,) and shots (K, D)."""
        share = self.params.borrowed if len(deviations) else 1.0
        total = mean.new_zeros((len(mean),) * 2, dtype=torch.float64)
        if share:
            base_means = self.means[: len(self.covariances)]
            weights = base_similarities(mean[None], base_means, self.params.kappa)
            total += share * torch.tensordot(weights[0], self.covariances, dims=1)
        if share < 1:
            own = deviations.double()
            total += (1 - share) * (own.T @ own) / (len(own) - 1)
        return total

    def _factor(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return the whitening matrix (D, D), float32, of a covariance, shrunk; note repairs."""
        matrix = shrunk(matrix, self.params.gamma1, self.params.gamma2)
        if self.params.correlation:
            matrix = correlation(matrix)
        factor, raised = whitening(matrix)
        self._raised += raised
        return factor.float()

    def _scores(self, queries: Queries, means: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        features = self._embed(queries)
        return -squared_distances(features, means, factors) / features.shape[1]


def shrunk(covariance: torch.Tensor, gamma1: float, gamma2: float) -> torch.Tensor:
    """Return Σ + γ1·V1·I + γ2·V2·(11ᵀ − I) for a covariance Σ (D, D).

    V1 is the mean of Σ's diagonal and V2 that of its other entries (FeCAM, Goswami et al., 2023).
    A covariance without any variance becomes the identity.
    """
    size = len(covariance)
    eye = torch.eye(size, dtype=covariance.dtype, device=covariance.device)
    v1 = covariance.diagonal().mean()
    if not bool(v1 > 0):
        return eye
    v2 = (covariance.sum() - size * v1) / max(size * (size - 1), 1)
    return covariance + gamma1 * v1 * eye + gamma2 * v2 * (1 - eye)


def correlation(covariance: torch.Tensor) -> torch.Tensor:
    """Return the correlation matrix (D, D) of a covariance; zeros where there is no variance."""
    deviations = covariance.diagonal().sqrt()
    inverse = torch.where(deviations > 0, 1 / deviations, 0)
    return covariance * inverse[:, None] * inverse
