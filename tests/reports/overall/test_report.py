from __future__ import annotations

import math
from typing import Any

import pytest

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.figures import figure_style
from fscil_bench.reports.overall.report import Overall

SIX = range(6)


def write(factory: Any, protocol: Protocol, method: str, bases: list[int], **changes: Any) -> None:
    """Write a run a seed; of 60 test images so many of base classes are right, and 10 others."""
    shown = {"dataset": protocol.dataset} | changes.pop("representation", {})
    for seed, base in enumerate(bases):
        spec = factory.spec(method, seed, protocol, shown, **changes)
        factory.write(spec, [(36, 0), (34, 6), (base, 10)])


def of(protocol: Protocol, number: int, dataset: int | None = None) -> Protocol:
    """Return the toy protocol under another name, on a data set of its own or a given one."""
    named = {"name": f"p{number}", "dataset": f"d{number if dataset is None else dataset}"}
    return protocol.model_copy(update=named)


def pairs(made: Any) -> dict[tuple[str, str], Any]:
    lines = made.tables["pairs"].to_dict("records")
    return {(line["first"], line["second"]): line for line in lines}


def test_six_data_sets_by_hand(factory: Any, make: Any, toy_protocol: Protocol) -> None:
    for number in SIX:
        own = of(toy_protocol, number)
        write(factory, own, "a", [30, 32])
        write(factory, own, "b", [26, 28])
        write(factory, own, "c", [30, 32])
        # Gains 6 points in all but the last, in which b is ahead.
        write(factory, own, "d", [20, 20] if number < 5 else [40, 40])

    made = make(Overall, protocol=None)
    ranks = made.tables["overall"].set_index("label")["rank"].to_dict()
    a_b, a_c, b_d = (pairs(made)[pair] for pair in (("a", "b"), ("a", "c"), ("b", "d")))

    # Ranks 1.5, 3, 1.5, 4 five times; then 2.5, 4, 2.5, 1.
    assert ranks == pytest.approx({"a": 10 / 6, "c": 10 / 6, "b": 19 / 6, "d": 21 / 6})
    assert (a_b["cells"], a_b["datasets"], a_b["wins"]) == (6, 6, "6/0/0")
    assert (a_b["gain"], a_b["p"]) == (pytest.approx(100 * 4 / 60), 2 / 64)
    assert (a_b["improvement"], a_b["outcome"]) == (1.0, "first better")
    assert (a_c["gain"], a_c["wins"], a_c["outcome"]) == (0, "0/6/0", "practically equal")
    assert a_c["improvement"] == 0.5
    assert (b_d["wins"], b_d["gain"]) == ("5/0/1", pytest.approx((5 * 7 - 13) / 6 / 0.6))
    assert "Too few" not in made.text


