"""Ranks beside performance profiles, and the matrix of every two methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fscil_bench.reporting.figures import PAGE_WIDTH, look, new_figure
from fscil_bench.reporting.heat_map import heat_map, lowest_shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def profile_figure(sums: pd.DataFrame, profiles: pd.DataFrame, title: str) -> Figure:
    """Return mean ranks with intervals, one line a method, and the profiles in the same looks.

    Args:
        sums: `rank`, `rank_low` and `rank_high` by method, best first.
        profiles: `label`, `threshold`, `share`.
        title: what the thresholds are of.
    """
    figure = new_figure(max(2.2, 0.6 + 0.19 * len(sums)), PAGE_WIDTH)
    ranks, shares = figure.subplots(1, 2)
    for place, (method, row) in enumerate(sums.iterrows()):
        style = look(place)
        ends = [[row["rank"] - row["rank_low"]], [row["rank_high"] - row["rank"]]]
        ranks.errorbar([row["rank"]], [place], xerr=ends, capsize=2, **style)
        own = profiles[profiles["label"] == method]
        every = max(1, len(own) // 8)
        shares.plot(own["threshold"], own["share"], markevery=(place % every, every), **style)
    ranks.set_yticks(range(len(sums)), list(sums.index), parse_math=False)
    ranks.set_ylim(len(sums) - 0.5, -0.5)
    ranks.set_xlabel("Mean rank")
    shares.set(xlabel=title, ylabel="Share of runs that reach it")
    return figure


def matrix(pairs: pd.DataFrame, methods: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the gains of rows over columns, and what is written: gain, counts, p where known."""
    back = pairs.rename(columns={"first": "second", "second": "first"}).assign(
        gain=-pairs["gain"],
        wins=pairs["wins"].str.split("/").map(lambda counts: "/".join(counts[::-1])),
    )
    both = pd.concat([pairs, back]).set_index(["first", "second"])
    p = both["p"].map(lambda p: "" if math.isnan(p) else f"\np={p:.2g}")
    texts = both["gain"].map("{:+z.1f}\n".format) + both["wins"] + p
    there = set(both.index.get_level_values(0))
    shown = [method for method in methods if method in there]
    gains, written = (
        each.unstack().reindex(index=shown, columns=shown)  # noqa: PD010
        for each in (both["gain"], texts)
    )
    return gains.rename_axis(index="label", columns=None), written.fillna("")


def matrix_figure(gains: pd.DataFrame, texts: pd.DataFrame, title: str) -> Figure:
    """Return the matrix as a heat map; gains far from the rest share the ends' colours."""
    known = np.abs(gains.to_numpy(float))
    most = -lowest_shown(-known[~np.isnan(known)])
    return heat_map(gains.clip(-most, most), texts, title)
