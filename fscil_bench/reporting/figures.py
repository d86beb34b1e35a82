"""The look of figures, and accuracy as curves over classes seen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

# Loading Matplotlib takes a third of a second, and every command loads every report.
if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH = 3.3
"""Inches: one column of a two-column paper."""

PAGE_WIDTH = 2 * COLUMN_WIDTH + 0.25
"""Inches: both columns and the gap between them."""

MARGIN = 1.0
"""Inches beside the axes for names of lines."""

STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "lines.markeredgewidth": 0.9,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
}
"""Readable at the printed size; text in the PDF stays text."""

# Nine markers and four dashes share no factor: a grayscale print tells 36 lines apart.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES = ("-", "--", "-.", ":")
SHARE = 1 / 6
"""Of an axis: values that together take less are told apart only if others leave it."""
_LEGEND_CHARACTERS = 48
_TICKS = 11
_GREY = "0.7"
_NAMES = 22
"""How many names fit above one another beside the axes."""
_LEADER: dict[str, Any] = {
    "arrowstyle": "-",
    "color": _GREY,
    "linewidth": 0.3,
    "shrinkB": 1,
    "relpos": (0, 0.5),
}
"""The line from a name's left end to the point that it names."""


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw and save inside this, so that a user's own matplotlib settings change nothing."""
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield


def new_figure(height: float, width: float = COLUMN_WIDTH) -> Figure:
    """Return a figure of a size in inches that belongs to no window and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def look(index: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the line with that number; no two of 36 are alike."""
    import seaborn

    palette = seaborn.color_palette("colorblind")
    return {
        "color": palette[index % len(palette)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
        "markerfacecolor": "white",
    }


def add_legend(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int
) -> None:
    """Put a legend below all axes, whatever the labels are made of."""
    # Matplotlib drops labels that begin with _ and reads $ as mathematics; names are set as text.
    legend = figure.legend(
        list(handles),
        [str(index) for index in range(len(labels))],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=3,
        labelspacing=0.3,
        columnspacing=1.2,
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_parse_math(False)
        text.set_text(label)


def curves(
    numbers: pd.DataFrame,
    x_label: str = "Number of classes seen",
    y_label: str = "Accuracy (%)",
    behind: pd.DataFrame | None = None,
    x: str = "classes_seen",
) -> Figure:
    """Return curves with interval bands, and a legend below, in the order given.

    Args:
        numbers: a row a point: `label`, `x`, `mean`, and the band's `low` and `high` (or NaN).
        x_label: what stands below the axes.
        y_label: what stands beside them.
        behind: the same of thin grey lines with their names beside their last points.
        x: the column of positions.
    """
    behind = numbers.iloc[:0] if behind is None else behind
    names = list(numbers["label"].unique())
    labels = [textwrap.fill(name, _LEGEND_CHARACTERS) for name in names]
    longest = max(map(len, labels), default=0)
    columns = 2 if len(labels) > 3 and longest <= _LEGEND_CHARACTERS // 2 else 1
    lines = sum(label.count("\n") + 1 for label in labels)
    height, width = 2.2 + 0.14 * math.ceil(lines / columns), COLUMN_WIDTH
    if len(behind):
        height, width = height + 0.6, width + MARGIN
    figure = new_figure(height, width)
    axes = figure.add_subplot()
    handles = []
    for index, name in enumerate(names):
        style, points = look(index), numbers[numbers["label"] == name]
        handles += axes.plot(points[x], points["mean"], **style)
        band = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(points[x], points["low"], points["high"], **band)
    positions = sorted({*numbers[x], *behind[x]})
    axes.set_xticks(positions[:: math.ceil(len(positions) / _TICKS)])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    _draw_behind(axes, behind, x)
    add_legend(figure, handles, labels, columns)
    return figure


def outlying(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return a mask of the values without which an axis shows the others apart.

    The others are the most neighbouring ones, more than half of all, that take less than `SHARE`
    of the axis from the smallest to the largest value. None is outlying where no others are so
    close, or where these are all alike. NaN is not outlying.
    """
    data = np.asarray(values, dtype=float)
    known = np.sort(data[np.isfinite(data)])
    for size in range(len(known) - 1, len(known) // 2, -1):
        ranges = known[size - 1 :] - known[: len(known) - size + 1]
        first = int(ranges.argmin())
        if 0 < ranges[first] < SHARE * (known[-1] - known[0]):
            mask: np.ndarray = (data < known[first]) | (data > known[first + size - 1])
            return mask
    return np.zeros(data.shape, dtype=bool)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Return positions at least `gap` apart that stay as near to `values` as they can.

    In the order of `values`, which need not be sorted; nearness is the sum of squares. Without the
    gaps, what is left must not fall: an isotonic regression.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(values, kind="stable")
    gaps = gap * np.arange(len(values))
    placed = np.empty(len(values))
    placed[order] = isotonic_regression(np.asarray(values, dtype=float)[order] - gaps).x + gaps
    return [float(place) for place in placed]


def _draw_behind(axes: Axes, numbers: pd.DataFrame, x: str) -> None:
    ends = numbers.drop_duplicates("label", keep="last")
    for index, name in enumerate(ends["label"]):
        points = numbers[numbers["label"] == name]
        dash = DASHES[index % len(DASHES)]
        axes.plot(points[x], points["mean"], color=_GREY, linewidth=0.6, linestyle=dash, zorder=1)
    if ends.empty:
        return
    low, high = axes.get_ylim()
    places = spread(list(ends["mean"]), (high - low) / _NAMES)
    for (_, end), place in zip(ends.iterrows(), places, strict=True):
        axes.annotate(
            end["label"],
            (end[x], end["mean"]),
            xytext=(1.03, place),
            textcoords=axes.get_yaxis_transform(),
            fontsize=5.5,
            color="0.35",
            verticalalignment="center",
            parse_math=False,
            annotation_clip=False,
            arrowprops=_LEADER,
        )
