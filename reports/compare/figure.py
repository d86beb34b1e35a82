"""The figure of paired differences: one line a pair, one panel a figure of merit."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import PAGE_WIDTH, new_figure
from fscil_bench.reporting.statistics import FEWEST_PAIRS

from .pairs import FIGURES, HOLDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DRAWN = 28
"""Pairs that a page's figure has room for."""
_NAME_CHARACTERS = 34
_COLUMNS = ["figure", "first", "second", "mean", "low", "high", "n", "outcome"]


def drawn_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn of the lines of `compared_pairs`: all pairs if there is room for them.

    Else those in which the row comes first that comes first in most, tested ones if there are any.
    """
    last = pairs[pairs["figure"] == next(iter(FIGURES))]
    if len(last) <= MOST_DRAWN:
        return pairs.reindex(columns=_COLUMNS)
    tested = last[last["n"] >= FEWEST_PAIRS]
    last = last if tested.empty else tested
    # Rows stand best first, so that this is the best row of most that share its terms.
    ((best, _),) = Counter(last["first"]).most_common(1)
    seconds = last.loc[last["first"] == best, "second"].head(MOST_DRAWN)
    drawn: pd.DataFrame = pairs[(pairs["first"] == best) & pairs["second"].isin(seconds)]
    return drawn.reindex(columns=_COLUMNS)


def difference_figure(lines: pd.DataFrame) -> Figure:
    """Return the differences with 95 % intervals; filled where they hold after correction."""
    names = list(dict.fromkeys(_names(lines)))
    wrapped = [textwrap.fill(name, _NAME_CHARACTERS) for name in names]
    height = 0.75 + 0.1 * len(names) + 0.12 * sum(name.count("\n") + 1 for name in wrapped)
    figure = new_figure(height, PAGE_WIDTH)
    panels = figure.subplots(1, len(FIGURES), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, FIGURES, strict=True):
        own = lines[lines["figure"] == name]
        _draw(axes, own.assign(place=[names.index(each) for each in _names(own)]))
        axes.set_title(name[:1].upper() + name[1:], fontsize=8)
        axes.set_xlabel("Difference (points)")
    panels[0].set_yticks(range(len(names)), wrapped, parse_math=False)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def _names(lines: pd.DataFrame) -> list[str]:
    return [f"{a} − {b}" for a, b in zip(lines["first"], lines["second"], strict=True)]


def _draw(axes: Axes, lines: pd.DataFrame) -> None:
    import seaborn

    blue, _, _, orange, *_ = seaborn.color_palette("colorblind")
    axes.axvline(0, color="0.35", linewidth=0.8)
    axes.grid(axis="x", color="0.9")
    holds = lines["outcome"] == HOLDS
    for own, marker, color in ((lines[holds], "o", blue), (lines[~holds], "D", orange)):
        axes.errorbar(
            own["mean"],
            own["place"],
            # Without an interval the point alone is drawn.
            xerr=np.nan_to_num(own["high"] - own["mean"]),
            fmt=marker,
            color=color,
            markerfacecolor=color if marker == "o" else "white",
            capsize=2,
        )
