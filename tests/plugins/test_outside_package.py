"""Somebody else's package, with a sub-package and data files: built, installed, found, and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOY = Path(__file__).parents[1] / "toy"

METHOD = '''
"""Nearest class mean by Euclidean distance, as a package of its own would bring it."""

from pathlib import Path

import torch

from fscil_bench.method import Method

from ..distances import negative

SCALE = float(Path(__file__).with_name("scale.txt").read_text())


class OutsideMean(Method):
    """A class belongs to whoever is nearest."""

    name = "outside_mean"

    def learn_base(self, base):
        self.means = self._means(base)

    def learn_session(self, session):
        self.means = torch.cat([self.means, self._means(session)])

    def scores(self, queries):
        return negative(SCALE * torch.cdist(queries.features, self.means))

    def state_dict(self):
        return {"means": self.means}

    def load_state_dict(self, state):
        self.means = state["means"].clone()

    def _means(self, session):
        x = session.features
        return torch.stack([x[session.labels == c].mean(0) for c in session.class_ids])
'''

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "outside-methods"
version = "1.0"

[project.entry-points."fscil_bench.methods"]
all = "outside_methods"

[tool.setuptools.packages.find]
include = ["outside_methods*"]

[tool.setuptools.package-data]
"*" = ["*.txt", "*.toml"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that the package is installed into."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(PYPROJECT)
    deep = source / "outside_methods" / "deep"
    deep.mkdir(parents=True)
    for folder in (deep.parent, deep):
        (folder / "__init__.py").write_text("")
    (deep.parent / "distances.py").write_text("def negative(x):\n    return -x\n")
    (deep / "mean.py").write_text(METHOD)
    (deep / "scale.txt").write_text("2\n")
    toml = (TOY / "toy.toml").read_text().replace('name = "toy"', 'name = "outside"')
    (deep / "outside.toml").write_text(toml)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    command = [sys.executable, "-m", "pip", "install", *options, str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target


def call(site: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that has the package installed."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_it_is_listed_with_its_origin_and_runs(site: Path, tmp_path: Path) -> None:
    main = "from fscil_bench.cli.app import main; main()"
    listed = call(site, main, "list", "methods")
    assert "outside_mean" in listed.stdout and "outside_methods" in listed.stdout, listed.stderr
    places = ["--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
    toy = ["--plugin", str(TOY / "toy_reader.py"), "--protocol", "outside"]
    made = call(site, main, "run", "--method", "outside_mean", *toy, *places)
    assert made.returncode == 0, made.stderr
    assert len(list((tmp_path / "r" / "runs" / "outside" / "outside_mean").glob("*/run.json"))) == 1


def test_its_author_checks_it_in_one_line(site: Path) -> None:
    line = (
        "from fscil_bench.testing import check_method; "
        "from outside_methods.deep.mean import OutsideMean; check_method(OutsideMean)"
    )
    checked = call(site, line)
    assert checked.returncode == 0, checked.stderr
