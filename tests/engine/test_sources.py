from __future__ import annotations

from pathlib import Path

import pytest

from fscil_bench.plugins.digest import source_digest

FILE = """from ._helper import power
from ._other import unused

BETA = 0.5

class Method:
    def scores(self, x):
        return embed(x)

class Representation:
    scale = 16

def embed(x):
    return power(x, BETA)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "method.py").write_text(FILE)
    (tmp_path / "_helper.py").write_text("from ._deeper import power\n")
    (tmp_path / "_deeper.py").write_text("def power(x, beta): return x ** beta\n")
    (tmp_path / "_other.py").write_text("unused = 1\n")
    return tmp_path / "method.py"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("method.py", "return embed(x)", "return -embed(x)"),
        ("method.py", "return power(x, BETA)", "return power(x, 2 * BETA)"),
        ("method.py", "BETA = 0.5", "BETA = 0.4"),
        ("_deeper.py", "x ** beta", "x * beta"),
    ],
    ids=["itself", "a function it calls", "a constant of that", "a helper's helper"],
)
def test_what_decides_the_result_moves_the_digest(
    file: Path, name: str, old: str, new: str
) -> None:
    before = source_digest(file, "Method")
    change(file.with_name(name), old, new)
    assert source_digest(file, "Method") != before


def test_what_is_beside_it_does_not(file: Path) -> None:
    method, representation = (source_digest(file, n) for n in ("Method", "Representation"))
    change(file, "scale = 16", "scale = 8")
    change(file.with_name("_other.py"), "unused = 1", "unused = 2")
    assert source_digest(file, "Method") == method
    assert source_digest(file, "Representation") != representation
    changed = source_digest(file, "Representation")
    change(file, "BETA = 0.5", "BETA = 0.4")
    assert source_digest(file, "Representation") == changed
