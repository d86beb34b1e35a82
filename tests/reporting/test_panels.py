from __future__ import annotations

import math

import pandas as pd
import pytest
from matplotlib.figure import Figure

from fscil_bench.reporting.figures import figure_style
from fscil_bench.reporting.panels import Panel, panel_numbers, panels

FIRST = pd.DataFrame({"label": "first", "x": [1, 2, 3], "mean": [3.0, 2.0, 1.0], "n": 3})
FIRST = FIRST.assign(low=FIRST["mean"] - 0.5, high=FIRST["mean"] + 0.5)
SECOND = FIRST.assign(label="second", mean=4.0, low=math.nan, high=math.nan, n=1)
BOTH = pd.concat([FIRST, SECOND])
NAMES = {1: "one", 2: "two", 3: "three"}


def drawn(*shown: Panel, columns: int = 2) -> Figure:
    with figure_style():
        return panels(shown, columns)


def test_a_curve_looks_alike_in_all_panels() -> None:
    left, right = Panel("x", "left", BOTH), Panel("x", "right", SECOND)

    figure = drawn(left, right)

    one, two = figure.axes
    looks = [(line.get_marker(), line.get_linestyle(), line.get_color()) for line in one.lines]
    assert looks[0] != looks[1]
    (alone,) = two.lines
    assert (alone.get_marker(), alone.get_linestyle(), alone.get_color()) == looks[1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]
    assert [axes.get_title("left") for axes in figure.axes] == ["(a)", "(b)"]


def test_bands_are_intervals_and_points_have_none() -> None:
    (axes,) = drawn(Panel("x", "y", BOTH)).axes

    (band,) = axes.collections
    extent = band.get_paths()[0].get_extents()
    assert (extent.y0, extent.y1) == (0.5, 3.5)
    assert [list(line.get_ydata()) for line in axes.lines] == [[3, 2, 1], [4, 4, 4]]


def test_bars_stand_side_by_side_at_named_positions() -> None:
    panel = Panel("x", "y", BOTH, NAMES, bars=True, joined=False, zero=True)

    (axes,) = drawn(panel).axes

    assert [text.get_text() for text in axes.get_xticklabels()] == ["one", "two", "three"]
    bars = [container.lines[0] for container in axes.containers]
    (left, *_), (right, *_) = (line.get_xdata() for line in bars)
    assert left < 1 < right
    assert {line.get_linestyle() for line in bars} == {"None"}
    widths = axes.containers[0].lines[2][0].get_segments()
    assert [segment[:, 1].tolist() for segment in widths] == [[2.5, 3.5], [1.5, 2.5], [0.5, 1.5]]
    assert axes.lines[0].get_ydata()[0] == 0


def test_the_numbers_drawn() -> None:
    lines = panel_numbers([Panel("x", "left", SECOND), Panel("z", "right", FIRST, NAMES)]).to_dict(
        "records"
    )

    assert len(lines) == 6
    first, last = lines[0], lines[-1]
    assert (first["panel"], first["label"], first["x"], first["mean"]) == ("a", "second", 1, 4.0)
    assert math.isnan(float(first["low"]))
    assert last == {
        "panel": "b",
        "figure": "right",
        "label": "first",
        "x": 3,
        "x_name": "three",
        "mean": 1.0,
        "low": 0.5,
        "high": 1.5,
        "n": 3,
    }


@pytest.mark.parametrize(("columns", "width"), [(1, 3.3), (2, 6.85)])
def test_one_column_of_panels_fits_one_column_of_a_paper(columns: int, width: float) -> None:
    assert drawn(Panel("x", "y", FIRST), columns=columns).get_figwidth() == pytest.approx(width)
