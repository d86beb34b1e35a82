from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import fscil_bench as fb
from fscil_bench.cli.app import app
from fscil_bench.report import ReportOutput
from fscil_bench.reports.ldc.claims.report import LdcClaims, published

LETTERS = "abcdefghijkl"
SMALL = {
    "ldc_set": "epochs=2,unit_steps=2,unit_classes=2,simulated_shots=3,temperature=400",
    "free_lunch_set": "samples_per_class=8,episode_samples=8",
    "unseen": 2,
    "steps": 1,
    "episodes": 3,
    "queries": 5,
}


@pytest.fixture
def make(study: Any) -> Any:
    """Return a function that makes the report of all stored hand-made runs into `out`."""
    return partial(study, LdcClaims, {"unseen": 2, "steps": 1})


def rows_of(output: ReportOutput) -> dict[str, list[str]]:
    """Return the cells of the table of claims by letter."""
    rows = [line[2:-2].split(" | ") for line in output.text.splitlines() if line.startswith("| (")]
    return {cells[0].strip("()"): cells[1:] for cells in rows}


def test_every_claim_has_a_row_and_a_published_figure(claims: Any, make: Any) -> None:
    claims.write(claims.setup.ldc(), [(30, 3)] * 6)

    rows = rows_of(make())

    assert "".join(rows) == LETTERS
    assert set(published()["claim"]) == set(LETTERS)
    assert rows["a"][1] == "CUB200: +2.72 points (51.86 -> 54.58)"
    # Of LDC alone one can tell how its own memory grows (by 2,048 bytes a class: not 512).
    assert {letter: cells[-1].strip("*") for letter, cells in rows.items()} == {
        **dict.fromkeys(LETTERS, "not tested"),
        "g": "does not hold",
    }


def test_figures_stand_with_interval_pairs_and_verdict(
    claims: Any, make: Any, tmp_path: Path
) -> None:
    adds = (1, 1, 1, -2, 2, 3)
    claims.write(claims.setup.ablation["+ mapping"], [(30 + images, 3) for images in adds])
    claims.write(claims.setup.ablation["baseline"], [(30, 3)] * 6)

    output = make()

    # Images of 60: mean 1, s² = 14/5, t(0.975, 5) = 2.5705818, so that t·s/√n is 2.93 points.
    measured = "+1.67 [−1.26, +4.59] points (n = 6 seeds; 56.67 against 55.00)"
    assert rows_of(output)["a"][2:] == [
        f"{measured}; the smallest that could have shown: 2.93",
        "**cannot be told**",
    ]
    line = pd.read_csv(tmp_path / "out/ldc-claims.csv", index_col="claim").loc["a"]
    assert line["mean"] == pytest.approx(100 / 60)
    assert line["high"] - line["mean"] == pytest.approx(2.92674, abs=1e-4)
    assert (line["protocol"], line["n"], line["pairs"]) == ("toy", 6, "seeds")
    assert line["source"].startswith("LDC paper (arXiv 2210.00232)")
    assert line["verdict"] == "cannot be told"


def test_files_hold_what_is_shown(claims: Any, make: Any, numbers: Any, tmp_path: Path) -> None:
    for variant in claims.setup.ablation.values():
        claims.write(variant)

    output = make()

    both = [f"{name}.{kind}" for name in ("claims", "aims", "ablation") for kind in ("csv", "tex")]
    names = {"ldc-claims.md", "ldc-claims.csv", "ldc-claims.tex", *both}
    assert {file.name for file in output.files} == names
    assert numbers("ablation").index.tolist() == list(claims.setup.ablation)
    assert "| + mapping | 6 | 90.00 ± 0.00 | 80.00 ± 0.00 | 55.00 ± 0.00 |" in output.text
    text = (tmp_path / "out/ldc-claims.tex").read_text("ascii")
    assert "U+" not in text
    assert r"CUB200: +2.72 points (51.86 -\textgreater{} 54.58)" in text


