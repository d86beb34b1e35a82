from __future__ import annotations

import json
from typing import Any

import pytest

import fscil_bench as fb
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.frame import SESSION_COLUMNS, Results, results_frame, run_frame
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store


def test_a_row_for_each_run_and_session(factory: Any) -> None:
    spec = factory.spec(seed=1, params={"steps": 3}, representation={"seed": 2})
    run = factory.write(spec, [(36, 0), (34, 6), (30, 10)], parameters="set by hand")

    frame = results_frame([run])

    assert frame["session"].tolist() == [0, 1, 2]
    assert frame["classes_seen"].tolist() == [4, 5, 6]
    assert frame["images"].tolist() == [40, 50, 60]
    assert frame["accuracy"].tolist() == pytest.approx([0.9, 0.8, 2 / 3])
    assert frame["base"].tolist() == pytest.approx([0.9, 34 / 40, 0.75])
    assert frame["new"].tolist()[1:] == pytest.approx([0.6, 0.5])
    # Of the last class's ten images none is right: the first ten new ones were.
    assert frame["latest"].tolist()[1:] == pytest.approx([0.6, 0.0])
    assert frame["harmonic"].tolist()[2] == pytest.approx(0.6)
    assert frame["state_bytes"].tolist() == [2048, 4096, 6144]
    whole = frame.drop(columns=list(SESSION_COLUMNS)).drop_duplicates().to_dict("records")
    (facts,) = whole
    expected = {
        "key": run.key,
        "protocol": "toy",
        "method": "ncm",
        "params": '{"steps": 3}',
        "representation": "cosine",
        "representation_seed": 2,
        "seed": 1,
        "way": 1,
        "shot": 5,
        "base_classes": 4,
        "sessions": 2,
        "class_order": "dataset",
        "epochs": 100,
        "parameters": "set by hand",
        "official": True,
        "train_images": 500,
        "folder": str(run.folder),
    }
    assert {name: facts[name] for name in expected} == expected


def test_runs_on_other_terms_can_be_told_apart(factory: Any, toy_protocol: Protocol) -> None:
    specs = [
        factory.spec(),
        factory.spec(protocol=toy_protocol.override(shot=1)),
        factory.spec(protocol=toy_protocol.override(class_order="seed:1")),
        factory.spec(protocol=toy_protocol.override(way=(1, 1))),
    ]
    runs = [factory.write(spec) for spec in specs]
    runs.append(factory.write(factory.spec(seed=1), flags=("unofficial data (a mirror)",)))

    whole = run_frame(results_frame(runs))

    assert whole["shot"].tolist() == [5, 1, 5, 5, 5]
    assert whole["way"].tolist() == [1, 1, 1, "1, 1", 1]
    assert whole["class_order"].tolist() == ["dataset", "dataset", "seed:1", "dataset", "dataset"]
    assert whole["official"].tolist() == [True, True, True, True, False]
    assert whole.loc[runs[4].key, "flags"] == "unofficial data (a mirror)"


def test_of_nothing_there_is_an_empty_frame() -> None:
    frame = results_frame([])

    assert frame.empty and "accuracy" in frame
    assert run_frame(frame).empty and "last" in run_frame(frame)


def test_results_are_of_the_protocol_and_readable(factory: Any, toy_protocol: Protocol) -> None:
    runs = [
        factory.write(factory.spec()),
        factory.write(factory.spec("ldc")),
        factory.write(factory.spec(protocol=toy_protocol.override(name="other"))),
    ]
    (runs[1].folder / "predictions.npz").write_bytes(b"PK")

    one = Results(Registry(), Selection("toy"), tuple(runs), unread_runs=("lost",))
    every = Results(Registry(), runs=tuple(runs))

    assert one.frame["key"].unique().tolist() == [runs[0].key]
    assert list(one.damaged) == [runs[1].key]
    assert one.problems[0] == "lost"
    assert str(runs[1].folder) in one.problems[1]
    assert every.frame["key"].unique().tolist() == [runs[0].key, runs[2].key]
    assert one.run(runs[2].key) == runs[2]


def test_runs_are_loaded_with_a_warning_of_damage(factory: Any, store: Store) -> None:
    factory.write(factory.spec(seed=1))
    truncated, unreadable = (factory.write(factory.spec(seed=seed)) for seed in (2, 3))
    (truncated.folder / "predictions.npz").write_bytes(b"PK")
    record = unreadable.folder / "run.json"
    record.write_text(json.dumps({"schema_version": 0}))

    with pytest.warns(UserWarning) as caught:
        frame = fb.load_runs(store.results)

    told = "\n".join(str(warning.message) for warning in caught)
    assert "predictions.npz: damaged" in told and str(record) in told
    assert len(frame) == 3
    with pytest.warns(UserWarning):
        whole = fb.load_runs(store.results, by="run")
    assert whole["average"].tolist() == pytest.approx([100 * (0.9 + 0.8 + 2 / 3) / 3])


def test_runs_of_one_row_share_what_identifies_it(factory: Any) -> None:
    specs = [
        factory.spec(),
        factory.spec(seed=1, representation={"seed": 1}),
        factory.spec(split="canonical"),
        factory.spec(representation={"name": "fact"}),
        factory.spec(representation={"params": {"a": 1}}),
        factory.spec(representation={"data_fingerprint": "0" * 16}),
    ]
    groups = run_frame(results_frame(map(factory.write, specs))).groupby("row")

    assert sorted(groups.size()) == [1, 1, 1, 1, 2]
    for column in ("split", "representation", "representation_params", "data_fingerprint"):
        assert (groups[column].nunique() == 1).all()
