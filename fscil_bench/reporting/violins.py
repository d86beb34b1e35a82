"""Violins: how a figure is spread over runs, and every single run beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from fscil_bench.reporting.figures import add_legend, look, new_figure
from fscil_bench.reporting.panels import LETTERS, PAGE_WIDTH, PANEL_HEIGHT

if TYPE_CHECKING:
    from matplotlib.artist import Artist
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
    raise NotImplementedError


def violin_numbers(drawn: Sequence[ViolinPanel]) -> pd.DataFrame:
    """Return a row for each run drawn (`kind` run), and for each median."""
    raise NotImplementedError
