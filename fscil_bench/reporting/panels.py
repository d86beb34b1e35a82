"""Figures of several panels that share one legend, and the numbers drawn in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import COLUMN_WIDTH, PAGE_WIDTH, add_legend, look, new_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_HEIGHT = 2.1
LETTERS = "abcdefgh"
LEGEND_LINE = 0.17
DODGE = 0.12
"""By how much of the distance between two positions bars of neighbouring curves stand apart."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        x_label: what stands below it.
        y_label: what stands beside it, and names the panel in the CSV.
        numbers: a row a point: `label`, `x`, `mean`, `low`, `high` (NaN without an interval), `n`;
            points of one label look alike in all panels.
        names: of positions that are no numbers, by position.
        bars: whether intervals are bars, side by side, and not bands: for curves that lie close.
        joined: whether a line joins the points.
        zero: whether 0 is marked.
        log: whether the vertical axis is logarithmic.
    """

    x_label: str
    y_label: str
    numbers: pd.DataFrame
    names: Mapping[float, str] = field(default_factory=dict)
    bars: bool = False
    joined: bool = True
    zero: bool = False
    log: bool = False

    @property
    def labels(self) -> list[str]:
        """The names of its curves, in order."""
        return list(self.numbers["label"].unique())

    @property
    def positions(self) -> list[float]:
        """Where it has points, in order."""
        return sorted(self.numbers["x"].unique())


def panels(drawn: Sequence[Panel], columns: int = 2) -> Figure:
    """Return the panels, in rows of `columns`, with one legend below."""
    labels = list(dict.fromkeys(label for panel in drawn for label in panel.labels))
    rows = math.ceil(len(drawn) / columns)
    across = 4 if sum(map(len, labels)) < 80 else 3 if max(map(len, labels)) < 34 else 2
    lines = math.ceil(len(labels) / across)
    height = PANEL_HEIGHT * rows + LEGEND_LINE * lines + 0.1
    figure = new_figure(height, PAGE_WIDTH if columns > 1 else COLUMN_WIDTH)
    handles: dict[str, Artist] = {}
    for place, panel in enumerate(drawn):
        axes = figure.add_subplot(rows, columns, place + 1)
        if panel.zero:
            axes.axhline(0, color="0.35", linewidth=0.8)
        for label in panel.labels:
            handles.setdefault(label, _draw(axes, panel, label, labels.index(label)))
        _label(axes, panel, LETTERS[place] if len(drawn) > 1 else "")
    add_legend(figure, [handles[label] for label in labels], labels, across)
    return figure


def panel_numbers(drawn: Iterable[Panel]) -> pd.DataFrame:
    """Return one row for each point drawn; `low` and `high` are NaN where there is no interval."""
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "panel": LETTERS[place],
                    "figure": panel.y_label,
                    "label": panel.numbers["label"],
                    "x": panel.numbers["x"],
                    "x_name": [panel.names.get(x, panel.x_label) for x in panel.numbers["x"]],
                    **{name: panel.numbers[name] for name in ("mean", "low", "high", "n")},
                }
            )
            for place, panel in enumerate(drawn)
        ],
        ignore_index=True,
    )


def _draw(axes: Axes, panel: Panel, label: str, index: int) -> Artist:
    points, style = panel.numbers[panel.numbers["label"] == label], look(index)
    at, means = points["x"].to_numpy(float), points["mean"].to_numpy(float)
    low, high = points["low"].to_numpy(float), points["high"].to_numpy(float)
    if not panel.joined:
        style["linestyle"] = "none"
    if panel.bars:
        place = panel.labels.index(label) - (len(panel.labels) - 1) / 2
        spacing = min(np.diff(panel.positions), default=1.0)
        # Without a width there is nothing to draw, and matplotlib would warn.
        widths = np.nan_to_num((high - low) / 2)
        moved = at + DODGE * place * spacing
        return axes.errorbar(moved, means, widths, capsize=2, elinewidth=0.8, **style).lines[0]
    every = max(1, len(means) // 10)
    # Where curves lie on one another, each still shows its own markers.
    first = (every // 2 + index * every // 4) % every
    (line,) = axes.plot(at, means, markevery=(first, every), **style)
    if not np.isnan(low).any():
        axes.fill_between(at, low, high, color=style["color"], alpha=0.18, linewidth=0)
    return line


def _label(axes: Axes, panel: Panel, letter: str) -> None:
    if panel.names:
        named = {x: panel.names[x] for x in panel.positions if x in panel.names}
        axes.set_xticks(list(named), list(named.values()))
        # Half a step on either side has room for every bar beside its position.
        half = min(np.diff(panel.positions), default=1.0) / 2
        axes.set_xlim(panel.positions[0] - half, panel.positions[-1] + half)
    elif len(panel.positions) <= 11:
        axes.set_xticks(panel.positions)
    if panel.log:
        axes.set_yscale("log")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if letter:
        axes.set_title(f"({letter})", loc="left", fontsize=8)
