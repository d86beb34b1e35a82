"""RanPAC: random projections of frozen features, and ridge regression; calibrated for few shots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field

from fscil_bench.method import Terms
from fscil_bench.protocol import Session

from .._shared.prototypes import base_similarities
from .._shared.statistics import class_means, classifier_rows, covariance, within_class_covariance
from .ridge import RidgeMethod, expansion, one_hot, require_memory, ridge_solution

PUBLISHED = 10_000
"""Projections, for D = 768."""

RIDGES = tuple(10.0**k for k in range(8, -9, -1))
"""What λ is chosen from, in the order of the search."""

FITTED = 0.8
"""Share of base samples that weights are fitted to when λ is chosen; the others judge them."""

PATIENCE = 2
"""Values of λ in a row that are no better than the best, after which smaller ones are not tried."""


@dataclass(frozen=True)
class RanPACParams:
    """Parameters of the projection and of the regression.

    Attributes:
        projections: M, random projections of a feature; 0 takes the feature as it is. If it is not
            set, 16 for each dimension, up to the published 10,000.
        ridge: λ; 0 chooses it on base samples.
    """

    projections: Annotated[int, Field(ge=0)] | None = None
    ridge: Annotated[float, Field(ge=0)] = 0.0

    def expansion(self, dim: int) -> int:
        """Return the number of projections of D = `dim` features."""
        return expansion(self.projections, PUBLISHED, dim)


class RanPAC(RidgeMethod):
    """RanPAC: ridge regression on random ReLU projections of frozen features.

    McDonnell, Gong, Parvaneh, Abbasnejad and van den Hengel, "RanPAC: Random Projections and
    Pre-trained Models for Continual Learning", NeurIPS 2023, its second phase.

    Class means compared by cosine ignore that features are correlated. Features x are expanded by
    a fixed random matrix, h = max(0, xᵀ·P) with M columns of standard normal numbers, in which
    classes are easier to tell apart linearly, and the class means of h are decorrelated by the
    Gram matrix of all samples so far: W = (G + λI)⁻¹·Q. λ, of 10⁸ … 10⁻⁸, is the one whose
    weights, fitted to 80 % of the base samples, have the least squared error on the others.
    Sessions add to G and Q, so that nothing learnt is lost; yet all classes' weights change. Five
    shots among hundreds of base samples a class weigh next to nothing there, and new classes are
    hardly ever answered (New 0.0 to 0.9 %): in few-shot sessions, use `ranpac_calibrated`.

    It stores G, 8·M² bytes (800 MB at M = 10,000), Q, 8·M·C, and P, 4·D·M; three times G is held
    while weights are solved for.

    **Deviations** from the released code: it computes in float32; it chooses λ anew in every
    session, on that session's samples alone, which five shots cannot carry; it tries all values,
    where here the search, from the largest down, ends after two that are no better. Provenance,
    costs: docs/methods/ridge.md.
    """

    name = "ranpac"
    title = "RanPAC"
    bibtex = """@inproceedings{mcdonnell2023ranpac,
  author = {McDonnell, Mark D. and Gong, Dong and Parvaneh, Amin and Abbasnejad, Ehsan and
            van den Hengel, Anton},
  title = {{RanPAC}: Random Projections and Pre-trained Models for Continual Learning},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023}
}"""
    Params = RanPACParams
    map_name = "projection"

    params: RanPACParams
    projection: torch.Tensor

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse more projections than the machine has memory for."""
        size = params.expansion(terms.feature_dim) or terms.feature_dim
        require_memory(f"{cls.name}: projections", size)

    def learn_base(self, base: Session) -> None:
        """Draw the projection, choose λ, and fit the base classes."""
        features, rows = self._embed(base), classifier_rows(base, 0, self.context.device)
        dim, random = features.shape[1], self.context.random
        size = self.params.expansion(dim)
        drawn = torch.randn(dim, size, generator=random.torch("projection"))
        self.projection = drawn.to(features.device)
        order = torch.randperm(len(features), generator=random.torch("validation"))
        fitted, judged = order.tensor_split([int(FITTED * len(order))])
        self._begin(size or dim)
        self._add(features[fitted], rows[fitted], base.way)
        self.ridge = self.params.ridge or self._chosen(features, rows, fitted, judged)
        self._add(features[judged], rows[judged], base.way)
        self._solve()

    def learn_session(self, session: Session) -> None:
        """Add the shots to the sums, and solve for all classes' weights."""
        rows = classifier_rows(session, self.moments.shape[1], self.context.device)
        self._add(self._embed(session), rows, session.classes_seen)
        self._solve()

    def _expanded(self, features: torch.Tensor) -> torch.Tensor:
        if not self.projection.shape[1]:
            return features.double()
        return (features @ self.projection).relu_().double()

    def _chosen(
        self,
        features: torch.Tensor,
        rows: torch.Tensor,
        fitted: torch.Tensor,
        judged: torch.Tensor,
    ) -> float:
        """Return the λ whose weights, of the samples `fitted`, have the least error on `judged`."""
        gram, moments, back = self.gram, self.moments, None
        if 2 * len(fitted) < len(gram):  # the same weights, of the smaller matrix of samples
            back = self._expanded(features[fitted]).T
            gram, moments = back.T @ back, one_hot(rows[fitted], moments.shape[1])
        targets = one_hot(rows[judged], moments.shape[1])
        best, least, worse = RIDGES[0], torch.inf, 0
        for ridge in RIDGES:
            found = ridge_solution(gram, moments, ridge)
            if found is None or worse == PATIENCE:
                break
            weights = found if back is None else back @ found
            error = float((self._predicted(features[judged], weights) - targets).square().mean())
            worse = 0 if error < least else worse + 1
            if error < least:
                best, least = ridge, error
        return best


