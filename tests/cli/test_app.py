from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fscil_bench
from fscil_bench.api import make_report
from fscil_bench.cli.app import app
from fscil_bench.cli.options import parse_settings
from fscil_bench.errors import DataError, UsageError
from fscil_bench.options import Options
from fscil_bench.plugins.registry import load_registry
from fscil_bench.request import parse_seeds
from fscil_bench.running.commands import command_for
from fscil_bench.spec import digest_of
from fscil_bench.store.runs import Store

TOY = Path(__file__).parents[1] / "toy"
WITH_TOY = ["--protocol", str(TOY / "toy.toml"), "--plugin", str(TOY / "toy_reader.py")]


STORED = "stored already, not made again; "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


def call(folder: Path, *words: str) -> Result:
    environment = {
        "FSCIL_BENCH_RESULTS": str(folder / "results"),
        "FSCIL_BENCH_CACHE": str(folder / "cache"),
    }
    return CliRunner().invoke(app, list(words), env=environment)


def run(folder: Path, *words: str) -> Result:
    return call(folder, "run", *WITH_TOY, "--precision", "fp32", *words)


def test_run_list_and_report(folder: Path) -> None:
    done = run(folder, "--method", "ncm", "--seeds", "0-2")
    assert done.exit_code == 0, done.output
    assert done.output.count("last session") == 3
    listed = call(folder, "list", "runs")
    assert listed.output.count("toy  ncm") == 3
    table = call(folder, "report", "main-table", "--protocol", "toy")
    assert table.exit_code == 0, table.output
    assert "| NCM" in table.output
    assert (folder / "results/reports/toy/main-table/main-table.csv").exists()


def test_a_run_says_what_it_trains_and_what_was_stored(tmp_path: Path) -> None:
    first, second = (run(tmp_path, "--method", "ncm", "--epochs", "1").output for _ in range(2))
    (network,) = (tmp_path / "results/representations").iterdir()
    training = "base training comes first: cosine on toy, 1 epoch, once for all methods and seeds"
    assert f"{training}; kept in {network}" in first
    assert "base training" not in second
    assert STORED not in first
    assert f"{STORED}last session" in second
    forced = run(tmp_path, "--method", "ncm", "--epochs", "1", "--force").output
    assert STORED not in forced
    site = call(tmp_path, "report", "site").output
    assert f"open in a browser: {tmp_path.as_uri()}/results/reports/all/site/index.html" in site


def test_an_error_that_names_options_gives_the_whole_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Options) -> None:
        raise DataError("no published copy", remedy=("--unofficial-data", "--split", "seeded"))

    monkeypatch.setattr("fscil_bench.cli.app.open_workbench", refuse)
    refused = call(folder, "run", "-m", "ncm", "-p", "cifar100", "--data-root", "my data")
    assert refused.exit_code == 1
    assert (
        "the whole command: fscil-bench run -m ncm -p cifar100 --data-root 'my data' "
        "--unofficial-data --split seeded"
    ) in refused.output


def test_a_report_names_missing_runs_with_their_commands(folder: Path) -> None:
    run(folder, "--method", "ncm")
    words = ["--protocol", "toy", "--method", "ncm,ldc", "--seeds", "0,7"]
    table = call(folder, "report", "main-table", *words)
    assert table.exit_code == 0
    assert "--method ncm --protocol PATH/TO/toy.toml --seeds 7" in table.output
    assert "--method ldc --protocol PATH/TO/toy.toml" in table.output
    assert "--results" not in table.output
    elsewhere = call(folder, "report", "main-table", *words, "--results", str(folder / "results"))
    told = elsewhere.output.partition("missing runs, for these results:\n")[2].splitlines()
    command = "fscil-bench run --method ldc --protocol PATH/TO/toy.toml --seeds 0,7"
    assert told[1] == f"  {command} --results {folder / 'results'}"
    places = {"results": folder / "results", "data_root": folder / "d", "unofficial_data": True}
    output = make_report("main-table", "toy", methods="ncm,ldc", seeds=(0, 7), **places)
    assert output.missing[1] == (
        f"{command} --data-root {folder / 'd'} --results {folder / 'results'} --unofficial-data"
    )


