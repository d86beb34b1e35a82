from __future__ import annotations

import numpy as np
import pytest

from fscil_bench.reports._figures import figure_style
from fscil_bench.reports._violins import (
    ViolinPanel,
    Violins,
    outline,
    violin_figure,
    violin_lines,
)

VALUES = [1.0, 2.0, 2.0, 3.0]
PANELS = [
    ViolinPanel("lost", [Violins("ldc", {5: VALUES, 6: [4.0]}), Violins("other", {5: VALUES})]),
    ViolinPanel("more", [Violins("other", {5: [0.5, 0.5, 0.5]})], zero=True),
]


def test_an_outline_is_a_density_cut_at_the_extremes() -> None:
    heights, widths = outline(VALUES)

    assert (heights[0], heights[-1]) == (1.0, 3.0)
    assert widths.max() == 1.0
    assert heights[widths.argmax()] == pytest.approx(2.0, abs=0.05)
    # Symmetric values have a symmetric density.
    assert widths.tolist() == pytest.approx(widths[::-1].tolist())


@pytest.mark.parametrize("values", [[], [1.0, 2.0], [3.0, 3.0, 3.0]])
def test_without_spread_there_is_no_outline(values: list[float]) -> None:
    assert [len(each) for each in outline(values)] == [0, 0]


def test_every_run_and_median_is_drawn_and_written() -> None:
    lines = violin_lines(PANELS)

    runs = [
        (e["panel"], e["label"], e["classes_seen"], e["value"]) for e in lines if e["kind"] == "run"
    ]
    assert runs[:5] == [("a", "ldc", 5, v) for v in VALUES] + [("a", "ldc", 6, 4.0)]
    assert [e["value"] for e in lines if e["kind"] == "median"] == [2.0, 4.0, 2.0, 0.5]
    outlined = {
        (e["panel"], e["label"], e["classes_seen"]) for e in lines if e["kind"] == "outline"
    }
    assert outlined == {("a", "ldc", 5), ("a", "other", 5)}


def test_violins_of_one_method_look_alike_in_both_panels() -> None:
    with figure_style():
        figure = violin_figure(PANELS)

    above, below = figure.axes
    hatches = [body.get_hatch() for body in above.collections]
    assert hatches[0] == hatches[1] != hatches[2]
    assert below.collections[0].get_hatch() == hatches[2]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ldc", "other"]
    drawn = np.concatenate([line.get_ydata() for line in above.lines])
    assert sorted(set(drawn.tolist())) == [1.0, 2.0, 3.0, 4.0]
