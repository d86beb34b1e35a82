"""The import rule: contracts <- machinery <- reporting <- cli; plug-ins meet only in the registry.

Every import counts, in a function and for type checking alone too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGIN_FOLDERS = ("methods", "protocols", "reports", "backbones")
"""The first three lie at the repository's top, backbones in the engine's folder."""
SHARED = {
    "methods": {"_shared"},
    "protocols": {"_archives"},
    "reports": {"published"},
    "backbones": set[str](),
}
"""What all families of a folder may import."""
MOST_MODULES = 25
UNDERSCORED = {"__init__", "__main__", "_shared", "_archives"}
LAYERS = (
    {
        *("errors", "params", "seeding", "progress", "metrics", "protocol", "spec"),
        *("request", "options", "defaults", "method", "representation", "backbone"),
        "plugins.contract",
    },
    {"plugins", "store", "data", "training", "running", "episodes", "testing", "grids"},
    {"report", "reporting"},
    {"cli", "api", "", "__main__"},
)
"""The engine's modules and packages, from the bottom up; one imports its own layer or lower."""


@dataclass(frozen=True)
class Module:
    """A file by the name that it is imported under, without the leading `fscil_bench`."""

    name: str
    file: Path

    @property
    def package(self) -> list[str]:
        """The parts of the package that its relative imports start from."""
        parts = self.name.split(".") if self.name else []
        return parts if self.file.name == "__init__.py" else parts[:-1]


def found(folder: str) -> Iterator[Module]:
    prefix = () if folder == "fscil_bench" else (folder,)
    for file in sorted((ROOT / folder).rglob("*.py")):
        parts = file.relative_to(ROOT / folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        yield Module(".".join((*prefix, *parts)), file)


MODULES = {
    module.name: module for folder in ("fscil_bench", *PLUGIN_FOLDERS) for module in found(folder)
}
FOLDERS = sorted({str(module.file.parent.relative_to(ROOT)) for module in MODULES.values()})
ENGINE = [name for name in MODULES if name.partition(".")[0] not in PLUGIN_FOLDERS]


def imports(module: Module) -> Iterator[tuple[str, bool]]:
    """Yield the project's modules that one imports, and whether by a relative import."""
    for node in ast.walk(ast.parse(module.file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                if first == "fscil_bench":
                    yield rest, False
        elif isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            if node.level:
                base = module.package
                assert node.level <= len(base) + 1, f"{module.file} imports from above the project"
                parts = [*base[: len(base) - node.level + 1], *parts]
            elif parts[0] != "fscil_bench":
                continue
            else:
                parts = parts[1:]
            for alias in node.names:
                inner = ".".join((*parts, alias.name))
                yield inner if inner in MODULES else ".".join(parts), bool(node.level)


GRAPH = {name: dict(imports(module)) for name, module in MODULES.items()}
"""Module -> what it imports -> whether by a relative import."""


def layer(name: str) -> int:
    """Return a module's layer: that of its longest known name."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        for number, members in enumerate(LAYERS):
            if ".".join(parts[:count]) in members:
                return number
    raise AssertionError(f"fscil_bench.{name} is in no layer; add it to LAYERS")


def family(name: str) -> tuple[str, str]:
    """Return a plug-in module's folder, and its file or sub-package directly below."""
    folder, _, rest = name.partition(".")
    return folder, rest.partition(".")[0]


def test_no_modules_import_one_another_in_a_circle() -> None:
    # A circle raises a CycleError that names it.
    assert set(TopologicalSorter(GRAPH).static_order()) == set(MODULES)


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_imports_no_plugin_and_nothing_above_it(name: str) -> None:
    for other in GRAPH[name]:
        assert other.partition(".")[0] not in PLUGIN_FOLDERS, f"{name} imports {other}"
        assert layer(other) <= layer(name), f"{name} imports {other}, from a higher layer"


@pytest.mark.parametrize("folder", PLUGIN_FOLDERS)
def test_plugins_import_the_engine_their_family_and_what_is_shared(folder: str) -> None:
    for name in MODULES:
        if family(name)[0] != folder:
            continue
        for other, is_relative in GRAPH[name].items():
            of_engine = other.partition(".")[0] not in PLUGIN_FOLDERS
            assert of_engine != is_relative, f"{name}: the engine by its full name, else relative"
            if not of_engine:
                near = {family(name)[1], *SHARED[folder]} - {""}
                assert family(other)[0] == folder, f"{name} imports {other}, of another folder"
                assert family(other)[1] in near, f"{name} imports {other}, of another family"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_can_be_overlooked_and_hides_no_name_but_the_shared_ones(folder: str) -> None:
    names = {Path(folder).name, *(file.stem for file in (ROOT / folder).glob("*.py"))}
    assert len(names - {"__init__"}) <= MOST_MODULES + 1
    assert sorted(name for name in names - UNDERSCORED if name.startswith("_")) == []
