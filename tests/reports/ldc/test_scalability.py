from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.ldc.scalability import Scalability
from fscil_bench.request import Selection

RIGHT = {"ldc": (36, 4), "full": (28, 2), "low_rank": (36, 4)}
"""Of 40 base and 20 new images in the last session; 34 + 6 of 50 before it, 36 of 40 at first."""


@pytest.fixture
def written(claims: Any) -> None:
    """Write six seeds of LDC and of Free-Lunch with both ways of spending its bytes."""
    setup = claims.setup
    variants = {"ldc": setup.ldc(), **{mode: setup.budgeted(mode) for mode in list(RIGHT)[1:]}}
    for name, right in RIGHT.items():
        claims.write(variants[name], [right] * 6)


@pytest.mark.usefixtures("written")
def test_drops_and_slopes(study: Any, numbers: Any) -> None:
    text = study(Scalability).text

    # Drops 0, 10, 40 and 0, 10, 23.33 at 4, 5 and 6 classes: slopes 20 and 11.67 a class.
    assert (
        "- free_lunch, full has a higher slope of the accuracy drop than ldc, by 83.33 "
        "[83.33, 83.33] points for 10 classes (n = 6 pairs of runs)."
    ) in text
    assert "- free_lunch, low_rank and ldc have the same slope of the accuracy drop" in text
    rows = numbers("scalability")
    assert rows.loc["free_lunch, full", "drop_6_mean"] == pytest.approx(40)
    assert rows.loc["ldc", "slope_mean"] == pytest.approx(10 * (90 - 200 / 3) / 2)
    apart = numbers("scalability-differences")["drop_6_mean"]
    assert apart.tolist() == pytest.approx([1000 / 60, 0])
    assert "16,384 bytes for covariances in every row" in text
    drawn = numbers("drop-violins").set_index(["panel", "classes_seen"], append=True)
    runs = drawn[drawn["kind"] == "run"]
    assert runs.loc[("ldc", "a", 5), "value"].tolist() == pytest.approx([10.0] * 6)
    more = runs.xs(("b", 6), level=("panel", "classes_seen"))["value"].round(2)
    assert more.groupby(level="label").unique().explode().to_dict() == {
        "free_lunch, full": 16.67,
        "free_lunch, low_rank": 0,
    }


def test_class_orders_are_runs_of_their_own(claims: Any, study: Any, numbers: Any) -> None:
    shuffled = {"class_order": "seed:1"}
    for make in (claims.setup.ldc, lambda **own: claims.setup.budgeted("full", **own)):
        claims.write(make(), [(30, 4)] * 6)
        claims.write(make(overrides=shuffled), [(34, 4)] * 6)

    text = study(Scalability, {"orders": 2}).text

    rows = numbers("scalability")
    assert rows.loc["ldc", "runs"] == 12
    assert rows.loc["ldc", "last_mean"] == pytest.approx(100 * (34 + 38) / 120)
    assert "they differ in class_order (dataset / seed:1)" in text
    assert "n = 12 pairs of runs" in text


def test_the_orders_it_wants(claims_registry: Registry) -> None:
    params = parse_params("report", Scalability.Params, {"orders": 3})

    wanted = Scalability(Results(claims_registry, Selection("toy", seeds=(0,)))).requests(params)

    ldc = [dict(w.request.overrides) for w in wanted if w.request.method == "ldc"]
    assert ldc == [{}, {"class_order": "seed:1"}, {"class_order": "seed:2"}]
    assert {w.request.params.get("budget_mode") for w in wanted} == {None, "full", "low_rank"}
