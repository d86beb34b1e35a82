from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fscil_bench.plugins.registry import Plugin, Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.choice import current, drawn_rows, plain_command
from fscil_bench.reporting.frame import Results, results_frame, run_frame
from fscil_bench.reporting.statistics import aggregate, interval
from fscil_bench.request import Selection

DEFAULTS = {"steps": 8, "widths": [64, 32]}


def created(day: int) -> str:
    return f"2024-01-{day:02}T00:00:00+00:00"


def test_seeds_of_both_axes_share_a_row(factory: Any, rows: Any) -> None:
    runs = [
        factory.write(factory.spec(seed=seed, representation={"seed": representation_seed}))
        for seed in (1, 0)
        for representation_seed in (0, 1)
    ]

    found = rows(*runs)

    assert found.labels == ("ncm",)
    assert found.axes("ncm") == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert [run.spec.seed for run in found.runs("ncm")] == [0, 1, 0, 1]
    assert found.spec("ncm") == found.runs("ncm")[0].spec
    assert (found.frame[["older", "repeated"]] == 0).all(axis=None)


def test_settings_are_never_mixed(factory: Any, rows: Any, toy_protocol: Protocol) -> None:
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
        factory.spec(representation={"data_fingerprint": "0" * 16}),
    ]

    found = rows(*(factory.write(spec) for spec in specs))

    assert len(found.labels) == len(found.frame) == len(specs)
    assert [found.spec(label) for label in found.labels] == specs


def test_mean_and_interval_are_over_the_runs(factory: Any, rows: Any) -> None:
    last = [(20, 10), (24, 12), (28, 14)]
    runs = [
        factory.write(factory.spec(seed=seed), [(36, 0), (34, 6), pair])
        for seed, pair in enumerate(last)
    ]
    frame = rows(*runs).frame

    # Accuracies 50, 60, 70 %: s = 10, t(0.975, 2) = 4.302653.
    half = pytest.approx(4.302653 * 10 / 3**0.5, rel=1e-6)
    line = aggregate(frame, "label", ["last"]).loc["ncm"]
    assert (line["runs"], line["last_mean"], line["last_n"]) == (3, pytest.approx(60), 3)
    assert line["last_half_width"] == half
    assert interval(frame, "last").half_width == half


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
def test_the_newest_version_stays(factory: Any, change: dict[str, Any]) -> None:
    runs = [factory.write(factory.spec(seed=seed), created=created(1)) for seed in range(3)]
    newest = factory.write(factory.spec(seed=0, **change), created=created(2))

    kept = current(run_frame(results_frame([newest, *runs])))

    assert list(kept.index) == [newest.key]
    assert (kept["older"].item(), kept["repeated"].item()) == (3, 0)


def test_the_newest_of_repeated_seeds_stays(factory: Any) -> None:
    # Two runs of one version and seeds differ in what no key knows, as a row has it.
    frame = run_frame(results_frame(factory.write(factory.spec(seed=s)) for s in range(2)))
    frame = frame.assign(seed=0, created=[created(2), created(1)])

    kept = current(frame)

    assert kept["created"].tolist() == [created(2)]
    assert (kept["older"].item(), kept["repeated"].item()) == (0, 1)


OTHER_MACHINE = [(40, 0), (40, 10), (40, 20)]


def test_runs_of_two_networks_are_never_pooled(factory: Any, rows: Any) -> None:
    # Results of two machines copied together: each had some of the seeds.
    old = [factory.spec(method, seed) for method in ("ncm", "ldc") for seed in (0, 1)]
    runs = [
        factory.write(spec, OTHER_MACHINE, network="a" * 16, created=created(day))
        for day, spec in enumerate(old, start=1)
    ]
    runs += [
        factory.write(factory.spec(seed=seed), network="b" * 16, created=created(9))
        for seed in (2, 3)
    ]

    found = rows(*runs)

    assert found.labels == ("ncm",)
    assert found.axes("ncm") == {(0, 2), (0, 3)}
    first = aggregate(found.frame, "label", ["first"]).loc["ncm"]
    assert (first["first_mean"], first["first_half_width"]) == (90, 0)
    assert found.notes == (
        "4 runs of ldc, ncm left out: made from another network of representation cosine, "
        "representation_seed 0, than the newest, so that more than the methods would differ.",
    )


def test_each_representation_seed_has_a_network_of_its_own(factory: Any, rows: Any) -> None:
    specs = [
        factory.spec(),
        factory.spec(representation={"seed": 1, "precision": "bf16"}),
        factory.spec(representation={"name": "fact"}),
    ]
    runs = [factory.write(spec, network=str(n) * 16) for n, spec in enumerate(specs, start=1)]

    found = rows(*runs)

    assert found.labels == ("ncm", "ncm [fact]")
    assert found.axes("ncm") == {(0, 0), (1, 0)}
    assert found.notes == ()


