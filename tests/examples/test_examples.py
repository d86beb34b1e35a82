"""The scripts of examples/ run, one after the other in one folder as a reader would run them."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = {
    "features_from_file.py": ([], r"\| Mahalanobis \| 5 \|"),
    "own_method.py": (["drawn.toml"], r"neighbourly .*LDC|LDC .*neighbourly"),
    "own_images.py": ([], r"\| TEEN \| 3 \|"),
    "custom_report.py": (["drawn.toml"], r"(?s)\| neighbourly \| 6 \| .*points\.png"),
    "read_results.py": ([], r"stripes: teen − ncm = -?\d+\.\d\d points over 3 draws"),
}
"""Script -> its arguments, and what it prints; later ones read what earlier ones have stored."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


def test_all_of_them_are_run() -> None:
    assert sorted(RUN) == sorted(file.name for file in EXAMPLES.glob("*.py"))


def test_the_readme_has_them_in_an_order_that_works() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    assert re.findall(r"\((\w+\.py)\)", text) == list(RUN)


def test_they_run_and_print_what_was_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FSCIL_BENCH_CACHE", str(folder / "cache"))
    for name, (words, expected) in RUN.items():
        monkeypatch.setattr(sys, "argv", [name, *words])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        printed = capfd.readouterr().out
        assert re.search(expected, printed), f"{name} printed\n{printed}"
    assert Path("curves.png").stat().st_size > 0
