"""LDC: learnable distribution calibration, reconstructed from the paper."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fscil_bench.method import Method, MethodContext, Terms
from fscil_bench.protocol import LabelledSamples, Queries, Session

from .._shared.cosine import cosine_logits
from .._shared.softmax import fit_cosine
from .._shared.state import part_of, prefixed
from .._shared.statistics import (
    class_counts,
    class_means,
    classifier_rows,
    in_space,
    settled_space,
    space_notes,
    within_class_covariance,
)
from .bayes import GaussianClassifier
from .classifier import falls_short, separable, train_classifier
from .covariance import BorrowedCovariances, Covariances, Repairs, SharedCovariance
from .matching import Convergence
from .new_means import MeanPrior, borrowed_means, fit_prior, posterior_means
from .params import PRETRAINED, LdcParams
from .sampler import ClassFactors, GaussianSampler, released_factors
from .training import BaseClasses, mean_loss, train_unit
from .unit import CalibrationUnit, ColumnFactors, Factors, dense, variances

ARTIFACT_SAMPLES = 100
"""Generated features of a class that `artifacts` returns for each recurrent step."""

UNIT = "unit."
"""How the unit's tensors are prefixed in the state."""

STOPPED = "emd_plans_not_optimal"
"""Name of the count of transport plans that the unit's training used short of the optimum."""

UNIT_LOSS = "unit_loss"
"""Name of the unit's training curve, kept with its parameters."""

UNTRAINED = "unit_untrained"
"""Name of the position in `REASONS`, kept with the unit's parameters."""

ROWS = "base_rows"
"""Name of the base classes' trained rows, beside the unit's parameters."""

UNCONVERGED = "base_rows_gradient"
"""Name of the largest entry of the gradient where their training ended short of the optimum."""

ROWS_TOLERANCE = 1e-3
"""Largest entry of the gradient of the mean cross-entropy at which base rows count as trained."""

REASONS = (
    "",
    "no: base samples have fewer degrees of freedom than features have dimensions",
    "no: it matches base features no better than the shared covariance does",
)
"""Why a unit stays as it begins, the Gaussian sampler with the shared covariance."""

SPREAD_LIMIT = 30.0
"""A class whose mapped covariance has a trace this many times above or below Σ's has Σ itself."""


