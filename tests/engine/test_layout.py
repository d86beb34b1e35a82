"""The packages that are installed are the folders that exist, and keep to the import rule."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN_FOLDERS = ("methods", "protocols", "reports")


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
            shared = name.startswith(("..._", ".._"))
            assert shared or not name.startswith(".."), f"{file} imports from above its folder"