def test_an_error_that_suggests_a_command_names_the_results(folder: Path, tmp_path: Path) -> None:
    drawn = call(folder, "report", "curves", "--protocol", "glyphs", "--results", str(tmp_path))
    assert drawn.exit_code == 1
    assert "make one: fscil-bench run --method ncm --protocol glyphs" in drawn.output
    assert f"--results {tmp_path}" in drawn.output


def test_an_empty_path_is_as_good_as_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(folder, "--method", "ncm")
    empty = [word for name in ("weights", "plugin", "index-list") for word in (f"--{name}", "")]
    again = run(folder, "--method", "ncm", *empty)
    assert again.exit_code == 0, again.output
    ends = [each.output.splitlines()[-2:] for each in (done, again)]
    assert ends[1] == [ends[0][0].replace(": last", f": {STORED}last"), ends[0][1]]
    monkeypatch.chdir(tmp_path)
    assert call(folder, "report", "main-table", "--protocol", "toy", "--out", " ").exit_code == 0
    assert call(folder, "data", "scan", "").exit_code == 2
    options = Options(weights=" ", plugins=["", "a.py"], results="", data_root="")
    assert options == Options(plugins=("a.py",))
    make_report("main-table", "toy", folder="", results=folder / "results")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["methods", "representations", "protocols", "reports"])
def test_list_names_the_built_in_ones(folder: Path, what: str) -> None:
    known = {
        "methods": "ldc",
        "representations": "cosine",
        "protocols": "tiny_imagenet100",
        "reports": "main-table",
    }
    listed = call(folder, "list", what)
    assert listed.exit_code == 0
    assert known[what] in listed.output


def test_set_reaches_the_method(folder: Path) -> None:
    done = run(folder, "--method", "ncm", "--set", "space=tukey")
    assert done.exit_code == 0, done.output
    spaces = {
        json.loads(path.read_text())["spec"]["params"]["space"]
        for path in (folder / "results/runs/toy/ncm").glob("*/run.json")
    }
    assert "tukey" in spaces


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--method", "ldk"], "unknown method 'ldk'; did you mean 'ldc'"),
        (["--method", "ncm", "--set", "spase=raw"], "no parameter 'spase'"),
        (["--method", "ncm", "--set", "space"], "write name=value"),
        (["--method", "ncm", "--set", "ldc.hidden=3"], "'ldc' is not run"),
        (["--method", "ncm,ldc", "--set", "recurrent_steps=1"], "METHOD.recurrent_steps"),
        (["--method", "ncm", "--seeds", "0-x"], "neither a number nor a range"),
        (["--method", "ncm", "--seeds", "3-1"], "runs backwards"),
        (["--method", "ncm", "--split", "any"], "unknown split 'any'"),
        (["--method", "ncm", "--plugin", "none.py"], "no such plug-in file"),
        (["--method", "ncm", "--protocol", "none"], "unknown protocol 'none'"),
        (["--method", "ncm", "--protocol", "none.toml"], "no such protocol file"),
        (["--method", "ncm", "--precision", "fp8"], "unknown precision"),
        (["--method", "ncm", "--no-such-option"], "No such option"),
        (["--method", ","], "no method"),
        (["--method", "ncm", "--representation", ""], "no representation"),
        (["--method", "ncm", "--seeds", "0-99999999"], "more than 10000"),
        (
            ["--method", "ncm", "--seeds", "1" * 5000],
            "seeds: '11111111111111111111'... is too large",
        ),
        (["--method", "ncm", "--class-order", f"seed:{'1' * 5000}"], "(5007 characters): string"),
        (["--method", "logistic", "--set", f"penalty={10**4000}"], "should be a finite number"),
        (["--method", "ldc", "--set", f"epochs={'1' * 5000}"], "(5002 characters)"),
        (["--method", "ldc", "--set", f"epochs={10**30}"], "64 can be stored"),
        (["--method", "ncm", "--epochs", "1" * 400], "an integer of"),
        (["--method", "ncm", "--sessions", str(2**62)], "less than or equal to 1000000"),
        (["--method", "ncm", "--way", "3,x"], "--way '3,x': write a number"),
        (["--method", "ncm", "--way", "3,,1"], "--way '3,,1': write a number"),
        (["--method", "ncm", "--recipe", "batchsize=3"], "did you mean 'batch_size'"),
        (["--method", "ncm", "--recipe", "batch_size=many"], "batch_size = 'many': Input should"),
        (["--method", "ncm", "--recipe", "augment=crop,spin"], "augment = 'crop,spin': Input"),
        (["--method", "ncm", "--recipe", "lr=1e300"], "lr = '1e300': Input should be less"),
        (["--method", "ncm", "--recipe", "lr=nan"], "lr = 'nan': Input should"),
        (["--method", "ncm", "--recipe", "epochs=3", "--epochs", "3"], "give one of them"),
        (["--method", "ncm", "--results", "a\0b"], "results 'a\\x00b': holds a NUL character"),
        (["--method", "n\0cm"], "holds a NUL character"),
    ],
)
def test_bad_usage_exits_with_2_and_one_message(
    folder: Path, words: list[str], expected: str
) -> None:
    done = run(folder, *words)
    assert done.exit_code == 2, done.output
    assert expected in " ".join(done.output.split())
    assert "Traceback" not in done.output


