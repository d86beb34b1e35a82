"""`fscil-bench check`: the conformance suite on a plug-in file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fscil_bench
from fscil_bench.cli.app import app

TOY = Path(__file__).parents[1] / "toy"


def check(*files: Path) -> Result:
    return CliRunner().invoke(app, ["check", *(w for f in files for w in ("--plugin", str(f)))])


def test_what_keeps_its_contract_passes() -> None:
    done = check(TOY / "toy_methods.py")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "method toy_means: keeps its contract",
        "method toy_first: keeps its contract",
    ]


BROKEN = """
import torch
from fscil_bench.representation import Representation
from toy_methods import ToyMeans

class Drawing(ToyMeans):
    name = "drawing"
    def scores(self, queries):
        torch.rand(1)
        return super().scores(queries)

class Failing(ToyMeans):
    name = "failing"
    def learn_session(self, session):
        {}[3]

class Vector(Representation):
    name = "vector"
    def build_head(self, feature_dim, classes, generator):
        return torch.nn.Linear(feature_dim, classes, bias=False)
    def loss(self, backbone, head, batch): return torch.ones(2)
    def classifier(self, head): return head.weight
    def scale(self): return 1.0
"""


def test_what_breaks_it_is_said_of_each(tmp_path: Path) -> None:
    (tmp_path / "toy_methods.py").write_text((TOY / "toy_methods.py").read_text())
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    done = check(file)
    assert done.exit_code == 1
    means, drawing, failing, vector = done.stdout.splitlines()
    assert means == "method toy_means: keeps its contract"
    assert drawing == "method drawing: draws from the global random state; use context.random"
    assert failing == f"method failing: KeyError: 3 ({file}:15)"
    assert vector == "representation vector: weight is not drawn from the generator given"
    assert "3 of 4 plug-ins break their contract" in done.stderr
    verdicts = {each.name: bool(each.problem) for each in fscil_bench.check(file)}
    assert verdicts == {"toy_means": False, "drawing": True, "failing": True, "vector": True}


@pytest.mark.parametrize("files", [(), (TOY / "toy_reader.py",)])
def test_a_file_without_a_method_is_bad_usage(files: tuple[Path, ...]) -> None:
    done = check(*files)
    assert done.exit_code == 2
    assert "no method, representation or backbone to check" in done.output
