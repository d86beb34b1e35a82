from __future__ import annotations

import math

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fscil_bench.reporting.figures import (
    COLUMN_WIDTH,
    curves,
    figure_style,
    look,
    outlying,
    spread,
)


def points(label: str, means: list[float], half: float) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "label": label,
            "classes_seen": [4, 5, 6],
            "mean": means,
            "low": [mean - half for mean in means],
            "high": [mean + half for mean in means],
        }
    )


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([60, 61, 62, 1], [3]),  # the others take 2 of 61 points
        ([60, 1, 62, 61, 99, 60.5], [1, 4]),  # at both ends
        ([60, 50, 62, 1], []),  # 12 of 61 points are a fifth
        ([60, 61, 1, 2], []),  # no half is the greater part
        ([60, 60, 60, 1], []),  # alike: nothing to tell apart
        ([60, math.nan, 61, 1], [3]),
        ([60, 1], []),
        ([], []),
    ],
)
def test_values_that_leave_the_others_no_room(values: list[float], far: list[int]) -> None:
    assert list(outlying(values).nonzero()[0]) == far


FIRST = points("_hidden $a", [90.0, 80.0, 70.0], 1.0)
SINGLE = points("single", [85.0, 60.0, 40.0], math.nan)


@pytest.fixture
def figure() -> Figure:
    with figure_style():
        return curves(pd.concat([FIRST, SINGLE]))


def test_curves_are_drawn_where_the_numbers_say(figure: Figure) -> None:
    (axes,) = figure.axes
    first, second = axes.lines

    assert list(first.get_xdata()) == [4, 5, 6]
    assert list(first.get_ydata()) == [90.0, 80.0, 70.0]
    assert list(second.get_ydata()) == [85.0, 60.0, 40.0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Number of classes seen", "Accuracy (%)")
    assert list(axes.get_xticks()) == [4, 5, 6]


def test_the_band_is_the_interval(figure: Figure) -> None:
    band = figure.axes[0].collections[0].get_paths()[0].get_extents()

    assert (band.y0, band.y1) == (69.0, 91.0)


def test_curves_differ_without_colour(figure: Figure) -> None:
    looks = [(line.get_marker(), line.get_linestyle()) for line in figure.axes[0].lines]

    assert len(set(looks)) == 2


def test_the_legend_shows_every_name_as_it_is(figure: Figure) -> None:
    (legend,) = figure.legends

    assert [text.get_text() for text in legend.get_texts()] == ["_hidden $a", "single"]
    assert not any(text.get_parse_math() for text in legend.get_texts())


def test_looks_differ_without_colour() -> None:
    looks = [(look(i)["marker"], look(i)["linestyle"]) for i in range(36)]

    assert len(set(looks)) == 36


@pytest.mark.parametrize("count", [1, 14])
def test_a_figure_is_a_column_wide(count: int) -> None:
    with figure_style():
        figure = curves(pd.concat([FIRST.assign(label=f"method {i}") for i in range(count)]))

    assert figure.get_figwidth() == COLUMN_WIDTH


def test_lines_behind_are_grey_and_named_beside_the_axes() -> None:
    with figure_style():
        figure = curves(FIRST, behind=SINGLE.assign(label="$a_b"))

    (axes,) = figure.axes
    _, line = axes.lines
    assert list(line.get_ydata()) == [85.0, 60.0, 40.0]
    assert mpl.colors.to_rgb(line.get_color()) == (0.7, 0.7, 0.7)
    assert line.get_linewidth() < axes.lines[0].get_linewidth()
    (name,) = axes.texts
    assert (name.get_text(), name.get_parse_math()) == ("$a_b", False)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["_hidden $a"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([5.0], [5.0]),
        ([1.0, 5.0], [1.0, 5.0]),
        # Two that share a place are moved apart by half the gap each.
        ([5.0, 5.0], [4.0, 6.0]),
        ([5.0, 9.0, 5.0], [4.0, 9.0, 6.0]),
        # The third pushes both: mean of 0, 0.5 - 2, 1 - 4 is -1.5.
        ([0.0, 0.5, 1.0], [-1.5, 0.5, 2.5]),
    ],
)
def test_names_are_spread(values: list[float], expected: list[float]) -> None:
    assert spread(values, 2.0) == pytest.approx(expected)
