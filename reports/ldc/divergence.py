"""How far generated features lie from real ones: sliced KL between one-dimensional Gaussians."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from fscil_bench.errors import FscilError
from fscil_bench.store.runs import StoredRun

from .features import ClassFeatures, class_features
from .shelf import Shelf
from .variants import Variant

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
    a, b = (_projected(samples, directions) for samples in (generated, real))
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


def _projected(samples: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return samples (n, D) on the axes and the directions, float64 (n, D + k)."""
    samples = samples.astype(np.float64)
    return np.concatenate([samples, samples @ directions], axis=1)
