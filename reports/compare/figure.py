"""The figure of paired differences: one line a pair, one panel a figure of merit."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ._claims_accuracy import FIGURES
from ._comparison import Pair
from ._figures import new_figure
from ._paired import high, low
from ._panels import PAGE_WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAME_CHARACTERS = 34
_HOLDS = "holds after correction"


def difference_lines(pairs: Sequence[Pair]) -> list[dict[str, str | int | float]]:
    """Return one line for each point drawn, in percentage points."""
    return [
        {
            "figure": figure,
            "first": pair.first.label,
            "second": pair.second.label,
            "mean": test.interval.mean,
            "low": low(test.interval),
            "high": high(test.interval),
            "n": test.interval.count,
            "outcome": pair.outcome(figure),
        }
        for figure in FIGURES
        for pair in pairs
        if (test := pair.tests.get(figure)) is not None
    ]


def difference_figure(pairs: Sequence[Pair]) -> Figure:
    """Return the differences with 95 % intervals; filled where they hold after correction."""
    names = [textwrap.fill(pair.name, _NAME_CHARACTERS) for pair in pairs]
    lines = sum(name.count("\n") + 1 for name in names)
    figure = new_figure(height=0.75 + 0.1 * len(pairs) + 0.12 * lines, width=PAGE_WIDTH)
    panels = figure.subplots(1, len(FIGURES), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, FIGURES, strict=True):
        _draw(axes, pairs, name)
        axes.set_title(name[:1].upper() + name[1:], fontsize=8)
        axes.set_xlabel("Difference (points)")
    panels[0].set_yticks(range(len(pairs)), names, parse_math=False)
    panels[0].set_ylim(len(pairs) - 0.5, -0.5)
    return figure


def _draw(axes: Axes, pairs: Sequence[Pair], figure: str) -> None:
    import seaborn

    blue, _, _, orange, *_ = seaborn.color_palette("colorblind")
    axes.axvline(0, color="0.35", linewidth=0.8)
    axes.grid(axis="x", color="0.9")
    for place, pair in enumerate(pairs):
        test = pair.tests.get(figure)
        if test is None:
            continue
        holds = pair.outcome(figure) == _HOLDS
        color = blue if holds else orange
        # Without an interval the point alone is drawn.
        width = 0.0 if test.interval.count < 2 else test.interval.half_width
        axes.errorbar(
            test.interval.mean,
            place,
            xerr=width,
            fmt="o" if holds else "D",
            color=color,
            markerfacecolor=color if holds else "white",
            capsize=2,
        )
