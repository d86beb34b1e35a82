"""Violins: how a figure is spread over runs, and every single run beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fscil_bench.reporting.figures import PAGE_WIDTH, add_legend, look, new_figure
from fscil_bench.reporting.panels import LETTERS, PANEL_HEIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST = 3
"""Runs of which a violin is drawn; fewer are dots alone."""
WIDTH = 0.82
"""Which part of the distance between two positions their violins take together."""
_HATCHES = ("", "////", "....", "xxxx")


@dataclass(frozen=True)
class ViolinPanel:
    """One pair of axes.

    Attributes:
        y_label: what stands beside it.
        numbers: a row a run: `label`, `classes_seen`, `value`.
        zero: whether 0 is marked.
    """

    y_label: str
    numbers: pd.DataFrame
    zero: bool = False


def violins(drawn: Sequence[ViolinPanel]) -> Figure:
    """Return the panels one above the other, violins side by side, with one legend below.

    A violin is a Gaussian kernel density with Scott's bandwidth, cut at the smallest and largest
    value, as wide as the others; a bar marks the median, a dot each run.
    """
    from matplotlib.patches import Patch

    labels = list(dict.fromkeys(label for panel in drawn for label in panel.numbers["label"]))
    figure = new_figure(PANEL_HEIGHT * len(drawn) + 0.4, PAGE_WIDTH)
    for place, panel in enumerate(drawn):
        axes = figure.add_subplot(len(drawn), 1, place + 1)
        if panel.zero:
            axes.axhline(0, color="0.35", linewidth=0.8)
        _draw(axes, panel.numbers, labels)
        axes.set(xlabel="", ylabel=panel.y_label)
        if len(drawn) > 1:
            axes.set_title(f"({LETTERS[place]})", loc="left", fontsize=8)
    axes.set_xlabel("Number of classes seen")
    add_legend(figure, [Patch(**_fill(index)) for index in range(len(labels))], labels, 4)
    return figure


def violin_numbers(drawn: Sequence[ViolinPanel]) -> pd.DataFrame:
    """Return a row for each run drawn (`kind` run), and for each median."""
    parts = []
    for place, panel in enumerate(drawn):
        keys = ["label", "classes_seen"]
        medians = panel.numbers.groupby(keys, sort=False)["value"].median().reset_index()
        both = pd.concat([panel.numbers.assign(kind="run"), medians.assign(kind="median")])
        both = both.assign(panel=LETTERS[place], figure=panel.y_label)
        parts.append(both[["panel", "figure", *keys, "kind", "value"]])
    return pd.concat(parts, ignore_index=True)


def _draw(axes: Axes, numbers: pd.DataFrame, labels: Sequence[str]) -> None:
    import seaborn

    own = [label for label in labels if (numbers["label"] == label).any()]
    shared: dict[str, Any] = {
        "x": "classes_seen",
        "y": "value",
        "hue": "label",
        "hue_order": own,
        "order": sorted(numbers["classes_seen"].unique()),
        "palette": [look(labels.index(label))["color"] for label in own],
        "legend": False,
        "ax": axes,
    }
    values = numbers.groupby(["label", "classes_seen"])["value"]
    spread = (values.transform("size") >= FEWEST) & (values.transform("nunique") > 1)
    shape: dict[str, Any] = {"inner": None, "cut": 0, "density_norm": "width", "linewidth": 0.8}
    for label in own:
        before = len(axes.collections)
        own_numbers = numbers[spread & (numbers["label"] == label)]
        seaborn.violinplot(own_numbers, width=WIDTH, dodge=True, **shape, **shared)
        for body in axes.collections[before:]:
            body.set(**_fill(labels.index(label)))
    part = WIDTH / len(own)
    for each in values.median().reset_index().to_dict("records"):
        middle = shared["order"].index(each["classes_seen"])
        middle += part * (own.index(each["label"]) - (len(own) - 1) / 2)
        axes.hlines(each["value"], middle - part / 2, middle + part / 2, color="0.1", linewidth=1.2)
    dots = shared | {"palette": ["0.15"] * len(own)}
    seaborn.stripplot(numbers, dodge=True, jitter=False, size=1.6, **dots)


def _fill(number: int) -> dict[str, Any]:
    colour = look(number)["color"]
    return {
        "facecolor": (*colour, 0.25),
        "edgecolor": colour,
        "hatch": _HATCHES[number % len(_HATCHES)],
    }
