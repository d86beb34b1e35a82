"""What README, CONTRIBUTING and docs/ tell readers to type is what the command line takes."""

from __future__ import annotations

import importlib.util
import math
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import typer

import fscil_bench
from fscil_bench.cli.app import app
from fscil_bench.metrics import mean_interval
from fscil_bench.plugins.registry import GROUPS, load_registry
from fscil_bench.reporting.tables import mean_text

ROOT = Path(__file__).parents[1]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*TOP, ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = {"--method": "method", "--representation": "representation", "--protocol": "protocol"}
"""Options whose values are names of plug-ins."""


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command in a page's blocks, variables and comments left out."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        if line.startswith("fscil-bench "):
            yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_understood_and_name_what_there_is(page: Path) -> None:
    registry = load_registry()
    for words in commands(page):
        command, rest = typer.main.get_command(app), words
        while hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        context = command.make_context("fscil-bench", list(rest))
        if "--plugin" in words:
            continue  # it may bring what it names
        for option, kind in NAMED.items():
            given = [value for key, value in pairwise(words) if key == option]
            for name in ",".join(given).split(",") if given else []:
                assert name in GROUPS or name.endswith(".toml") or registry.get(kind, name)
        if command.name == "report":
            assert registry.get("report", context.params["name"])


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield where a page's relative links lead in the repository, and their anchors."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    folder = page.parent.relative_to(ROOT).as_posix()
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)", text):
        own = posixpath.normpath(posixpath.join(folder, target))
        yield (own if target else page.relative_to(ROOT).as_posix()), anchor


@pytest.fixture(scope="module")
def in_git() -> set[str]:
    """Return all files that are in git, and the folders that they lie in."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [Path(name) for name in filter(None, listing.stdout.split("\0"))]
    return {each.as_posix() for file in files for each in (file, *file.parents)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_the_repository_has(page: Path, in_git: set[str]) -> None:
    for target, anchor in links(page):
        assert target in in_git
        if anchor:
            headings = re.findall(r"^#+ (.+)", (ROOT / target).read_text("utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings]
            assert anchor in slugs


def plugin_blocks() -> Iterator[tuple[str, str]]:
    """Yield the plug-ins that pages show as files: name and text."""
    for page in PAGES:
        pattern = r'^```python title="(\w+\.py)"\n(.*?)^```'
        for name, text in re.findall(pattern, page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            if re.search(r"^class \w+\((Method|Representation)\)", text, re.MULTILINE):
                yield name, text


def test_plugins_that_pages_show_keep_their_contract(tmp_path: Path) -> None:
    for name, text in plugin_blocks():
        (tmp_path / name).write_text(text, encoding="utf-8")
    verdicts = fscil_bench.check(*sorted(tmp_path.glob("*.py")))
    assert {each.name: each.problem for each in verdicts} == {"euclidean": "", "smoothed": ""}


def test_means_with_pandas_end_as_those_of_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs/start.md").read_text("utf-8")
    block = re.search(r'^```python title="last_session.py"\n(.*?)^```', text, re.DOTALL | re.M)
    assert block is not None
    # Their means, of 2000 test images, are 77.175 and 55.325, which round(2) makes 77.18 and 55.32.
    right = {"up": [1520, 1567], "down": [1068, 1145]}
    values = {name: [100 * (each / 2000) for each in own] for name, own in right.items()}
    lines = [(name, value) for name, own in values.items() for value in own]
    frame = pd.DataFrame(lines, columns=["method", "last"])
    measures = ("last_base", "last_new", "last_harmonic")
    frame = frame.assign(**dict.fromkeys(measures, frame["last"]))
    monkeypatch.setattr(fscil_bench, "load_runs", lambda **_: frame)
    exec(block[1], {})
    printed = capsys.readouterr().out.splitlines()
    for name, own in values.items():
        (line,) = (line for line in printed if line.startswith(name))
        assert line.split()[1:] == [mean_text(mean_interval(own).mean, math.nan)] * 4
        assert line.split()[1] != f"{frame[frame.method == name]['last'].mean().round(2):.2f}"


def test_there_is_something_to_understand() -> None:
    found = {page: len(list(commands(page))) for page in PAGES}
    assert found[ROOT / "README.md"] >= 5
    assert sum(found.values()) > 50
    assert sum(len(list(links(page))) for page in PAGES) > 60


def test_the_version_has_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "version" not in project
    assert "version" not in (ROOT / "CITATION.cff").read_text("utf-8").replace("cff-version", "")
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == fscil_bench.__version__


@pytest.fixture(scope="module")
def catalogue() -> ModuleType:
    """Return the module that draws the site's pages, where the extra [docs] is installed."""
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("catalogue", ROOT / "docs" / "catalogue.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_plugin_has_a_page(catalogue: ModuleType) -> None:
    pages, registry = catalogue.pages(), load_registry()
    for kind in ("method", "representation", "backbone", "protocol", "report"):
        for name in registry.names(kind):
            assert pages[f"catalogue/{kind}s/{name}.md"].startswith("# ")
            assert f"[`{name}`]({name}.md)" in pages[f"catalogue/{kind}s/index.md"]
    teen = pages["catalogue/methods/teen.md"]
    meaning = "α, how far a new prototype is moved: 0 leaves it, 1 replaces it."
    assert f"| `alpha` | number ≥ 0, ≤ 1 | `0.1` | {meaning} |" in teen
    assert "| [`cub200`](../protocols/cub200.md) | `alpha=0.5` |" in teen
    assert (
        "| [`cifar100`](../protocols/cifar100.md) | TEEN | 74.92 | 52.64 | on test data |" in teen
    )
    cub200 = pages["catalogue/protocols/cub200.md"]
    assert "| [`teen`](../methods/teen.md) | `alpha=0.5` |" in cub200
    assert "| `fscil-bench" not in pages["cli.md"]
    assert "## fscil-bench data scan" in pages["cli.md"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "number > 0, ≤ 1"),
        ({"enum": ["raw", "tukey"], "type": "string"}, "`raw`, `tukey`"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or none"),
        ({"type": "array", "items": {"type": "integer", "minimum": 1}}, "several: integer ≥ 1"),
    ],
)
def test_what_a_parameter_may_be_is_said(
    catalogue: ModuleType, schema: dict[str, object], told: str
) -> None:
    assert catalogue.kind_of(schema) == told


def test_mathematics_and_notes_of_docstrings_survive(catalogue: ModuleType) -> None:
    told = catalogue.prose("See docs/methods/ldc.md: _a_ * b in `x*y`\nand s_j.")
    assert told == r"See [ldc](../../methods/ldc.md): \_a\_ \* b in `x*y`" + "\nand s_j."
