"""The look of figures, and accuracy as curves over classes seen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
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
    "font.family": ["DejaVu Sans"],
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
SHRUNK = 2 / 3
"""To which part an axis must shrink for a panel of its own."""
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


def cover_scripts(drawing: Figure) -> dict[str, str]:
    """Give every text of a figure a face that has its characters.

    Returns:
        number -> text, of the texts that no installed face covers: these are numbered instead.
    """
    from matplotlib.text import Text

    numbers: dict[str, str] = {}

    def shown(text: str) -> str:
        if _faces(text) is None:
            return numbers.setdefault(text, f"#{len(numbers) + 1}")
        return text

    for axis in (axis for axes in drawing.axes for axis in (axes.xaxis, axes.yaxis)):
        names = [label.get_text() for label in axis.get_ticklabels()]
        if any(_faces(name) is None for name in names):  # what ticks show is drawn from a list
            axis.set_ticks(axis.get_ticklocs(), [shown(name) for name in names])
    for text in drawing.findobj(lambda artist: isinstance(artist, Text)):
        assert isinstance(text, Text)
        text.set_text(shown(text.get_text()))
        text.set_fontfamily([*STYLE["font.family"], *(_faces(text.get_text()) or ())])
    return {number: name for name, number in numbers.items()}


@cache
def _faces(text: str) -> tuple[str, ...] | None:
    """Return faces beside the style's that a text needs; None where no face has a character."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager

    own = findfont(FontProperties(family=STYLE["font.family"]))
    lacking = {ord(c) for c in text if not c.isspace()} - _characters(own)
    found: list[str] = []
    for entry in fontManager.ttflist if lacking else ():
        # Last Resort has a box for every character.
        usable = entry.style == "normal" and not entry.name.startswith("Last Resort")
        if usable and lacking & _characters(entry.fname):
            found.append(entry.name)
            lacking -= _characters(entry.fname)
    return None if lacking else tuple(found)


@cache
def _characters(file: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(file).get_charmap())
    except (OSError, RuntimeError):  # a font of colour bitmaps, or one that is gone
        return frozenset()


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


def curves(numbers: pd.DataFrame, behind: pd.DataFrame | None = None) -> Figure:
    """Return accuracy over classes seen as curves with interval bands, and a legend below.

    Where `far_curves` has some, a panel above shows the others enlarged. A band that leaves
    0 to 100 % is not drawn.

    Args:
        numbers: a row a point: `label`, `classes_seen`, `mean`, and the band's `low` and `high` (or
            NaN), in %; the legend is in its order.
        behind: the same of thin grey lines with their names beside their last points.
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
    near = numbers[~numbers["label"].isin(far_curves(numbers))]
    panels = 1 + (len(near) < len(numbers))
    figure = new_figure(height + 1.3 * (panels - 1), width)
    stacked = figure.subplots(panels, sharex=True, squeeze=False, height_ratios=[1, 0.7][:panels])
    positions = sorted({*numbers["classes_seen"], *behind["classes_seen"]})
    for (axes,) in stacked:
        handles = _draw_curves(axes, numbers, names)
        _draw_behind(axes, behind)
        axes.set_xticks(positions[:: math.ceil(len(positions) / _TICKS)])
        axes.set_ylabel("Accuracy (%)")
    axes.set_xlabel("Number of classes seen")
    if panels == 2:
        low, high = _range(near)
        stacked[0, 0].set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    unnamed = behind.drop_duplicates("label", keep="last")
    for (axes,) in stacked:
        within = unnamed["mean"].between(*axes.get_ylim())
        _name_ends(axes, unnamed[within], _NAMES // panels)
        unnamed = unnamed[~within]
    add_legend(figure, handles, labels, columns)
    return figure


def far_curves(numbers: pd.DataFrame) -> list[str]:
    """Return the labels of curves that take the others' room on an axis.

    Those whose last points are `outlying`, if without them the axis shrinks to `SHRUNK` or less.
    """
    ends = numbers.drop_duplicates("label", keep="last")
    far: list[str] = ends["label"][outlying(ends["mean"].to_numpy())].tolist()
    near = numbers[~numbers["label"].isin(far)]
    if not far or np.ptp(_range(near)) > SHRUNK * np.ptp(_range(numbers)):
        return []
    return far


def far_sentence(numbers: pd.DataFrame) -> str:
    """Return what a caption says of the panels of `curves`; nothing of a single one."""
    far = far_curves(numbers)
    return f" Above: enlarged, without {', '.join(far)}; below: all." if far else ""


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


def _bands(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return the bounds of the bands that are drawn, NaN elsewhere."""
    bounds = numbers[["low", "high"]]
    return bounds.where((bounds["low"] >= 0) & (bounds["high"] <= 100))


def _range(numbers: pd.DataFrame) -> tuple[float, float]:
    drawn = _bands(numbers).assign(mean=numbers["mean"])
    return drawn.min().min(), drawn.max().max()


def _draw_curves(axes: Axes, numbers: pd.DataFrame, names: Sequence[str]) -> list[Artist]:
    handles: list[Artist] = []
    for index, name in enumerate(names):
        style, points = look(index), numbers[numbers["label"] == name]
        handles += axes.plot(points["classes_seen"], points["mean"], **style)
        bands = _bands(points)
        band = {"color": style["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(points["classes_seen"], bands["low"], bands["high"], **band)
    return handles


def _draw_behind(axes: Axes, numbers: pd.DataFrame) -> None:
    for index, name in enumerate(numbers["label"].unique()):
        points = numbers[numbers["label"] == name]
        dash = DASHES[index % len(DASHES)]
        place = points["classes_seen"], points["mean"]
        axes.plot(*place, color=_GREY, linewidth=0.6, linestyle=dash, zorder=1)


def _name_ends(axes: Axes, ends: pd.DataFrame, room: int) -> None:
    """Write beside the axes, where there is room for so many, the names of lines that end there."""
    low, high = axes.get_ylim()
    places = spread(list(ends["mean"]), (high - low) / room)
    for (_, end), place in zip(ends.iterrows(), places, strict=True):
        axes.annotate(
            end["label"],
            (end["classes_seen"], end["mean"]),
            xytext=(1.03, place),
            textcoords=axes.get_yaxis_transform(),
            fontsize=5.5,
            color="0.35",
            verticalalignment="center",
            parse_math=False,
            annotation_clip=False,
            arrowprops=_LEADER,
        )
