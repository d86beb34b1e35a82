"""`fscil-bench episodes`, and its report, on toy images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fscil_bench.cli.app import app

TOY = Path(__file__).parents[1] / "toy"
WITH_TOY = ["--protocol", str(TOY / "toy.toml"), "--plugin", str(TOY / "toy_reader.py")]
WITH_TOY += ["--plugin", str(TOY / "toy_methods.py")]
SMALL = ["--way", "3", "--queries", "4", "--episodes", "20", "--precision", "fp32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("episodes-cli")


def call(folder: Path, *words: str) -> Result:
    places = ["--results", str(folder / "results"), "--cache", str(folder / "cache")]
    return CliRunner().invoke(app, [*words, *WITH_TOY, *places])


def test_episodes_and_their_report(folder: Path) -> None:
    both = ["--method", "toy_means,toy_first"]
    done = call(folder, "episodes", *both, *SMALL)
    assert done.exit_code == 0, done.output
    assert "toy_means on toy, 3-way 1-shot, seed 0: " in done.output
    assert "toy_first on toy, 3-way 5-shot, seed 0: 33.33 ± 0.00 % over 20 episodes" in done.output
    hint = done.output.partition("table: fscil-bench report few-shot ")[2]
    assert hint.startswith(f"--protocol {TOY / 'toy.toml'} --results {folder / 'results'} ")
    assert "--plugin" in hint
    stored = list((folder / "results").glob("episodes/toy/*/*/episodes.json"))
    assert len(stored) == 4
    stamps = {path: path.stat().st_mtime_ns for path in stored}
    again = call(folder, "episodes", *both, *SMALL)
    first, *rest = done.output.splitlines(keepends=True)
    assert first.startswith("base training comes first: cosine on toy, 2 epochs")
    assert again.output == "".join(rest)
    assert {path: path.stat().st_mtime_ns for path in stored} == stamps

    settings = ["--set", "way=3", "--set", "queries=4", "--set", "episodes=20"]
    table = call(folder, "report", "few-shot", *settings, "--set", "against=toy_first", *both)
    assert table.exit_code == 0, table.output
    assert "| toy\\_first | 20 | 33.33 ± 0.00 | 33.33 ± 0.00 | – | – |" in table.output.replace(
        "toy_first |", "toy\\_first |"
    )
    assert "Missing" not in table.output


def test_episodes_are_listed_and_damaged_ones_named(tmp_path: Path) -> None:
    results = ["--results", str(tmp_path / "results")]
    empty = CliRunner().invoke(app, ["list", "episodes", *results])
    assert empty.exit_code == 0
    assert f"no episodes in {tmp_path / 'results'}" in empty.output
    call(tmp_path, "episodes", "--method", "toy_first", *SMALL)
    listed = CliRunner().invoke(app, ["list", "episodes", *results]).output
    assert listed.count("toy  toy_first (3-way ") == 2
    assert "5-shot, 4 queries, cosine, seed 0, representation seed 0, epochs 2, " in listed
    assert "33.33 ± 0.00 % over 20 episodes" in listed
    damaged = next((tmp_path / "results").glob("episodes/toy/*/*/accuracies.npy"))
    damaged.write_bytes(b"")
    listed = CliRunner().invoke(app, ["list", "episodes", *results]).output
    assert listed.count("toy  toy_first (3-way ") == 1
    assert f"warning: {damaged}: damaged" in listed


def test_run_missing_makes_what_the_report_wants(folder: Path, tmp_path: Path) -> None:
    del folder
    settings = ["--set", "way=2", "--set", "shots=2", "--set", "queries=3", "--set", "episodes=8"]
    words = ["report", "few-shot", *settings, "--method", "toy_means"]
    lacking = call(tmp_path, *words)
    assert lacking.exit_code == 1
    assert "--way 2 --shot 2 --queries 3 --episodes 8 --seeds 0" in lacking.output
    made = call(tmp_path, *words, "--run-missing", "--precision", "fp32")
    assert made.exit_code == 0, made.output
    assert "2-way 2-shot" in made.output
    assert "Missing" not in made.output


def test_the_command_that_the_report_names_works(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    words = ["report", "few-shot", "--method", "toy_means", "--set", "episodes=3"]
    lacking = call(tmp_path, *words, "--set", "shots=2")
    # Its classes have 5 test images each.
    assert "--way 5 --shot 2 --queries 5 --episodes 3 --seeds 0" in lacking.output
    made = call(tmp_path, "episodes", "--method", "toy_means", "--shot", "2", "--episodes", "3")
    assert made.exit_code == 0, made.output
    assert "Missing" not in call(tmp_path, *words, "--set", "shots=2").output


def test_all_is_checked_before_anything_is_made(tmp_path: Path) -> None:
    words = ["episodes", "--method", "toy_means", *SMALL]
    wrong = call(tmp_path, *words, "--shot", "1,13")
    assert wrong.exit_code == 1
    assert "has 12 training images, an episode needs 13" in wrong.output
    able = call(tmp_path, "episodes", "--method", "toy_means,finetune", *SMALL)
    assert able.exit_code == 2
    assert "'finetune' does not do ordinary few-shot classification" in able.output
    design = call(tmp_path, *words, "--shot", "x")
    assert design.exit_code == 2
    assert "an episode: shot = 'x'" in design.output
    nothing = call(tmp_path, "episodes", "--method", ",", *SMALL)
    assert nothing.exit_code == 2
    assert "--method names no method" in nothing.output
    assert not (tmp_path / "results").exists()


def test_settings_reach_the_method_they_name(folder: Path) -> None:
    words = ["episodes", "--method", "toy_means,toy_first", *SMALL, "--shot", "1"]
    wrong = call(folder, *words, "--set", "toy_means.beta=1")
    assert wrong.exit_code == 2
    assert "method 'toy_means' has no parameter 'beta'" in wrong.output
    other = call(folder, *words, "--set", "ncm.beta=1")
    assert "'ncm' is not run" in other.output