@pytest.mark.parametrize(
    ("networks", "kept"),
    [
        (("", "a", "a"), 3),  # nothing else is known of that representation
        (("", "a", "b"), 1),  # it may be either
        (("", "", "b"), 3),
        (("a", "", ""), 3),
        (("", "", ""), 3),
    ],
)
def test_a_record_without_network_has_the_only_one_known(
    factory: Any, rows: Any, networks: tuple[str, ...], kept: int
) -> None:
    runs = [
        factory.write(factory.spec(seed=seed), network=network, created=created(seed + 1))
        for seed, network in enumerate(networks)
    ]

    assert len(rows(*runs).frame) == kept


def test_old_records_of_two_precisions_are_of_two_networks(factory: Any, rows: Any) -> None:
    trained = [{"precision": "fp32"}, {"precision": "bf16"}]
    runs = [
        factory.write(factory.spec(seed=seed, representation=own), created=created(seed + 1))
        for seed, own in enumerate(trained)
    ]

    assert rows(*runs).axes("ncm") == {(0, 1)}


def test_rows_that_are_kept_have_the_shortest_names(factory: Any, rows: Any) -> None:
    specs = [factory.spec("ncm", split=split) for split in ("seeded", "canonical")]
    found = rows(*map(factory.write, specs), factory.write(factory.spec("ldc")))

    kept = found.keep(["ldc", "ncm (split=canonical)"])

    assert found.labels == ("ncm (split=seeded)", "ncm (split=canonical)", "ldc")
    assert kept.labels == ("ldc", "ncm")
    assert kept.spec("ncm") == specs[1]
    assert set(kept.sessions["label"]) == {"ldc", "ncm"}
    assert kept.sessions["accuracy"].tolist() == pytest.approx([0.9, 0.8, 2 / 3] * 2)
    assert found.keep([]).labels == ()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {0, 1, 2, 3}),
        ({"protocol": "toy"}, {0, 1, 2}),
        ({"methods": ("ldc",)}, {1}),
        ({"representations": ("fact",)}, {2}),
        ({"seeds": (0, 3)}, {0, 3}),
        ({"split": "canonical"}, {2}),
    ],
)
def test_a_selection_chooses(
    factory: Any, rows: Any, toy_protocol: Protocol, asked: dict[str, Any], expected: set[int]
) -> None:
    specs = [
        factory.spec(seed=0),
        factory.spec("ldc", seed=1),
        factory.spec(seed=2, representation={"name": "fact"}, split="canonical"),
        factory.spec(seed=3, protocol=toy_protocol.override(name="other")),
    ]

    assert set(rows(*map(factory.write, specs), **asked).frame["seed"]) == expected


def test_what_cannot_be_read_is_a_problem_where_it_was_asked_for(factory: Any, rows: Any) -> None:
    runs = [factory.write(factory.spec(method)) for method in ("ncm", "ldc")]
    (runs[1].folder / "predictions.npz").write_bytes(b"PK")

    assert rows(*runs, methods=("ncm",)).problems == ()
    found = rows(*runs)
    assert found.labels == ("ncm",)
    (problem,) = found.problems
    assert problem.startswith(f"left out: {runs[1].folder}")


def test_rows_of_the_protocol_s_shape_are_drawn_before_others(
    factory: Any, rows: Any, toy_protocol: Protocol
) -> None:
    short = factory.spec("ncm", protocol=toy_protocol.override(sessions=1))
    runs = [factory.write(short, [(40, 0), (40, 10)])]
    runs.append(factory.write(factory.spec("ldc", params=DEFAULTS | {"steps": 1})))

    assert drawn_rows(rows(*runs), 1).labels == ("ldc (steps=1)",)


def test_a_suggested_command_brings_the_plug_ins_that_it_needs() -> None:
    toy = Path(__file__).parents[1] / "toy"
    registry = load_registry((toy / "toy_reader.py",))
    name = registry.add_protocol_file(toy / "toy.toml")
    command = plain_command("ncm", Results(registry, Selection(name)), None, 0)
    assert command == (
        f"fscil-bench run --plugin {toy / 'toy_reader.py'} --method ncm "
        f"--protocol {toy / 'toy.toml'} --seeds 0"
    )


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        ((), ""),
        (("seeded", "outlier:0.2"), " --split seeded"),
        (("listed",), ""),
        (("canonical", "seeded"), ""),
    ],
)
def test_a_suggested_command_takes_split_and_copy_of_what_is_stored(
    splits: tuple[str, ...], told: str, factory: Any, registry: Registry, toy_protocol: Protocol
) -> None:
    longer = toy_protocol.model_copy(update={"name": "longer", "split": "canonical"})
    registry.add(Plugin("protocol", "longer", longer, Path(__file__), "test"))
    flags = ("unofficial data (another order)",)
    runs = [factory.write(factory.spec("ncm", split=each), flags=flags) for each in splits]

    command = plain_command("ncm", Results(registry, Selection("longer"), tuple(runs)), None, 0)

    copy = " --unofficial-data" if splits else ""
    assert command == f"fscil-bench run --method ncm --protocol longer{told} --seeds 0{copy}"
