from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reports._comparison import Pair, compared_pairs, on_equal_terms, sentence, terms
from fscil_bench.reports._rows import Row, group_rows

FIGURE = "last session"


@pytest.fixture
def write(factory: Any) -> Any:
    """Return a function that writes a method's runs: base images right in the last session."""

    def runs(method: str, last: Sequence[int], **changes: Any) -> None:
        for seed, base in enumerate(last):
            spec = factory.spec(method, seed, **changes)
            factory.write(spec, [(36, 0), (34, 6), (base, 10)])

    return runs


def rows_of(factory: Any, registry: Registry) -> list[Row]:
    return group_rows(factory.store.runs()[0], registry)


def pairs_of(factory: Any, registry: Registry) -> list[Pair]:
    return compared_pairs(on_equal_terms(rows_of(factory, registry)))


def test_a_clear_difference_by_hand(factory: Any, write: Any, registry: Registry) -> None:
    write("a", [30, 31, 32, 33, 34, 35])
    write("b", [24, 26, 28, 30, 32, 34])

    (pair,) = pairs_of(factory, registry)
    test = pair.tests[FIGURE]

    # 6, 5, 4, 3, 2 and 1 of 60 images.
    assert test.differences == pytest.approx([10, 25 / 3, 20 / 3, 5, 10 / 3, 5 / 3])
    assert (test.p, test.adjusted) == (2 / 64, 2 / 64)
    assert pair.outcome(FIGURE) == "holds after correction"
    # s = 10/6 · √3.5, t(0.975, 5) = 2.570582: t·s/√6 = 3.273.
    assert sentence(pair, FIGURE, 1) == (
        "a is 5.83 points above b (95 % interval 2.56 to 9.11 over 6 pairs): this holds "
        "(Wilcoxon p = 0.031)."
    )


def test_correction_over_all_pairs(factory: Any, write: Any, registry: Registry) -> None:
    write("a", [30, 31, 32, 33, 34, 35])
    write("b", [24, 26, 28, 30, 32, 34])
    write("c", [24, 26, 28, 30, 32, 34])

    pairs = {(p.first.label, p.second.label): p for p in pairs_of(factory, registry)}
    test = pairs["a", "b"].tests[FIGURE]

    # Three comparisons: 3 · 2/64 is above 0.05.
    assert test.adjusted == pytest.approx(6 / 64)
    assert pairs["a", "b"].outcome(FIGURE) == "only without correction"
    assert sentence(pairs["a", "b"], FIGURE, 3).endswith(
        "this does not hold after correction (Wilcoxon p = 0.031, 0.094 after Holm's correction "
        "over 3 pairs), so that they cannot be told apart."
    )
    assert pairs["b", "c"].outcome(FIGURE) == "equal in every pair"
    assert sentence(pairs["b", "c"], FIGURE, 3) == "b and c are equal in all 6 pairs."


def test_too_few_pairs_show_nothing_and_are_not_corrected_over(
    factory: Any, write: Any, registry: Registry
) -> None:
    write("a", [30, 31, 32, 33, 34, 35])
    write("b", [24, 26, 28, 30, 32, 34])
    write("c", [10, 11, 12, 13, 14])

    pairs = {(p.first.label, p.second.label): p for p in pairs_of(factory, registry)}

    assert pairs["a", "b"].tests[FIGURE].adjusted == 2 / 64
    assert pairs["a", "c"].outcome(FIGURE) == "too few pairs"
    assert sentence(pairs["a", "c"], FIGURE, 1) == (
        "a is 33.33 points above c (95 % interval 33.33 to 33.33 over 5 pairs): too few pairs, of "
        "which Wilcoxon's p is at least 0.062 whatever they are."
    )


def test_a_difference_both_ways_cannot_be_told(
    factory: Any, write: Any, registry: Registry
) -> None:
    write("a", [30, 30, 30, 30, 30, 30, 30])
    write("b", [29, 31, 28, 32, 27, 33, 30])

    (pair,) = pairs_of(factory, registry)

    assert pair.tests[FIGURE].zeros == 1
    assert pair.outcome(FIGURE) == "cannot be told apart"
    assert sentence(pair, FIGURE, 1) == (
        "a is on average exactly beside b (95 % interval −3.33 to 3.33 over 7 pairs, 1 of them "
        "equal): they cannot be told apart (Wilcoxon p = 1)."
    )


def test_a_single_pair_has_no_interval(factory: Any, write: Any, registry: Registry) -> None:
    write("a", [30])
    write("b", [33])

    (pair,) = pairs_of(factory, registry)

    assert sentence(pair, FIGURE, 0).startswith("a is 5.00 points below b (1 pair): too few pairs")


def test_pairs_are_by_both_seeds(factory: Any, write: Any, registry: Registry) -> None:
    write("a", [30, 30])
    write("a", [20, 20], representation={"seed": 1})
    write("b", [29, 29])
    write("b", [18, 18], representation={"seed": 1})

    (pair,) = pairs_of(factory, registry)

    assert pair.tests[FIGURE].differences == pytest.approx([5 / 3, 5 / 3, 10 / 3, 10 / 3])


@pytest.mark.parametrize(
    "changes",
    [{"split": "outlier:0.2"}, {"engine": "e2"}, {"representation": {"data_fingerprint": "0"}}],
)
def test_other_terms_are_not_compared(
    factory: Any, write: Any, registry: Registry, changes: dict[str, Any]
) -> None:
    write("a", [30, 30])
    write("b", [29, 29], **changes)

    assert pairs_of(factory, registry) == []


def test_other_networks_are_compared(
    factory: Any, write: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    write("a", [30, 30])
    write("a", [29, 29], protocol=toy_protocol.override(epochs=5))
    write("a", [28, 28], representation={"name": "fact"})

    assert len(pairs_of(factory, registry)) == 3


def test_without_new_classes_there_is_no_harmonic_mean(
    factory: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    for method in ("a", "b"):
        spec = factory.spec(method, protocol=toy_protocol.override(sessions=0))
        factory.write(spec, [(36, 0)])

    (pair,) = pairs_of(factory, registry)

    assert list(pair.tests) == ["last session", "average over sessions"]


def test_terms_name_what_is_shared(factory: Any) -> None:
    assert terms(factory.spec(split="outlier:0.1"))["split"] == "outlier:0.1"
    assert terms(factory.spec())["class_order"] == "dataset"
