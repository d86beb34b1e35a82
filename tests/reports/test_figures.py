from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fscil_bench.errors import StoreError
from fscil_bench.metrics import Interval
from fscil_bench.reports._figures import (
    COLUMN_WIDTH,
    Curve,
    curve_figure,
    figure_style,
    save_figure,
    spread,
)

CURVES = [
    Curve("_hidden $a", (4, 5, 6), [Interval(mean, 1.0, 3) for mean in (90.0, 80.0, 70.0)]),
    Curve("single", (4, 5, 6), [Interval(mean, math.nan, 1) for mean in (85.0, 60.0, 40.0)]),
]


@pytest.fixture
def figure() -> Figure:
    with figure_style():
        return curve_figure(CURVES, "Number of classes seen", "Accuracy (%)")


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

    assert len(set(looks)) == len(CURVES)


def test_the_legend_shows_every_name_as_it_is(figure: Figure) -> None:
    (legend,) = figure.legends

    assert [text.get_text() for text in legend.get_texts()] == ["_hidden $a", "single"]
    assert not any(text.get_parse_math() for text in legend.get_texts())


@pytest.mark.parametrize("count", [1, 14])
def test_a_figure_is_a_column_wide(tmp_path: Path, count: int) -> None:
    curves = [Curve(f"method {i}", CURVES[0].positions, CURVES[0].intervals) for i in range(count)]
    with figure_style():
        files = save_figure(curve_figure(curves, "x", "y"), tmp_path, "curve", [{"a": 1}])

    with Image.open(files[0]) as image:
        assert image.width == round(COLUMN_WIDTH * 300)


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        with figure_style():
            files = save_figure(curve_figure(CURVES, "x", "y"), tmp_path / name, "c", [{"a": 0.1}])
        contents.append([path.read_bytes() for path in files])

    assert [path.name for path in files] == ["c.png", "c.pdf", "c.csv"]
    assert contents[0] == contents[1]
    assert contents[0][2] == b"a\n0.1\n"


def test_a_user_s_settings_change_nothing_and_stay(tmp_path: Path) -> None:
    def png(folder: str) -> bytes:
        with figure_style():
            figure = curve_figure(CURVES, "x", "y")
            return save_figure(figure, tmp_path / folder, "c", [{"a": 1}])[0].read_bytes()

    plain = png("plain")
    with mpl.rc_context({"font.size": 20, "text.usetex": True}):
        styled = png("styled")
        assert mpl.rcParams["font.size"] == 20

    assert plain == styled


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, figure: Figure) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="file"):
        save_figure(figure, tmp_path / "file", "c", [{"a": 1}])


def test_lines_behind_are_grey_and_named_beside_the_axes() -> None:
    behind = [Curve("$a_b", (4, 5, 6), CURVES[1].intervals)]
    with figure_style():
        figure = curve_figure(CURVES[:1], "x", "y", behind)

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
