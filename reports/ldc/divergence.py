"""How far generated features lie from real ones: sliced KL between one-dimensional Gaussians."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from fscil_bench.errors import StoreError
from fscil_bench.store.runs import StoredRun

from .shelf import Shelf
from .variants import Variant

GROUPS = ("base", "new")
FEWEST = 4
"""Real or generated features of a class that can be halved into two sets with a variance each."""
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


def class_divergences(generated: Iterable[np.ndarray], real: np.ndarray) -> list[float]:
    """Return the KL of each step's generated features (n, D) to real ones (m, D), then the floor.

    In nats, as `halves_kl` has them.
    """
    directions = unit_directions(real.shape[1])
    found = [halves_kl(drawn, real, directions) for drawn in generated]
    return [*(kl for kl, _ in found), found[0][1]]


def run_divergences(shelf: Shelf, run: StoredRun, steps: Sequence[int]) -> pd.DataFrame:
    """Return how far what a run generated after its last session lies from its test images.

    Columns `step_{r}` and `floor`, by global class id, in nats; base classes come first. A class
    with fewer than 4 test images is left out, and without the run's arrays or its images' features
    every class is; the shelf's problems say why.
    """
    prefix = f"session{run.spec.protocol.sessions}"
    names = [f"{prefix}/generated_step{step}" for step in steps]
    columns = [*(f"step_{step}" for step in steps), "floor"]
    empty = pd.DataFrame(columns=columns, dtype=float)
    arrays = shelf.artifacts(run, f"{prefix}/feature_power", *names)
    if shelf.results.evaluation is None or len(arrays) < len(names) + 1:
        return empty
    try:
        features = shelf.results.evaluation.features(run)
    except StoreError as error:
        if str(error) not in shelf.problems:
            shelf.problems.append(str(error))
        return empty
    power = float(arrays[f"{prefix}/feature_power"])
    found = {}
    for class_id in range(len(arrays[names[0]])):
        real = features.test[features.test_labels == class_id].astype(np.float64) ** power
        if len(real) >= FEWEST:
            drawn = [arrays[name][class_id] for name in names]
            found[class_id] = class_divergences(drawn, real)
    return pd.DataFrame.from_dict(found, orient="index", columns=columns, dtype=float)


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
        step = int(run.spec.params.get("recurrent_steps", 0))
        values = run_divergences(shelf, run, [step])[f"step_{step}"]
        found[seed] = by_group(values, run.spec.protocol.base_classes).mean()
    return pd.DataFrame.from_dict(found, orient="index", columns=list(GROUPS), dtype=float)


def _projected(samples: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return samples (n, D) on the axes and the directions, float64 (n, D + k)."""
    samples = samples.astype(np.float64)
    return np.concatenate([samples, samples @ directions], axis=1)