def test_missing_runs_are_listed_with_one_command_a_variant(claims: Any, make: Any) -> None:
    claims.write(claims.setup.ldc(), [(30, 3)] * 5)

    output = make()

    commands = "\n".join(output.missing)
    assert "fscil-bench run --method ldc --protocol toy --seeds 5" in output.missing
    assert "--protocol toy --set sampler=none --seeds 0-5" in commands
    assert "--way 2 --sessions 1 --set covariance=empirical --artifacts --seeds 0-5" in commands
    assert "--split outlier:0.2 --seeds 0-5" in commands
    assert "--set byte_budget=16384 --set budget_mode=low_rank --seeds 0-5" in commands
    assert "episodes --method free_lunch --protocol toy --way 5 --shot 1" in commands
    assert len(output.missing) == len(set(output.missing))
    remedy = "report ldc-claims --protocol toy --seeds 0-5 --set unseen=2 --set steps=1"
    assert f"fscil-bench {remedy} --run-missing" in output.text
    assert all(f": `{command}`" in output.text for command in output.missing)


def made(results: Path) -> dict[Path, int]:
    """Return what is stored, and when it was."""
    files = [path for name in ("run.json", "episodes.json") for path in results.rglob(name)]
    return {path: path.stat().st_mtime_ns for path in files}


def test_run_missing_makes_just_what_is_missing(trained: dict[str, Any], tmp_path: Path) -> None:
    results = tmp_path / "results"
    report = partial(
        fb.make_report, "ldc-claims", **{**trained, "results": results, "params": SMALL}
    )
    first = report(run_missing=True)

    assert (first.missing, first.failures, first.warnings) == ((), (), ())
    # Whatever is judged over seeds has one pair here; over classes and episodes it has several.
    rows = rows_of(first)
    assert [letter for letter, cells in rows.items() if "not tested" in cells[-1]] == []
    assert "n = 4 classes" in rows["j"][2]
    stored = made(results)

    # One that no time is told of, as it will be another.
    runs = [path for path in stored if {"free_lunch", "runs"} <= set(path.parts)]
    params = {path: json.loads(path.read_text())["spec"]["params"] for path in runs}
    gone = next(path for path in runs if params[path]["byte_budget"])
    shutil.rmtree(gone.parent)
    (lacking,) = report().missing
    assert "--method free_lunch" in lacking
    assert f"--plugin {trained['plugins'][0]}" in lacking
    assert f"--protocol {trained['protocol']}" in lacking
    assert report(run_missing=True).text == first.text
    after = made(results)
    assert set(after) == set(stored)
    assert [path for path in after if after[path] != stored[path]] == [gone]

    files = [next(results.rglob("accuracies.npy")), gone.parent / "predictions.npz"]
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    without = report()
    assert {file for file in files for line in without.warnings if str(file) in line} == set(files)
    assert len(without.missing) == 2
    whole = report(run_missing=True)
    assert (whole.missing, whole.failures, whole.warnings) == ((), (), ())
    assert rows_of(whole)["i"] == rows_of(first)["i"]


def test_what_cannot_be_made_does_not_stop_the_rest(
    trained: dict[str, Any], tmp_path: Path
) -> None:
    # The toy's classes have 5 test images each, so that episodes of 6 queries cannot be drawn.
    words = ["report", "ldc-claims", "--protocol", trained["protocol"], "--seeds", "0"]
    words += ["--plugin", str(trained["plugins"][0]), "--precision", "fp32", "--run-missing"]
    words += ["--results", str(tmp_path), "--cache", str(trained["cache"])]
    words += [w for n, v in {**SMALL, "queries": 6}.items() for w in ("--set", f"{n}={v}")]

    done = CliRunner().invoke(app, words)

    assert done.exit_code == 1
    assert "runs that could not be made; the others are stored" in done.output
    assert "has 5 test images, an episode needs 6 (queries)" in done.output
    assert "ldc-claims.csv" in done.output
    rows = [line for line in done.output.splitlines() if line.startswith("| (")]
    verdicts = {line[3]: line.rstrip(" |").rpartition("| ")[2] for line in rows}
    assert (verdicts["i"], verdicts["g"]) == ("**not tested**", "**holds**")
