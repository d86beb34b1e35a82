from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from fscil_bench.reports._figures import figure_style
from fscil_bench.reports._heat_map import heat_map, lowest_shown

CELLS = {("ncm", "a_b"): (10.0, "10"), ("ncm", "c"): (30.0, "30"), ("ldc", "c"): (20.0, "20")}


@pytest.fixture
def figure() -> Figure:
    with figure_style():
        return heat_map(["ncm", "ldc"], ["a_b", "c"], CELLS, "Accuracy (%)")


def test_numbers_are_where_their_names_are(figure: Figure) -> None:
    axes, bar = figure.axes
    drawn = np.ma.filled(axes.images[0].get_array(), math.nan)

    np.testing.assert_array_equal(drawn, [[10.0, 30.0], [math.nan, 20.0]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ncm", "ldc"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a_b", "c"]
    assert bar.get_ylabel() == "Accuracy (%)"


def test_texts_contrast_with_their_cells(figure: Figure) -> None:
    texts = {text.get_position(): text for text in figure.axes[0].texts}

    assert {place: text.get_text() for place, text in texts.items()} == {
        (0, 0): "10",
        (1, 0): "30",
        (0, 1): "–",
        (1, 1): "20",
    }
    # The lowest cell is the darkest, the highest the lightest; an empty one is white.
    assert [texts[place].get_color() for place in ((0, 0), (1, 0), (0, 1))] == [
        "white",
        "black",
        "black",
    ]


def test_numbers_far_below_the_rest_share_the_lowest_colour() -> None:
    # Quartiles 20 and 24, so that the fence is 20 - 1.5 * 4 = 14.
    assert lowest_shown([1.0, 20.0, 22.0, 24.0, 26.0]) == 20.0
    assert lowest_shown([15.0, 20.0, 22.0, 24.0, 26.0]) == 15.0
    assert lowest_shown([3.0]) == 3.0