def test_a_missing_archive_exits_with_1(folder: Path, tmp_path: Path) -> None:
    words = ["--method", "ncm", "--protocol", "tiny_imagenet100", "--data-root", str(tmp_path)]
    done = call(folder, "run", *words)
    assert done.exit_code == 1
    assert "tiny-imagenet-200.zip" in done.output
    assert "Traceback" not in done.output


def test_an_unwritable_results_folder_exits_with_1(folder: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file, not a folder")
    done = run(folder, "--method", "ncm", "--results", str(blocked))
    assert done.exit_code == 1
    assert "cannot be written" in done.output
    assert blocked.read_text() == "a file, not a folder"


def test_a_failing_method_does_not_cost_the_others_their_runs(folder: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text(
        "from fscil_bench.method import Method\n"
        "class Broken(Method):\n"
        "    '''Fails in its first session.'''\n"
        "    name = 'broken'\n"
        "    def learn_base(self, base): pass\n"
        "    def learn_session(self, session): raise KeyError('oops')\n"
        "    def scores(self, queries):\n"
        "        import torch\n"
        "        return torch.zeros(len(queries), 4)\n"
        "    def state_dict(self): return {}\n"
        "    def load_state_dict(self, state): pass\n"
    )
    words = ["--plugin", str(plugin), "--method", "broken,ncm", "--seeds", "11"]
    done = run(folder, *words)
    assert done.exit_code == 1
    assert "KeyError: 'oops'" in done.output
    assert "ncm on toy, seed 11: last session" in done.output
    assert "1 of 2 runs failed" in done.output
    assert "Traceback" not in done.output
    assert "Traceback" in run(folder, *words, "--debug").output


def test_a_damaged_run_is_named_and_the_others_are_listed(folder: Path, tmp_path: Path) -> None:
    run(folder, "--method", "ncm", "--seeds", "0-1", "--results", str(tmp_path))
    damaged = sorted((tmp_path / "runs/toy/ncm").glob("*/run.json"))[0]
    damaged.write_text(damaged.read_text()[:200])
    listed = call(folder, "list", "runs", "--results", str(tmp_path))
    assert listed.exit_code == 0
    assert "damaged" in listed.output
    assert str(damaged) in listed.output
    again = run(folder, "--method", "ncm", "--seeds", "0-1", "--results", str(tmp_path))
    assert again.exit_code == 1
    assert f"remove the folder {damaged.parent}" in again.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_in_training_keeps_the_epochs_and_resumes(tmp_path: Path, number: int) -> None:
    """Ctrl-C, and SIGTERM as batch systems send it: the code is 128 + the signal's number."""
    words = [sys.executable, "-c", "from fscil_bench.cli.app import main; main()", "run", *WITH_TOY]
    words += ["--method", "ncm", "--epochs", "1000", "--precision", "fp32"]
    words += ["--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
    # Where the tests run in the background, a shell has told their children to ignore Ctrl-C.
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("r/representations/*/checkpoint.safetensors")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.glob("r/representations/*/checkpoint.safetensors"))


def test_seeds() -> None:
    assert parse_seeds("0") == (0,)
    assert parse_seeds("0-3") == (0, 1, 2, 3)
    assert parse_seeds("2, 5-6,2") == (2, 5, 6)


def test_settings() -> None:
    assert parse_settings(["a=1", "b = x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(UsageError, match="given twice"):
        parse_settings(["a=1", "a=2"])


BASE = """
import torch
from fscil_bench.method import Method
class Odd(Method):
    '''Does one thing wrong.'''
    name = "odd"
    def learn_base(self, base): self.seen = base.classes_seen
    def learn_session(self, session): self.seen = session.classes_seen
    def scores(self, queries): return torch.zeros(len(queries), self.seen)
    def state_dict(self): return {}
    def load_state_dict(self, state): pass
"""


@pytest.mark.parametrize(
    ("addition", "code", "expected"),
    [
        ("    def learn_session(self, session): raise SystemExit(0)", 1, "failed in session 1"),
        (
            "    def learn_session(self, session): {}[3]",
            1,
            "'odd' failed in session 1: KeyError: 3",
        ),
        ("    def scores(self, queries): return None", 1, "returned NoneType as scores"),
        ("    def state_dict(self): return None", 1, "failed giving its state"),
        ("    def notes(self): return {'a': [1]}", 1, "note 'a' is [1]"),
        ("    def artifacts(self): return {'b': object()}", 1, "artifact 'session0/b' is no array"),
        ("    pretrain_params = ('nope',)", 2, "pretrain_params names 'nope'"),
        ("    Params = 3", 2, "`Params` must be a dataclass"),
        ("    name = '../../odd'", 2, "is named '../../odd'"),
        ("raise SystemExit(0)", 2, "cannot be imported"),
        ("    def __init__(self, *_): {}[3]", 1, "'odd' failed when it was made: KeyError: 3"),
        (
            "    def pretrain(self, *_): {}[3]",
            1,
            "'odd' failed learning from base data: KeyError: 3",
        ),
        (
            "    def pretrain(self, *_): return {'a': torch.ones(1)}\n"
            "    def load_pretrained(self, tensors): tensors['b']",
            1,
            "'odd' failed taking what it learnt from base data: KeyError: 'b'",
        ),
        (
            "    @classmethod\n    def check(cls, *_): {}[3]",
            1,
            "'odd' failed checking its parameters: KeyError: 3",
        ),
    ],
)
def test_a_plug_in_that_does_wrong_is_named(
    folder: Path, tmp_path: Path, addition: str, code: int, expected: str
) -> None:
    plugin = tmp_path / "odd.py"
    plugin.write_text(BASE + addition + "\n")
    done = run(folder, "--plugin", str(plugin), "--method", "odd", "--artifacts")
    assert done.exit_code == code, done.output
    assert expected in done.output
    assert "Traceback" not in done.output


def test_damaged_predictions_do_not_hide_other_runs(folder: Path, tmp_path: Path) -> None:
    run(folder, "--method", "ncm", "--seeds", "0-2", "--results", str(tmp_path))
    damaged = sorted(tmp_path.glob("runs/toy/ncm/*/predictions.npz"))[0]
    damaged.write_bytes(b"")
    listed = call(folder, "list", "runs", "--results", str(tmp_path))
    assert listed.exit_code == 0
    assert listed.output.count("toy  ncm") == 2
    assert str(damaged) in listed.output


def test_a_damaged_run_is_made_again_and_said_so(folder: Path, tmp_path: Path) -> None:
    words = ["--method", "ncm", "--results", str(tmp_path)]
    run(folder, *words)
    (damaged,) = tmp_path.glob("runs/toy/ncm/*/predictions.npz")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    done = run(folder, *words)
    assert done.exit_code == 0, done.output
    assert f"warning: {damaged}: damaged" in done.output
    assert "made again" in done.output
    assert "UserWarning" not in done.output
    assert damaged.read_bytes() == whole
    assert "warning" not in run(folder, *words).output


def test_strict_fails_once_the_table_is_shown(folder: Path, tmp_path: Path) -> None:
    results = ["--results", str(tmp_path)]
    run(folder, "--method", "ncm", "--seeds", "0-1", *results)
    run(folder, "--method", "finetune", "--set", "epochs=1", *results)
    words = ["report", "main-table", "--protocol", "toy", "--method", "ncm", *results]
    assert call(folder, *words, "--strict").exit_code == 0
    # Of a run that the table does not show.
    (damaged,) = tmp_path.glob("runs/toy/finetune/*/predictions.npz")
    damaged.write_bytes(b"PK")
    plain, strict = call(folder, *words), call(folder, *words, "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    assert "| NCM | 2 |" in strict.output
    assert str(damaged) in strict.output
    record = sorted(tmp_path.glob("runs/toy/ncm/*/run.json"))[0]
    record.write_text("{")
    plain, strict = call(folder, *words), call(folder, *words, "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    for shown in (plain, strict):
        assert "| NCM | 1 |" in shown.output
        assert f"{record}: damaged" in shown.output


def test_a_report_without_runs_names_the_damaged_ones(folder: Path, tmp_path: Path) -> None:
    run(folder, "--method", "ncm", "--results", str(tmp_path))
    (damaged,) = tmp_path.glob("runs/toy/ncm/*/run.json")
    damaged.write_text("{")
    words = ["--protocol", "glyphs", "--results", str(tmp_path)]
    drawn = call(folder, "report", "main-table", *words)
    assert drawn.exit_code == 1
    assert str(damaged) in drawn.output


def test_damaged_features_are_named(folder: Path, tmp_path: Path) -> None:
    places = ["--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
    run(folder, "--method", "ncm", *places)
    (features,) = tmp_path.glob("c/features/*-test/features.npy")
    features.write_bytes(b"")
    done = run(folder, "--method", "ncm", "--seeds", "1", *places)
    assert done.exit_code == 1
    assert f"{features.parent}: the stored features are damaged" in done.output


def test_a_report_takes_the_file_of_a_protocol(folder: Path) -> None:
    run(folder, "--method", "ncm")
    drawn = call(folder, "report", "main-table", "--protocol", str(TOY / "toy.toml"))
    assert drawn.exit_code == 0, drawn.output
    assert "| NCM" in drawn.output


def test_listed_runs_tell_their_parameters(folder: Path) -> None:
    run(folder, "--method", "ncm", "--set", "space=tukey", "--way", "3")
    listed = call(folder, "list", "runs").output
    assert "ncm space=tukey (3-way 3-shot" in listed


ODD_REPRESENTATION = """
from {module} import {base}
class Odd({base}):
    '''Does one thing wrong.'''
    name = "odd"
    def {wrong}(self, *_): return {{}}[3]
"""


@pytest.mark.parametrize(
    ("wrong", "when"),
    [
        ("__init__", "when it was made"),
        ("build_head", "in base training"),
        ("loss", "in base training"),
        ("classifier", "in base training"),
    ],
)
def test_a_representation_that_fails_is_named(
    folder: Path, tmp_path: Path, wrong: str, when: str
) -> None:
    cosine = load_registry().get("representation", "cosine").value
    plugin = tmp_path / "odd.py"
    names = {"module": cosine.__module__, "base": cosine.__name__, "wrong": wrong}
    plugin.write_text(ODD_REPRESENTATION.format(**names))
    words = ["--plugin", str(plugin), "--representation", "odd", "--method", "ncm"]
    done = run(folder, *words, "--epochs", "1")
    assert done.exit_code == 1, done.output
    assert f"representation 'odd' failed {when}: KeyError: 3" in done.output
    assert "this is a bug" not in done.output


def test_values_of_the_recipe_reach_the_training_and_its_command(tmp_path: Path) -> None:
    words = ["--recipe", "batch_size=8", "--recipe", "milestones=[1]", "--recipe", "schedule=step"]
    words += ["--recipe", "augment=flip", "--recipe", "lr=0.02", "--results", str(tmp_path)]
    done = run(tmp_path, "--method", "ncm", *words, "--epochs", "1")
    assert done.exit_code == 0, done.output
    (stored,) = Store(tmp_path).runs()[0]
    recipe = stored.spec.protocol.recipe
    assert (recipe.batch_size, recipe.lr, recipe.epochs) == (8, 0.02, 1)
    assert (recipe.milestones, recipe.augment) == ((1,), ("flip",))
    registry = load_registry((TOY / "toy_reader.py",))
    registry.add_protocol_file(TOY / "toy.toml")
    command = command_for(stored.spec, registry)
    again = call(tmp_path, *shlex.split(command)[1:], "--results", str(tmp_path))
    assert again.exit_code == 0, again.output
    assert [each.key for each in Store(tmp_path).runs()[0]] == [stored.key]


def test_uneven_sessions_are_written_with_commas(tmp_path: Path) -> None:
    done = run(tmp_path, "--method", "ncm", "--way", "3,1,1", "--results", str(tmp_path))
    assert done.exit_code == 0, done.output
    (stored,) = Store(tmp_path).runs()[0]
    assert [session.classes_seen for session in stored.record.sessions] == [4, 7, 8, 9]
    registry = load_registry((TOY / "toy_reader.py",))
    registry.add_protocol_file(TOY / "toy.toml")
    assert "--way 3,1,1 --precision" in command_for(stored.spec, registry)


def test_listed_runs_tell_class_orders_and_epochs_apart(folder: Path, tmp_path: Path) -> None:
    places = ["--results", str(tmp_path)]
    for words in ([], ["--class-order", "seed:1"], ["--recipe", "epochs=1"]):
        assert run(folder, "--method", "ncm", *words, *places).exit_code == 0
    listed = [line for line in call(folder, "list", "runs", *places).output.splitlines() if line]
    told = [line.partition(" seed 0, representation seed 0, ")[2] for line in listed]
    assert [text.partition(")")[0] for text in told] == [
        "epochs 2, base_classes 4, backbone resnet20",
        "epochs 2, base_classes 4, class_order seed:1, backbone resnet20",
        "epochs 1, base_classes 4, backbone resnet20",
    ]


def test_the_table_of_a_protocols_file_is_hinted_by_the_file(folder: Path) -> None:
    done = run(folder, "--method", "ncm", "--cache", str(folder / "cache"))
    hint = done.output.partition("table: fscil-bench ")[2].splitlines()[0]
    assert hint == (
        f"report main-table --protocol {TOY / 'toy.toml'} --cache {folder / 'cache'} "
        f"--plugin {TOY / 'toy_reader.py'}"
    )
    assert call(folder, *shlex.split(hint)).exit_code == 0


def test_several_representations_are_hinted_at_as_a_grid(folder: Path) -> None:
    done = run(folder, "--method", "ncm", "--representation", "cosine,fact", "--split", "canonical")
    hint = done.output.partition("table: fscil-bench ")[2].splitlines()[0]
    assert hint == (
        f"report grid --protocol {TOY / 'toy.toml'} --split canonical "
        f"--plugin {TOY / 'toy_reader.py'}"
    )
    drawn = call(folder, *shlex.split(hint))
    assert drawn.exit_code == 0, drawn.output
    assert "| ncm [cosine] |" in drawn.output and "| ncm [fact] |" in drawn.output


def test_what_acts_on_a_terminal_is_written_out(folder: Path, tmp_path: Path) -> None:
    missing = tmp_path / "\x1b[2Jmine.toml"
    done = call(folder, "run", "--method", "ncm", "--protocol", str(missing))
    assert done.exit_code == 2
    assert "\x1b" not in done.output
    assert "\\x1b[2Jmine.toml: no such protocol file" in done.output


def test_a_record_on_an_unknown_backbone_breaks_nothing(folder: Path, tmp_path: Path) -> None:
    places = ["--results", str(tmp_path)]
    run(folder, "--method", "ncm", "--seeds", "0-1", *places)
    foreign = Store(tmp_path).runs()[0][0].folder / "run.json"
    data = json.loads(foreign.read_text())
    data["spec"]["protocol"]["backbone"] = data["spec"]["representation"]["backbone"] = "vit"
    data["key"] = digest_of(data["spec"])
    moved = foreign.parent.rename(foreign.parent.with_name(data["key"]))
    (moved / "run.json").write_text(json.dumps(data))
    listed = call(folder, "list", "runs", *places)
    table = call(folder, "report", "main-table", "--protocol", "toy", *places)
    site = call(folder, "report", "site", *places)
    for done in (listed, table, site):
        assert done.exit_code == 0, done.output
    assert listed.output.count("toy  ncm") == 2
    assert "backbone vit" in table.output


def test_the_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"fscil-bench {fscil_bench.__version__}\n")
