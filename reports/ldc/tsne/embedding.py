"""Features of some classes in the plane: what is embedded, and where t-SNE puts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ._divergence import halves_kl, unit_directions

FEWEST = 4
"""Real or generated features of a class that can be halved into two sets with a variance each."""


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


@dataclass(frozen=True)
class Points:
    """Samples of one kind of one class, in the plane.

    Attributes:
        class_id: the class.
        step: None for real features, else the recurrent step of generated ones.
        mean: whether it is their mean alone.
        places: (n, 2).
    """

    class_id: int
    step: int | None
    mean: bool
    places: np.ndarray


@dataclass(frozen=True)
class Embedding:
    """All points of one joint embedding, and how it was made.

    Attributes:
        points: of every class, step and mean.
        perplexity: as it was fitted to the number of samples.
        asked: the perplexity that was asked for.
        samples: how many points were embedded.
        constant: dimensions left out because every sample has the same value there.
    """

    points: tuple[Points, ...]
    perplexity: float
    asked: float
    samples: int
    constant: int

    @property
    def lowered(self) -> bool:
        """Whether the perplexity asked for did not fit."""
        return self.perplexity < self.asked


def finite_class(class_id: int, real: np.ndarray, generated: Iterable[np.ndarray]) -> ClassFeatures:
    """Return a class's features without the samples that are not finite."""
    sets = [np.asarray(each, dtype=np.float64) for each in (real, *generated)]
    kept = [each[np.isfinite(each).all(axis=1)] for each in sets]
    skipped = sum(map(len, sets)) - sum(map(len, kept))
    return ClassFeatures(class_id, kept[0], tuple(kept[1:]), skipped)


def class_divergences(features: ClassFeatures) -> tuple[tuple[float, ...], float]:
    """Return KL(generated‖real) in nats after each step, and the floor of real against real."""
    directions = unit_directions(features.real.shape[1])
    found = [halves_kl(drawn, features.real, directions) for drawn in features.generated]
    return tuple(kl for kl, _ in found), found[0][1]


def fitted_perplexity(wanted: float, samples: int) -> float:
    """Return the perplexity, lowered to a third of the other samples where it does not fit.

    Three times the perplexity is the number of neighbours that t-SNE looks at.
    """
    return max(1.0, min(wanted, (samples - 1) / 3))


def embedded(
    classes: Sequence[ClassFeatures], images: int, perplexity: float, seed: int
) -> Embedding:
    """Return one joint t-SNE (van der Maaten and Hinton, 2008) of all classes and steps.

    The means are embedded with the samples, as points of their own. Of each step other samples are
    embedded: one sample after several steps is several points so close together that they would be
    one another's neighbours, and t-SNE would keep them apart from everything else.

    Args:
        classes: of one or more classes, each of them usable.
        images: real features of a class at most, and generated ones of a step.
        perplexity: lowered where there are too few samples for it.
        seed: of t-SNE.
    """
    from sklearn.manifold import TSNE

    sets: dict[tuple[int, int | None, bool], np.ndarray] = {}
    for own in classes:
        for step, samples in _by_step(own).items():
            sets[own.class_id, step, False] = _drawn(samples, step, len(own.generated))[:images]
            sets[own.class_id, step, True] = samples.mean(axis=0, keepdims=True)
    joint = np.concatenate(list(sets.values()))
    varying = joint.max(axis=0) > joint.min(axis=0)
    fitted = fitted_perplexity(perplexity, len(joint))
    places = np.zeros((len(joint), 2))
    # Without any difference there is nothing to embed: all samples lie in one place.
    if varying.any():
        start = "pca" if varying.sum() > 1 else "random"
        tsne = TSNE(perplexity=fitted, init=start, random_state=seed, n_jobs=1)
        places = tsne.fit_transform(joint[:, varying]).astype(np.float64)
    ends = np.cumsum([len(each) for each in sets.values()])[:-1]
    points = [
        Points(class_id, step, mean, own)
        for (class_id, step, mean), own in zip(sets, np.split(places, ends), strict=True)
    ]
    return Embedding(tuple(points), fitted, perplexity, len(joint), int((~varying).sum()))


def _drawn(samples: np.ndarray, step: int | None, steps: int) -> np.ndarray:
    """Return the samples that stand for a step: every n-th, so that no two steps share one."""
    return samples if step is None else samples[step::steps]


def _by_step(features: ClassFeatures) -> Mapping[int | None, np.ndarray]:
    return {None: features.real, **dict(enumerate(features.generated))}