class Ldc(Method):
    """Learnable distribution calibration (LDC), a reconstruction.

    "Learnable Distribution Calibration for Few-Shot Class-Incremental Learning", Liu, Yang, Xie,
    Wang, Tian and Ye. A few shots say where a class lies but not how it spreads. LDC keeps one
    covariance Σ for all classes and learns, on base classes, a parameterised calibration unit
    (PCU) that turns a class mean w_i and Σ into samples like the class's real features: a
    convolutional mapping M gives the class its covariance Σ_i, a Gaussian sampler draws
    x̃ ~ N(w_i, Σ_i), and a recurrent step f moves the samples, R times, towards real ones. In
    every session the cosine classifier is trained on such samples of all classes seen, so that
    old classes are not forgotten and new ones have more than K samples.

    **Stored between sessions** (float32): classifier C·D, Σ D², the unit's parameters (some
    hundred bytes), and with means=prototype the class means, another C·D. sampler=none stores the
    classifier alone; covariance=empirical C0·D² instead of D²; new_means=posterior D + D² more,
    borrowed one number; recurrent_inputs=shots C more. classifier=bayes stores the means as its
    classifier, once.

    **The paper's** are unit, sampler and recurrence, the two losses, rows that double as means
    (means=snapshot) and a base classifier trained on real features (base_rows=trained). **Ours**,
    by name: new_means=posterior and borrowed (after Free-Lunch), classifier=bayes (discriminant
    analysis with LDC's covariances), recurrent_inputs=shots, virtual_classes.

    **Deviations.** The released code is a fragment; what the paper leaves open is settled here
    (docs/methods/ldc.md, with theory, ablation and provenance of the defaults). The unit is
    trained after the backbone; M returns a factor of Σ_i; L_m compares one-dimensional Gaussians;
    half of the unit's steps simulate few-shot means; sampler means are class means, not rows;
    everything may happen in Tukey space.

    **Where it does not fit the features** it does less, and `notes` say so. The unit is not trained
    where Σ⁽⁰⁾ must be singular (base samples less classes are fewer than D), nor kept where it
    matches base features no better than the shared covariance does; a class whose mapped
    covariance has `SPREAD_LIMIT` times more or less variance than Σ, the mean of the base
    classes', has Σ; rows stay class means where the softmax cannot tell these apart, and where
    too few epochs leave trained base rows far behind new ones.

    Features that are NaN, infinite, or negative in Tukey space are refused (`DataError`).
    """

    name = "ldc"
    title = "LDC"
    bibtex = """@misc{liu2022ldc,
  author = {Liu, Binghao and Yang, Boyu and Xie, Lingxi and Wang, Ren and Tian, Qi and
            Ye, Qixiang},
  title = {Learnable Distribution Calibration for Few-Shot Class-Incremental Learning},
  year = {2022},
  eprint = {2210.00232},
  archiveprefix = {arXiv}
}"""
    Params = LdcParams
    pretrain_params = PRETRAINED
    tuning_grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "base_rows": ("means", "trained"),
        "new_means": ("sample", "borrowed"),
        "few_shot_weight": (0.0, 0.05, 0.2),
    }

    alarms: ClassVar[Mapping[str, str]] = {
        "sessions_at_means": "so many sessions have class means in place of trained rows, which "
        "serve worse or could not be trained; try a lower lr",
        "unit_trained": "samples are those of the shared covariance; try a lower unit_lr, or more "
        "base samples",
    }

    params: LdcParams

    def __init__(self, params: LdcParams, context: MethodContext) -> None:
        super().__init__(params, context)
        self.unit = self._new_unit()
        self.repairs = Repairs()
        self.covariances = self._new_covariances(self.repairs)
        self.classifier = self.prototypes = self.counts = torch.empty(0)
        self.prior = MeanPrior(torch.empty(0), torch.empty(0))
        self._stopped = self._untrained = self._sessions_at_means = 0
        self._gradient = 0.0
        self._rows: torch.Tensor | None = None
        self._outside: set[int] = set()
        self._base_classes = 0
        self._centres: torch.Tensor | None = None
        self._gaussians: GaussianClassifier | None = None
        self._losses: list[float] = []
        self._unit_losses = torch.empty(0)

    @classmethod
    def check(cls, params: Any, terms: Terms) -> None:
        """Refuse parameters that do not fit one another, the classes or the recipe."""
        params.check(terms)

    def pretrain(self, base: Session, progress: Callable[[float], None]) -> dict[str, torch.Tensor]:
        """Train the calibration unit, and the base rows if asked; return both, on the CPU."""
        return self._trained_unit(base, progress) | self._trained_rows(base)

    def load_pretrained(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take the unit's parameters and the base rows from `pretrain`."""
        own = dict(tensors)
        self._unit_losses = own.pop(UNIT_LOSS, torch.empty(0))
        self._stopped = int(own.pop(STOPPED, torch.zeros(1)))
        self._untrained = int(own.pop(UNTRAINED, torch.zeros(1)))
        self._gradient = float(own.pop(UNCONVERGED, torch.zeros(1)))
        self._rows = own.pop(ROWS, None)
        self.unit.load_state_dict(own)

    def _trained_unit(
        self, base: Session, progress: Callable[[float], None]
    ) -> dict[str, torch.Tensor]:
        """Return a unit's parameters and how its training went, if it has any."""
        unit, convergence, losses = self._new_unit(), Convergence(), torch.empty(0)
        untrained = 1
        features, owners = self._labelled(base)
        source, labels = self._statistics_source(base)
        sizes = {c: int((labels == c).sum()) for c in base.class_ids}
        usable = [c for c in base.class_ids if sizes[c] > 1]
        if unit.shape.learnable and usable:
            covariances = self._new_covariances(Repairs())
            covariances.learn_base(source, labels, usable)
            means = class_means(features, owners, usable).float()
            unit.set_scales(means, covariances.root())
            classes = BaseClasses(
                means,
                class_counts(owners, usable),
                [source[labels == c] for c in usable],
                self._noise_factors(covariances.factors(unit, means)),
            )
            if sum(sizes[c] - 1 for c in usable) >= means.shape[1]:
                before = self._unit_loss(unit, classes)
                start = copy.deepcopy(unit.state_dict())
                generator = self._generator_base("training")
                losses = train_unit(unit, self.params, classes, generator, progress, convergence)
                untrained = 0
                if self.params.unit_steps and not self._unit_loss(unit, classes) < before:
                    unit.load_state_dict(start)
                    untrained = 2
        tensors = {name: value.detach().cpu() for name, value in unit.state_dict().items()}
        told = {STOPPED: torch.tensor([convergence.stopped]), UNIT_LOSS: losses}
        told[UNTRAINED] = torch.tensor([untrained])
        return tensors | (told if tensors else {})

    def _trained_rows(self, base: Session) -> dict[str, torch.Tensor]:
        """Return the base classes' rows (C0, D), of the lengths of their means, if asked for."""
        if self.params.base_rows == "means":
            return {}
        features, labels = self._labelled(base)
        means, temperature = class_means(features, labels, base.class_ids), self.params.temperature
        if not separable(means, temperature):
            return {}
        targets = classifier_rows(base, 0, features.device)
        fit = fit_cosine(features, targets, means, temperature, ROWS_TOLERANCE)
        rows = fit.weights * means.norm(dim=1, keepdim=True)
        short = torch.tensor([0.0 if fit.converged else fit.gradient])
        return {ROWS: rows.float().cpu(), UNCONVERGED: short}

    def learn_base(self, base: Session) -> None:
        """Set the classifier to the base classes' means and Σ⁽⁰⁾ to their mean covariance.

        Raises:
            UsageError: held-out statistics are asked for and there are none.
        """
        features, labels = self._labelled(base)
        source, owners = self._statistics_source(base)
        means = class_means(features, labels, base.class_ids).float()
        rows, self._rows = self._rows, None
        self.classifier = means if rows is None else rows.to(means.device)
        self._centres = means
        self._base_classes = base.way
        self.prototypes = means if self.params.keeps_prototypes else means[:0]
        counts = class_counts(labels, base.class_ids)
        self.counts = counts if self.params.keeps_counts else counts[:0]
        if self.params.keeps_covariances:
            self.covariances.learn_base(source, owners, base.class_ids)
        if self.params.new_means == "posterior":
            within, _ = within_class_covariance(source, owners, base.class_ids)
            prior = fit_prior(means, within, counts)
            self.prior = replace(
                prior, mean=prior.mean.float(), covariance=prior.covariance.float()
            )
        self._gaussians = self._closed_form(means, 0) if self.params.is_closed else None

    def learn_session(self, session: Session) -> None:
        """Add the new classes' means, update Σ, and train the classifier on calibrated samples."""
        features, labels = self._labelled(session)
        seen = len(self.classifier)
        if self.params.keeps_covariances:
            self.covariances.learn_session(features, labels, session.class_ids, seen)
        new = self._new_means(features, labels, session)
        rows = centres = torch.cat([self.classifier, new])
        if self.params.keeps_prototypes:
            centres = self.prototypes = torch.cat([self.prototypes, new])
        if self.params.keeps_counts:
            self.counts = torch.cat([self.counts, class_counts(labels, session.class_ids)])
        self._centres, self._losses = centres, []
        self.classifier = rows
        if self.params.is_closed:
            self._gaussians = self._closed_form(rows, 0)
            return
        trained = self.params.sampler != "none"
        if trained and not separable(centres, self.params.temperature):
            self._sessions_at_means += 1
            self.classifier, trained = centres, False
        if trained:
            sampler = self._sampler(centres, self.counts, 0, centres)
            targets = classifier_rows(session, seen, self.context.device)
            generator = self._generator("session", session.index)
            rows, self._losses = train_classifier(
                rows, seen, sampler, features, targets, self.params, generator
            )
            check = self._generator("check", session.index)
            behind = self._uneven and falls_short(rows, sampler, check)
            self._sessions_at_means += behind
            self.classifier = centres if behind else rows

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return cosines (n, classes seen) of queries and rows, times the temperature.

        With classifier=bayes, log densities of the classes' Gaussians.
        """
        if not self.params.is_closed:
            return self._logits(queries, self.classifier)
        if self._gaussians is None:
            self._gaussians = self._closed_form(self.classifier, 0)
        return self._gaussians.scores(self._embed(queries))

    def episode_scores(self, shots: Session, queries: Queries) -> torch.Tensor:
        """Return scores (n, way) of queries for an episode's classes, learnt for these alone.

        As in a session, with Σ⁽⁰⁾ as it is and calibrated samples of the episode's classes only.
        """
        features, labels = self._labelled(shots)
        rows = means = self._new_means(features, labels, shots)
        if self.params.is_closed:
            closed = self._closed_form(means, len(self.classifier))
            return closed.scores(self._embed(queries))
        if self.params.sampler != "none" and separable(means, self.params.temperature):
            counts = class_counts(labels, shots.class_ids)
            sampler = self._sampler(means, counts, len(self.classifier), self._known)
            generator = self._generator("episode", shots.index)
            targets = classifier_rows(shots, 0, self.context.device)
            rows, _ = train_classifier(means, 0, sampler, features, targets, self.params, generator)
        return self._logits(queries, rows)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the classifier (C, D) and what the parameters need besides.

        With samples: covariances, the unit, and prototypes (C, D) and counts (C,) if they are
        kept; with posterior means: covariances, `prior_mean` (D,), `prior_covariance` (D, D).
        """
        state = {"classifier": self.classifier, **prefixed(UNIT, self.unit)}
        if self.params.keeps_covariances:
            state |= self.covariances.state_dict()
        if self.params.keeps_prototypes:
            state["prototypes"] = self.prototypes
        if self.params.keeps_counts:
            state["counts"] = self.counts
        if self.params.new_means == "posterior":
            state |= {"prior_mean": self.prior.mean, "prior_covariance": self.prior.covariance}
        if self.params.new_means == "borrowed":
            state["base_classes"] = torch.tensor(self._base_classes, dtype=torch.int32)
        return {name: value.detach().cpu().clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned."""
        tensors = {name: value.to(self.context.device) for name, value in state.items()}
        self.classifier = tensors["classifier"]
        self.prototypes = tensors.get("prototypes", self.classifier[:0])
        self.counts = tensors.get("counts", self.classifier[:0, 0])
        if self.params.keeps_covariances:
            self.covariances.load_state_dict(tensors)
        if self.params.new_means == "posterior":
            self.prior = MeanPrior(tensors["prior_mean"], tensors["prior_covariance"])
        if self.params.new_means == "borrowed":
            self._base_classes = int(tensors["base_classes"])
        self.unit.load_state_dict(part_of(tensors, UNIT))
        self._gaussians = None

    def artifacts(self) -> dict[str, np.ndarray]:
        """Return generated features of all classes seen, per recurrent step, and the loss curve.

        `generated_step0` … `generated_stepR` are float32 (classes seen, 100, D) in the method's
        feature space; `feature_power` is the power that takes real features there.
        `classifier_loss` (epochs,) is the mean training loss of the session's epochs; the base
        session has `unit_loss` (unit_steps,), the matching loss of each step of the unit's
        training, summed over the recurrent steps 0 … R.
        """
        power = self.params.tukey_beta if self._space == "tukey" else 1.0
        arrays = {"feature_power": np.array(power)}
        if self._losses:
            arrays["classifier_loss"] = np.array(self._losses, dtype=np.float32)
        elif len(self._unit_losses):
            arrays["unit_loss"] = self._unit_losses.numpy()
        if self._centres is not None and self.params.sampler != "none":
            sampler = self._sampler(self._centres, self.counts, 0, self._centres)
            generator = self._generator("artifacts", len(self._centres))
            for step, drawn in enumerate(sampler.draw_steps(ARTIFACT_SAMPLES, generator)):
                arrays[f"generated_step{step}"] = drawn.cpu().numpy()
        return arrays

    def notes(self) -> dict[str, int | float | str]:
        """Return the space, repairs, solver failures, how far the prior shrank, what did not fit.

        `unit_trained` says why the unit was not, `classes_outside_spread` counts classes that have
        Σ in place of what the unit maps it to, `base_rows_gradient` is how steep the cross-entropy
        of base rows was where their training ended, `sessions_at_means` counts sessions whose rows
        stay class means; all four only where there is something to tell.
        """
        notes = space_notes(self.params.space, self.context)
        notes |= self.repairs.notes() if self.params.keeps_covariances else {}
        if self._untrained and self.unit.shape.learnable:
            notes["unit_trained"] = REASONS[self._untrained]
        if self._outside:
            notes["classes_outside_spread"] = len(self._outside)
        if self._gradient:
            notes[UNCONVERGED] = float(f"{self._gradient:.2g}")
        if self._sessions_at_means:
            notes["sessions_at_means"] = self._sessions_at_means
        if self.params.loss == "emd" and self.params.directions == "full":
            notes[STOPPED] = self._stopped
        if self.params.new_means == "posterior":
            notes["prior_shrinkage"] = float(f"{self.prior.shrinkage:.2g}")
        return notes

    @property
    def _uneven(self) -> bool:
        """Whether rows that were trained stand beside new ones that begin at class means."""
        return self.params.base_rows == "trained" and self.params.keeps_prototypes

    @property
    def _known(self) -> torch.Tensor:
        """The means (C, D) of the classes seen."""
        return self.prototypes if self.params.keeps_prototypes else self.classifier

    @torch.no_grad()
    def _new_means(
        self, features: torch.Tensor, labels: torch.Tensor, session: Session
    ) -> torch.Tensor:
        """Return the means (way, D) of a session's classes, calibrated as the parameters say."""
        p, means = self.params, class_means(features, labels, session.class_ids).float()
        if p.new_means == "sample":
            return means
        if p.new_means == "borrowed":
            base = self._known[: self._base_classes]
            return borrowed_means(means, base, p.borrowed_share, p.borrowed_neighbours)
        numbers = len(self.classifier) + torch.arange(session.way, device=means.device)
        factors = dense(self._class_factors(self._known)(means, numbers)).double()
        counts, own = class_counts(labels, session.class_ids), factors.mT @ factors
        return posterior_means(self.prior, means, own, counts, p.prior_weight).float()

    @torch.no_grad()
    def _closed_form(self, means: torch.Tensor, first: int) -> GaussianClassifier:
        """Return the classifier of classes of these means, which have the numbers from `first`."""
        p = self.params
        if p.covariance == "shared":
            return GaussianClassifier.shared(means, self.covariances.root(), p.shrinkage)
        factors = self._class_factors(self.classifier)
        numbers = first + torch.arange(len(means), device=means.device)
        return GaussianClassifier.separate(means, factors, numbers, p.shrinkage)

    def _sampler(
        self, means: torch.Tensor, counts: torch.Tensor, first: int, known: torch.Tensor
    ) -> GaussianSampler:
        """Return the distributions of classes of these means, which have the numbers from `first`.

        `counts` say how many samples each mean was taken of; `known` are the means of the classes
        seen.
        """
        numbers = first + torch.arange(len(means), device=means.device)
        factors = self._noise_factors(self._class_factors(known))
        rank = self.params.noise_rank(means.shape[1])
        kept = counts if self.params.keeps_counts else None
        return GaussianSampler(self.unit, means, factors, numbers, rank, kept)

    def _class_factors(self, known: torch.Tensor) -> ClassFactors:
        """Return what gives a class its factor; Σ's where what the unit maps it to is far off."""
        factors = self.covariances.factors(self.unit, known)
        if not self.unit.shape.mapped:
            return factors

        def bounded(means: torch.Tensor, numbers: torch.Tensor) -> Factors:
            mapped, root = factors(means, numbers), self.covariances.root()
            share = variances(mapped).sum(dim=1) / root.square().sum()
            outside = ~((share > 1 / SPREAD_LIMIT) & (share < SPREAD_LIMIT))
            self._outside |= set(numbers[outside].tolist())
            if isinstance(mapped, ColumnFactors):
                return mapped.shared_where(outside)
            return torch.where(outside[:, None, None], root, mapped)

        return bounded

    def _noise_factors(self, factors: ClassFactors) -> ClassFactors:
        """Return what gives a class the factor that its noise is multiplied by."""
        if self.params.sampler != "released":
            return factors
        return lambda means, numbers: released_factors(factors(means, numbers))

    def _new_covariances(self, repairs: Repairs) -> Covariances:
        if self.params.covariance == "empirical":
            return BorrowedCovariances(self.params.nearest, repairs)
        return SharedCovariance(self.params.update, repairs)

    def _new_unit(self) -> CalibrationUnit:
        initial = self.context.base_random.torch("unit", "initialisation")
        return CalibrationUnit(self.params.unit_shape(), initial).to(self.context.device)

    def _labelled(self, samples: LabelledSamples) -> tuple[torch.Tensor, torch.Tensor]:
        """Return samples' features (n, D) in the method's space, and their labels (n,)."""
        return self._embed(samples), samples.labels.to(self.context.device)

    def _logits(self, queries: Queries, rows: torch.Tensor) -> torch.Tensor:
        return cosine_logits(self._embed(queries), rows, self.params.temperature)

    @property
    def _space(self) -> Literal["tukey", "raw"]:
        return settled_space(self.params.space, self.context)

    def _embed(self, samples: LabelledSamples | Queries) -> torch.Tensor:
        return in_space(samples, self._space, self.params.tukey_beta, self.context.device)

    def _statistics_source(self, base: Session) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features (n, D) and labels (n,) that Σ⁽⁰⁾ and the unit are learnt from."""
        held = base.heldout if self.params.statistics == "heldout" else None
        return self._labelled(base if held is None else held)

    def _unit_loss(self, unit: CalibrationUnit, classes: BaseClasses) -> float:
        return mean_loss(unit, self.params, classes, self._generator_base("check"))

    def _generator_base(self, purpose: str) -> torch.Generator:
        seed = self.context.base_random.seed("unit", purpose)
        return torch.Generator(self.context.device).manual_seed(seed)

    def _generator(self, *purpose: str | int) -> torch.Generator:
        seed = self.context.random.seed(*purpose)
        return torch.Generator(self.context.device).manual_seed(seed)
