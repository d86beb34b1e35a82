"""Violins: how a figure is spread over runs, and every single run beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ._figures import new_figure
from ._panels import PAGE_WIDTH, PANEL_HEIGHT, look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTLINE_POINTS = 60
FILLED = 0.82
"""Which part of the distance between two positions their violins take together."""

_HATCHES = ("", "////", "....", "xxxx")


@dataclass(frozen=True)
class Violins:
    """What is drawn for one method: the values of its runs, by position (classes seen)."""

    label: str
    values: Mapping[int, Sequence[float]]


def outline(values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return where a violin's edge lies (n,), and its width there (n,), at most 1.

    A Gaussian kernel density with Scott's bandwidth, cut at the smallest and largest value; of
    fewer than three values, or values that are alike, there is none: both arrays are empty.
    """
    if len(values) < 3 or min(values) == max(values):
        return np.empty(0), np.empty(0)
    from scipy.stats import gaussian_kde

    heights = np.linspace(min(values), max(values), OUTLINE_POINTS)
    density = gaussian_kde(np.asarray(values, dtype=np.float64))(heights)
    return heights, density / density.max()


@dataclass(frozen=True)
class ViolinPanel:
    """One pair of axes: what stands beside it, its violins, and whether 0 is marked."""

    y_label: str
    violins: Sequence[Violins]
    zero: bool = False


def violin_figure(panels: Sequence[ViolinPanel]) -> Figure:
    """Return the panels one above the other, violins side by side, with one legend below."""
    labels = list(dict.fromkeys(each.label for panel in panels for each in panel.violins))
    figure = new_figure(PANEL_HEIGHT * len(panels) + 0.4, PAGE_WIDTH)
    handles: dict[str, Artist] = {}
    for row, panel in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, row + 1)
        if panel.zero:
            axes.axhline(0, color="0.35", linewidth=0.8)
        width = FILLED / max(1, len(panel.violins))
        positions = sorted({at for each in panel.violins for at in each.values})
        axes.set_xticks(range(len(positions)), [str(at) for at in positions])
        for number, each in enumerate(panel.violins):
            shift = width * (number - (len(panel.violins) - 1) / 2)
            style = labels.index(each.label)
            for place, at in enumerate(positions):
                if each.values.get(at):
                    drawn = _draw(axes, each.values[at], place + shift, 0.46 * width, style)
                    handles.setdefault(each.label, drawn)
        axes.set_ylabel(panel.y_label)
        axes.set_title(f"({'abcdefgh'[row]})" if len(panels) > 1 else "", loc="left", fontsize=8)
    axes.set_xlabel("Number of classes seen")
    figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        handlelength=2.4,
    )
    return figure


def violin_lines(panels: Sequence[ViolinPanel]) -> list[dict[str, str | int | float]]:
    """Return a line for each run drawn, each median, and each point of an outline.

    `width` is that of an outline, as a part of its largest.
    """
    return [
        {
            "panel": "abcdefgh"[row],
            "figure": panel.y_label,
            "label": each.label,
            "classes_seen": at,
            "kind": kind,
            "value": value,
            "width": width,
        }
        for row, panel in enumerate(panels)
        for each in panel.violins
        for at, values in each.values.items()
        for kind, value, width in _drawn(values)
    ]


def _drawn(values: Sequence[float]) -> Iterator[tuple[str, float, float]]:
    """Yield what is drawn of one violin: its kind, where it lies, how wide it is."""
    for value in values:
        yield "run", value, math.nan
    if values:
        yield "median", float(np.median(values)), math.nan
    for height, width in zip(*outline(values), strict=True):
        yield "outline", float(height), float(width)


def _draw(axes: Axes, values: Sequence[float], centre: float, half: float, number: int) -> Artist:
    style = look(number)
    heights, widths = outline(values)
    body = axes.fill_betweenx(
        heights,
        centre - half * widths,
        centre + half * widths,
        facecolor=(*style["color"], 0.25),
        edgecolor=style["color"],
        linewidth=0.8,
        hatch=_HATCHES[number % len(_HATCHES)],
    )
    dots = [centre] * len(values)
    axes.plot(dots, values, linestyle="none", marker=style["marker"], color="0.15", markersize=1.6)
    median = float(np.median(values))
    axes.plot([centre - half, centre + half], [median] * 2, color="0.1", linewidth=1.2)
    return body
