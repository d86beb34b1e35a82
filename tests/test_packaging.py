"""What is built from the tree and installed: all of the four folders, under the one name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("fscil_bench", "methods", "protocols", "reports")
OTHERS = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
ADDED = (
    "fscil_bench/added/deep/part.py",
    "fscil_bench/networks/added-cosine-0.safetensors",
    "methods/added/deep/part.py",
    "methods/added/deep/values.csv",
    "protocols/added/part.py",
    "protocols/added/names.txt",
    "protocols/tables/added.toml",
    "reports/added/part.py",
    "reports/added/assets/page.html",
)
"""Files of sub-packages, so that they are tested whatever the tree has of them."""


def command(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(tree: Path, target: Path, *kinds: str) -> list[Path]:
    """Build `wheel`, `sdist` or `editable` of a tree, as an installer would."""
    calls = "; ".join(f"print(b.build_{kind}({str(target)!r}))" for kind in kinds)
    printed = command("-c", f"from setuptools import build_meta as b; {calls}", cwd=tree)
    names = [line for line in printed.splitlines() if line.endswith((".whl", ".tar.gz"))]
    assert len(names) == len(kinds), printed
    return [target / name for name in names]


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what is packaged, with sub-packages added."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
    for name in OTHERS:
        shutil.copy(ROOT / name, tree)
    for name in ADDED:
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        if file.suffix == ".py":
            for parent in list(file.relative_to(tree).parents)[:-2]:
                (tree / parent / "__init__.py").touch()
    return tree


@pytest.fixture(scope="session")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Return a wheel, an sdist, and the wheel of an editable install."""
    target = tmp_path_factory.mktemp("built")
    editable, wheel, sdist = build(tree, target, "editable", "wheel", "sdist")
    return wheel, sdist, editable


def test_the_wheel_holds_every_file_of_the_tree(tree: Path, built: tuple[Path, Path, Path]) -> None:
    held = set(zipfile.ZipFile(built[0]).namelist())
    files = [f for folder in FOLDERS for f in (tree / folder).rglob("*") if f.is_file()]
    names = [file.relative_to(tree).as_posix() for file in files]
    wanted = {f"fscil_bench/{name.removeprefix('fscil_bench/')}" for name in names}
    assert len(wanted) > 150
    assert wanted - held == set()
    beside = {name.partition("/")[0] for name in held - wanted}
    assert all(name.endswith(".dist-info") for name in beside), beside


def test_the_sdist_builds_the_same_wheel(built: tuple[Path, Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    (again,) = build(unpacked, tmp_path, "wheel")

    def record(wheel: Path) -> set[str]:
        with zipfile.ZipFile(wheel) as file:
            name = next(n for n in file.namelist() if n.endswith("RECORD"))
            return set(file.read(name).decode().splitlines())

    assert record(again) == record(built[0])


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_what_is_installed_finds_its_sub_packages_and_their_data(
    tree: Path, built: tuple[Path, Path, Path], tmp_path: Path, kind: str
) -> None:
    with zipfile.ZipFile(built[0 if kind == "wheel" else 2]) as file:
        file.extractall(tmp_path)
    program = (
        f"import site; site.addsitedir({str(tmp_path)!r})\n"
        "import pkgutil, fscil_bench.methods as m, fscil_bench.reports.added.part\n"
        "names = [i.name for i in pkgutil.walk_packages(m.__path__, 'fscil_bench.methods.')\n"
        "         if i.name.startswith('fscil_bench.methods.added')]\n"
        "from importlib.resources import files\n"
        "print(names, files('fscil_bench.methods.added.deep').joinpath('values.csv').is_file(),\n"
        "      files('fscil_bench.reports.added').joinpath('assets/page.html').is_file(),\n"
        "      m.__file__)\n"
    )
    printed = command("-S", "-c", program, cwd=tmp_path)
    added = "fscil_bench.methods.added"
    place = tmp_path / "fscil_bench" if kind == "wheel" else tree
    names = [added, f"{added}.deep", f"{added}.deep.part"]
    assert printed.strip() == f"{names} True True {place / 'methods' / '__init__.py'}"
