from __future__ import annotations

from typing import Any

import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reports._rows import axes_text, chosen_runs, group_rows
from fscil_bench.request import Selection


def created(day: int) -> str:
    return f"2024-01-{day:02}T00:00:00+00:00"


def test_seeds_of_both_axes_share_a_row(factory: Any, registry: Registry) -> None:
    runs = [
        factory.write(factory.spec(seed=seed, representation={"seed": representation_seed}))
        for seed in (1, 0)
        for representation_seed in (0, 1)
    ]

    (row,) = group_rows(runs, registry)

    assert row.axes == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert [run.spec.seed for run in row.runs] == [0, 1, 0, 1]
    assert (row.older, row.repeated) == (0, 0)


def test_settings_are_never_mixed(factory: Any, registry: Registry, toy_protocol: Protocol) -> None:
    specs = [
        factory.spec(),
        factory.spec("ldc"),
        factory.spec(params={"a": 1}),
        factory.spec(split="canonical"),
        factory.spec(protocol=toy_protocol.override(epochs=5)),
        factory.spec(protocol=toy_protocol.override(shot=1)),
        factory.spec(protocol=toy_protocol.override(train_images=100)),
        factory.spec(representation={"name": "fact"}),
        factory.spec(representation={"params": {"a": 1}}),
        factory.spec(representation={"precision": "bf16"}),
        factory.spec(representation={"data_fingerprint": "0" * 16}),
    ]

    rows = group_rows([factory.write(spec) for spec in specs], registry)

    assert [len(row.runs) for row in rows] == [1] * len(specs)
    assert len({row.label for row in rows}) == len(specs)


def test_mean_and_interval_are_over_the_runs(factory: Any, registry: Registry) -> None:
    last = [(20, 10), (24, 12), (28, 14)]
    runs = [
        factory.write(factory.spec(seed=seed), [(36, 0), (34, 6), pair])
        for seed, pair in enumerate(last)
    ]

    interval = group_rows(runs, registry)[0].interval(lambda run: run.accuracies[-1])

    # Accuracies 0.5, 0.6, 0.7: s = 0.1, t(0.975, 2) = 4.302653.
    assert interval.mean == pytest.approx(0.6)
    assert interval.half_width == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-6)
    assert interval.count == 3


@pytest.mark.parametrize(
    "change",
    [
        {"code": "m2"},
        {"engine": "e2"},
        {"representation": {"code": "r2"}},
        {"representation": {"engine": "e2"}},
        {"shots": "other table"},
    ],
)
def test_the_newest_version_stays(factory: Any, registry: Registry, change: dict[str, Any]) -> None:
    runs = [factory.write(factory.spec(seed=seed), created=created(1)) for seed in range(3)]
    newest = factory.write(factory.spec(seed=0, **change), created=created(2))

    (row,) = group_rows([newest, *runs], registry)

    assert row.runs == (newest,)
    assert row.older == 3


def test_the_newest_of_repeated_seeds_stays(factory: Any, registry: Registry) -> None:
    old = factory.write(factory.spec(), created=created(1))
    new = type(old)(old.record.model_copy(update={"created": created(2)}), old.folder)

    (row,) = group_rows([new, old], registry)

    assert [run.record.created for run in row.runs] == [created(2)]
    assert row.repeated == 1


def test_one_run_names_its_seeds(factory: Any, registry: Registry) -> None:
    (row,) = group_rows([factory.write(factory.spec(seed=4))], registry)

    assert axes_text(row) == "n = 1 (seed 4, representation_seed 0)"


@pytest.mark.parametrize(
    ("split", "noise"),
    [("seeded", "shots and method noise"), ("canonical", "method noise; the shots are fixed")],
)
def test_what_a_seed_moves_is_said(
    factory: Any, registry: Registry, split: str, noise: str
) -> None:
    (row,) = group_rows(
        [factory.write(factory.spec(seed=s, split=split)) for s in range(3)], registry
    )

    assert axes_text(row) == f"n = 3 over seed ({noise}), representation_seed 0"


def test_representation_seeds_are_named(factory: Any, registry: Registry) -> None:
    runs = [factory.write(factory.spec(representation={"seed": s})) for s in range(2)]

    assert axes_text(group_rows(runs, registry)[0]) == "n = 2 over representation_seed, seed 0"


def test_two_axes_are_both_counted(factory: Any, registry: Registry) -> None:
    pairs = [(0, 0), (1, 1), (2, 0)]
    runs = [factory.write(factory.spec(seed=s, representation={"seed": r})) for s, r in pairs]

    paired, crossed = (
        axes_text(group_rows(runs[:2], registry)[0]),
        axes_text(group_rows(runs, registry)[0]),
    )

    assert paired == (
        "n = 2 over seed (2 values; shots and method noise) and representation_seed (2 values)"
    )
    assert crossed.startswith(
        "n = 3 over seed (3 values; shots and method noise) and representation_seed (2 values)"
    )
    assert "± may be too narrow" in crossed


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), {0, 1, 2, 3}),
        (Selection(protocol="toy"), {0, 1, 2}),
        (Selection(methods=("ldc",)), {1}),
        (Selection(representations=("fact",)), {2}),
        (Selection(seeds=(0, 3)), {0, 3}),
        (Selection(split="canonical"), {2}),
    ],
)
def test_a_selection_chooses(
    factory: Any, toy_protocol: Protocol, selection: Selection, expected: set[int]
) -> None:
    specs = [
        factory.spec(seed=0),
        factory.spec("ldc", seed=1),
        factory.spec(seed=2, representation={"name": "fact"}, split="canonical"),
        factory.spec(seed=3, protocol=toy_protocol.override(name="other")),
    ]

    runs = chosen_runs([factory.write(spec) for spec in specs], selection)

    assert {run.spec.seed for run in runs} == expected
