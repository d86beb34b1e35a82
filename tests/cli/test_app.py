from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fscil_bench.cli.app import app
from fscil_bench.cli.options import parse_settings
from fscil_bench.errors import UsageError
from fscil_bench.request import parse_seeds

TOY = Path(__file__).parents[1] / "toy"
WITH_TOY = ["--protocol", str(TOY / "toy.toml"), "--plugin", str(TOY / "toy_reader.py")]


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
    assert "| ncm" in table.output
    assert (folder / "results/reports/toy/main-table/main-table.csv").exists()


def test_a_report_names_missing_runs_with_their_commands(folder: Path) -> None:
    run(folder, "--method", "ncm")
    words = ["--protocol", "toy", "--method", "ncm,ldc", "--seeds", "0,7"]
    table = call(folder, "report", "main-table", *words)
    assert table.exit_code == 0
    assert "--method ncm --protocol PATH/TO/toy.toml --seeds 7" in table.output
    assert "--method ldc --protocol PATH/TO/toy.toml" in table.output
    assert "--results" not in table.output
    elsewhere = call(folder, "report", "main-table", *words, "--results", str(folder / "results"))
    assert f"each command of missing runs: --results {folder / 'results'}" in elsewhere.output


def test_an_error_that_suggests_a_command_names_the_results(folder: Path, tmp_path: Path) -> None:
    drawn = call(folder, "report", "curves", "--protocol", "glyphs", "--results", str(tmp_path))
    assert drawn.exit_code == 1
    assert "make one: fscil-bench run --method ncm --protocol glyphs" in drawn.output
    assert f"--results {tmp_path}" in drawn.output


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


def test_ctrl_c_in_training_keeps_the_epochs_and_resumes(tmp_path: Path) -> None:
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
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
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
    assert "| ncm | 2 |" in strict.output
    assert str(damaged) in strict.output
    record = sorted(tmp_path.glob("runs/toy/ncm/*/run.json"))[0]
    record.write_text("{")
    plain, strict = call(folder, *words), call(folder, *words, "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    for shown in (plain, strict):
        assert "| ncm | 1 |" in shown.output
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
    assert "| ncm" in drawn.output


def test_listed_runs_tell_their_parameters(folder: Path) -> None:
    run(folder, "--method", "ncm", "--set", "space=tukey", "--way", "3")
    listed = call(folder, "list", "runs").output
    assert "ncm space=tukey (3-way 3-shot" in listed
