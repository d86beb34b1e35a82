from __future__ import annotations

from typing import Any

from fscil_bench.plugins.registry import Registry
from fscil_bench.reports._missing import lacking_runs
from fscil_bench.reports._rows import Row, group_rows
from fscil_bench.request import Selection


def lacks(rows: list[Row], registry: Registry, **asked: Any) -> dict[str, str]:
    """Return the commands by what they make."""
    found = lacking_runs(rows, Selection(protocol="toy", **asked), registry)
    return {lack.what: lack.command for lack in found}


def rows_of(factory: Any, registry: Registry, **seeds: range) -> list[Row]:
    """Return rows of methods with seeds."""
    return group_rows(
        [factory.write(factory.spec(m, s)) for m, each in seeds.items() for s in each], registry
    )


def test_a_complete_table_lacks_nothing(factory: Any, registry: Registry) -> None:
    assert lacks(rows_of(factory, registry, ncm=range(3), ldc=range(3)), registry=registry) == {}


def test_seeds_of_other_rows_are_missing(factory: Any, registry: Registry) -> None:
    command = "fscil-bench run --method ldc --protocol toy --seeds 1-2 --precision fp32"
    rows = rows_of(factory, registry, ncm=range(3), ldc=range(1))
    assert lacks(rows, registry=registry) == {"ldc, seeds 1-2": command}


def test_seeds_asked_for_are_missing(factory: Any, registry: Registry) -> None:
    assert lacks(rows_of(factory, registry, ncm=range(2)), seeds=(0, 1, 5), registry=registry) == {
        "ncm, seed 5": "fscil-bench run --method ncm --protocol toy --seeds 5 --precision fp32",
    }


def test_seeds_not_asked_for_are_not_missing(factory: Any, registry: Registry) -> None:
    rows = rows_of(factory, registry, ncm=range(3), ldc=range(1))

    assert lacks(rows, seeds=(0,), registry=registry) == {}


def test_representation_seeds_of_other_rows_are_missing(factory: Any, registry: Registry) -> None:
    runs = [factory.write(factory.spec("ncm", representation={"seed": s})) for s in range(2)]
    runs.append(factory.write(factory.spec("ldc")))

    assert lacks(group_rows(runs, registry), registry=registry) == {
        "ldc, seed 0, representation_seed 1": (
            "fscil-bench run --method ldc --protocol toy --seeds 0 --representation-seed 1 "
            "--precision fp32"
        )
    }


def test_the_command_repeats_the_row_s_parameters(factory: Any, registry: Registry) -> None:
    spec = factory.spec("ldc", params={"steps": 3, "widths": [64, 32]})

    found = lacks(group_rows([factory.write(spec)], registry), seeds=(1,), registry=registry)

    assert found == {
        "ldc (steps=3), seed 1": (
            "fscil-bench run --method ldc --protocol toy --seeds 1 --precision fp32 --set steps=3"
        )
    }


def test_a_method_without_any_run_takes_the_seeds_of_the_others(
    factory: Any, registry: Registry
) -> None:
    rows = rows_of(factory, registry, ncm=range(2))

    assert lacks(rows, methods=("ncm", "ldc"), registry=registry) == {
        "ldc, seeds 0-1": "fscil-bench run --method ldc --protocol toy --seeds 0-1",
    }


def test_a_representation_without_any_run_is_missing(factory: Any, registry: Registry) -> None:
    rows = rows_of(factory, registry, ncm=range(1))

    assert lacks(rows, representations=("cosine", "fact"), split="seeded", registry=registry) == {
        "ncm [fact], seed 0": (
            "fscil-bench run --method ncm --protocol toy --representation fact --split seeded "
            "--seeds 0"
        )
    }
