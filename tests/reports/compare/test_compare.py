from __future__ import annotations

import re
from typing import Any

import pytest
from matplotlib.colors import to_rgba

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.figures import figure_style
from fscil_bench.reports.compare.report import Compare

A, B = [30, 31, 32, 33, 34, 35], [24, 26, 28, 30, 32, 34]
"""Base images right in the last session of six seeds: 6, 5, 4, 3, 2 and 1 of 60 images apart."""


def lines(made: Any, figure: str = "last session") -> dict[tuple[str, str], Any]:
    """Return the lines of a figure by their pair."""
    pairs = made.tables["compare"]
    own = pairs[pairs["figure"] == figure]
    return {(line["first"], line["second"]): line for line in own.to_dict("records")}


def test_a_clear_difference_by_hand(write_last: Any, make: Any) -> None:
    write_last("ldc", A)
    write_last("ncm", B)

    made = make(Compare)
    line, average = lines(made)["ldc", "ncm"], lines(made, "average over sessions")["ldc", "ncm"]

    # s = 10/6 · √3.5, t(0.975, 5) = 2.570582: t·s/√6 = 3.273.
    assert line["mean"] == pytest.approx(100 * 21 / 6 / 60)
    assert line["high"] - line["mean"] == pytest.approx(3.273, abs=1e-3)
    assert (line["n"], line["equal_pairs"]) == (6, 0)
    assert (line["p"], line["p_holm"]) == (2 / 64, 2 / 64)
    assert line["bootstrap_low"] < line["mean"] < line["bootstrap_high"]
    assert line["outcome"] == "holds after correction"
    # Other sessions are alike: a third of the difference of the last of three.
    assert average["mean"] == pytest.approx(line["mean"] / 3)
    assert (
        "- ldc is 5.83 points above ncm (95 % interval 2.56 to 9.11 over 6 pairs): this holds "
        "(Wilcoxon p = 0.031)."
    ) in made.text
    assert "| ldc | ncm | 6 | 5.83 | 2.56 | 9.11 |" in made.text
    assert "| 0.0312 | 0.0312 | **holds after correction** |" in made.text
    # Told by pairs, and not by the two intervals alone, which overlap.
    assert "| ldc | 6 | 70.83 ± 3.27 |" in made.text


def test_correction_over_all_pairs(write_last: Any, make: Any) -> None:
    write_last("a", A)
    write_last("b", B)
    write_last("c", B)

    made = make(Compare)

    # Three comparisons: 3 · 2/64 is above 0.05.
    assert lines(made)["a", "b"]["p_holm"] == pytest.approx(6 / 64)
    assert lines(made)["a", "b"]["outcome"] == "only without correction"
    assert (
        "this does not hold after correction (Wilcoxon p = 0.031, 0.094 after Holm's correction "
        "over 3 pairs), so that they cannot be told apart."
    ) in made.text
    assert lines(made)["b", "c"]["outcome"] == "equal in every pair"
    assert "- b and c are equal in all 6 pairs." in made.text


def test_what_can_never_hold_is_said_first_and_one_reference_helps(
    write_last: Any, make: Any
) -> None:
    for place, method in enumerate("abcde"):
        write_last(method, [30 - place * (1 + seed) for seed in range(7)])

    every, alone = make(Compare), make(Compare, {"against": "c"})

    # 10 · 2/128 is above 0.05, 4 · 2/256 below it.
    assert every.document.parts[0].lines[0] == (
        "With 10 comparisons and at most 7 pairs each none can hold after correction, whatever the "
        "runs are: that takes 9 pairs, which are as many seeds of every row, or fewer rows (--set "
        "rows=...); one row with each of the others (--set against=a) is 4 comparisons, for which "
        "8 pairs are enough."
    )
    assert set(lines(alone)) == {("c", other) for other in "abde"}
    assert lines(alone)["c", "a"]["p_holm"] == pytest.approx(4 * 2 / 128)
    assert lines(alone)["c", "a"]["mean"] < 0 < lines(alone)["c", "d"]["mean"]
    assert "(--set against" not in alone.text


