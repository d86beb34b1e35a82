from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.protocol import Protocol
from fscil_bench.reporting.figures import figure_style
from fscil_bench.reports.confusion.report import Confusion


def test_the_tables_by_hand(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ldc"))
    factory.write(factory.spec("ncm"), [(36, 0), (30, 0), (20, 0)])

    text = make(Confusion).text

    # ldc: a quarter of base images, all of class 3, are taken for class 4; class 5's for class 0.
    assert "| ldc | 1 | 75.00 | 0.00 | 25.00 | 50.00 | 0.00 | 50.00 |" in text
    # ncm: classes 2 and 3 are wrong, taken for 3 and 4; 4 for 5 and 5 for 0.
    assert "| ncm | 1 | 50.00 | 25.00 | 25.00 | 0.00 | 50.00 | 50.00 |" in text
    # ldc, session by session: 6 and 10 of 40 base images; 4 of 10 and 10 of 20 new ones.
    assert "| ldc | 1 | 15.00 | 25.00 |" in text
    assert "| ldc | 1 | 40.00 | 50.00 |" in text
    # Forgetting: best of 90 and 85, less 75. Class 4: 60 when it was new, then 100.
    assert "| ldc | 1 | 15.00 | -40.00 | -12.50 |" in text
    assert "| ldc | 1 | 90.00 | 60.00 | 0.00 | 30.00 |" in text
    assert "| ldc | class 3 | 0 | class 4 | 1 | 10.00 | 100.00 |" in text
    assert "| ldc | class 5 | 2 | class 0 | 0 | 10.00 | 100.00 |" in text
    assert len(make(Confusion, {"pairs": 1}).tables["pairs"]) == 2  # one a row


def test_intervals_are_over_runs(factory: Any, make: Any) -> None:
    for seed, base in enumerate((30, 34)):
        factory.write(factory.spec(seed=seed), [(36, 0), (34, 6), (base, 10)])

    tables = make(Confusion).tables
    (line,) = tables["forgetting"].to_dict("records")
    first, second = tables["pairs"].to_dict("records")

    # Of base classes 15 and 5 points, of class 4 twice −40; means over both −12.5 and −17.5.
    assert (line["label"], line["runs"], line["session_1_n"]) == ("ncm", 2, 2)
    assert line["session_0_mean"] == pytest.approx(10)
    assert line["mean_mean"] == pytest.approx(-15)
    # t(0.975, 1) = 12.7062, s = 5/√2.
    assert line["mean_half_width"] == pytest.approx(12.7062047 * 2.5)
    # All of class 5 are taken for 0; of class 3 ten images in one run and six in the other for 4.
    assert (first["class_id"], first["taken_for_id"], first["images_mean"]) == (5, 0, 10)
    assert (second["class_id"], second["taken_for_id"], second["images_mean"]) == (3, 4, 8)
    assert second["percent_mean"] == 80
    # s = 2√2: t·s/√2 images, of ten.
    assert second["percent_half_width"] == pytest.approx(12.7062047 * 20, rel=1e-6)


def test_bars_are_what_the_numbers_say(factory: Any, make: Any) -> None:
    factory.write(factory.spec())

    rates = make(Confusion).figures["rates"]
    with figure_style():
        base, new = rates.draw().axes

    heights = [[bar.get_height() for bar in stack] for stack in base.containers]
    names = ("base_right", "base_to_base", "base_to_new")
    assert heights == [list(rates.numbers[f"{name}_mean"]) for name in names]
    assert [bar.get_hatch() for stack in base.containers for bar in stack[:1]] == [
        None,
        "////",
        "....",
    ]
    tops = [bar.get_y() + bar.get_height() for bar in new.containers[-1]]
    assert tops[1:] == pytest.approx([100, 100])


def test_blocks_are_written_into_their_fields(factory: Any, make: Any) -> None:
    factory.write(factory.spec())
    with figure_style():
        axes = make(Confusion).figures["blocks"].draw().axes[0]

    texts = {
        (t.get_position()[1] - 0.5, t.get_position()[0] - 0.5): t.get_text() for t in axes.texts
    }
    assert (texts[0, 0], texts[0, 1], texts[2, 0]) == ("75", "25", "100")


def test_more_rows_than_a_page_holds_are_not_drawn(factory: Any, make: Any) -> None:
    for place in range(7):
        factory.write(factory.spec(f"m{place}"), [(36, 0), (34, 6), (10 + place, 10)])

    made = make(Confusion)

    assert "the 6 rows with the best last session" in made.text
    drawn = {f"m{place}" for place in range(1, 7)}
    assert {name: set(f.numbers["label"]) for name, f in made.figures.items()} == {
        "rates": drawn,
        "blocks": drawn,
    }


def test_rows_with_fewer_sessions_leave_cells_empty(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    factory.write(factory.spec("ncm"))
    for count, right in ((1, [(36, 0), (34, 6)]), (0, [(36, 0)])):
        protocol = toy_protocol.override(sessions=count)
        factory.write(factory.spec(f"of {count}", protocol=protocol), right)

    text = make(Confusion).text

    # Forgetting and plasticity: of the base session alone, and of sessions 0 and 1.
    assert "| of 1 (sessions=1) | 1 | 5.00 | – | 5.00 |" in text
    assert "| of 1 (sessions=1) | 1 | 90.00 | 60.00 | – | 60.00 |" in text
    assert "| of 0 (sessions=0) | 1 | – | – | – |" in text


def test_a_protocol_of_one_session_has_errors_alone(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    factory.write(factory.spec(protocol=toy_protocol.override(sessions=0)), [(36, 0)])

    made = make(Confusion)

    assert "| ncm | 1 | 90.00 | 10.00 | 0.00 | – | – | – |" in made.text
    assert set(made.tables) == {"confusion", "pairs"}


def test_nothing_confused_is_said_so(factory: Any, make: Any) -> None:
    factory.write(factory.spec(), [(40, 0), (40, 10), (40, 20)])

    made = make(Confusion)

    assert "No image was taken for another class." in made.text
    assert "pairs" not in made.tables
