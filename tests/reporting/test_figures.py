from __future__ import annotations

import math

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fscil_bench.reporting.figures import (
    COLUMN_WIDTH,
    cover_scripts,
    curves,
    far_curves,
    far_sentence,
    figure_style,
    look,
    new_figure,
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


@pytest.fixture
def collapsed() -> pd.DataFrame:
    """Return three curves that end within 2 points of one another, and one at 1 %."""
    ends = {"a": 55.0, "b": 54.0, "c": 53.0}
    near = [points(name, [75.0, 65.0, end], 1.0) for name, end in ends.items()]
    return pd.concat([*near, points("far", [75.0, 20.0, 1.0], 1.0)])


def test_a_collapsed_curve_leaves_the_others_a_panel(collapsed: pd.DataFrame) -> None:
    ends = [70.0, 10.0]
    behind = pd.concat([points(f"{end:.0f}", [80.0, 60.0, end], math.nan) for end in ends])
    with figure_style():
        above, below = curves(collapsed, behind).axes

    # Bands from 52 to 76, and 5 % of that on either side.
    assert above.get_ylim() == pytest.approx((50.8, 77.2))
    assert below.get_ylim()[0] < 1 < 80 < below.get_ylim()[1]
    assert [[text.get_text() for text in axes.texts] for axes in (above, below)] == [["70"], ["10"]]
    assert far_sentence(collapsed) == " Above: enlarged, without far; below: all."


def test_one_panel_is_enough_where_the_axis_would_hardly_shrink(collapsed: pd.DataFrame) -> None:
    ends = {"a": 9.0, "b": 8.0, "c": 7.0, "far": 1.0}
    falling = pd.concat([points(name, [75.0, 40.0, end], 1.0) for name, end in ends.items()])

    assert far_curves(falling) == []
    assert far_sentence(collapsed[collapsed["label"] != "far"]) == ""


def test_a_band_that_leaves_the_range_is_not_drawn() -> None:
    wide = pd.concat(
        [points("wide", [50.0, 50.0, 50.0], 60.0), points("b", [40.0, 45.0, 50.0], 1.0)]
    )
    with figure_style():
        (axes,) = curves(wide).axes

    assert 38 < axes.get_ylim()[0] < 39 and 51 < axes.get_ylim()[1] < 52


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


def test_a_script_that_the_usual_face_lacks_is_set_in_one_that_has_it() -> None:
    with figure_style():
        figure = new_figure(1.0)
        text = figure.text(0, 0, "ᴕ")  # in DejaVu Serif alone, of what Matplotlib brings
        assert cover_scripts(figure) == {}

    assert text.get_text() == "ᴕ"
    assert text.get_fontfamily()[0] == "DejaVu Sans"
    assert any("Serif" in face for face in text.get_fontfamily()[1:])
