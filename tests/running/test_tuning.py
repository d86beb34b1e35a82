from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fscil_bench.cli.app import app
from fscil_bench.errors import StoreError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.request import RunRequest
from fscil_bench.running.tuning import (
    Choice,
    Tuning,
    checked_grid,
    choose,
    close_call,
    store_choice,
    table,
    terms,
    with_choice,
)
from fscil_bench.running.workbench import Workbench
from fscil_bench.store.runs import Store

LOW, HIGH = ((36, 0), (34, 6), (30, 6)), ((36, 0), (34, 6), (30, 12))
"""Correct predictions of base and new classes a session: 36 and 42 of 60 in the last."""
TOML = str(Path(__file__).parents[1] / "toy" / "toy.toml")
REQUEST = RunRequest("ncm", "toy", params={"beta": "0.5"})
TUNING = Tuning(REQUEST, {"space": ("raw", "tukey")}, (0, 1))


def test_every_combination_is_tried_on_every_seed_of_the_pseudo_split() -> None:
    tuning = Tuning(REQUEST, {"space": ("raw", "tukey"), "beta": (0.4, 0.6)}, (0, 3))
    requests = list(tuning.requests())
    told = [(r.params["space"], r.params["beta"], r.seed) for r in requests[:3]]
    assert told == [("raw", 0.4, 0), ("raw", 0.4, 3), ("raw", 0.6, 0)]
    assert len(requests) == 8
    assert all(r.pseudo for r in requests)


def choice(factory: Any, criterion: Any, raw: Any, tukey: Any) -> Choice:
    runs = [
        factory.write(factory.spec("ncm", seed, params={"space": space}), correct)
        for space, both in (("raw", raw), ("tukey", tukey))
        for seed, correct in enumerate(both)
    ]
    tuning = replace(TUNING, criterion=criterion, seeds=tuple(range(len(raw))))
    return choose(tuning, runs, load_registry())


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
    equal = choice(factory, "last", raw, raw)
    assert equal.params["space"] == "raw", "the earlier"


def test_the_table_and_the_file_hold_the_trials(factory: Any, store: Store) -> None:
    found = choice(factory, "last", (LOW, LOW), (HIGH, HIGH))
    assert "| beta=0.5 space=tukey | 70.00 |" in table(found).splitlines()[2]
    path = Path(store_choice(store, "toy", found)[0])
    assert Choice.model_validate_json(path.read_bytes()) == found
    lines = path.with_suffix(".csv").read_text().splitlines()
    assert lines[0].startswith("beta,space,last,")
    assert lines[1].startswith("0.5,tukey,0.7,")
    one = choice(factory, "last", (LOW,), (HIGH,))
    assert one.trials[0].half_width is None and table(one).endswith("|  |")
    assert Choice.model_validate_json(Path(store_choice(store, "toy", one)[0]).read_bytes()) == one


@pytest.fixture
def bench(new_toy: Any) -> Workbench:
    made: Workbench = new_toy.bench()
    return made


@pytest.fixture
def stored(factory: Any, store: Store, bench: Workbench) -> Choice:
    """Return a choice of Tukey space, stored for the toy protocol as it is."""
    own = terms(bench.plan(RunRequest("ncm", TOML, pseudo=True)).spec)
    found = choice(factory, "last", (LOW, LOW), (HIGH, HIGH)).model_copy(update={"terms": own})
    store_choice(store, "toy", found)
    return found


def test_a_run_takes_the_choice_but_for_its_own(stored: Choice, bench: Workbench) -> None:
    request = with_choice(bench, RunRequest("ncm", TOML, representation_seed=3))
    assert request.params == stored.params == {"beta": 0.5, "space": "tukey"}
    assert request.chosen == (
        "chosen on the pseudo-incremental split of base training data (last accuracy, 2 settings, "
        "2 seeds)"
    )
    own = with_choice(bench, RunRequest("ncm", TOML, params={"space": "raw"}))
    assert own.params == {"beta": 0.5, "space": "raw"}
    assert (own.chosen or "").endswith("set by hand: space")
    with pytest.raises(UsageError, match=r"tune --method ldc --protocol .*toy\.toml"):
        with_choice(bench, RunRequest("ldc", TOML))


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    "changed",
    [
        {"overrides": {"shot": 2}},
        {"overrides": {"epochs": 9}},
        {"overrides": {"class_order": "seed:1"}},
        {"representation_params": {"temperature": 4.0}},
    ],
)
def test_a_choice_made_on_other_terms_is_refused(bench: Workbench, changed: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="chosen on other terms"):
        with_choice(bench, RunRequest("ncm", TOML, **changed))


