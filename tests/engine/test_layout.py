"""The packages that are installed are the folders that exist, and keep to the import rule."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN_FOLDERS = ("methods", "protocols", "reports")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_is_listed_and_nothing_else() -> None:
    expected = {"fscil_bench": "fscil_bench"} | {f"fscil_bench.{f}": f for f in PLUGIN_FOLDERS}
    for package in (ROOT / "fscil_bench").rglob("__init__.py"):
        name = ".".join(package.parent.relative_to(ROOT).parts)
        expected.setdefault(name, str(package.parent.relative_to(ROOT)))
    assert sorted(SETTINGS["packages"]) == sorted(expected)
    assert SETTINGS["package-dir"] == expected


@pytest.mark.parametrize("folder", ["protocols", "reports"])
def test_data_files_of_plugin_folders_are_packaged(folder: str) -> None:
    patterns = SETTINGS["package-data"][f"fscil_bench.{folder}"]
    for file in (ROOT / folder).iterdir():
        if file.is_file() and file.suffix != ".py":
            assert any(file.match(pattern) for pattern in patterns), file.name


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("folder", ["fscil_bench", *PLUGIN_FOLDERS])
def test_engine_and_plugin_folders_meet_only_in_the_registry(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    banned = tuple(f"fscil_bench.{other}" for other in PLUGIN_FOLDERS)
    for file in files:
        for name in imported(file):
            assert not name.startswith(banned), f"{file} imports {name}"
            assert not name.startswith(".."), f"{file} imports from above its folder"
