from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fscil_bench.protocol import Protocol, Recipe
from fscil_bench.reporting.facts import (
    axes_text,
    checkpoint_rule,
    human_bytes,
    note_lines,
    row_facts,
)


def test_a_single_row_states_everything_in_one_line(factory: Any, rows: Any) -> None:
    found = rows(*(factory.write(factory.spec(seed=s)) for s in range(2)))

    assert note_lines(found) == [
        "All rows: backbone resnet20; pre-training none; representation cosine; 100 epochs; "
        "checkpoint: last epoch; precision fp32; training images a class: 500 of 500 in the full "
        "data set; test images a class: 10; split seeded; n = 2 over seed (shots and method "
        "noise), representation_seed 0; 6.00 KiB (6,144 bytes) stored; engine e1."
    ]


def test_what_differs_is_said_row_by_row(factory: Any, rows: Any) -> None:
    runs = [
        factory.write(factory.spec("ncm")),
        factory.write(factory.spec("ldc"), flags=("uses the final class count",)),
    ]

    shared, ldc = note_lines(rows(*runs))

    assert "backbone resnet20" in shared
    assert ldc == "ldc: flags: uses the final class count."


def test_rows_on_unequal_terms_are_pointed_out(
    factory: Any, rows: Any, toy_protocol: Protocol
) -> None:
    runs = [
        factory.write(factory.spec("ncm")),
        factory.write(factory.spec("ldc", protocol=toy_protocol.override(epochs=5, shot=1))),
    ]

    lines = note_lines(rows(*runs))

    assert lines[1].startswith("ncm (shot=5): 100 epochs")
    assert lines[2].startswith("ldc (shot=1): 5 epochs")
    assert lines[3] == (
        "Not all rows are on equal terms; they differ in shot (5 / 1); epochs (100 / 5)."
    )


def test_rows_on_a_network_that_learnt_nothing_are_named(factory: Any, rows: Any) -> None:
    # Of 40 test images in 4 base classes chance gets 10 right.
    good = factory.write(factory.spec("ncm"), [(11, 0)] * 3)
    line = "Session 0 is hardly above chance: ldc."
    assert line not in note_lines(rows(good))
    assert line in note_lines(rows(good, factory.write(factory.spec("ldc"), [(10, 0)] * 3)))


def test_runs_left_out_are_counted(factory: Any, rows: Any) -> None:
    runs = [
        factory.write(factory.spec(seed=0, code="m1"), created="2024-01-01"),
        factory.write(factory.spec(seed=1, code="m1"), created="2024-01-02"),
        factory.write(factory.spec(seed=0, code="m2"), created="2024-01-03"),
    ]

    found = rows(*runs)
    repeated = replace(found, frame=found.frame.assign(older=0, repeated=1))

    assert note_lines(found)[1:] == [
        "ncm: 2 runs left out, made with an earlier version of the code."
    ]
    assert note_lines(repeated)[1:] == ["ncm: 1 run left out, a newer one has the same seeds."]


@pytest.mark.parametrize(
    ("counts", "full", "expected"),
    [
        ((500, 500), 500, "500 of 500 in the full data set"),
        ((90, 100), 500, "90 to 100 of 500 in the full data set"),
        ((29, 30), None, "29 to 30"),
    ],
)
def test_training_images_are_set_against_the_full_data(
    factory: Any,
    rows: Any,
    toy_protocol: Protocol,
    counts: tuple[int, int],
    full: int | None,
    expected: str,
) -> None:
    spec = factory.spec(protocol=toy_protocol.override(train_images=full))

    found = rows(factory.write(spec, train_images=counts))

    assert row_facts(found, "ncm")["train_images"] == f"training images a class: {expected}"


def test_a_representation_shows_its_unusual_parameters(factory: Any, rows: Any) -> None:
    spec = factory.spec(representation={"name": "fact", "params": {"virtual": 5}})

    found = rows(factory.write(spec))

    (label,) = found.labels
    assert row_facts(found, label)["representation"] == "representation fact, virtual=5"


def test_the_remarks_of_a_method_are_passed_on(factory: Any, rows: Any) -> None:
    runs = [
        factory.write(factory.spec(seed=0), notes={"repairs": 2, "width": 1.23456, "by": "x"}),
        factory.write(factory.spec(seed=1), notes={"repairs": 0, "width": 1.2, "by": "y"}),
        factory.write(factory.spec(seed=2)),
    ]

    assert row_facts(rows(*runs), "ncm")["notes"] == (
        "the method notes repairs = 0 to 2 (2 of 3 runs), width = 1.2 to 1.235 (2 of 3 runs), "
        "by = x / y (2 of 3 runs)"
    )


def test_checkpoint_rule() -> None:
    assert checkpoint_rule(Recipe(epochs=1)) == "last epoch"
    assert checkpoint_rule(Recipe(epochs=1, checkpoint="best", holdout=0.1)) == (
        "best epoch on 10% of base training images, held out"
    )


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB (1,024 bytes)"),
        (1234567, "1.18 MiB (1,234,567 bytes)"),
        (5 * 1024**3, "5.00 GiB (5,368,709,120 bytes)"),
    ],
)
def test_human_bytes(count: int, expected: str) -> None:
    assert human_bytes(count) == expected


def test_parameters_of_a_method_that_is_not_registered_are_told(factory: Any, rows: Any) -> None:
    run = factory.write(
        factory.spec("mine", params={"shrink": 0.1, "steps": 3}), parameters="set by hand"
    )
    facts = row_facts(rows(run), "mine")

    assert facts["parameters"] == "parameters: set by hand (shrink=0.1, steps=3)"


SHOTS = "shots and method noise"


@pytest.mark.parametrize(
    ("axes", "split", "expected"),
    [
        ({(0, 4)}, "seeded", "n = 1 (seed 4, representation_seed 0)"),
        ({(0, 0), (0, 1), (0, 2)}, "seeded", f"n = 3 over seed ({SHOTS}), representation_seed 0"),
        (
            {(0, 0), (0, 1)},
            "canonical",
            "n = 2 over seed (method noise; the shots are fixed), representation_seed 0",
        ),
        ({(0, 0), (1, 0)}, "seeded", "n = 2 over representation_seed, seed 0"),
        (
            {(0, 0), (1, 1)},
            "seeded",
            f"n = 2 over seed (2 values; {SHOTS}) and representation_seed (2 values)",
        ),
        (
            {(0, 0), (1, 1), (0, 2)},
            "seeded",
            f"n = 3 over seed (3 values; {SHOTS}) and representation_seed (2 values), taken as "
            "independent although some runs share one, so that ± may be too narrow",
        ),
    ],
)
def test_what_varies_is_said(axes: set[tuple[int, int]], split: str, expected: str) -> None:
    assert axes_text(axes, split) == expected


def test_a_row_of_both_precisions_says_so(factory: Any, rows: Any) -> None:
    trained = [{"seed": 0}, {"seed": 1, "precision": "bf16"}, {"seed": 2}]
    found = rows(*(factory.write(factory.spec(representation=each)) for each in trained))

    (line,) = note_lines(found)

    expected = "; precision bf16 (representation_seed 1) and fp32 (representation_seed 0 2); "
    assert expected in line