def test_a_choice_read_with_other_views_says_so(stored: Choice, bench: Workbench) -> None:
    request = with_choice(bench, RunRequest("ncm", TOML, views="flip"))
    assert request.chosen == f"{stored.rule}; chosen with plain views, used with flip"


def test_choices_on_several_terms_stand_side_by_side(
    stored: Choice, store: Store, bench: Workbench
) -> None:
    asked, first = RunRequest("ncm", TOML), stored.params["space"]
    other = stored.model_copy(update={"terms": "f" * 16, "params": {"space": "raw"}})
    store_choice(store, "toy", other)
    assert with_choice(bench, asked).params["space"] == first != "raw"
    newer = stored.model_copy(update={"params": {"space": "raw"}})
    assert store_choice(store, "toy", newer)[1] == stored, "which it replaces"
    assert with_choice(bench, asked).params["space"] == "raw"
    folder = store.tuned_file("toy", "cosine", "ncm").parent
    names = {f"ncm{which}.{kind}" for which in ("", f"-{'f' * 16}") for kind in ("json", "csv")}
    assert {path.name for path in folder.iterdir()} == names
    store_choice(store, "toy", other)
    (folder / "ncm.json").unlink()
    assert with_choice(bench, asked).params["space"] == "raw", "beside what is gone"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"grid": {}}, "names no parameter"),
        ({"grid": {"space": []}}, "names no value of space"),
        ({"seeds": ()}, "names no seed"),
        ({"criterion": "lust"}, "unknown criterion 'lust'.*'last'"),
    ],
)
def test_what_leaves_nothing_to_choose_is_refused(changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        replace(TUNING, **changed)


def test_a_choice_of_no_use_is_named(stored: Choice, store: Store, bench: Workbench) -> None:
    path = store.tuned_file("toy", "cosine", "ncm")
    for content, expected in (
        ("", r"ncm\.json: damaged .*choose again"),
        ('{"method": "ncm"}', r"ncm\.json: damaged .*choose again"),
        (stored.model_copy(update={"method": "ldc"}).model_dump_json(), "about method 'ldc'"),
        (
            stored.model_copy(update={"code": "older"}).model_dump_json(),
            "has changed since its parameters were chosen",
        ),
    ):
        path.write_text(content)
        with pytest.raises((StoreError, UsageError), match=expected) as caught:
            with_choice(bench, RunRequest("ncm", TOML))
        assert "\n" not in str(caught.value)


def test_a_grid_is_typed_and_names_each_value_once() -> None:
    registry, request = load_registry(), RunRequest("ncm", "toy")
    assert checked_grid(registry, request, {"beta": ["0.5", ".50", "1"]}) == {"beta": [0.5, 1.0]}
    assert checked_grid(registry, request, {"beta": "0.5,1"}) == {"beta": [0.5, 1.0]}
    assert checked_grid(registry, request, {"beta": np.array([0.5, 1])}) == {"beta": [0.5, 1.0]}
    with pytest.raises(UsageError, match=r"beta = 0\.5: give a list"):
        checked_grid(registry, request, {"beta": 0.5})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="space = 'rav'"):
        checked_grid(registry, request, {"space": ["rav"]})
    fixed = RunRequest("ncm", "toy", params={"space": "raw"})
    with pytest.raises(UsageError, match="both fixed by --set and varied by --grid"):
        checked_grid(registry, fixed, {"space": ["raw"]})


def test_tune_and_run_tuned_on_the_command_line(new_toy: Any) -> None:
    runner, common = CliRunner(), ["--method", "ncm", "--seeds", "0-1", *new_toy.words()]
    done = runner.invoke(app, ["tune", *common, "--grid", "space=raw,tukey"])
    assert done.exit_code == 0, done.output
    assert "chosen by last accuracy: --set space=" in done.output
    run = runner.invoke(app, ["run", *common, "--tuned"])
    assert run.exit_code == 0, run.output
    runs, _ = Store(new_toy.folder / "results").runs()
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
    nothing = runner.invoke(app, ["tune", *common, "--method", "toy_means"])
    assert "--grid NAME=A,B,C" in nothing.output


def test_a_lead_within_the_interval_is_called_close(factory: Any) -> None:
    assert close_call(choice(factory, "last", (LOW, LOW), (HIGH, HIGH))) == ""
    close = choice(factory, "last", (LOW, HIGH), (HIGH, LOW))
    assert close_call(close).startswith("a close call: the next setting is 0.00 points below")
