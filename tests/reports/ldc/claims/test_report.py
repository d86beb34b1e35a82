from __future__ import annotations

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

TOY = Path(__file__).parents[3] / "toy"
LETTERS = "abcdefghijkl"
SMALL = {
    "ldc_set": "epochs=2,unit_steps=2,unit_classes=2,simulated_shots=3",
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
        claims.write(variant, [(30, 3)] * 6)

    output = make()

    folder = tmp_path / "out"
    both = [f"{name}.{kind}" for name in ("claims", "aims", "ablation") for kind in ("csv", "tex")]
    names = {"ldc-claims.md", "ldc-claims.csv", "ldc-claims.tex", *both}
    assert {file.name for file in output.files} == names
    assert (folder / "ldc-claims.md").read_text("utf-8") == output.text
    assert numbers("ablation").index.tolist() == list(claims.setup.ablation)
    assert "| + mapping | 6 | 90.00 ± 0.00 | 80.00 ± 0.00 | 55.00 ± 0.00 |" in output.text
    text = (folder / "ldc-claims.tex").read_text("utf-8")
    assert text.isascii()
    assert "U+" not in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}")
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


def test_damaged_runs_are_named_and_left_out(claims: Any, make: Any) -> None:
    claims.write(claims.setup.ablation["baseline"], [(30, 3)] * 6)
    damaged = claims.write(claims.setup.ablation["+ mapping"], [(31, 3)] * 6)[1]
    (damaged.folder / "predictions.npz").write_bytes(b"PK")
    (generated,) = claims.write(claims.setup.generated["recurrent"], [(31, 3)])
    (generated.folder / "artifacts.npz").write_bytes(b"PK")

    output = make()

    assert "(n = 5 seeds;" in rows_of(output)["a"][2]
    assert rows_of(output)["j"][-1] == "**not tested**"
    assert [str(damaged.folder) in warning for warning in output.warnings] == [True, False]
    assert str(generated.folder) in output.warnings[1]


def report(folder: Path, **options: Any) -> fb.ReportOutput:
    settings: dict[str, Any] = {
        "protocol": str(TOY / "toy.toml"),
        "plugins": [TOY / "toy_reader.py"],
        "results": folder / "results",
        "cache": folder / "cache",
        "precision": "fp32",
        "seeds": (0,),
        "params": SMALL,
        **options,
    }
    return fb.make_report("ldc-claims", **settings)


def made(folder: Path) -> dict[Path, int]:
    """Return what is stored, and when it was."""
    names = ("run.json", "episodes.json")
    files = [path for name in names for path in (folder / "results").rglob(name)]
    return {path: path.stat().st_mtime_ns for path in files}


def test_run_missing_makes_just_what_is_missing(tmp_path: Path) -> None:
    first = report(tmp_path, run_missing=True)

    assert (first.missing, first.failures, first.warnings) == ((), (), ())
    # Whatever is judged over seeds has one pair here; over classes and episodes it has several.
    rows = rows_of(first)
    assert [letter for letter, cells in rows.items() if "not tested" in cells[-1]] == []
    assert "base, step 1" in rows["j"][2]
    assert "n = 4 classes" in rows["j"][2]
    stored = made(tmp_path)
    assert report(tmp_path, run_missing=True).text == first.text
    assert made(tmp_path) == stored

    gone = next(path for path in stored if "free_lunch" in path.parts and "runs" in path.parts)
    shutil.rmtree(gone.parent)
    (lacking,) = report(tmp_path).missing
    assert "--method free_lunch" in lacking
    assert f"--plugin {TOY / 'toy_reader.py'}" in lacking
    assert f"--protocol {TOY / 'toy.toml'}" in lacking
    again = report(tmp_path, run_missing=True)
    assert again.missing == ()
    after = made(tmp_path)
    assert set(after) == set(stored)
    assert [path for path in after if after[path] != stored[path]] == [gone]

    files = [next((tmp_path / "results").rglob("accuracies.npy"))]
    files += [gone.parent / "predictions.npz"]
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    without = report(tmp_path)
    assert {file for file in files for line in without.warnings if str(file) in line} == set(files)
    assert len(without.missing) == 2
    whole = report(tmp_path, run_missing=True)
    assert (whole.missing, whole.failures, whole.warnings) == ((), (), ())
    assert rows_of(whole)["i"] == rows_of(first)["i"]


def test_what_cannot_be_made_does_not_stop_the_rest(tmp_path: Path) -> None:
    # The toy's classes have 5 test images each, so that episodes of 6 queries cannot be drawn.
    output = report(tmp_path, run_missing=True, params={**SMALL, "queries": 6})

    assert len(output.failures) == 1
    assert "has 5 test images, an episode needs 6 (queries)" in output.failures[0]
    assert {line.split()[1] for line in output.missing} == {"episodes"}
    assert rows_of(output)["i"][-1] == "**not tested**"
    assert rows_of(output)["g"][-1] == "**holds**"
    words = ["report", "ldc-claims", "--protocol", str(TOY / "toy.toml"), "--seeds", "0"]
    words += ["--plugin", str(TOY / "toy_reader.py"), "--precision", "fp32", "--run-missing"]
    words += ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    words += [w for n, v in {**SMALL, "queries": 6}.items() for w in ("--set", f"{n}={v}")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "runs that could not be made; the others are stored" in done.output
    assert "ldc-claims.csv" in done.output
