"""The figures of confusion: errors session by session, and blocks of sessions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._confusions import RATES, error_rates, percent, session_blocks
from ._figures import new_figure
from ._panels import PAGE_WIDTH
from ._rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE_CHARACTERS = 44
_KINDS = ("base", "new")
_PARTS = {
    "right": ("right", None),
    "same": ("taken for another class of the same kind", "////"),
    "other": ("taken for a class of the other kind", "...."),
}
"""What bars are made of: the legend's words and the hatching."""
_PER_LINE = 3


def rate_lines(rows: Sequence[Row]) -> list[dict[str, str | int | float]]:
    """Return one line for each row and session: the mean of each rate, in %, as it is drawn."""
    lines: list[dict[str, str | int | float]] = []
    for row in rows:
        for session, record in enumerate(row.runs[0].record.sessions):
            line: dict[str, str | int | float] = {
                "label": row.label,
                "session": session,
                "classes_seen": record.classes_seen,
                "n": len(row.runs),
            }
            for name in RATES:
                interval = percent(row, lambda run, t=session, n=name: error_rates(run, t)[n])  # type: ignore[misc]
                line |= {f"{name}_mean": interval.mean, f"{name}_half_width": interval.half_width}
            lines.append(line)
    return lines


def rate_figure(lines: Sequence[dict[str, str | int | float]]) -> Figure:
    """Return stacked bars over sessions: a line of panels a row, base images left, new right."""
    labels = list(dict.fromkeys(str(line["label"]) for line in lines))
    figure = new_figure(height=0.75 + 1.25 * len(labels), width=PAGE_WIDTH)
    panels = figure.subplots(len(labels), 2, sharey=True, squeeze=False)
    handles: list[Any] = []
    for label, pair in zip(labels, panels, strict=True):
        own = [line for line in lines if line["label"] == label]
        for axes, kind in zip(pair, _KINDS, strict=True):
            handles = _stack(axes, own, kind)
            title = textwrap.fill(f"{label}: {kind} images", _TITLE_CHARACTERS)
            axes.set_title(title, fontsize=7, parse_math=False)
        pair[0].set_ylabel("Images (%)")
    for axes in panels[-1]:
        axes.set_xlabel("Session")
    figure.legend(
        handles,
        [words for words, _ in _PARTS.values()],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    return figure


def block_lines(rows: Sequence[Row]) -> list[dict[str, str | int | float]]:
    """Return one line for each field of each row's block matrix, in %, as it is drawn."""
    return [
        {
            "label": row.label,
            "true_session": i,
            "predicted_session": j,
            "percent": float(value),
            "n": len(row.runs),
        }
        for row in rows
        for (i, j), value in np.ndenumerate(_mean_blocks(row))
    ]


def block_figure(rows: Sequence[Row]) -> Figure:
    """Return a heat map a row: of which session are classes taken for those of which."""
    columns = 2 if len(rows) in (2, 4) else min(_PER_LINE, len(rows))
    height = -(-len(rows) // columns)
    figure = new_figure(height=2.55 * height + 0.2, width=PAGE_WIDTH * max(columns, 2) / _PER_LINE)
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    image = None
    for axes, row in zip(panels, rows, strict=False):
        image = _heat(axes, _mean_blocks(row))
        axes.set_title(textwrap.fill(row.label, _TITLE_CHARACTERS), fontsize=7, parse_math=False)
    for axes in panels[len(rows) :]:
        axes.set_axis_off()
    if image is not None:
        figure.colorbar(image, ax=list(panels), shrink=0.7, label="Test images (%)")
    return figure


def _mean_blocks(row: Row) -> np.ndarray:
    mean: np.ndarray = 100 * np.mean([session_blocks(run) for run in row.runs], axis=0)
    return mean


def _stack(axes: Axes, lines: Sequence[dict[str, str | int | float]], kind: str) -> list[Any]:
    import seaborn

    blue, orange, green, *_ = seaborn.color_palette("colorblind")
    other = _KINDS[1 - _KINDS.index(kind)]
    names = (f"{kind}_right", f"{kind}_to_{kind}", f"{kind}_to_{other}")
    sessions = [int(line["session"]) for line in lines]
    bottom = np.zeros(len(lines))
    handles = []
    for name, (_, hatch), color in zip(names, _PARTS.values(), (blue, green, orange), strict=True):
        values = np.array([float(line[f"{name}_mean"]) for line in lines])
        handles.append(
            axes.bar(
                sessions,
                values,
                bottom=bottom,
                color=color,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.4,
            )
        )
        bottom = bottom + np.nan_to_num(values)
    axes.set_xticks(sessions)
    axes.set_xlim(-0.6, len(sessions) - 0.4)
    axes.set_ylim(0, 100)
    return handles


def _heat(axes: Axes, blocks: np.ndarray) -> Any:
    # Most rates are small: a root shows them beside the large ones.
    from matplotlib.colors import PowerNorm

    image = axes.imshow(blocks, cmap="cividis", norm=PowerNorm(0.5, 0, 100))
    for (i, j), value in np.ndenumerate(blocks):
        if np.isfinite(value):
            dark = value < 30
            axes.text(
                j,
                i,
                f"{value:.0f}",
                ha="center",
                va="center",
                fontsize=5,
                color="white" if dark else "black",
            )
    axes.set_xticks(range(len(blocks)))
    axes.set_yticks(range(len(blocks)))
    axes.set_xlabel("Taken for a class of session")
    axes.set_ylabel("Class of session")
    axes.grid(visible=False)
    return image
