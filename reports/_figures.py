"""The look of figures, and how they are saved: as PNG, as PDF, and as the numbers drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.metrics import Interval
from fscil_bench.store.files import replaced_file, write_text

from ._tables import csv_text

# Loading Matplotlib takes a third of a second, and every command loads every report.
if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH = 3.3
"""Inches: one column of a two-column paper."""

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


@dataclass(frozen=True)
class Curve:
    """A line with its points: where each lies, what it is called, its mean and interval.

    `sessions` are those of the points, if they are not 0, 1, 2, …
    """

    label: str
    positions: Sequence[float]
    intervals: Sequence[Interval]
    sessions: tuple[int, ...] = ()


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


def save_figure(
    figure: Figure, folder: Path, stem: str, drawn: Sequence[Mapping[str, str | int | float]]
) -> tuple[Path, ...]:
    """Write `stem`.png, .pdf and .csv, the last with exactly the numbers that are drawn.

    Raises:
        StoreError: the folder cannot be written to.
    """
    # Without the dates the same numbers make the same files.
    metadata: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}}
    paths = []
    for kind, entries in metadata.items():
        path = folder / f"{stem}.{kind}"
        with replaced_file(path) as new:
            figure.savefig(new, format=kind, metadata=entries)
        paths.append(path)
    numbers = folder / f"{stem}.csv"
    write_text(numbers, csv_text(drawn))
    return (*paths, numbers)


def curve_figure(
    curves: Sequence[Curve], x_label: str, y_label: str, behind: Sequence[Curve] = ()
) -> Figure:
    """Return curves with interval bands, and a legend below, in the order given.

    Those `behind` are thin grey lines with their names beside their last points.
    """
    labels = [textwrap.fill(curve.label, _LEGEND_CHARACTERS) for curve in curves]
    columns = 2 if len(labels) > 3 and max(map(len, labels)) <= _LEGEND_CHARACTERS // 2 else 1
    lines = sum(label.count("\n") + 1 for label in labels)
    height, width = 2.2 + 0.14 * math.ceil(lines / columns), COLUMN_WIDTH
    if behind:
        height, width = height + 0.6, width + MARGIN
    figure = new_figure(height, width)
    axes = figure.add_subplot()
    handles = [_draw(axes, curve, index) for index, curve in enumerate(curves)]
    positions = sorted({x for curve in (*curves, *behind) for x in curve.positions})
    axes.set_xticks(positions[:: math.ceil(len(positions) / _TICKS)])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    _draw_behind(axes, behind)
    _add_legend(figure, handles, labels, columns)
    return figure


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Return positions at least `gap` apart that stay as near to `values` as they can.

    In the order of `values`, which need not be sorted; nearness is the sum of squares.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    # Without the gaps, what is left must not fall: pool neighbours that do, at their mean.
    pools: list[list[float]] = []
    for place, index in enumerate(order):
        pools.append([values[index] - place * gap, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            total = pools[-1][1] + count
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * count) / total, total]
    levels = [mean for mean, count in pools for _ in range(int(count))]
    placed = {index: levels[place] + place * gap for place, index in enumerate(order)}
    return [placed[index] for index in range(len(values))]


def _draw_behind(axes: Axes, curves: Sequence[Curve]) -> None:
    if not curves:
        return
    for index, curve in enumerate(curves):
        means = [interval.mean for interval in curve.intervals]
        dash = DASHES[index % len(DASHES)]
        axes.plot(curve.positions, means, color=_GREY, linewidth=0.6, linestyle=dash, zorder=1)
    low, high = axes.get_ylim()
    ends = [curve.intervals[-1].mean for curve in curves]
    for curve, end, place in zip(curves, ends, spread(ends, (high - low) / _NAMES), strict=True):
        axes.annotate(
            curve.label,
            (curve.positions[-1], end),
            xytext=(1.03, place),
            textcoords=axes.get_yaxis_transform(),
            fontsize=5.5,
            color="0.35",
            verticalalignment="center",
            parse_math=False,
            annotation_clip=False,
            arrowprops=_LEADER,
        )


def _draw(axes: Axes, curve: Curve, index: int) -> Artist:
    import seaborn

    palette = seaborn.color_palette("colorblind")
    color = palette[index % len(palette)]
    means = [interval.mean for interval in curve.intervals]
    (line,) = axes.plot(
        curve.positions,
        means,
        color=color,
        marker=MARKERS[index % len(MARKERS)],
        linestyle=DASHES[index % len(DASHES)],
        markerfacecolor="white",
    )
    low = [i.mean - i.half_width for i in curve.intervals]
    high = [i.mean + i.half_width for i in curve.intervals]
    axes.fill_between(curve.positions, low, high, color=color, alpha=0.2, linewidth=0)
    return line


def _add_legend(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], columns: int
) -> None:
    # Matplotlib drops labels that begin with _ and reads $ as mathematics; names are set as text.
    numbers = [str(index) for index in range(len(labels))]
    legend = figure.legend(
        list(handles),
        numbers,
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
