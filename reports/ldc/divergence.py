"""How far generated features lie from real ones, class by class: sliced KL between Gaussians."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fscil_bench.errors import FscilError
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.store.runs import StoredRun

from .shelf import Shelf
from .variants import Variant

FEWEST = 4
"""Real or generated features of a class that can be halved into two sets with a variance each."""
GROUPS = ("base", "new")
KL = (
    "KL(generated‖real) in nats between one-dimensional Gaussians, averaged over the axes and as "
    "many random directions. Sets of half the test images of a class are compared, and the floor "
    "is one half of the real ones against the other, so that both are too large by about as much."
)
"""What tables say of it."""
RIDGE = 1e-2
"""Added to every variance, as a fraction of the real features' mean variance."""
TINY = 1e-12
"""Added to every variance, so that features without spread have finite divergences."""


@dataclass(frozen=True)
class ClassFeatures:
    """Real and generated features of one class, in one space.

    Attributes:
        class_id: its global id.
        real: float64 (n, D), of test images.
        generated: float64 (m, D) of each recurrent step, step 0 before the first.
        skipped: how many samples were left out because a value was NaN or infinite.
    """

    class_id: int
    real: np.ndarray
    generated: tuple[np.ndarray, ...]
    skipped: int = 0

    @property
    def usable(self) -> bool:
        """Whether every set is large enough to be compared."""
        return min(map(len, (self.real, *self.generated))) >= FEWEST


def finite_class(class_id: int, real: np.ndarray, generated: Iterable[np.ndarray]) -> ClassFeatures:
    """Return a class's features without the samples that are not finite."""
    sets = [np.asarray(each, dtype=np.float64) for each in (real, *generated)]
    kept = [each[np.isfinite(each).all(axis=1)] for each in sets]
    skipped = sum(map(len, sets)) - sum(map(len, kept))
    return ClassFeatures(class_id, kept[0], tuple(kept[1:]), skipped)


def class_features(
    run: StoredRun, session: int, evaluation: Evaluation | None
) -> tuple[list[ClassFeatures], float]:
    """Return all classes seen after a session, by id, in the space in which the run generated.

    Beside them the power that takes real features there.

    Raises:
        FscilError: its arrays or its images' features are not there.
    """
    prefix = f"session{session}"
    count = run.spec.params["recurrent_steps"] + 1
    names = [f"{prefix}/generated_step{step}" for step in range(count)]
    arrays = run.artifacts(f"{prefix}/feature_power", *names)
    if len(arrays) < count + 1:
        raise FscilError(
            f"run {run.key} generated no features in session {session} (with sampler=none there "
            "are none to show): choose other parameters or another session"
        )
    if evaluation is None:
        raise FscilError("there are no caches to read the images' features from: name --cache")
    features, power = evaluation.features(run), float(arrays[f"{prefix}/feature_power"])
    classes = []
    for class_id, generated in enumerate(zip(*(arrays[name] for name in names), strict=True)):
        real = features.test[features.test_labels == class_id].astype(np.float64) ** power
        classes.append(finite_class(class_id, real, generated))
    return classes, power


def unit_directions(dim: int, seed: int = 0) -> np.ndarray:
    """Return `dim` random unit vectors, uniform on the sphere, as the columns of (dim, dim).

    They are the same whenever they are asked for, so that two figures compare.
    """
    vectors = np.random.default_rng(seed).standard_normal((dim, dim))
    directions: np.ndarray = vectors / np.linalg.norm(vectors, axis=0)
    return directions


