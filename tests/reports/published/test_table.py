from __future__ import annotations

import math

import pytest

from fscil_bench.protocol import Protocol
from fscil_bench.report import Table
from fscil_bench.reports.published import footnotes, other_terms, published_section
from fscil_bench.reports.published.rows import Paper, Printed, PublishedRow, Source, Terms, Value

PAPER, LATER = Source("paper A", paper=Paper("A", title="Of A", venue="B 2022")), Source("paper B")


def row(
    method: str,
    *accuracies: str,
    terms: Terms = Terms(),  # noqa: B008 - frozen
    printed: tuple[Printed, ...] = (),
    others: tuple[Value, ...] = (),
    backbone: str = "ResNet20",
    pretraining: str = "none",
    source: Source = PAPER,
) -> PublishedRow:
    values = {t: Value(t, text, source) for t, text in enumerate(accuracies)}
    return PublishedRow(method, backbone, pretraining, values, others, terms, printed)


SECOND = row("x", "80", source=Source("paper C", paper=Paper("C", own=("y",))))


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (row("x", "80"), []),
        (row("x", "80", terms=Terms(epochs="100", chosen_on_test="none: last epoch")), []),
        (
            row("x", "80", terms=Terms(chosen_on_test="accuracy in session 1")),
            ["Epoch chosen on test data, by accuracy in session 1."],
        ),
        (row("x", "80", backbone="ResNet12"), ["Other backbone: ResNet12; this protocol's is"]),
        (row("x", "80", pretraining="not stated"), ["Pre-training not stated; this protocol's"]),
        (row("x", "80", terms=Terms(epochs="600")), ["Other epochs: 600 of base training; this"]),
        (row("x", "80", terms=Terms(other_protocol=True)), ["Not of this protocol."]),
        (row("x", "80", terms=Terms(remark="a; b")), ["A.", "B."]),
    ],
)
def test_other_terms_are_said(
    of: PublishedRow, expected: list[str], toy_protocol: Protocol
) -> None:
    notes = footnotes(of, toy_protocol)

    assert notes == other_terms(of, toy_protocol)
    assert len(notes) == len(expected)
    assert all(note.startswith(start) for note, start in zip(notes, expected, strict=True))


def test_what_others_print_is_second_hand(toy_protocol: Protocol) -> None:
    (note,) = footnotes(SECOND, toy_protocol)

    assert note.startswith("Second-hand: ")
    assert other_terms(SECOND, toy_protocol) == []


@pytest.mark.parametrize(
    ("quantity", "text", "expected"),
    [
        ("PD", "20.00", ""),
        ("PD", "19.00", "PD printed as 19.00 (paper; wrong); x's accuracies give 20.00."),
        ("PR", "74.99", "PR printed as 74.99 (paper; last digit); x's accuracies give 75.00."),
        ("Avg", "70.10", "Avg printed as 70.10 (paper; wrong); x's accuracies give 70.00."),
    ],
)
def test_printed_figures_are_recomputed(
    quantity: str, text: str, expected: str, toy_protocol: Protocol
) -> None:
    printed = (Printed(quantity, text, "paper"),)
    of = row("x", "80.00", "70.00", "60.00", printed=printed)

    assert footnotes(of, toy_protocol) == ([expected] if expected else [])


def test_sources_that_disagree_mark_the_cells(toy_protocol: Protocol) -> None:
    others = (Value(0, "81.00", LATER), Value(2, "59.00", LATER), Value(2, "58.00", Source("C")))

    assert footnotes(row("x", "80", "70", "60", others=others), toy_protocol) == [
        "Sources disagree: x, sessions 0, 2: 81.00, 59.00 in paper B.",
        "Sources disagree: x, session 2: 58.00 in C.",
    ]


def test_the_table_by_hand(toy_protocol: Protocol) -> None:
    other = Terms(chosen_on_test="x")
    printed = (Printed("PD", "19.00", "paper"),)
    remark = "; ".join(f"remark {number}" for number in range(24))
    rows = (
        row("NCM*", "80", terms=other, others=(Value(0, "81", LATER),)),
        row("CEC", "80.00", "70.0", "60.00", terms=other, printed=printed),
        row("x", "80", terms=Terms(remark=remark)),
    )
    (found,) = published_section("published", toy_protocol, rows).parts
    assert isinstance(found, Table)

    assert [column.heading for column in found.columns] == [
        *("Published", "0", "1", "2", "Avg", "PD", "PR", "Notes"),
    ]
    ncm, cec, many = found.frame.to_dict("records")
    assert (ncm["published_name"], ncm["session_0"], ncm["marks"]) == ("NCM*", 80.0, "a b")
    assert math.isnan(ncm["session_1"]) and math.isnan(ncm["average"])
    assert [cec[f"session_{t}"] for t in range(3)] == [80.0, 70.0, 60.0]
    assert (cec["average"], cec["performance_drop"]) == (70.0, 20.0)
    assert (cec["performance_retention"], cec["marks"]) == (75.0, "a c")
    assert (cec["printed_performance_drop"], cec["printed_average"]) == ("19.00", "")
    assert (cec["sources"], cec["references"]) == ("paper A", '"Of A", B 2022')
    assert (cec["second_hand"], cec["chosen_on_test"]) == (False, "x")
    assert cec["footnotes"].endswith("(paper; wrong); CEC's accuracies give 20.00.")
    # After three notes of the others: d to z, then two letters.
    assert many["marks"].endswith("y z aa")
    assert list(found.notes)[1:4] == [
        "[a] Epoch chosen on test data, by x.",
        "[b] Sources disagree: NCM*, session 0: 81 in paper B.",
        "[c] PD printed as 19.00 (paper; wrong); CEC's accuracies give 20.00.",
    ]
    assert found.notes[-1] == 'Source paper A, of "Of A", B 2022: NCM*, CEC, x'