def test_cells_of_one_data_set_are_no_independent_evidence(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    for number in SIX:
        for method, bases in (("a", [30, 32]), ("b", [26, 28])):
            write(factory, of(toy_protocol, number, dataset=number // 2), method, bases)

    made = make(Overall, protocol=None)
    (line,) = pairs(made).values()

    assert (line["cells"], line["datasets"], line["outcome"]) == (6, 3, "too few data sets")
    assert math.isnan(line["p"]) and math.isnan(line["p_first"])
    assert "of 3 data sets: d0, d1, d2. Too few to conclude for others" in made.text
    assert (
        "No pair is judged: that takes 6 data sets that both methods have, and the most is 3."
        in (made.text)
    )
    assert "too few data sets" not in made.text


def test_a_pair_does_not_depend_on_other_methods_and_a_hole_is_named(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    for number in range(3):
        own = of(toy_protocol, number)
        write(factory, own, "a", [30, 32, 33])
        write(factory, own, "b", [28, 33, 30])
    before = pairs(make(Overall, protocol=None))["a", "b"]
    write(factory, of(toy_protocol, 1), "late", [10])
    write(factory, of(toy_protocol, 3), "late", [10])

    made = make(Overall, protocol=None)
    after = pairs(made)["a", "b"]

    assert {k: v for k, v in after.items() if v == v} == {k: v for k, v in before.items() if v == v}
    assert "late is not ranked, for want of p0 [cosine], p2 [cosine]; pairs have it." in made.text
    assert "p3 [cosine] is not ranked in: without a, b; pairs have it." in made.text
    assert set(make(Overall, {"against": "late"}, protocol=None).tables["pairs"]["second"]) == {
        *("a", "b")
    }
    with pytest.raises(UsageError, match="no method 'lat' is compared here; did you mean 'late'"):
        make(Overall, {"against": "lat"}, protocol=None)


def test_methods_of_other_seeds_are_paired_where_they_share_some(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    def late(method: str, seeds: list[int], protocol: Protocol) -> None:
        for seed in seeds:
            spec = factory.spec(method, seed, protocol, {"dataset": protocol.dataset})
            factory.write(spec, [(36, 0), (34, 6), (10 + seed, 10)])

    one, two = of(toy_protocol, 0), of(toy_protocol, 1)
    for own in (one, two):
        write(factory, own, "a", [30, 32, 33])
        write(factory, own, "b", [28, 30, 30])
    late("c", [2, 3], one)
    late("c", [5, 6], two)

    made = make(Overall, protocol=None)

    assert set(made.tables["overall"]["label"]) == {"a", "b"}
    assert list(made.tables["cells"].filter(like="_n").iloc[0]) == [3, 3]
    # Where seed 2 is shared, a is 33 - 12 = 21 images of 60 ahead.
    a_c = pairs(made)["a", "c"]
    assert (a_c["cells"], a_c["gain"]) == (1, pytest.approx(100 * 21 / 60))
    assert "c is not ranked, as it shares no seed with the others in p1 [cosine]" in made.text
    assert "p1 [cosine]: c has seeds 5-6 alone and shares none with a, b: no pair there." in (
        made.text
    )
    with pytest.raises(FscilError, match=r"p1 \[cosine\]: c has seeds 5-6 alone"):
        make(Overall, protocol="p1", methods=("a", "c"))


def test_runs_that_were_cut_are_left_out_or_cells_of_their_own(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    short = toy_protocol.override(epochs=1)
    for method, bases in (("a", [30, 32]), ("b", [26, 28])):
        write(factory, toy_protocol, method, bases)
        write(factory, short, method, [base - 20 for base in bases])

    own, every = make(Overall), make(Overall, {"all": True})

    assert "1 cell (a protocol on a representation)" in own.text
    assert (
        "toy: 2 rows on other terms than the protocol's left out (epochs=1); --set all=true takes "
        "them, as cells of their own."
    ) in own.text
    assert "Over toy (epochs=1) [cosine], toy [cosine]." in every.text
    assert "other terms" not in every.text


def test_a_measure_of_scores_without_scores_is_told_with_the_command(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    for method in ("ldc", "ncm"):
        write(factory, toy_protocol, method, [30, 32])
    command = "fscil-bench run --method ncm --protocol toy --seeds 0-1 --precision fp32 --artifacts"
    for measure in ("ece", "new_own_labels"):
        with pytest.raises(FscilError) as error:
            make(Overall, {"measure": measure})
        assert command in str(error.value).splitlines()[-1], str(error.value)


def test_one_run_has_no_interval(factory: Any, make: Any, toy_protocol: Protocol) -> None:
    for method, base in (("a", 30), ("b", 20)):
        write(factory, toy_protocol, method, [base])
    made = make(Overall)
    assert made.tables["overall"].filter(regex="_(low|high)").isna().all(axis=None)
    assert "Best mean rank in Last: a, 1.00 (no interval, as a cell has a single run)" in made.text


def test_representations_are_cells_and_lower_can_be_better(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    for name in ("cosine", "fact"):
        for method, bases in (("a", [30, 20]), ("b", [20, 10])):
            write(factory, toy_protocol, method, bases, representation={"name": name})
    # On other shots, so that it is no part of a cell.
    write(factory, toy_protocol, "a", [1, 1], split="outlier:0.2")

    made = make(Overall, {"measure": "performance_drop"})
    sums = made.tables["overall"].set_index("label")

    assert list(made.tables["cells"]["label"]) == ["a", "b"]
    assert "Over toy [cosine], toy [fact]." in made.text
    # Of 60 images 54 in the first session (90 %), then 40, 30 and 30, 20.
    assert sums.loc["a", "iqm"] == pytest.approx(90 - 100 * 35 / 60)
    assert sums.loc["a", "iqm_low"] < sums.loc["a", "iqm"] < sums.loc["a", "iqm_high"]
    assert pairs(made)["a", "b"]["gain"] == pytest.approx(100 / 6)
    with figure_style():
        drawn = made.figures["matrix"].draw().axes[0]
    assert {"+16.7\n2/0/0", "-16.7\n0/0/2"} <= {text.get_text() for text in drawn.texts}
    with figure_style():
        ranks, shares = made.figures["profile"].draw().axes
    assert [label.get_text() for label in ranks.get_yticklabels()] == ["a", "b"]
    assert len(shares.lines) == 2


def test_without_two_methods_there_is_nothing(factory: Any, make: Any, toy_protocol: Any) -> None:
    write(factory, toy_protocol, "a", [30])
    with pytest.raises(FscilError, match="no two methods with nothing set by hand have Last"):
        make(Overall)
    with pytest.raises(UsageError, match="unknown measure 'lst'; did you mean"):
        make(Overall, {"measure": "lst"})
    with pytest.raises(UsageError, match="unknown method 'toy'; it is a protocol: --protocol toy"):
        make(Overall, protocol=None, methods=("toy",))
