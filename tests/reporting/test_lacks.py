from __future__ import annotations

from typing import Any

from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.lacks import lacking_runs, lacking_scores


def lacks(found: Chosen) -> dict[str, str]:
    """Return the commands by what they make."""
    return {lack.what: lack.command for lack in lacking_runs(found)}


def runs_of(factory: Any, **seeds: range) -> list[Any]:
    """Return runs of methods with seeds."""
    return [factory.write(factory.spec(m, s)) for m, each in seeds.items() for s in each]


def test_a_complete_table_lacks_nothing(factory: Any, rows: Any) -> None:
    assert lacks(rows(*runs_of(factory, ncm=range(3), ldc=range(3)))) == {}


def test_seeds_of_other_rows_are_missing(factory: Any, rows: Any) -> None:
    command = "fscil-bench run --method ldc --protocol toy --seeds 1-2 --precision fp32"
    runs = runs_of(factory, ncm=range(3), ldc=range(1))
    assert lacks(rows(*runs)) == {"ldc, seeds 1-2": command}


def test_seeds_asked_for_are_missing(factory: Any, rows: Any) -> None:
    runs = runs_of(factory, ncm=range(2))

    assert lacks(rows(*runs, protocol="toy", seeds=(0, 1, 5))) == {
        "ncm, seed 5": "fscil-bench run --method ncm --protocol toy --seeds 5 --precision fp32",
    }


def test_seeds_not_asked_for_are_not_missing(factory: Any, rows: Any) -> None:
    runs = runs_of(factory, ncm=range(3), ldc=range(1))

    assert lacks(rows(*runs, protocol="toy", seeds=(0,))) == {}


def test_representation_seeds_of_other_rows_are_missing(factory: Any, rows: Any) -> None:
    runs = [factory.write(factory.spec("ncm", representation={"seed": s})) for s in range(2)]
    runs.append(factory.write(factory.spec("ldc")))

    assert lacks(rows(*runs)) == {
        "ldc, seed 0, representation_seed 1": (
            "fscil-bench run --method ldc --protocol toy --seeds 0 --representation-seed 1 "
            "--precision fp32"
        )
    }


def test_runs_lack_from_the_network_that_others_have(factory: Any, rows: Any) -> None:
    trained = [{"seed": 0}, {"seed": 1, "precision": "bf16"}]
    runs = [factory.write(factory.spec("ncm", representation=each)) for each in trained]
    runs.append(factory.write(factory.spec("ldc")))

    (command,) = lacks(rows(*runs)).values()
    assert command.endswith("--representation-seed 1 --precision bf16")


def test_the_command_repeats_the_row_s_parameters(factory: Any, rows: Any) -> None:
    spec = factory.spec("ldc", params={"steps": 3, "widths": [64, 32]})

    found = lacks(rows(factory.write(spec), seeds=(0, 1)))

    assert found == {
        "ldc (steps=3), seed 1": (
            "fscil-bench run --method ldc --protocol toy --seeds 1 --precision fp32 --set steps=3"
        )
    }


def test_a_method_without_any_run_takes_the_seeds_of_the_others(factory: Any, rows: Any) -> None:
    runs = runs_of(factory, ncm=range(2))

    assert lacks(rows(*runs, protocol="toy", methods=("ncm", "ldc"))) == {
        "ldc, seeds 0-1": "fscil-bench run --method ldc --protocol toy --seeds 0-1",
    }


def test_a_representation_without_any_run_is_missing(factory: Any, rows: Any) -> None:
    runs = runs_of(factory, ncm=range(1))

    assert lacks(
        rows(*runs, protocol="toy", representations=("cosine", "fact"), split="seeded")
    ) == {
        "ncm [fact], seed 0": (
            "fscil-bench run --method ncm --protocol toy --representation fact --split seeded "
            "--seeds 0"
        )
    }


def test_runs_without_scores_are_made_again_for_measures_of_scores(factory: Any, rows: Any) -> None:
    found = rows(*runs_of(factory, ncm=range(3), ldc=range(1)))

    (ncm, ldc) = lacking_scores(found, ["last", "ece", "new_own_labels"])

    assert ncm.what == "scores for ECE, New, own labels: ncm, seeds 0-2"
    assert ncm.command == (
        "fscil-bench run --method ncm --protocol toy --seeds 0-2 --precision fp32 --artifacts"
    )
    assert "--method ldc" in ldc.command
    assert lacking_scores(found, ["last", "average"]) == []
