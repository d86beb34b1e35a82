"""Somebody else's package, with a sub-package and data files: built, installed, found, and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOY = Path(__file__).parents[1] / "toy"

METHOD = '''
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


def test_it_is_listed_runs_and_keeps_the_contract(site: Path, new_toy: Any) -> None:
    words = ["run", "--method", "outside_mean", *new_toy.words(), "--protocol", "outside"]
    code = (
        "from fscil_bench.cli.app import app; from fscil_bench.testing import check_method\n"
        "app(['list', 'methods'], standalone_mode=False)\n"
        f"app({words!r}, standalone_mode=False)\n"
        "from outside_methods.deep.mean import OutsideMean; check_method(OutsideMean)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "outside_mean" in done.stdout and "outside_methods" in done.stdout
    runs = new_toy.folder / "results" / "runs" / "outside" / "outside_mean"
    assert len(list(runs.glob("*/run.json"))) == 1
