from __future__ import annotations

import math

import pytest

from fscil_bench.metrics import Interval
from fscil_bench.reports._figures import Curve, figure_style
from fscil_bench.reports._panels import Panel, look, panel_figure, panel_lines, point

FIRST = Curve("first", (1, 2, 3), [Interval(m, 0.5, 3) for m in (3.0, 2.0, 1.0)])
SECOND = Curve("second", (1, 2, 3), [point(m) for m in (4.0, 4.0, 4.0)])
NAMES = {1: "one", 2: "two", 3: "three"}


def drawn(*panels: Panel, columns: int = 2) -> object:
    with figure_style():
        return panel_figure(panels, columns)


def test_a_curve_looks_alike_in_all_panels() -> None:
    left, right = Panel("x", "left", (FIRST, SECOND)), Panel("x", "right", (SECOND,))

    figure = drawn(left, right)

    one, two = figure.axes
    looks = [(line.get_marker(), line.get_linestyle(), line.get_color()) for line in one.lines]
    assert looks[0] != looks[1]
    (alone,) = two.lines
    assert (alone.get_marker(), alone.get_linestyle(), alone.get_color()) == looks[1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["first", "second"]
    assert [axes.get_title("left") for axes in figure.axes] == ["(a)", "(b)"]


def test_looks_differ_without_colour() -> None:
    looks = [(look(i)["marker"], look(i)["linestyle"]) for i in range(36)]

    assert len(set(looks)) == 36


def test_bands_are_intervals_and_points_have_none() -> None:
    (axes,) = drawn(Panel("x", "y", (FIRST, SECOND))).axes

    (band,) = axes.collections
    extent = band.get_paths()[0].get_extents()
    assert (extent.y0, extent.y1) == (0.5, 3.5)
    assert [list(line.get_ydata()) for line in axes.lines] == [[3, 2, 1], [4, 4, 4]]


def test_bars_stand_side_by_side_at_named_positions() -> None:
    panel = Panel("x", "y", (FIRST, SECOND), NAMES, bars=True, joined=False, zero=True)

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
    lines = panel_lines([Panel("x", "left", (SECOND,)), Panel("z", "right", (FIRST,), NAMES)])

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
    assert drawn(Panel("x", "y", (FIRST,)), columns=columns).get_figwidth() == pytest.approx(width)
