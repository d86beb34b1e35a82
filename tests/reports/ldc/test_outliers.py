from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fscil_bench.errors import UsageError
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Figure
from fscil_bench.reporting.figures import figure_style
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.ldc.outliers import Outliers
from fscil_bench.request import Selection

SEEDS = tuple(range(6))
FARTHEST = "outlier:0.01"
"""5 shots of the toy's 500 training images a class."""

RIGHT = {
    ("ldc", "seeded"): [(30, 6), (31, 6), (32, 6)] * 2,
    ("free_lunch", "seeded"): [(30, 5), (31, 5), (32, 5)] * 2,
    ("ncm", "seeded"): [(30, 6), (31, 6), (32, 6)] * 2,
    ("ldc", FARTHEST): [(30, 4), (31, 4), (32, 4)] * 2,
    ("free_lunch", FARTHEST): [(30, 0), (31, 0), (32, 0)] * 2,
    ("ncm", FARTHEST): [(30, 5), (31, 5), (32, 5)] * 2,
}


@pytest.fixture
def written(claims: Any) -> None:
    """Write a run for each method, kind of shots and seed: LDC loses 2 images, Free-Lunch 5."""
    setup = claims.setup
    for (method, split), right in RIGHT.items():
        variant = {
            "ldc": setup.ldc(split=split),
            "free_lunch": setup.free_lunch(split=split),
            "ncm": setup.ncm("tukey", split=split),
        }[method]
        claims.write(variant, right)


@pytest.mark.usefixtures("written")
def test_what_outliers_cost_each_method(study: Any, numbers: Any) -> None:
    output = study(Outliers, {"fractions": "0.5"})

    far = "with the 5 farthest shots"
    for method, images in (("ncm", 1), ("free_lunch", 5), ("ldc", 2)):
        assert (
            f"- {method} with normal shots has a higher accuracy after the last session than "
            f"{method} {far}, by {images * 100 / 60:.2f} "
        ) in output.text
    assert f"- ldc {far} has a lower accuracy after the last session than ncm {far}, by 1.67 " in (
        output.text
    )
    # PR: A_0 is 90 %, so that 3 images more are 5.56 % of it.
    more = "has a higher gain in PR over free_lunch than ldc with normal shots, by 5.56 "
    assert f"- ldc {far} {more}" in output.text
    rows = numbers("outliers-differences")
    far, normal = (rows.loc[f"ldc − free_lunch, {name}"] for name in ("5 farthest", "normal"))
    assert far["last_mean"] == pytest.approx(400 / 60)
    assert far["performance_drop_mean"] == pytest.approx(-400 / 60)
    assert far["more_last_mean"] == pytest.approx(300 / 60)
    assert far["more_last_half_width"] == 0
    assert np.isnan(normal["more_last_mean"])
    assert (far["rival"], far["split"]) == ("free_lunch", FARTHEST)
    assert output.missing == (
        "fscil-bench run --method ncm --protocol toy --split outlier:0.5 --set space=tukey "
        "--seeds 0-5",
        "fscil-bench run --method free_lunch --protocol toy --split outlier:0.5 --seeds 0-5",
        "fscil-bench run --method ldc --protocol toy --split outlier:0.5 --seeds 0-5",
    )
    drawn = numbers("outlier-curves").set_index(["panel", "x_name"], append=True).index
    assert ("ldc", "a", "5 farthest") in drawn
    assert ("ldc − ncm", "b", "normal") in drawn
    assert len(drawn) == 2 * 3 + 2 * 2


@pytest.mark.parametrize(
    "splits", [{"seeded": "normal"}, {FARTHEST: "5 farthest", "seeded": "normal"}]
)
def test_all_that_is_stored_has_room_and_nothing_else_a_place(
    claims: Any, splits: dict[str, str]
) -> None:
    for split in splits:
        for make in (claims.setup.ldc, claims.setup.free_lunch):
            claims.write(make(split=split))
    results = claims.results(Selection("toy", seeds=SEEDS))
    parts = Outliers(results).build(results.frame, Outliers.Params()).parts

    with figure_style():
        drawing = next(part for part in parts if isinstance(part, Figure)).draw()

    for axes in drawing.axes:
        ticks = axes.get_xticks()
        assert [label.get_text() for label in axes.get_xticklabels()] == list(splits.values())
        low, high = axes.get_xlim()
        places = np.concatenate(
            [line.get_xdata() for line in axes.lines if line.get_marker() != "None"]
        )
        step = min(np.diff(ticks), default=1.0)
        # Markers and caps are a few points wide, of 200.
        assert low < min(places) - 0.05 * step
        assert high > max(places) + 0.05 * step


def test_the_splits_it_wants(claims_registry: Registry) -> None:
    params = parse_params("report", Outliers.Params, {"fractions": "1,0.01,0.25"})

    wanted = Outliers(Results(claims_registry, Selection("toy", seeds=(0,)))).requests(params)

    # The 5 farthest are the fraction 0.01 already.
    splits = [FARTHEST, "outlier:0.25", "outlier:1", "seeded"]
    assert [w.request.split for w in wanted if w.request.method == "ldc"] == splits
    assert len(wanted) == 3 * len(splits)


def test_a_split_is_refused(study: Any) -> None:
    with pytest.raises(UsageError, match="leave --split away"):
        study(Outliers, split="canonical")


@pytest.mark.parametrize("fractions", ["", "0", "0.5,2", "half"])
def test_fractions_of_no_use_are_refused(fractions: str) -> None:
    with pytest.raises(UsageError, match="report: fractions"):
        parse_params("report", Outliers.Params, {"fractions": fractions})
