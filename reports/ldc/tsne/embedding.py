"""Features of some classes in the plane: what is embedded, where t-SNE puts it, and the figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import MARKERS, PAGE_WIDTH, add_legend, new_figure

from ..divergence import ClassFeatures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_HUES = (0, 1, 2, 3, 4, 9, 5, 7)
"""Of seaborn's colour-blind-safe palette, those that are dark enough on white."""
_COLUMNS = 2
_PANEL = 3.0
_MEAN, _SAMPLE = 60.0, 13.0
"""Sizes of markers, in points²."""


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


def embedding_figure(
    points: pd.DataFrame, names: Mapping[int, str], titles: Sequence[str]
) -> Figure:
    """Return a panel for each step, all of one embedding.

    Args:
        points: of an `Embedding`.
        names: of the classes by id, as the legend shows them.
        titles: of the panels, step 0 first.
    """
    import seaborn

    columns = min(_COLUMNS, len(titles))
    lines = math.ceil(len(titles) / columns)
    legend = 0.16 * (math.ceil(len(names) / 3) + 1) + 0.2
    figure = new_figure(height=_PANEL * lines + legend, width=PAGE_WIDTH * columns / _COLUMNS)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    # Colours and markers both differ, for prints without colour.
    hues = [seaborn.color_palette("colorblind")[hue] for hue in _HUES]
    looks = dict(zip(names, zip(cycle(hues), cycle(MARKERS), strict=False), strict=False))
    for step, (axes, title) in enumerate(zip(panels, titles, strict=False)):
        own = points[points["step"].isna() | (points["step"] == step)]
        # Means last, so that no sample hides them.
        for mean, class_id, kind in product((0, 1), looks, ("real", "generated")):
            part = own.query("is_mean == @mean and class_id == @class_id and kind == @kind")
            color, marker = looks[class_id]
            style = _style(color, kind == "real", bool(mean))
            axes.scatter(part["x"], part["y"], marker=marker, **style)
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.set_title(title, fontsize=8)
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    _add_legend(figure, names, looks)
    return figure


def _style(color: Any, real: bool, mean: bool) -> dict[str, Any]:
    """Return how points look: real ones filled, generated ones outlined, means large."""
    if not real:
        # Large enough to leave the mean of the real ones to be seen.
        size, width = (2.4 * _MEAN, 1.6) if mean else (_SAMPLE, 0.6)
        return {"s": size, "facecolors": "none", "edgecolors": [color], "linewidths": width}
    look = {"s": _MEAN, "edgecolors": ["black"], "linewidths": 1.0, "alpha": 1.0}
    if not mean:
        look = {"s": _SAMPLE, "edgecolors": [color], "linewidths": 0.0, "alpha": 0.55}
    return {"facecolors": [color], **look}


def _add_legend(
    figure: Figure, names: Mapping[int, str], looks: Mapping[int, tuple[Any, str]]
) -> None:
    from matplotlib.lines import Line2D

    shapes = [(color, marker, color, 4.0, 0.6) for color, marker in looks.values()]
    kinds = {
        "real": ("0.4", "o", "0.4", 4.0, 0.0),
        "generated": ("0.4", "o", "none", 4.0, 0.6),
        "mean of real": ("black", "o", "0.4", 8.0, 1.0),
        "mean of generated": ("0.4", "o", "none", 11.0, 1.6),
    }
    handles = [
        Line2D(
            *([], []),
            linestyle="",
            color=color,
            marker=marker,
            markerfacecolor=face,
            markersize=size,
            markeredgewidth=width,
        )
        for color, marker, face, size, width in (*shapes, *kinds.values())
    ]
    labels = [*names.values(), *kinds]
    add_legend(figure, handles, labels, min(4, len(labels)))
