"""The figures of confusion: errors session by session, and blocks of sessions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import PAGE_WIDTH, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE_CHARACTERS = 44
_PARTS = {
    "right": None,
    "taken for another class of the same kind": "////",
    "taken for a class of the other kind": "....",
}
"""What bars are made of: the legend's words and the hatching."""
_PER_LINE = 3


def rate_figure(rates: pd.DataFrame) -> Figure:
    """Return stacked bars over sessions: a line of panels a row, base images left, new right.

    `rates` has the mean of each rate, in %, by `label` and `session`.
    """
    groups = rates.groupby("label", sort=False)
    figure = new_figure(height=0.75 + 1.25 * len(groups), width=PAGE_WIDTH)
    panels = figure.subplots(len(groups), 2, sharey=True, squeeze=False)
    handles: list[Any] = []
    for (label, own), pair in zip(groups, panels, strict=True):
        for axes, kind, other in zip(pair, ("base", "new"), ("new", "base"), strict=True):
            names = f"{kind}_right", f"{kind}_to_{kind}", f"{kind}_to_{other}"
            handles = _stack(axes, own, names)
            title = textwrap.fill(f"{label}: {kind} images", _TITLE_CHARACTERS)
            axes.set_title(title, fontsize=7, parse_math=False)
        pair[0].set_ylabel("Images (%)")
    for axes in panels[-1]:
        axes.set_xlabel("Session")
    figure.legend(handles, list(_PARTS), loc="outside lower center", ncols=3, frameon=False)
    return figure


def block_lines(blocks: Mapping[str, np.ndarray], counts: pd.Series) -> pd.DataFrame:
    """Return one line for each field of each row's block matrix, in %, as it is drawn."""
    columns = ["label", "true_session", "predicted_session", "percent", "n"]
    lines = [
        (label, i, j, float(value), counts[label])
        for label, own in blocks.items()
        for (i, j), value in np.ndenumerate(own)
    ]
    return pd.DataFrame(lines, columns=columns)


def block_figure(blocks: Mapping[str, np.ndarray]) -> Figure:
    """Return a heat map a row: of which session are classes taken for those of which, in %."""
    columns = 2 if len(blocks) in (2, 4) else min(_PER_LINE, len(blocks))
    height = -(-len(blocks) // columns)
    figure = new_figure(height=2.55 * height + 0.2, width=PAGE_WIDTH * max(columns, 2) / _PER_LINE)
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for axes, (label, own) in zip(panels, blocks.items(), strict=False):
        _heat(axes, own)
        axes.set_title(textwrap.fill(label, _TITLE_CHARACTERS), fontsize=7, parse_math=False)
    for axes in panels[len(blocks) :]:
        axes.set_axis_off()
    mesh = panels[0].collections[0]
    figure.colorbar(mesh, ax=list(panels), shrink=0.7, label="Test images (%)")
    return figure


def _stack(axes: Axes, lines: pd.DataFrame, names: tuple[str, ...]) -> list[Any]:
    import seaborn

    blue, orange, green, *_ = seaborn.color_palette("colorblind")
    bottom, handles = np.zeros(len(lines)), []
    for name, hatch, color in zip(names, _PARTS.values(), (blue, green, orange), strict=True):
        values = lines[f"{name}_mean"].to_numpy()
        style = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
        handles.append(axes.bar(lines["session"], values, bottom=bottom, **style))
        bottom = bottom + np.nan_to_num(values)
    axes.set_xticks(lines["session"])
    axes.set_xlim(-0.6, len(lines) - 0.4)
    axes.set_ylim(0, 100)
    return handles


def _heat(axes: Axes, blocks: np.ndarray) -> None:
    import seaborn
    from matplotlib.colors import PowerNorm

    seaborn.heatmap(
        blocks,
        ax=axes,
        cmap="cividis",
        norm=PowerNorm(0.5, 0, 100),  # most rates are small: a root shows them beside large ones
        annot=True,
        fmt=".0f",
        annot_kws={"fontsize": 5},
        square=True,
        cbar=False,
    )
    axes.tick_params(axis="y", labelrotation=0)
    axes.set_xlabel("Taken for a class of session")
    axes.set_ylabel("Class of session")
