"""A heat map of numbers written into their cells."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = (0.72, 0.34)
"""Inches: width and height of a cell."""
WRAPPED = 30
"""Characters after which a name goes on in another line."""
COLOURS = "cividis"
"""Rises evenly in lightness, alike for all eyes and in a grayscale print."""


def heat_map(values: pd.DataFrame, texts: pd.DataFrame, title: str) -> Figure:
    """Return a heat map.

    A cell without a value is left white, with a dash. Numbers far below the rest share the lowest
    colour, which the colour bar's pointed end says.

    Args:
        values: of the cells, NaN where there is none; index and columns are the names.
        texts: what is written into the cells, of the same shape.
        title: stands beside the colour bar.
    """
    import seaborn

    rows, columns = ([textwrap.fill(str(name), WRAPPED) for name in each] for each in values.axes)
    # Names of columns rise at 30 degrees, and reach beyond the last column.
    margin, reach = _inches(rows) + 0.3, _inches(columns)
    width = CELL[0] * values.shape[1] + margin + max(0.0, 0.87 * reach - CELL[0])
    height = CELL[1] * len(values) + 0.8 + 0.5 * reach
    figure = new_figure(height, max(width, 2.4))
    axes = figure.add_subplot()
    numbers = values.to_numpy(float)
    known = numbers[~np.isnan(numbers)]
    lowest = lowest_shown(known)
    cut = "min" if known.min() < lowest else "neither"
    seaborn.heatmap(
        values.astype(float),
        annot=texts,
        fmt="",
        annot_kws={"fontsize": 6},
        cmap=COLOURS,
        vmin=lowest,
        vmax=float(known.max()),
        cbar_kws={"label": title, "shrink": 0.9, "pad": 0.02, "extend": cut},
        ax=axes,
    )
    for y, x in np.argwhere(np.isnan(numbers)):
        axes.text(x + 0.5, y + 0.5, "–", ha="center", va="center", fontsize=6)
    axes.set(xlabel="", ylabel="")
    axes.set_xticks(np.arange(values.shape[1]) + 0.5, columns)
    axes.set_yticks(np.arange(len(values)) + 0.5, rows)
    axes.tick_params(length=0, bottom=False, labeltop=True, labelbottom=False)
    axes.tick_params(axis="y", labelrotation=0)
    axes.grid(visible=False)
    for label in axes.get_xticklabels():
        label.set(rotation=30, ha="left", rotation_mode="anchor")
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    return figure


def _inches(names: list[str]) -> float:
    """Return about how long the longest line of some names is drawn."""
    return 0.065 * max(len(line) for name in names for line in name.splitlines() or [""])


def lowest_shown(numbers: np.ndarray) -> float:
    """Return the least of the numbers that is not an outlier: Tukey's lower fence, Q1 − 1.5 IQR.

    One method that forgets everything would otherwise leave a single colour to all others.
    """
    first, third = np.quantile(numbers, (0.25, 0.75))
    return float(numbers[numbers >= first - 1.5 * (third - first)].min())
