"""Free-Lunch: new classes borrow the statistics of the base classes nearest to their shots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.method import Method, MethodContext, Terms
from fscil_bench.protocol import Queries, Session

from .._shared import citations
from .._shared.softmax import Fit, fit_cosine, fit_logistic
from .._shared.statistics import (
    Space,
    class_means,
    classifier_rows,
    covariance,
    in_space,
    settled_space,
    space_notes,
)
from .covariances import BudgetMode, StoredCovariances, check_budget, restore, store
from .mixtures import Addition, AlphaMode, Mixtures, calibrated

NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]

ARTIFACT_SAMPLES = 100
"""Generated features of a class that `artifacts` returns."""


@dataclass(frozen=True)
class FreeLunchParams:
    """Parameters of Free-Lunch.

    Attributes:
        space: where everything happens: `tukey` is x^β, for non-negative features; `raw` is x;
            `auto` is `tukey` where base features allow it.
        tukey_beta: β.
        k: base classes that a shot borrows from; 0 borrows nothing.
        alpha: α, added to a borrowed covariance.
        alpha_mode: `eye` adds α to the variances, `ones` adds it to every entry, as released.
        samples_per_class: samples of a class that the classifier is trained on in a session.
        episode_samples: the same in a few-shot episode.
        head: logistic regression, or rows compared by cosine.
        penalty: weight of ½‖W‖² beside the summed cross-entropy of head `logistic`: 1/C of
            scikit-learn.
        temperature: factor on the cosines of head `cosine`.
        byte_budget: most bytes that the stored covariances may take; 0 for no limit.
        budget_mode: what a budget is spent on: `full` keeps whole covariances of as many base
            classes as fit, and the others borrow the nearest class's; `low_rank` keeps leading
            eigenvectors and a diagonal of all classes.
    """

    space: Space = "auto"
    tukey_beta: Annotated[float, Field(gt=0, le=1)] = 0.5
    k: NonNegativeInt = 2
    alpha: Annotated[float, Field(ge=0)] = 0.05
    alpha_mode: AlphaMode = "eye"
    samples_per_class: PositiveInt = 200
    episode_samples: PositiveInt = 750
    head: Literal["logistic", "cosine"] = "logistic"
    penalty: PositiveFloat = 10.0
    temperature: PositiveFloat = 16.0
    byte_budget: NonNegativeInt = 0
    budget_mode: BudgetMode = "full"


class FreeLunch(Method):
    """Free-Lunch: distribution calibration with the statistics of the nearest base classes.

    "Free Lunch for Few-shot Learning: Distribution Calibration", Yang, Liu and Xu, ICLR 2021. A
    class of a few shots borrows its spread from base classes that look like it. Features are made
    more Gaussian by x^β; for each shot x̃ the k base classes with the nearest means μ_j give
    N(μ', Σ') with μ' = (Σ_j μ_j + x̃)/(k+1) and Σ' = mean of Σ_j plus α; many samples are drawn
    from it, and logistic regression is trained on samples and shots together.

    In class-incremental sessions, where the paper does not define it, the classifier is trained
    anew in each session, on `samples_per_class` samples of every class seen: of base classes from
    N(μ_c, Σ_c), of new classes, evenly, from the N(μ', Σ') of each of their shots, and on the
    session's own shots. `episode_scores` is the original, on an episode's classes alone.

    **Stored between sessions** (float32): base means 4·C0·D bytes and covariances 4·C0·D² (less
    with a byte budget), for each shot of a new class its μ', the indices of its neighbours and of
    its class, 4·(D+k+1) bytes, in place of a Σ' that follows from them, and the classifier,
    4·C·(D+1).

    **Deviations** from the released code, which treats episodes only: one space for base
    statistics and shots; α is added to the variances (alpha_mode=ones adds it to every entry, as
    released); negative eigenvalues become zero, where NumPy's sampler warns and draws from the
    absolute ones. These and the provenance of
    the defaults: docs/methods/free_lunch.md.

    Features that are NaN, infinite, or negative in Tukey space are refused (`DataError`).
    """

    name = "free_lunch"
    title = "Free-Lunch"
    bibtex = citations.FREE_LUNCH
    Params = FreeLunchParams
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "k": (1, 2),
        "alpha": (0.0, 0.05, 0.21),
        "penalty": (1.0, 3.0, 10.0),
    }

    params: FreeLunchParams

    def __init__(self, params: FreeLunchParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.base_means = self.weights = self.intercept = torch.empty(0)
        self.covariances: StoredCovariances | None = None
        self.mixtures = Mixtures.none(torch.empty(0, context.feature_dim), params.k)
        self._without_covariance = self._not_converged = 0
        self._largest_gradient = 0.0

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse more neighbours than base classes, and a byte budget that holds nothing."""
        if params.k > terms.base_classes:
            raise UsageError(
                f"free_lunch: k = {params.k} neighbours, but there are {terms.base_classes} base "
                f"classes; set k to at most {terms.base_classes}"
            )
        check_budget(params.byte_budget, params.budget_mode, terms.base_classes, terms.feature_dim)

    def learn_base(self, base: Session) -> None:
        """Store base means and covariances; train the classifier on samples of them."""
        features = self._embed(base)
        labels = base.labels.to(features.device)
        self.base_means = class_means(features, labels, base.class_ids).float()
        matrices = [self._covariance(features[labels == c]) for c in base.class_ids]
        p = self.params
        self.covariances = store(matrices, self.base_means, p.byte_budget, p.budget_mode)
        self.mixtures = Mixtures.none(self.base_means, p.k)
        self.weights, self.intercept = features.new_zeros(0, features.shape[1]), labels.new_zeros(0)
        self._train(0, features[:0], labels[:0])

    def learn_session(self, session: Session) -> None:
        """Calibrate the new classes' distributions; train the classifier on all classes seen."""
        shots = self._embed(session)
        rows = classifier_rows(session, len(self.weights), self.context.device)
        new = calibrated(shots, rows, self.base_means, self.params.k)
        self.mixtures = self.mixtures.with_classes(new)
        self._train(session.index, shots, rows)

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the classifier's logits (n, classes seen)."""
        return self._logits(self._embed(queries), self.weights, self.intercept)

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return logits (n, way) of queries for an episode's classes, in `shots.class_ids` order.

        The original method: each shot is calibrated by base statistics, and logistic regression
        is trained on the shots and on `episode_samples` samples of each of the episode's classes.
        """
        features = self._embed(shots)
        rows = classifier_rows(shots, 0, self.context.device)
        mixtures = calibrated(features, rows, self.base_means, self.params.k)
        generator = self._generator("episode", shots.index)
        drawn, owners = self._sampled(mixtures, self.params.episode_samples, generator)
        samples, labels = torch.cat([drawn, features]), torch.cat([owners, rows])
        fit = self._fit(samples, labels, shots.way, None)
        return self._logits(self._embed(queries), fit.weights.float(), fit.intercept.float())

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return base means and covariances, the new classes' mixtures, and the classifier."""
        state = {
            "base_means": self.base_means,
            **self._stored.tensors(),
            "mixture_means": self.mixtures.means,
            "mixture_neighbours": self.mixtures.neighbours,
            "mixture_owners": self.mixtures.owners,
            "weights": self.weights,
        }
        if self.params.head == "logistic":
            state["intercept"] = self.intercept
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        tensors = {name: value.clone().to(self.context.device) for name, value in state.items()}
        self.base_means, self.weights = tensors["base_means"], tensors["weights"]
        self.intercept = tensors.get("intercept", self.weights.new_zeros(len(self.weights)))
        self.covariances = restore(tensors, self.base_means)
        self.mixtures = Mixtures(
            tensors["mixture_means"], tensors["mixture_neighbours"], tensors["mixture_owners"]
        )

    def artifacts(self) -> dict[str, np.ndarray]:
        """Return generated features of all classes seen, float32 (classes seen, 100, D).

        `generated_step0` is in the method's feature space; `feature_power` is the power that
        takes real features there.
        """
        p = self.params
        generator = self._generator("artifacts", len(self.weights))
        drawn, labels = self._drawn_of_all(ARTIFACT_SAMPLES, generator)
        order = labels.argsort(stable=True)
        generated = drawn[order].view(len(self.weights), ARTIFACT_SAMPLES, -1)
        return {
            "generated_step0": generated.cpu().numpy(),
            "feature_power": np.array(p.tukey_beta if self._space == "tukey" else 1.0),
        }

    def notes(self) -> dict[str, int | float | str]:
        """Return repairs of covariances, fits short of their optimum, what a budget was spent on.

        Sizes, where there are any: the largest raise of an eigenvalue, as a fraction of the mean
        eigenvalue, and the largest entry of the gradient where a fit stopped too early.
        """
        repair = self._stored.repair
        notes: dict[str, int | float | str] = {
            "eigenvalues_raised": repair.eigenvalues,
            "covariances_repaired": repair.classes,
            "classes_without_covariance": self._without_covariance,
            "fits_not_converged": self._not_converged,
            **space_notes(self.params.space, self.context),
        }
        if repair.eigenvalues:
            notes["largest_raise"] = float(f"{repair.largest:.2g}")
        if self._not_converged:
            notes["largest_gradient"] = float(f"{self._largest_gradient:.2g}")
        return {**notes, **self._stored.spent_on()}

    @property
    def _stored(self) -> StoredCovariances:
        assert self.covariances is not None, "learn_base comes first"
        return self.covariances

    @property
    def _space(self) -> Literal["tukey", "raw"]:
        return settled_space(self.params.space, self.context)

    def _embed(self, samples: Session | Queries) -> torch.Tensor:
        return in_space(samples, self._space, self.params.tukey_beta, self.context.device)

    def _covariance(self, rows: torch.Tensor) -> torch.Tensor:
        if len(rows) > 1:
            return covariance(rows)
        self._without_covariance += 1
        return rows.new_zeros((rows.shape[1],) * 2, dtype=torch.float64)

    def _train(self, index: int, shots: torch.Tensor, rows: torch.Tensor) -> None:
        """Train the classifier on samples of all classes seen and on the session's shots."""
        drawn, owners = self._drawn_of_all(
            self.params.samples_per_class, self._generator("session", index)
        )
        samples, labels = torch.cat([drawn, shots]), torch.cat([owners, rows])
        classes = int(labels.max()) + 1
        start = (self.weights, self.intercept) if len(self.weights) else None
        fit = self._fit(samples, labels, classes, start)
        self.weights, self.intercept = fit.weights.float(), fit.intercept.float()

    def _drawn_of_all(
        self, per_class: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw from every class seen: samples (n, D) and their rows (n,)."""
        base = torch.arange(len(self.base_means), device=self.base_means.device)
        noise = self._stored.noise(base, per_class, generator)
        of_base = (self.base_means[:, None] + noise).flatten(0, 1)
        of_new, owners = self._sampled(self.mixtures, per_class, generator)
        return torch.cat([of_base, of_new]), torch.cat([base.repeat_interleave(per_class), owners])

    def _sampled(
        self, mixtures: Mixtures, per_class: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        addition = Addition(self.params.alpha, self.params.alpha_mode)
        return mixtures.sample(per_class, self._stored, addition, generator)

    def _fit(
        self,
        samples: torch.Tensor,
        labels: torch.Tensor,
        classes: int,
        start: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> Fit:
        p = self.params
        if p.head == "logistic":
            fit = fit_logistic(samples, labels, classes, p.penalty, start=start)
        else:
            rows = class_means(samples, labels, range(classes))
            if start is not None:
                rows[: len(start[0])] = start[0].double()
            fit = fit_cosine(samples, labels, rows, p.temperature)
        if not fit.converged:
            self._not_converged += 1
            self._largest_gradient = max(self._largest_gradient, fit.gradient)
        return fit

    def _logits(
        self, features: torch.Tensor, weights: torch.Tensor, intercept: torch.Tensor
    ) -> torch.Tensor:
        """Return logits (n, C) of features (n, D) in the method's space."""
        if self.params.head == "logistic":
            return features @ weights.T + intercept
        return self.params.temperature * F.normalize(features, dim=1) @ F.normalize(weights).T

    def _generator(self, *purpose: str | int) -> torch.Generator:
        seed = self.context.random.seed(*purpose)
        return torch.Generator(self.context.device).manual_seed(seed)