def test_a_reference_that_is_not_there_is_told_with_what_is(write_last: Any, make: Any) -> None:
    for method in ("ldc", "ncm", "late"):
        write_last(method, A)
    with pytest.raises(UsageError) as error:
        make(Compare, {"against": "late"}, methods=("ldc", "ncm"))
    assert str(error.value).splitlines() == [
        "against = 'late': no row here is of method 'late'; known: ldc, ncm",
        *("compared are", "  ldc", "  ncm"),
    ]


def test_the_reference_that_is_proposed_can_be_asked_for(write_last: Any, make: Any) -> None:
    names = {f"parameter_{i}": i for i in range(6)}
    rows = (("ldc", names), ("ldc", {name: 9 for name in names}), ("c", {}), ("d", {}))
    for place, (method, params) in enumerate(rows):
        write_last(method, [30 - place * (1 + seed) for seed in range(6)], params=params)

    (proposed,) = re.findall(r"--set '?against=(.*?)'?\) is", make(Compare, {"all": True}).text)

    assert proposed.startswith("ldc (parameter_0=0, ")
    alone = lines(make(Compare, {"all": True, "against": proposed}))
    assert {first for first, _ in alone} == {proposed} and len(alone) == 3


def test_too_few_pairs_show_nothing_and_are_not_corrected_over(write_last: Any, make: Any) -> None:
    write_last("a", A)
    write_last("b", B)
    write_last("c", [10, 11, 12, 13, 14])

    made = make(Compare)

    assert lines(made)["a", "b"]["p_holm"] == 2 / 64
    assert lines(made)["a", "c"]["outcome"] == "too few pairs"
    assert (
        "- a is 33.33 points above c (95 % interval 33.33 to 33.33 over 5 pairs): too few pairs, "
        "of which Wilcoxon's p is at least 0.062 whatever they are."
    ) in made.text


def test_a_difference_both_ways_cannot_be_told(write_last: Any, make: Any) -> None:
    write_last("a", [30, 30, 30, 30, 30, 30, 30])
    write_last("b", [29, 31, 28, 32, 27, 33, 30])

    made = make(Compare)

    assert [line["equal_pairs"] for line in lines(made).values()] == [1]
    assert (
        "(95 % interval −3.33 to 3.33 over 7 pairs, 1 of them equal): they cannot be told apart "
        "(Wilcoxon p = 1)."
    ) in made.text
    assert " is on average exactly beside " in made.text


def test_pairs_are_by_both_seeds(write_last: Any, make: Any) -> None:
    write_last("a", [30, 30])
    write_last("a", [20, 20], representation={"seed": 1})
    write_last("b", [29, 29])
    write_last("b", [18, 18], representation={"seed": 1})

    line = lines(make(Compare))["a", "b"]

    # Of 60 images 1, 1, 2 and 2.
    assert (line["n"], line["mean"]) == (4, pytest.approx(2.5))


def test_what_is_to_be_compared_and_not_stored_has_a_command(write_last: Any, make: Any) -> None:
    write_last("ncm", [30, 30])
    with pytest.raises(FscilError, match="no run of ldc is stored") as caught:
        make(Compare, methods=("ncm", "ldc"))
    assert "fscil-bench run --method ldc --protocol toy --seeds 0-1" in str(caught.value)


def test_that_command_names_the_network_that_stored_runs_stand_on(
    write_last: Any, make: Any
) -> None:
    write_last("ncm", [30, 30], representation={"network": "my net"})
    with pytest.raises(FscilError) as caught:
        make(Compare, methods=("ncm", "ldc"))
    assert "--protocol toy --network PATH/TO/NETWORK.safetensors --seeds 0-1" in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"split": "outlier:0.2"}, {"engine": "e2"}, {"representation": {"data_fingerprint": "0"}}],
)
def test_other_terms_are_not_compared(write_last: Any, make: Any, changes: dict[str, Any]) -> None:
    write_last("a", [30, 30])
    write_last("b", [29, 29], **changes)

    with pytest.raises(FscilError, match=r"nothing can be paired; the rows are\n  a"):
        make(Compare, {"all": True})


