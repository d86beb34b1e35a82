from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

from fscil_bench.reporting.figures import figure_style
from fscil_bench.reporting.violins import ViolinPanel, violin_numbers, violins

VALUES = [1.0, 2.0, 2.0, 3.0]
LOST = pd.DataFrame(
    {
        "label": ["ldc"] * 5 + ["other"] * 4,
        "classes_seen": [5, 5, 5, 5, 6, 5, 5, 5, 5],
        "value": [*VALUES, 4.0, *VALUES],
    }
)
MORE = pd.DataFrame({"label": "other", "classes_seen": 5, "value": [0.5, 0.5, 0.5]})
PANELS = [ViolinPanel("lost", LOST), ViolinPanel("more", MORE, zero=True)]


@pytest.fixture
def figure() -> Figure:
    with figure_style():
        return violins(PANELS)


def test_every_run_and_median_is_written() -> None:
    lines = violin_numbers(PANELS)

    runs = lines[lines["kind"] == "run"]
    places = runs[["panel", "label", "classes_seen", "value"]].to_numpy().tolist()
    assert places[:5] == [["a", "ldc", 5, v] for v in VALUES] + [["a", "ldc", 6, 4.0]]
    assert lines[lines["kind"] == "median"]["value"].tolist() == [2.0, 4.0, 2.0, 0.5]


def test_a_violin_takes_three_runs_that_are_not_alike(figure: Figure) -> None:
    above, below = figure.axes
    shapes = [body for body in above.collections if isinstance(body, PolyCollection)]

    # One for each label where classes seen are 5; of one run, or equal ones, there is none.
    assert [shape.get_hatch() for shape in shapes] == ["", "////"]
    for shape in shapes:
        extent = shape.get_paths()[0].get_extents()
        assert (extent.y0, extent.y1) == (1.0, 3.0)
    assert not [body for body in below.collections if isinstance(body, PolyCollection)]


def test_every_run_is_a_dot(figure: Figure) -> None:
    clouds = [body for body in figure.axes[0].collections if isinstance(body, PathCollection)]

    dots = [height for cloud in clouds for _, height in cloud.get_offsets()]

    assert sorted(dots) == sorted([*VALUES, 4.0, *VALUES])


def test_violins_of_one_label_look_alike_in_both_panels(figure: Figure) -> None:
    (legend,) = figure.legends

    assert [text.get_text() for text in legend.get_texts()] == ["ldc", "other"]
    assert [axes.get_title("left") for axes in figure.axes] == ["(a)", "(b)"]
    assert figure.axes[1].lines[0].get_ydata()[0] == 0
