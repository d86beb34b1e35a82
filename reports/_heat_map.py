"""A heat map of numbers written into their cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ._figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = (0.72, 0.34)
"""Inches: width and height of a cell."""
COLOURS = "cividis"
"""Rises evenly in lightness, alike for all eyes and in a grayscale print."""
DARK = 0.46
"""Below this luma white text contrasts more than black (WCAG: relative luminance 0.18)."""


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], tuple[float, str]],
    title: str,
) -> Figure:
    """Return a heat map; `cells` are numbers with the texts written there, by (row, column).

    A cell that is not given is left white, with a dash. Numbers far below the rest share the
    lowest colour, which the colour bar's pointed end says.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    margin = 0.065 * max(map(len, rows)) + 0.3
    width, height = (CELL[0] * len(columns) + margin, CELL[1] * len(rows) + 1.0)
    figure = new_figure(height, max(width, 2.4))
    axes = figure.add_subplot()
    numbers = [value for value, _ in cells.values()]
    lowest = lowest_shown(numbers)
    scale = Normalize(lowest, max(numbers), clip=True)
    grid = [[cells.get((row, column), (math.nan, "–"))[0] for column in columns] for row in rows]
    image = axes.imshow(grid, cmap=COLOURS, norm=scale, aspect="auto")
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            value, text = cells.get((row, column), (math.nan, "–"))
            color = _text_colour(colormaps[COLOURS](scale(value)), math.isnan(value))
            axes.text(x, y, text, ha="center", va="center", fontsize=6, color=color)
    axes.set_xticks(range(len(columns)), columns, rotation=30, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_parse_math(False)
    cut = "min" if min(numbers) < lowest else "neither"
    figure.colorbar(image, ax=axes, label=title, shrink=0.9, pad=0.02, extend=cut)
    return figure


def lowest_shown(numbers: Sequence[float]) -> float:
    """Return the least of the numbers that is not an outlier: Tukey's lower fence, Q1 − 1.5 IQR.

    One method that forgets everything would otherwise leave a single colour to all others.
    """
    import numpy as np

    first, third = np.quantile(numbers, (0.25, 0.75))
    return min(number for number in numbers if number >= first - 1.5 * (third - first))


def _text_colour(background: tuple[float, ...], empty: bool) -> str:
    """Return black or white, whichever is read better on a colour (Rec. 709 luminance)."""
    red, green, blue = background[:3]
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "black" if empty or light > DARK else "white"