def test_rows_on_other_terms_stand_alone(write_last: Any, make: Any) -> None:
    write_last("a", [30, 31])
    write_last("b", [28, 30])
    write_last("a", [20, 20], split="outlier:0.2")

    text = make(Compare, {"all": True}).text

    assert "as no other row has their terms or seeds: a (split=outlier:0.2)" in text
    assert "1 more row is stored" in make(Compare).text


def test_other_networks_are_compared(write_last: Any, make: Any, toy_protocol: Protocol) -> None:
    write_last("a", [30, 30])
    write_last("a", [29, 29], protocol=toy_protocol.override(epochs=5))
    write_last("a", [28, 28], representation={"name": "fact"})

    assert len(lines(make(Compare, {"all": True}))) == 3


def test_without_new_classes_there_is_no_harmonic_mean(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    for method in ("a", "b"):
        spec = factory.spec(method, protocol=toy_protocol.override(sessions=0))
        factory.write(spec, [(36, 0)])

    pairs = make(Compare, {"all": True}).tables["compare"]

    assert list(pairs["figure"]) == ["last session", "average over sessions"]


def test_differences_that_hold_are_filled(write_last: Any, make: Any) -> None:
    # Seven pairs: 3 · 2/128 is below 0.05.
    write_last("a", [*A, 36])
    write_last("b", [*B, 34])
    write_last("c", [31, 30, 32, 33, 34, 35, 36])

    figure = make(Compare).figures["differences"]
    with figure_style():
        panel = figure.draw().axes[0]
    own = figure.numbers[figure.numbers["figure"] == "last session"]

    # Blue circles for those that hold, white diamonds for the others, at the means.
    drawn = {
        (float(x), float(y)): to_rgba(points.get_markerfacecolor()) == to_rgba("white")
        for points in panel.lines
        if points.get_marker() in ("o", "D")
        for x, y in zip(points.get_xdata(), points.get_ydata(), strict=True)
    }
    assert drawn == {
        (mean, place): outcome != "holds after correction"
        for place, (mean, outcome) in enumerate(zip(own["mean"], own["outcome"], strict=True))
    }
    assert set(drawn.values()) == {True, False}


def test_a_row_far_from_the_others_stands_at_the_edge(write_last: Any, make: Any) -> None:
    for method, base in (("a", 30), ("b", 29), ("c", 27), ("far", 0)):
        write_last(method, [base])

    made = make(Compare)
    figure = made.figures["differences"]
    with figure_style():
        last, _, harmonic = figure.draw().axes

    # Of 60 images a is 1 above b and 3 above c: 5 points; to 10 / 60 of far they are 45 to 50.
    assert last.get_xlim()[1] < 6
    assert {text.get_text() for text in last.texts} == {"50.0 ►", "48.3 ►", "45.0 ►"}
    assert {text.get_text() for text in harmonic.texts} == {"60.0 ►", "59.2 ►", "57.4 ►"}
    assert "rows far from most others (far)" in figure.caption
    assert "- a is 1.67 points above b (1 pair): too few pairs" in made.text
    assert sorted(figure.numbers["mean"])[-1] == pytest.approx(60)


def test_of_too_many_pairs_those_of_the_best_row_are_drawn(write_last: Any, make: Any) -> None:
    for place in range(9):
        write_last(f"m{place}", [10 + place])

    made = make(Compare)

    assert len(lines(made)) == 36
    drawn = made.figures["differences"].numbers
    assert set(drawn["first"]) == {"m8"}
    assert "8 of 36 pairs, those of m8 with rows below" in made.text


def test_long_labels_get_short_names(write_last: Any, make: Any) -> None:
    names = {f"parameter_{i}": i for i in range(6)}
    write_last("ldc", [30, 31], params=names)
    write_last("ldc", [28, 30], params={name: value + 9 for name, value in names.items()})
    write_last("ncm", [20, 20])

    made = make(Compare)

    assert "- ldc #1 is 2.50 points above ldc #2" in made.text
    assert "| ldc #1: ldc (parameter_0=0, parameter_1=1" in made.text
    assert made.tables["compare"]["first"][0].startswith("ldc (parameter_0=0")
