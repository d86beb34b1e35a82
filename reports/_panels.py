"""Figures of several panels that share one legend, and the numbers drawn in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fscil_bench.metrics import Interval

from ._figures import COLUMN_WIDTH, DASHES, MARKERS, Curve, new_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE_WIDTH = 2 * COLUMN_WIDTH + 0.25
"""Inches: both columns of a two-column paper and the gap between them."""

PANEL_HEIGHT = 2.1
LEGEND_LINE = 0.17
DODGE = 0.12
"""By how much of the distance between two positions bars of neighbouring curves stand apart."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        x_label: what stands below it.
        y_label: what stands beside it, and names the panel in the CSV.
        curves: what is drawn; curves of one label look alike in all panels.
        names: of positions that are no numbers, by position.
        bars: whether intervals are bars, side by side, and not bands: for curves that lie close.
        joined: whether a line joins the points.
        zero: whether 0 is marked.
        log: whether the vertical axis is logarithmic.
    """

    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    names: Mapping[float, str] = field(default_factory=dict)
    bars: bool = False
    joined: bool = True
    zero: bool = False
    log: bool = False


def panel_figure(panels: Sequence[Panel], columns: int = 2) -> Figure:
    """Return the panels, in rows of `columns`, with one legend below."""
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    rows = math.ceil(len(panels) / columns)
    across = 4 if sum(map(len, labels)) < 80 else 3 if max(map(len, labels)) < 34 else 2
    lines = math.ceil(len(labels) / across)
    height = PANEL_HEIGHT * rows + LEGEND_LINE * lines + 0.1
    figure = new_figure(height, PAGE_WIDTH if columns > 1 else COLUMN_WIDTH)
    handles: dict[str, Artist] = {}
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        if panel.zero:
            axes.axhline(0, color="0.35", linewidth=0.8)
        for curve in panel.curves:
            drawn = _draw(axes, panel, curve, labels.index(curve.label))
            handles.setdefault(curve.label, drawn)
        _label(axes, panel, "abcdefgh"[place] if len(panels) > 1 else "")
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=across,
        frameon=False,
        handlelength=3.4,
        columnspacing=1.4,
    )
    return figure


def panel_lines(panels: Sequence[Panel]) -> list[dict[str, str | int | float]]:
    """Return one line for each point drawn; `low` and `high` are NaN where there is no interval."""
    return [
        {
            "panel": "abcdefgh"[place],
            "figure": panel.y_label,
            "label": curve.label,
            "x": position,
            "x_name": panel.names.get(position, panel.x_label),
            "mean": interval.mean,
            "low": interval.mean - interval.half_width,
            "high": interval.mean + interval.half_width,
            "n": interval.count,
        }
        for place, panel in enumerate(panels)
        for curve in panel.curves
        for position, interval in zip(curve.positions, curve.intervals, strict=True)
    ]


def look(index: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the curve with that number; no two pairs are alike.

    Nine markers and four dashes share no factor, so that a grayscale print tells curves apart.
    """
    import seaborn

    palette = seaborn.color_palette("colorblind")
    return {
        "color": palette[index % len(palette)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
    }


def _draw(axes: Axes, panel: Panel, curve: Curve, index: int) -> Artist:
    style = look(index) | {"markerfacecolor": "white"}
    if not panel.joined:
        style["linestyle"] = "none"
    means = [interval.mean for interval in curve.intervals]
    if panel.bars:
        place = [each.label for each in panel.curves].index(curve.label)
        shift = DODGE * (place - (len(panel.curves) - 1) / 2) * _spacing(panel)
        # Without a width there is nothing to draw, and matplotlib would warn.
        widths = [0 if math.isnan(i.half_width) else i.half_width for i in curve.intervals]
        at = [position + shift for position in curve.positions]
        drawn = axes.errorbar(at, means, widths, capsize=2, elinewidth=0.8, **style)
        return drawn.lines[0]
    every = max(1, len(means) // 10)
    # Where curves lie on one another, each still shows its own markers.
    first = (every // 2 + index * every // 4) % every
    (line,) = axes.plot(curve.positions, means, markevery=(first, every), **style)
    low, high = (
        [i.mean + sign * i.half_width for i in curve.intervals if not math.isnan(i.half_width)]
        for sign in (-1, 1)
    )
    if len(low) == len(means):
        color = style["color"]
        axes.fill_between(curve.positions, low, high, color=color, alpha=0.18, linewidth=0)
    return line


def _spacing(panel: Panel) -> float:
    positions = sorted({x for curve in panel.curves for x in curve.positions})
    return min((b - a for a, b in pairwise(positions)), default=1.0)


def _label(axes: Axes, panel: Panel, letter: str) -> None:
    positions = sorted({x for curve in panel.curves for x in curve.positions})
    if panel.names:
        axes.set_xticks(list(panel.names), list(panel.names.values()))
    elif len(positions) <= 11:
        axes.set_xticks(positions)
    if panel.log:
        axes.set_yscale("log")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if letter:
        axes.set_title(f"({letter})", loc="left", fontsize=8)


def point(value: float) -> Interval:
    """Return a value that has no interval, such as a number of bytes."""
    return Interval(value, math.nan, 1)
