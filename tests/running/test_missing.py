"""--run-missing: what is not stored is made, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fscil_bench as fb
from fscil_bench.episodes.store import stored_episodes
from fscil_bench.errors import UsageError
from fscil_bench.request import Design, RunRequest, Wanted
from fscil_bench.running.missing import make_missing
from fscil_bench.running.workbench import Workbench
from fscil_bench.store.runs import StoredRun

TOY = Path(__file__).parents[1] / "toy"
NCM = RunRequest("ncm", str(TOY / "toy.toml"))
LDC = replace(NCM, method="ldc", params={"epochs": 2, "unit_steps": 2, "unit_classes": 2})
DESIGN = Design(way=3, shot=1, queries=2, episodes=3)


@pytest.fixture
def bench(new_toy: Any) -> Workbench:
    made: Workbench = new_toy.bench()
    return made


def seeds(request: RunRequest, *which: int) -> list[Wanted]:
    return [Wanted(replace(request, seed=seed)) for seed in which]


def made(bench: Workbench) -> dict[int, int]:
    """Return when the run of each seed was written."""
    runs = bench.store.runs()[0]
    return {run.spec.seed: (run.folder / "run.json").stat().st_mtime_ns for run in runs}


def damage(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def test_a_damaged_run_is_made_again_or_a_failure_that_says_why(bench: Workbench) -> None:
    make_missing(bench, seeds(NCM, 0, 1))
    _, second = sorted(bench.store.runs()[0], key=lambda run: run.spec.seed)
    accuracies, before = second.accuracies, made(bench)
    damage(second.folder / "predictions.npz")
    with pytest.warns(UserWarning, match=rf"{second.folder}.*damaged.*made again"):
        assert make_missing(bench, seeds(NCM, 0, 1, 1)) == ()
    _, again = sorted(bench.store.runs()[0], key=lambda run: run.spec.seed)
    assert again.accuracies == accuracies
    after = made(bench)
    assert after[0] == before[0] and after[1] > before[1]
    (again.folder / "run.json").write_text("{")
    (failure,) = make_missing(bench, seeds(NCM, 0, 1))
    assert f"remove the folder {again.folder}" in failure


def test_only_what_is_not_stored_is_made(bench: Workbench) -> None:
    assert make_missing(bench, seeds(NCM, 0, 2)) == ()
    before = made(bench)
    assert make_missing(bench, seeds(NCM, 0, 1, 2)) == ()
    after = made(bench)
    assert set(after) == {0, 1, 2}
    assert {seed: after[seed] for seed in before} == before
    make_missing(bench, seeds(NCM, 0, 1, 2))
    assert made(bench) == after


def test_runs_of_a_seed_are_made_side_by_side(bench: Workbench) -> None:
    tukey = replace(NCM, params={"space": "tukey"})
    make_missing(bench, [*seeds(NCM, 0, 1), *seeds(tukey, 0, 1)])
    made = [f"{run.spec.seed} {run.spec.params['space']}" for run in bench.store.runs()[0]]
    assert made == ["0 raw", "0 tukey", "1 raw", "1 tukey"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyError("oops")])
def test_neither_a_failure_nor_an_interruption_costs_the_others(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    run = bench.run

    def failing(plan: Any, **options: Any) -> StoredRun:
        if plan.spec.seed == 1:
            raise error
        return run(plan, **options)

    monkeypatch.setattr(bench, "run", failing)
    if isinstance(error, KeyError):
        assert make_missing(bench, seeds(NCM, 0, 1, 2)) == ("ncm, seed 1: KeyError: 'oops'",)
    else:
        with pytest.raises(KeyboardInterrupt):
            make_missing(bench, seeds(NCM, 0, 1, 2))
    first = made(bench)
    assert set(first) == ({0, 2} if isinstance(error, KeyError) else {0})
    monkeypatch.setattr(bench, "run", run)
    assert make_missing(bench, seeds(NCM, 0, 1, 2)) == ()
    assert set(made(bench)) == {0, 1, 2}
    assert made(bench)[0] == first[0]


def test_what_cannot_be_planned_is_said_once(bench: Workbench) -> None:
    wrong = replace(NCM, params={"spase": "raw"})
    failures = make_missing(bench, [*seeds(wrong, 0, 1), *seeds(NCM, 0)])
    assert len(failures) == 1
    assert "no parameter 'spase'; did you mean 'space'" in failures[0]
    assert set(made(bench)) == {0}


def test_episodes_are_made_once_and_again_where_they_are_damaged(bench: Workbench) -> None:
    wanted = [Wanted(LDC, episodes=DESIGN)]
    assert make_missing(bench, wanted) == ()
    (found,), problems = stored_episodes(bench.store)
    assert (found.spec.design, problems) == (DESIGN, [])
    accuracies = found.accuracies
    stamp = (found.folder / "episodes.json").stat().st_mtime_ns
    make_missing(bench, wanted)
    assert (found.folder / "episodes.json").stat().st_mtime_ns == stamp
    damage(found.folder / "accuracies.npy")
    assert not stored_episodes(bench.store)[0][0].readable
    with pytest.warns(UserWarning, match="made again"):
        assert make_missing(bench, wanted) == ()
    (again,), _ = stored_episodes(bench.store)
    assert again.readable and (again.accuracies == accuracies).all()


def test_artifacts_are_made_where_they_are_wanted_and_then_kept(bench: Workbench) -> None:
    make_missing(bench, seeds(LDC, 0))
    (run,) = bench.store.runs()[0]
    assert not run.has_artifacts
    name, wanted = "session1/generated_step0", [Wanted(replace(LDC, seed=0), artifacts=True)]
    assert make_missing(bench, wanted) == ()
    (again,) = bench.store.runs()[0]
    assert (again.predictions == run.predictions).all()
    arrays, before = again.artifacts(), made(bench)
    assert name in arrays and set(again.artifacts(name)) == {name}
    make_missing(bench, [*wanted, *seeds(LDC, 0)])
    damage(again.folder / "artifacts.npz")
    assert make_missing(bench, seeds(LDC, 0)) == ()
    assert made(bench) == before
    assert make_missing(bench, wanted) == ()
    (run,) = bench.store.runs()[0]
    assert set(run.artifacts()) == set(arrays) and (run.artifacts()[name] == arrays[name]).all()
    (run.folder / "predictions.npz").unlink()
    with pytest.warns(UserWarning, match="made again"):
        assert make_missing(bench, seeds(LDC, 0)) == ()
    (run,) = bench.store.runs()[0]
    assert len(run.accuracies) == len(run.record.sessions)
    assert set(run.artifacts()) == set(arrays), "others wanted them"


def test_a_report_that_asks_for_no_run_has_none_missing(new_toy: Any) -> None:
    with pytest.raises(UsageError, match="draws what is stored"):
        fb.make_report("main-table", new_toy.toml, run_missing=True, results=new_toy.folder)


def test_a_report_asks_for_runs_beside_those_that_are_stored(new_toy: Any) -> None:
    new_toy.run(["ncm", "teen"])
    new_toy.run("ncm", representation="fact")

    output = fb.make_report("grid", seeds=0, run_missing=True, **new_toy.settings())

    stored = {(r.spec.method, r.spec.representation.name) for r in new_toy.bench().store.runs()[0]}
    assert stored == {(m, brought) for m in ("ncm", "teen") for brought in ("cosine", "fact")}
    assert output.missing == ()
