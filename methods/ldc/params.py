"""LDC's parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fscil_bench.errors import UsageError
from fscil_bench.method import Terms

from .._shared.statistics import EIGENVALUE_FLOOR, Space
from .matching import FULL_SAMPLES_PER_DIM, Directions, Loss
from .unit import Mapping, UnitShape

NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class LdcParams:
    """Parameters of LDC; those up to `virtual_classes` shape the calibration unit.

    Attributes:
        space: where everything happens: `tukey` is x^β, for non-negative features; `raw` is x;
            `auto` is `tukey` where base features allow it.
        tukey_beta: β.
        sampler: `gaussian` draws x̃ ~ N(w_i, Σ_i). `none` is the baseline: no unit, no samples,
            no training; rows stay the class means. `released` is the published fragment's noise:
            one normal number a sample, times 1ᵀΣ_i, so that samples lie on a line.
        covariance: `mapped` gives each class its own Σ_i = M(w_i, Σ); `shared` gives all Σ;
            `empirical` keeps every base class's own (4·C0·D² bytes), of which a new class has the
            mean over its nearest base classes, as in Free-Lunch.
        recurrent_steps: R.
        recurrent_inputs: what the recurrent step sees of a dimension: the `sample` x̃ alone, or
            of the class's `shots` as well: their mean w_i, and its standard error from Σ_i and
            their number (kept, 4·C bytes).
        hidden: channels between the two convolutions of M and of f.
        kernel: side of their kernels; feature order carries no meaning, hence 1.
        mapping: `entries` lets M scale every entry of S, D² evaluations a class; `columns` all
            entries of a column beside the diagonal by what M makes of 0, 2·D evaluations; `auto`
            is `columns` from 512 dimensions on (and kernel 1).
        loss: the matching loss L_m.
        directions: `sliced` averages one-dimensional divergences over the D axes and as many
            fresh random directions; `full` compares all dimensions at once and needs
            unit_samples >= 8·D (`emd`: any number, but it is slow).
        slices: with `sliced`, how many axes at most, and random directions; where there are more
            dimensions, each step draws its own.
        statistics: whether Σ⁽⁰⁾ and the unit's targets come from the base training samples or
            from those that the backbone was not trained on.
        unit_steps: optimiser steps of the unit's training.
        unit_lr: their learning rate.
        unit_classes: base classes in a step.
        unit_samples: samples generated for each of them.
        simulated_shots: K of the simulated few-shot means.
        biased_steps: fraction of steps that use simulated few-shot means.
        virtual_classes: fraction of a step's classes that are mixtures of two base classes.
        nearest: base classes that a new class borrows from, with covariance `empirical`.
        update: the session's covariance: `within` is the mean of its classes' own, `pooled` that
            of all its samples together, which includes the spread between classes.
        base_rows: the base classes' classifier rows: their `means`, or `trained` in session 0 on
            all base features, from the means to the optimum of the cross-entropy. Needs sessions
            that train rows.
        new_means: a new class's mean: `sample` is that of its shots, `posterior` the same shrunk
            towards the base classes' mean, where the base classes' means vary little; `borrowed`
            moves it towards the means of the nearest base classes.
        borrowed_share: with `borrowed`, the base classes' share a of the mean.
        borrowed_neighbours: with `borrowed`, how many base classes, k.
        prior_weight: with `posterior`, factor on the shots' variance; the larger, the more of the
            prior.
        means: the samplers' means: `prototype` keeps the class means (another 4·C·D bytes),
            `snapshot` takes the classifier rows as they stand when the session starts.
        classifier: `trained` on calibrated samples, compared by cosine; `bayes` is the classifier
            that is optimal for the calibrated Gaussians, in closed form: linear with covariance
            `shared`, quadratic with the others. It takes no samples and no training, so that what
            follows but `shrinkage` does not apply, and needs recurrent_steps=0.
        shrinkage: with `bayes`, the share s of the mean variance v in (1 − s)·Σ + s·v·I.
        train_rows: whether sessions train all classifier rows or only the new ones.
        epochs: passes of a session; an epoch draws `samples_per_class` fresh samples of every
            class seen and uses each of them once, so it has C·samples_per_class/batch_size steps.
        lr: learning rate of plain gradient descent on unit-length classifier rows.
        batch_size: samples of a step, balanced over classes.
        samples_per_class: samples of a class in an epoch.
        sampled_weight: weight of the cross-entropy on calibrated samples; 0 trains on the shots
            alone.
        few_shot_weight: weight of the cross-entropy on the session's few-shot features.
        temperature: factor on the cosines.
    """

    space: Space = "auto"
    tukey_beta: Annotated[float, Field(gt=0, le=1)] = 0.5
    sampler: Literal["gaussian", "none", "released"] = "gaussian"
    covariance: Literal["mapped", "shared", "empirical"] = "mapped"
    recurrent_steps: NonNegativeInt = 1
    recurrent_inputs: Literal["sample", "shots"] = "sample"
    hidden: PositiveInt = 16
    kernel: Annotated[Literal[1, 3], BeforeValidator(int)] = 1
    mapping: Mapping = "auto"
    loss: Loss = "kl"
    directions: Directions = "sliced"
    slices: PositiveInt = 128
    statistics: Literal["train", "heldout"] = "train"
    unit_steps: NonNegativeInt = 600
    unit_lr: PositiveFloat = 0.01
    unit_classes: PositiveInt = 8
    unit_samples: Annotated[int, Field(ge=2)] = 64
    simulated_shots: PositiveInt = 5
    biased_steps: Fraction = 0.5
    virtual_classes: Fraction = 0.0
    nearest: PositiveInt = 2
    update: Literal["within", "pooled"] = "within"
    base_rows: Literal["means", "trained"] = "trained"
    new_means: Literal["sample", "posterior", "borrowed"] = "sample"
    borrowed_share: Fraction = 0.33
    borrowed_neighbours: PositiveInt = 2
    prior_weight: PositiveFloat = 1.0
    means: Literal["prototype", "snapshot"] = "prototype"
    classifier: Literal["trained", "bayes"] = "trained"
    shrinkage: Annotated[float, Field(ge=EIGENVALUE_FLOOR, le=1)] = 0.1
    train_rows: Literal["all", "new"] = "all"
    epochs: NonNegativeInt = 100
    lr: PositiveFloat = 0.01
    batch_size: PositiveInt = 128
    samples_per_class: PositiveInt = 16
    sampled_weight: Weight = 1.0
    few_shot_weight: Weight = 0.05
    temperature: PositiveFloat = 16.0

    @property
    def keeps_covariances(self) -> bool:
        """Whether anything needs covariances after the base session."""
        return self.sampler != "none" or self.new_means == "posterior"

    @property
    def keeps_prototypes(self) -> bool:
        """Whether class means are kept beside the classifier."""
        sampled = self.sampler != "none"
        trained = sampled or self.base_rows == "trained"
        needed = sampled or self.new_means != "sample"
        return trained and needed and self.means == "prototype" and not self.is_closed

    @property
    def keeps_counts(self) -> bool:
        """Whether the number of samples that each class mean was taken of is kept."""
        shape = self.unit_shape()
        return shape.sees_shots and shape.steps > 0

    @property
    def is_closed(self) -> bool:
        """Whether classes are scored by their Gaussians, without rows that are trained."""
        return self.classifier == "bayes"

    def unit_shape(self) -> UnitShape:
        """Return which parameters the unit has; none where there is no sampler."""
        sampled = self.sampler != "none"
        return UnitShape(
            mapped=sampled and self.covariance == "mapped",
            steps=self.recurrent_steps if sampled else 0,
            hidden=self.hidden,
            kernel=self.kernel,
            sees_shots=self.recurrent_inputs == "shots",
            mapping=self.mapping,
        )

    def noise_rank(self, dim: int) -> int:
        """Return how many normal numbers a sample of `dim` dimensions takes."""
        if self.sampler == "released":
            return 1
        return dim * (self.nearest if self.covariance == "empirical" else 1)

    def check(self, terms: Terms) -> None:
        """Refuse parameters that do not fit one another, or the run's terms.

        Raises:
            UsageError: they do not; the message says which, and what to set instead.
        """
        dim = terms.feature_dim
        needed = FULL_SAMPLES_PER_DIM * dim
        if self.directions == "full" and self.loss != "emd" and self.unit_samples < needed:
            raise UsageError(
                f"ldc: directions=full fits covariances of {dim} dimensions, which takes "
                f"unit_samples >= {needed} (it is {self.unit_samples}); or use sliced"
            )
        if self.mapping == "columns" and self.kernel > 1:
            raise UsageError(
                f"ldc: mapping=columns looks at single entries of the covariance's root, not at "
                f"windows of kernel={self.kernel}; use kernel=1, or mapping=entries"
            )
        if self.virtual_classes > 0 and self.covariance == "empirical":
            raise UsageError(
                "ldc: virtual_classes > 0 mixes classes that have no covariance of their own; use "
                "covariance=mapped or shared, or virtual_classes=0"
            )
        if self.covariance == "empirical" and self.nearest > terms.base_classes:
            raise UsageError(
                f"ldc: nearest={self.nearest}, but there are {terms.base_classes} base classes to "
                f"borrow covariances from; set nearest to at most {terms.base_classes}"
            )
        if self.new_means == "borrowed" and self.borrowed_neighbours > terms.base_classes:
            raise UsageError(
                f"ldc: borrowed_neighbours={self.borrowed_neighbours}, but there are "
                f"{terms.base_classes} base classes to borrow means from; set it to at most "
                f"{terms.base_classes}"
            )
        if self.is_closed:
            self._check_closed_form()
        without = {
            "sampler=none": self.sampler == "none",
            "epochs=0": self.epochs == 0,
            "sampled_weight=0": self.sampled_weight == 0,
        }
        untrained = next((name for name, given in without.items() if given), "")
        if self.base_rows == "trained" and untrained:
            raise UsageError(
                f"ldc: {untrained} trains no base rows in sessions, and class means have higher "
                "cosines than rows that base_rows=trained made, so that all would be taken for new "
                "classes; set base_rows=means"
            )
        if self.statistics == "heldout" and not terms.heldout:
            raise UsageError(
                "ldc: statistics=heldout needs base training images that the backbone was not "
                "trained on; use a recipe with holdout > 0, or statistics=train"
            )

    def _check_closed_form(self) -> None:
        """Refuse what leaves the closed form without Gaussians, or has no part in it."""
        if self.sampler != "gaussian":
            raise UsageError(
                f"ldc: classifier=bayes classifies by Gaussians, and with sampler={self.sampler} "
                "there are none; use sampler=gaussian or classifier=trained"
            )
        if self.recurrent_steps > 0:
            raise UsageError(
                f"ldc: classifier=bayes has no closed form after recurrent_steps="
                f"{self.recurrent_steps}: what they make of Gaussian samples is none; set "
                "recurrent_steps=0, or classifier=trained"
            )
        if self.base_rows == "trained":
            raise UsageError(
                "ldc: classifier=bayes has no rows that base_rows=trained could train; set "
                "base_rows=means, or classifier=trained"
            )


_NAMES = [field.name for field in fields(LdcParams)]
PRETRAINED = (*_NAMES[: _NAMES.index("nearest") + 1], "base_rows", "temperature")
"""The parameters that the unit and trained base rows depend on."""
