"""The figure of an embedding: one panel a recurrent step, real and generated features in each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from fscil_bench.reporting.figures import MARKERS, PAGE_WIDTH, add_legend, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HUES = (0, 1, 2, 3, 4, 9, 5, 7)
"""Of seaborn's colour-blind-safe palette, those that are dark enough on white."""
_COLUMNS = 2
_PANEL = 3.0
_MEAN, _SAMPLE = 60.0, 13.0
"""Sizes of markers, in points²."""


def embedding_figure(
    points: pd.DataFrame, names: Mapping[int, str], titles: Sequence[str]
) -> Figure:
    """Return a panel for each step, all of one embedding.

    Args:
        points: of an `Embedding`.
        names: of the classes by id, as the legend shows them.
        titles: of the panels, step 0 first.
    """
    columns = min(_COLUMNS, len(titles))
    lines = math.ceil(len(titles) / columns)
    legend = 0.16 * (math.ceil(len(names) / 3) + 1) + 0.2
    figure = new_figure(height=_PANEL * lines + legend, width=PAGE_WIDTH * columns / _COLUMNS)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    looks = _looks(list(names))
    for step, (axes, title) in enumerate(zip(panels, titles, strict=False)):
        _draw(axes, points[points["step"].isna() | (points["step"] == step)], looks)
        axes.set_title(title, fontsize=8)
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    _add_legend(figure, names, looks)
    return figure


def _looks(classes: Sequence[int]) -> dict[int, tuple[Any, str]]:
    """Return colour and marker of each class; both differ, for prints without colour."""
    import seaborn

    palette = seaborn.color_palette("colorblind")
    return {
        class_id: (palette[_HUES[place % len(_HUES)]], MARKERS[place % len(MARKERS)])
        for place, class_id in enumerate(classes)
    }


def _draw(axes: Axes, points: pd.DataFrame, looks: Mapping[int, tuple[Any, str]]) -> None:
    # Means last, so that no sample hides them.
    for mean, class_id, kind in product((0, 1), looks, ("real", "generated")):
        own = points.query("is_mean == @mean and class_id == @class_id and kind == @kind")
        color, marker = looks[class_id]
        axes.scatter(own["x"], own["y"], marker=marker, **_style(color, kind == "real", bool(mean)))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)


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