def sliced_kl(generated: np.ndarray, real: np.ndarray, directions: np.ndarray) -> float:
    """Return KL(generated‖real) in nats, averaged over axes and directions.

    On each coordinate axis and each direction both sets of samples are taken for Gaussians with
    their mean and variance, and KL = ½·(log(v₂/v₁) + (v₁ + (m₁−m₂)²)/v₂ − 1), the closed form.
    Between full covariances it would be mostly noise for a few dozen images in many dimensions.

    Args:
        generated: samples (n, D), n >= 2.
        real: features (m, D), m >= 2.
        directions: unit vectors (D, k).
    """
    sets = (samples.astype(np.float64) for samples in (generated, real))
    a, b = (np.concatenate([samples, samples @ directions], axis=1) for samples in sets)
    v1, v2 = a.var(axis=0, ddof=1), b.var(axis=0, ddof=1)
    ridge = RIDGE * v2.mean() + TINY
    v1, v2 = v1 + ridge, v2 + ridge
    shift = np.square(a.mean(axis=0) - b.mean(axis=0))
    return float(np.mean(0.5 * (np.log(v2 / v1) + (v1 + shift) / v2 - 1)))


def halves_kl(
    generated: np.ndarray, real: np.ndarray, directions: np.ndarray, seed: int = 0
) -> tuple[float, float]:
    """Return the KL of generated features to real ones, and the floor: real ones to real ones.

    An estimate from few samples is too large, the more so the fewer they are. So that the two
    compare, both are taken between sets of one size: the real features are halved at random, the
    floor is the KL of one half to the other, and each half is compared with as many generated
    samples; both ways round, averaged.

    Args:
        generated: samples (n, D), n >= 4.
        real: features (m, D), m >= 4.
        directions: unit vectors (D, k).
        seed: decides the halves.
    """
    size = min(len(generated), len(real)) // 2
    order = np.random.default_rng(seed).permutation(len(real))
    one, two = real[order[:size]], real[order[size : 2 * size]]
    pairs = ((generated[:size], one), (generated[size : 2 * size], two))
    apart = np.mean([sliced_kl(drawn, half, directions) for drawn, half in pairs])
    floor = (sliced_kl(one, two, directions) + sliced_kl(two, one, directions)) / 2
    return float(apart), float(floor)


def class_divergences(classes: Iterable[ClassFeatures]) -> pd.DataFrame:
    """Return the KL of each step's generated features to real ones, and the floor, in nats.

    Columns `step_{r}` and `floor`, as `halves_kl` has them, by class id; a class with too few
    features is left out.
    """
    found = {}
    for own in (each for each in classes if each.usable):
        directions = unit_directions(own.real.shape[1])
        pairs = [halves_kl(drawn, own.real, directions) for drawn in own.generated]
        steps = {f"step_{step}": apart for step, (apart, _) in enumerate(pairs)}
        found[own.class_id] = {**steps, "floor": pairs[0][1]}
    return pd.DataFrame.from_dict(found, orient="index")


def run_divergences(shelf: Shelf, run: StoredRun) -> pd.DataFrame:
    """Return the same of what a run generated after its last session.

    Without the run's arrays or its images' features no class is left; the shelf's problems say why.
    """
    session = run.spec.protocol.sessions
    try:
        return class_divergences(class_features(run, session, shelf.results.evaluation)[0])
    except FscilError as error:
        if str(error) not in shelf.problems:
            shelf.problems.append(str(error))
        return pd.DataFrame()


def by_group(values: pd.Series, base_classes: int) -> pd.DataFrame:
    """Return values by class id in two columns, `base` and `new`, each NaN for the other's."""
    new = values.index >= base_classes
    return pd.DataFrame({"base": values.where(~new), "new": values.where(new)})


def group_kl(shelf: Shelf, variant: Variant) -> pd.DataFrame:
    """Return the mean KL of base and new classes after the last recurrent step, by seed.

    Columns `base` and `new`, NaN where no class could be measured.
    """
    found = {}
    for seed, run in shelf.stored(variant).items():
        own = run_divergences(shelf, run)
        if len(own):
            last = own[f"step_{run.spec.params['recurrent_steps']}"]
            found[seed] = by_group(last, run.spec.protocol.base_classes).mean()
    return pd.DataFrame.from_dict(found, orient="index", columns=list(GROUPS), dtype=float)