@dataclass(frozen=True)
class CalibratedParams(RanPACParams):
    """Parameters of the calibration, beside those of the projection and of the regression.

    Attributes:
        alpha: α, the part of a new class's mean that is its shots' own.
        beta: β, the factor on the sum of its shots' covariance and the borrowed one.
        kappa: κ, sharpness of the weights of base classes (τ in the paper).
        samples_per_class: samples of a new class that are drawn in place of its shots.
    """

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.9
    beta: Annotated[float, Field(ge=0)] = 0.5
    kappa: Annotated[float, Field(ge=0)] = 16.0
    samples_per_class: Annotated[int, Field(gt=0)] = 800


class RanPACCalibrated(RanPAC):
    """RanPAC with new classes drawn from distributions that base classes lend them.

    Goswami, Twardowski and van de Weijer, "Calibrating Higher-Order Statistics for Few-Shot
    Class-Incremental Learning with Pre-trained Vision Transformers", CVPR Workshops 2024.

    Beside hundreds of base samples five shots hardly count in RanPAC's sums, and their covariance
    has rank four. A new class with mean c and covariance S of its shots (K − 1 degrees of freedom)
    is like base class j, with mean b_j and covariance Σ_j, by s_j = softmax_j(κ·cos(c, b_j)). Its
    samples are drawn from N(μ, Σ) with μ = α·c + (1 − α)·Σ_j s_j·b_j and
    Σ = β·(Σ_j s_j·Σ_j + S), in the space of features, and only they are added to the sums. A class
    of one shot has 2β times the borrowed covariance. Base classes' samples are the real ones.

    Beside what RanPAC stores it keeps base means, 4·C0·D bytes, and covariances, 4·C0·D² (655 MB
    of 100 classes at D = 1,280).

    **Deviations** from the released code: it weighs base classes by dot products of means as they
    are, whose softmax takes one base class alone; here by the paper's cosines. Provenance,
    costs: docs/methods/ridge.md.
    """

    name = "ranpac_calibrated"
    title = "RanPAC (calibrated)"
    bibtex = """@inproceedings{goswami2024calibrating,
  author = {Goswami, Dipam and Twardowski, Bart{\\l}omiej and van de Weijer, Joost},
  title = {Calibrating Higher-Order Statistics for Few-Shot Class-Incremental Learning with
           Pre-trained Vision Transformers},
  booktitle = {Conference on Computer Vision and Pattern Recognition (CVPR) Workshops},
  year = {2024}
}"""
    Params = CalibratedParams
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {"cifar100": {"alpha": 0.75}}
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "alpha": (0.5, 0.75, 0.9),
        "beta": (0.5, 1.0),
    }

    params: CalibratedParams
    means: torch.Tensor
    covariances: torch.Tensor

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse more projections than the machine has memory for beside base covariances."""
        dim = terms.feature_dim
        size, more = params.expansion(dim) or dim, 4 * terms.base_classes * dim**2
        require_memory(f"{cls.name}: projections", size, more)

    def learn_base(self, base: Session) -> None:
        """Fit the base classes, and keep their means and covariances."""
        super().learn_base(base)
        features, labels = self._embed(base), base.labels.to(self.context.device)
        shared, _ = within_class_covariance(features, labels, base.class_ids)
        samples = [features[labels == c] for c in base.class_ids]
        matrices = [(covariance(x) if len(x) > 1 else shared).float() for x in samples]
        self.means = class_means(features, labels, base.class_ids).float()
        self.covariances = torch.stack(matrices)

    def learn_session(self, session: Session) -> None:
        """Draw samples of the new classes, add them to the sums, and solve for all weights."""
        features, labels = self._embed(session), session.labels.to(self.context.device)
        count, first, drawn = self.params.samples_per_class, self.moments.shape[1], []
        for class_id in session.class_ids:
            shots = features[labels == class_id]
            mean, spread = calibrated(shots, self.means, self.covariances, self.params)
            generator = self.context.random.torch("samples", class_id)
            noise = torch.randn(count, len(mean), generator=generator).to(mean)
            drawn.append((mean + noise @ root(spread).T).float())
        rows = torch.arange(session.way, device=labels.device).repeat_interleave(count)
        self._add(torch.cat(drawn), first + rows, session.classes_seen)
        self._solve()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return what RanPAC's has, base means (C0, D) and covariances (C0, D, D)."""
        return super().state_dict() | {"means": self.means, "covariances": self.covariances}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned, and solve for the weights."""
        super().load_state_dict(state)
        for name in ("means", "covariances"):
            setattr(self, name, state[name].clone().to(self.context.device))


def calibrated(
    shots: torch.Tensor, means: torch.Tensor, covariances: torch.Tensor, params: CalibratedParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a new class's mean (D,) and covariance (D, D), float64, with what it borrows.

    Args:
        shots: its samples (K, D).
        means: base means (C0, D).
        covariances: base covariances (C0, D, D).
        params: α, β and κ.
    """
    own = shots.double().mean(dim=0)
    weights = base_similarities(own[None], means.double(), params.kappa)[0]
    mean = params.alpha * own + (1 - params.alpha) * (weights @ means.double())
    borrowed = torch.tensordot(weights.float(), covariances, dims=1).double()
    return mean, params.beta * (borrowed + (covariance(shots) if len(shots) > 1 else borrowed))


def root(covariance: torch.Tensor) -> torch.Tensor:
    """Return R (D, D) with R·Rᵀ = Σ for a covariance, which may be singular."""
    values, vectors = torch.linalg.eigh(covariance)
    scaled: torch.Tensor = vectors * values.clamp(min=0).sqrt()
    return scaled
