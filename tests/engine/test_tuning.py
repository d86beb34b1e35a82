from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fscil_bench.cli import app
from fscil_bench.errors import UsageError
from fscil_bench.registry import load_registry
from fscil_bench.store import Store
from fscil_bench.tuning import Choice, Tuning, choose, store_choice, table, with_choice
from fscil_bench.workbench import RunRequest

TOY = Path(__file__).parents[1] / "toy"
REQUEST = RunRequest("ncm", "toy", params={"beta": "0.5"})
TUNING = Tuning(REQUEST, {"space": ("raw", "tukey")}, (0, 1))


def test_every_combination_is_tried_on_every_seed_of_the_pseudo_split() -> None:
    tuning = Tuning(REQUEST, {"space": ("raw", "tukey"), "beta": (0.4, 0.6)}, (0, 3))
    requests = list(tuning.requests())
    assert [(r.params["space"], r.params["beta"], r.seed) for r in requests[:3]] == [
        ("raw", 0.4, 0),
        ("raw", 0.4, 3),
        ("raw", 0.6, 0),
    ]
    assert len(requests) == 8
    assert all(r.pseudo for r in requests)


def choice(factory: Any, criterion: Any, raw: Any, tukey: Any) -> Choice:
    runs = [
        factory.write(factory.spec("ncm", seed, params={"space": space}), correct)
        for space, both in (("raw", raw), ("tukey", tukey))
        for seed, correct in enumerate(both)
    ]
    return choose(replace(TUNING, criterion=criterion), runs, load_registry())


def test_the_highest_mean_of_the_criterion_wins(factory: Any) -> None:
    first = ((36, 0), (34, 6), (34, 6))  # last 40 of 60, average lower
    even = ((40, 0), (40, 8), (28, 10))  # last 38 of 60, average higher
    raw, tukey = (first, first), (even, even)
    by_last = choice(factory, "last", raw, tukey)
    assert by_last.params == {"beta": 0.5, "space": "raw"}
    assert by_last.trials[0].last == pytest.approx(40 / 60)
    assert by_last.trials[0].half_width == 0
    assert choice(factory, "average", raw, tukey).params["space"] == "tukey"
    assert choice(factory, "harmonic", raw, tukey).params["space"] == "tukey"


def test_of_two_equals_the_earlier_wins(factory: Any) -> None:
    same = ((36, 0), (34, 6), (30, 10))
    assert choice(factory, "last", (same, same), (same, same)).params["space"] == "raw"


def test_the_table_and_the_file_hold_the_trials(factory: Any, store: Store) -> None:
    low, high = ((36, 0), (34, 6), (30, 6)), ((36, 0), (34, 6), (30, 12))
    found = choice(factory, "last", (low, low), (high, high))
    assert "| beta=0.5 space=tukey | 70.00 |" in table(found).splitlines()[2]
    path = Path(store_choice(store, "toy", found))
    assert Choice.model_validate_json(path.read_bytes()) == found
    lines = path.with_suffix(".csv").read_text().splitlines()
    assert lines[0].startswith("beta,space,last,")
    assert lines[1].startswith("0.5,tukey,0.7,")


def tuned(store: Store, request: RunRequest) -> RunRequest:
    registry = load_registry((TOY / "toy_reader.py",))
    return with_choice(store, registry, request)


def test_a_run_takes_the_choice_but_for_what_it_sets_itself(factory: Any, store: Store) -> None:
    low, high = ((36, 0), (34, 6), (30, 6)), ((36, 0), (34, 6), (30, 12))
    store_choice(store, "toy", choice(factory, "last", (low, low), (high, high)))
    toml = str(TOY / "toy.toml")
    request = tuned(store, RunRequest("ncm", toml))
    assert request.params == {"beta": 0.5, "space": "tukey"}
    assert request.chosen == (
        "chosen on the pseudo-incremental split of base training data (last accuracy, 2 settings, "
        "2 seeds)"
    )
    own = tuned(store, RunRequest("ncm", toml, params={"space": "raw"}))
    assert own.params == {"beta": 0.5, "space": "raw"}
    assert (own.chosen or "").endswith("set by hand: space")


def test_without_a_choice_the_command_that_makes_one_is_named(store: Store) -> None:
    with pytest.raises(UsageError, match=r"tune --method ldc --protocol .*toy\.toml"):
        tuned(store, RunRequest("ldc", str(TOY / "toy.toml")))


def test_a_choice_of_another_version_of_the_method_is_refused(factory: Any, store: Store) -> None:
    same = ((36, 0), (34, 6), (30, 10))
    found = choice(factory, "last", (same, same), (same, same))
    store_choice(store, "toy", found.model_copy(update={"code": "older"}))
    with pytest.raises(UsageError, match="has changed since its parameters were chosen"):
        tuned(store, RunRequest("ncm", str(TOY / "toy.toml")))


def test_tune_and_run_tuned_on_the_command_line(tmp_path: Path) -> None:
    runner = CliRunner()
    common = ["--method", "ncm", "--protocol", str(TOY / "toy.toml"), "--seeds", "0-1"]
    common += ["--plugin", str(TOY / "toy_reader.py"), "--results", str(tmp_path / "results")]
    common += ["--cache", str(tmp_path / "cache"), "--precision", "fp32"]
    done = runner.invoke(app, ["tune", *common, "--grid", "space=raw,tukey"])
    assert done.exit_code == 0, done.output
    assert "chosen by last accuracy: --set space=" in done.output
    run = runner.invoke(app, ["run", *common, "--tuned"])
    assert run.exit_code == 0, run.output
    runs, _ = Store(tmp_path / "results").runs()
    own = [run for run in runs if run.spec.protocol.name == "toy"]
    assert len(own) == 2
    assert own[0].record.parameters.startswith("chosen on the pseudo-incremental split")
    pseudo = [run for run in runs if run.spec.protocol.name == "toy-pseudo"]
    assert len(pseudo) == 4
    assert pseudo[0].spec.representation.key != own[0].spec.representation.key
    assert pseudo[0].targets.max() == 3, "new classes and test images are not looked at"
    wrong = runner.invoke(app, ["tune", *common, "--criterion", "lust"])
    assert wrong.exit_code != 0
    assert "last" in wrong.output
    nothing = runner.invoke(app, ["tune", *common, "--method", "finetune"])
    assert "--grid NAME=A,B,C" in nothing.output
