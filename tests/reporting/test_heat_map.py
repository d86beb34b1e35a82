from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fscil_bench.reporting.figures import figure_style
from fscil_bench.reporting.heat_map import heat_map, lowest_shown

VALUES = pd.DataFrame([[10.0, 30.0], [math.nan, 20.0]], index=["ncm", "ldc"], columns=["a_b", "c"])
TEXTS = VALUES.map("{:.0f}".format)


@pytest.fixture
def figure() -> Figure:
    with figure_style():
        return heat_map(VALUES, TEXTS, "Accuracy (%)")


def test_numbers_are_where_their_names_are(figure: Figure) -> None:
    axes, bar = figure.axes
    drawn = np.ma.filled(axes.collections[0].get_array(), math.nan)

    np.testing.assert_array_equal(drawn.reshape(2, 2), [[10.0, 30.0], [math.nan, 20.0]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ncm", "ldc"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a_b", "c"]
    assert bar.get_ylabel() == "Accuracy (%)"


def test_texts_contrast_with_their_cells(figure: Figure) -> None:
    texts = {text.get_position(): text for text in figure.axes[0].texts}

    assert {place: text.get_text() for place, text in texts.items()} == {
        (0.5, 0.5): "10",
        (1.5, 0.5): "30",
        (0.5, 1.5): "–",
        (1.5, 1.5): "20",
    }
    # The lowest cell is the darkest, the highest the lightest; an empty one is white.
    low, high, empty = (
        mpl.colors.to_hex(texts[place].get_color())
        for place in ((0.5, 0.5), (1.5, 0.5), (0.5, 1.5))
    )
    assert low == "#ffffff"
    assert high < "#303030" and empty == "#000000"


def test_numbers_far_below_the_rest_share_the_lowest_colour() -> None:
    # Quartiles 20 and 24, so that the fence is 20 - 1.5 * 4 = 14.
    assert lowest_shown(np.array([1.0, 20.0, 22.0, 24.0, 26.0])) == 20.0
    assert lowest_shown(np.array([15.0, 20.0, 22.0, 24.0, 26.0])) == 15.0
    assert lowest_shown(np.array([3.0])) == 3.0
