"""The figure of paired differences: one line a pair, one panel a figure of merit."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import PAGE_WIDTH, new_figure, outlying
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
    if len(last) > MOST_DRAWN:
        tested = last[last["n"] >= FEWEST_PAIRS]
        last = last if tested.empty else tested
        # Rows stand best first, so that this is the best row of most that share its terms.
        ((best, _),) = Counter(last["first"]).most_common(1)
        seconds = last.loc[last["first"] == best, "second"].head(MOST_DRAWN)
        pairs = pairs[(pairs["first"] == best) & pairs["second"].isin(seconds)]
    return pairs.reindex(columns=_COLUMNS)


def far_rows(rows: pd.DataFrame) -> dict[str, set[str]]:
    """Return, by figure, the rows whose mean leaves the others no room on an axis (`outlying`).

    Args:
        rows: the mean of each figure's measure (`{measure}_mean`), by label.
    """
    return {
        figure: set(rows.index[outlying(rows[f"{measure}_mean"].to_numpy())])
        for figure, measure in FIGURES.items()
    }


def difference_figure(lines: pd.DataFrame, far: Mapping[str, Collection[str]]) -> Figure:
    """Return the differences with 95 % intervals; filled where they hold after correction.

    Those to `far` rows stand at the axis' edge, with their value.
    """
    pairs = lines["first"] + " − " + lines["second"]
    wrapped = [textwrap.fill(name, _NAME_CHARACTERS) for name in pairs.unique()]
    height = 0.75 + 0.1 * len(wrapped) + 0.12 * sum(name.count("\n") + 1 for name in wrapped)
    figure = new_figure(height, PAGE_WIDTH)
    panels = figure.subplots(1, len(FIGURES), sharey=True, squeeze=False)[0]
    placed = lines.assign(place=pd.factorize(pairs)[0])
    for axes, name in zip(panels, FIGURES, strict=True):
        _draw(axes, placed[placed["figure"] == name], far[name])
        axes.set_title(name[:1].upper() + name[1:], fontsize=8)
        axes.set_xlabel("Difference (points)")
    panels[0].set_yticks(range(len(wrapped)), wrapped, parse_math=False)
    panels[0].set_ylim(len(wrapped) - 0.5, -0.5)
    return figure


def _draw(axes: Axes, lines: pd.DataFrame, far: Collection[str]) -> None:
    import seaborn

    blue, _, _, orange, *_ = seaborn.color_palette("colorblind")
    axes.axvline(0, color="0.35", linewidth=0.8)
    axes.grid(axis="x", color="0.9")
    off = lines["first"].isin(far) | lines["second"].isin(far)
    near = lines[~off]
    holds = near["outcome"] == HOLDS
    for own, marker, color in ((near[holds], "o", blue), (near[~holds], "D", orange)):
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
    for pair in lines[off].to_dict("records"):
        right, held = pair["mean"] > 0, pair["outcome"] == HOLDS
        value = f"{pair['mean']:.1f}".replace("-", "−")
        axes.text(
            float(right),
            pair["place"],
            f"{value} ►" if right else f"◄ {value}",
            transform=axes.get_yaxis_transform(),
            color=blue if held else orange,
            fontsize=6,
            horizontalalignment="right" if right else "left",
            verticalalignment="center",
        )
