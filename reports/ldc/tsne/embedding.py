"""Features of some classes in the plane: what is embedded, and where t-SNE puts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..features import ClassFeatures


@dataclass(frozen=True)
class Embedding:
    """All points of one joint embedding, and how it was made.

    Attributes:
        points: a row a point: `class_id`, `kind` (real or generated), `step` (of generated ones),
            `is_mean` (1 for the mean of all samples of its kind, class and step), `x`, `y`.
        perplexity: as it was fitted to the number of samples.
        asked: the perplexity that was asked for.
        constant: dimensions left out because every sample has the same value there.
    """

    points: pd.DataFrame
    perplexity: float
    asked: float
    constant: int

    @property
    def lowered(self) -> bool:
        """Whether the perplexity asked for did not fit."""
        return self.perplexity < self.asked


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

    sets = [part for own in classes for part in _sets(own, images)]
    joint = np.concatenate([samples for _, samples in sets])
    varying = joint.max(axis=0) > joint.min(axis=0)
    fitted = fitted_perplexity(perplexity, len(joint))
    places = np.zeros((len(joint), 2))
    # Without any difference there is nothing to embed: all samples lie in one place.
    if varying.any():
        start = "pca" if varying.sum() > 1 else "random"
        tsne = TSNE(perplexity=fitted, init=start, random_state=seed, n_jobs=1)
        places = tsne.fit_transform(joint[:, varying]).astype(np.float64)
    named = [names for names, samples in sets for _ in range(len(samples))]
    points = pd.DataFrame(named, columns=["class_id", "kind", "step", "is_mean"])
    points = points.astype({"step": "Int64"}).assign(x=places[:, 0], y=places[:, 1])
    return Embedding(points, fitted, perplexity, int((~varying).sum()))


def _sets(own: ClassFeatures, images: int) -> list[tuple[tuple[object, ...], np.ndarray]]:
    """Return what is embedded of a class, and what names it in `Embedding.points`."""
    sets: list[tuple[tuple[object, ...], np.ndarray]] = []
    count = len(own.generated)
    for step, samples in [(None, own.real), *enumerate(own.generated)]:
        names = own.class_id, "real" if step is None else "generated", step
        # Every n-th of a step, so that no two steps share a sample.
        drawn = samples if step is None else samples[step::count]
        sets.append(((*names, 0), drawn[:images]))
        sets.append(((*names, 1), samples.mean(axis=0, keepdims=True)))
    return sets
