"""What a grid has to make, what is stored of it, and how long it should take."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

import fscil_bench as fb
from fscil_bench.cli.app import app
from fscil_bench.errors import FscilError
from fscil_bench.grids.execution import foreseeable
from fscil_bench.grids.graph import Graph, Row, graph_of, rows_of
from fscil_bench.grids.times import Times
from fscil_bench.request import RunRequest
from fscil_bench.running.workbench import Workbench

LDC = {"unit_steps": 3, "unit_classes": 2, "epochs": 3}


def requests(toy: Any, seeds: int = 4) -> list[RunRequest]:
    """NCM, LDC and fine-tuning on one network."""
    asked = {"ncm": {}, "ldc": LDC, "finetune": {"epochs": 1}}
    return [
        RunRequest(method, toy.toml, params=params, seed=seed)
        for method, params in asked.items()
        for seed in range(seeds)
    ]


def planned(bench: Workbench, rows: list[Row], **how: Any) -> Graph:
    return graph_of(bench.store, rows, Times(bench.store), **how)


def test_a_node_is_made_once_for_all_that_need_it_and_after_what_it_needs(new_toy: Any) -> None:
    bench = new_toy.bench()
    rows = rows_of(bench, requests(new_toy))
    assert [(row.request.method, row.seeds) for row in rows] == [
        (name, (0, 1, 2, 3)) for name in ("ncm", "ldc", "finetune")
    ]
    graph = planned(bench, rows, workers=2)
    kinds = Counter(node.kind for node in graph.nodes.values())
    assert kinds == {"network": 1, "view": 2, "learnt": 1, "runs": 2 + 2 + 4}, (
        "runs on images, which take long, come alone; the others in one batch a worker"
    )
    assert graph.missing == 12
    seen: list[str] = []
    for node in graph.nodes.values():
        assert set(node.needs) <= set(seen)
        seen.append(node.key)
    needed = {
        node.title: Counter(graph.nodes[key].kind for key in node.needs)
        for node in graph.of("runs")
    }
    assert needed["ncm on toy [cosine], seeds 0-1"] == {"network": 1, "view": 2}
    assert needed["ldc on toy [cosine], seeds 2-3"] == {"network": 1, "view": 2, "learnt": 1}
    assert needed["finetune on toy [cosine], seed 3"] == {"network": 1}
    on_gpu = Counter(node.kind for node in graph.nodes.values() if node.on_gpu)
    assert on_gpu == {"network": 1, "view": 2, "runs": 4}


def test_keys_are_those_of_the_runs(new_toy: Any) -> None:
    bench = new_toy.bench()
    [row] = rows_of(bench, requests(new_toy)[:4])
    plans = [bench.plan(replace(row.request, seed=seed)) for seed in row.seeds]
    assert [row.key(seed) for seed in row.seeds] == [plan.spec.key for plan in plans]
    assert [row.spec(seed) for seed in row.seeds] == [plan.spec for plan in plans]


def test_what_is_stored_is_not_made_and_tells_the_time_of_the_rest(toy: Any) -> None:
    made = toy.run(seed="0-1")
    bench = toy.bench()
    rows = rows_of(bench, requests(toy)[:8])
    graph = planned(bench, rows)
    assert graph.stored == {"network": 1, "view": 2, "runs": 2}
    assert {place: run.key for place, run in graph.runs.items()} == {
        (0, 0): made[0].key,
        (0, 1): made[1].key,
    }
    assert [node.kind for node in graph.nodes.values()] == ["runs", "learnt", "runs"]
    ncm, learnt, _ = graph.nodes.values()
    costs = [
        sum(session.learn_seconds + session.score_seconds for session in run.record.sessions)
        for run in made
    ]
    assert ncm.seeds == (2, 3)
    assert ncm.seconds == pytest.approx(2 * sum(costs) / 2), "two runs of the median of two"
    assert learnt.seconds is None, "it was never done here"
    every = planned(bench, rows, force=True)
    assert every.missing == 8
    bench.run(rows[1].plan)
    assert planned(bench, rows).stored["learnt"] == 1
    apart = planned(bench, rows, shared=False)
    assert len(apart.of("view")) == 2, "workers that do not see the cache compute them"


def test_time_left_is_told_once_it_is_more_than_a_guess(new_toy: Any) -> None:
    bench = new_toy.bench()
    graph = planned(bench, rows_of(bench, requests(new_toy, seeds=10)[:10]), workers=10)
    weights = dict.fromkeys(graph.nodes, 1.0)
    runs = [node.key for node in graph.of("runs")]
    rest = [key for key in graph.nodes if key not in runs]
    assert (len(runs), len(rest)) == (10, 3)
    assert not foreseeable(graph, weights, [*rest, runs[0]])
    assert foreseeable(graph, weights, [*rest, *runs[:2]]), "a fifth of the runs is done"
    for key in runs[:6]:
        graph.nodes[key] = replace(graph.nodes[key], seconds=5.0)
    assert not foreseeable(graph, weights, [])
    graph.nodes[runs[6]] = replace(graph.nodes[runs[6]], seconds=5.0)
    assert foreseeable(graph, weights, []), "times are known of most of the weight"


def test_a_network_takes_its_epochs_at_the_time_of_one(toy: Any) -> None:
    made = toy.run()
    log = made.record.representation_log
    spec = made.spec.model_copy(
        update={
            "representation": made.spec.representation.model_copy(
                update={"recipe": made.spec.representation.recipe.model_copy(update={"epochs": 10})}
            )
        }
    )
    found = Times(toy.bench().store).network(spec)
    assert found == pytest.approx(10 * log["seconds"] / 2)


def test_a_dry_run_tells_what_would_be_made_and_makes_nothing(new_toy: Any) -> None:
    words = ["run", *new_toy.words(), "--method", "ncm", "--seeds", "0-9", "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "network   cosine on toy, resnet20, representation seed 0: time not known",
        "features  plain, train images, toy [cosine]: time not known",
        "features  plain, test images, toy [cosine]: time not known",
        "runs      ncm on toy [cosine], seeds 0-9: 10 runs in 1 batch, time not known",
        "networks: 1 to make, 0 stored; halves of features: 2 to make, 0 stored; learnt from base "
        "data: 0 to make, 0 stored; runs: 10 to make, 0 stored; time not known",
    ]
    assert not (new_toy.folder / "results").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--devices", "2", "--device", "cpu", "--jobs", "2"], "a worker trains in one process"),
        (["--devices", "2", "--jobs", "2"], "no worker has so many GPUs"),
        (["--devices", "8", "--device", "cpu"], "--devices 8: 1 core can be used here"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(
    new_toy: Any, monkeypatch: pytest.MonkeyPatch, more: list[str], told: str
) -> None:
    monkeypatch.setattr("fscil_bench.training.distributed.usable_cores", lambda: 1)
    words = ["run", *new_toy.words(), "--method", "ncm", *more]
    for each in (words, [*words, "--dry-run"]):
        done = CliRunner().invoke(app, each)
        assert done.exit_code == 2, done.output
        assert told in " ".join(done.stderr.split()) and done.stdout == ""


def test_a_damaged_run_costs_the_others_nothing(new_toy: Any) -> None:
    """As in a serial run, which names it as failed and makes the rest."""
    damaged, _ = new_toy.run(seed="0-1")
    (damaged.folder / "run.json").write_text("{")
    words = ["run", *new_toy.words(), "--method", "ncm", "--seeds", "0-2", "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "ncm on toy [cosine], seed 2: 1 run in 1 batch" in done.stdout
    assert "runs: 1 to make, 1 stored, 1 damaged; " in done.stdout
    told = done.stderr.splitlines()
    assert told[-3] == "ncm on toy [cosine], seed 0"
    assert told[-2].startswith(f"error: {damaged.folder / 'run.json'}: damaged, ")
    assert told[-1] == "error: 1 of 3 runs cannot be made"
    with pytest.raises(FscilError, match=r"^1 of 2 runs failed; the others are stored$"):
        new_toy.run(seed="0-1", workers=fb.Workers(jobs=2))
    again = CliRunner().invoke(app, [*words, "--force"])
    assert again.exit_code == 0 and "runs: 3 to make, 0 stored; " in again.stdout
