"""The source that decides what a plug-in does, so that an edited one is a new run."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path


def source_digest(file: Path, name: str) -> str:
    """Return 16 hexadecimal digits for the top-level class or function `name` of a file.

    It covers the source of `name`, of everything in the file that it refers to, however deep, and
    whole sibling modules (imported by one dot) from which it takes something. What else the file
    holds does not count: a method and the representation that it brings change apart.
    """
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    defined = _definitions(tree)
    siblings = _imported_from_siblings(tree, file)
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in reached or current not in defined | siblings:
            continue
        reached.add(current)
        if current in defined:
            names = {n.id for n in ast.walk(defined[current]) if isinstance(n, ast.Name)}
            waiting += sorted(names)
    parts = [ast.get_source_segment(text, defined[n]) or "" for n in sorted(reached & set(defined))]
    files = {path for n in reached & set(siblings) for path in _with_siblings(siblings[n])}
    parts += [path.read_text(encoding="utf-8") for path in sorted(files)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the statements that define a module's top-level names."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {t.id: node for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def _imported_from_siblings(tree: ast.Module, file: Path) -> dict[str, Path]:
    """Return the names that a module takes from siblings, with the sibling's file."""
    found: dict[str, Path] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                # `from ._helper import x` takes x from _helper; `from . import _helper` itself.
                module = node.module or alias.name
                path = file.with_name(f"{module.partition('.')[0]}.py")
                if path.is_file():
                    found[alias.asname or alias.name] = path
    return found


def _with_siblings(file: Path) -> set[Path]:
    """Return a file and the sibling modules it imports, however deep."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            waiting += _imported_from_siblings(tree, path).values()
    return found
