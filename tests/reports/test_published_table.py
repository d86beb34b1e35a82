from __future__ import annotations

import csv
import io

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.protocol import Protocol
from fscil_bench.reports._published import Printed, PublishedRow, Source, Terms, Value
from fscil_bench.reports._published_notes import row_notes
from fscil_bench.reports._published_table import PublishedTable, chosen_published

PAPER, LATER = Source("paper A"), Source("paper B")


def row(
    method: str,
    *accuracies: str,
    terms: Terms = Terms(),  # noqa: B008 - frozen
    printed: tuple[Printed, ...] = (),
    others: tuple[Value, ...] = (),
    backbone: str = "ResNet20",
    pretraining: str = "none",
) -> PublishedRow:
    values = {t: Value(t, text, PAPER) for t, text in enumerate(accuracies)}
    return PublishedRow(method, backbone, pretraining, values, others, terms, printed)


PLAIN = row("CEC", "80.00", "70.0", "60.00")


def notes(of: PublishedRow, protocol: Protocol) -> list[str]:
    return row_notes(of, protocol).all()


def test_a_row_on_the_protocol_s_terms_has_no_footnote(toy_protocol: Protocol) -> None:
    same = row("x", "80", terms=Terms(epochs="100", chosen_on_test="none: last epoch"))

    assert notes(PLAIN, toy_protocol) == notes(same, toy_protocol) == []


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (
            row("x", "80", terms=Terms(chosen_on_test="accuracy in session 1")),
            "Epoch chosen on test data, by accuracy in session 1.",
        ),
        (row("x", "80", backbone="ResNet12"), "Other backbone: ResNet12; this protocol's is"),
        (row("x", "80", pretraining="not stated"), "Pre-training not stated; this protocol's is"),
        (row("x", "80", terms=Terms(epochs="600")), "Other epochs: 600 of base training; this"),
        (row("x", "80", terms=Terms(other_protocol=True)), "Not of this protocol."),
        (row("x", "80", terms=Terms(remark="a; b")), "A."),
    ],
)
def test_other_terms_are_said(of: PublishedRow, expected: str, toy_protocol: Protocol) -> None:
    assert notes(of, toy_protocol)[0].startswith(expected)


def test_remarks_are_footnotes_of_their_own(toy_protocol: Protocol) -> None:
    assert notes(row("x", "80", terms=Terms(remark="a; b")), toy_protocol) == ["A.", "B."]


@pytest.mark.parametrize(
    ("quantity", "text", "expected"),
    [
        ("PD", "20.00", ""),
        ("PD", "19.00", "Printed as 19.00 (paper; wrong); x's accuracies give 20.00."),
        ("PR", "74.99", "Printed as 74.99 (paper; last digit); x's accuracies give 75.00."),
        ("Avg", "70.10", "Printed as 70.10 (paper; wrong); x's accuracies give 70.00."),
    ],
)
def test_printed_figures_are_recomputed(
    quantity: str, text: str, expected: str, toy_protocol: Protocol
) -> None:
    printed = (Printed(quantity, text, "paper"),)
    of = row("x", "80.00", "70.00", "60.00", printed=printed)

    assert row_notes(of, toy_protocol).cells == ({quantity: (expected,)} if expected else {})


def test_sources_that_disagree_mark_the_cells(toy_protocol: Protocol) -> None:
    others = (Value(0, "81.00", LATER), Value(2, "59.00", LATER), Value(2, "58.00", Source("C")))
    found = row_notes(row("x", "80", "70", "60", others=others), toy_protocol)

    later = "Sources disagree: x, sessions 0, 2: 81.00, 59.00 in paper B."
    assert found.cells == {
        "session_0": (later,),
        "session_2": (later, "Sources disagree: x, session 2: 58.00 in C."),
    }


def test_the_table_by_hand(toy_protocol: Protocol) -> None:
    terms = Terms(chosen_on_test="x")
    of = row("NCM*", "80", terms=terms, others=(Value(0, "81", LATER),))
    text = PublishedTable(toy_protocol, [of, PLAIN]).markdown()

    assert text.splitlines()[:4] == [
        "| Published | 0 | 1 | 2 | Avg | PD | PR |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| NCM\\* [a] | 80 [b] | – | – | – | – | – |",
        "| CEC | 80.00 | 70.0 | 60.00 | 70.00 | 20.00 | 75.00 |",
    ]
    assert "- [a] Epoch chosen on test data, by x." in text
    assert "- [b] Sources disagree: NCM\\*, session 0: 81 in paper B." in text
    assert "- paper A: NCM\\*, CEC" in text


def test_latex_is_ascii_and_escaped(toy_protocol: Protocol) -> None:
    of = row("A_b*", "80", "70", "60", terms=Terms(remark="50 % more"))
    text = PublishedTable(toy_protocol, [of]).latex()

    assert text.isascii()
    assert r"A\_b*\textsuperscript{a} & 80 & 70 & 60 & 70.00 & 20.00 & 75.00 \\" in text
    assert r"\textsuperscript{a}\,50 \% more." in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2


def test_csv_has_terms_and_printed_figures(toy_protocol: Protocol) -> None:
    printed = (Printed("PD", "19.00", "paper"),)
    table = PublishedTable(toy_protocol, [row("x", "80", "70", "60", printed=printed)])

    (line,) = csv.DictReader(io.StringIO(table.csv()))

    assert (line["published_name"], line["session_1"]) == ("x", "70.0")
    assert (line["performance_drop"], line["printed_performance_drop"]) == ("20.0", "19.00")
    assert (line["printed_average"], line["sources"]) == ("", "paper A")
    assert line["footnotes"].startswith("Printed as 19.00")


def test_more_footnotes_than_letters_have_two_letters(toy_protocol: Protocol) -> None:
    remark = "; ".join(f"remark {number}" for number in range(28))
    table = PublishedTable(toy_protocol, [row("x", "80", terms=Terms(remark=remark))])

    assert list(table.marks.values())[24:] == ["y", "z", "aa", "ab"]


def test_rows_are_chosen_by_their_names() -> None:
    rows = [PLAIN, row("FACT", "80"), row("NCM (LUCIR/Rebalancing)", "80")]

    assert chosen_published(rows, "all") == rows
    assert chosen_published(rows, "none") == []
    assert chosen_published(rows, "FACT; CEC") == rows[:2]
    with pytest.raises(UsageError, match=r"no published row 'FCT'; did you mean 'FACT'"):
        chosen_published(rows, "FCT")
    with pytest.raises(UsageError, match="nothing is published for this protocol"):
        chosen_published([], "FACT")
