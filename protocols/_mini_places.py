"""Where copies of mini-ImageNet are looked for, and how a folder is told to be one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ._mini_division import FILE_NAME, official_classes

FOLDERS = (
    "mini_imagenet",
    "miniimagenet",
    "mini-imagenet",
    "MINI-ImageNet",
    "miniImageNet",
    "mini-ImageNet",
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
NAMED = 20
"""How many of a long list of classes or files a message names."""


def candidates(root: Path) -> Iterator[Path]:
    """Yield what may be a copy: a data root itself, and what has one of the usual names in it."""
    if root.is_file():
        if root.name.lower().startswith("mini") and root.name.endswith(ARCHIVES):
            yield root
        return
    for path in (root, *(root / name for name in FOLDERS)):
        if path.is_dir():
            yield path
    for name in FOLDERS:
        yield from (p for suffix in ARCHIVES if (p := root / f"{name}{suffix}").is_file())


def has_pictures(folder: Path) -> bool:
    """Return whether a folder looks like one of the layouts; other data sets have images/ too."""
    classes = set(official_classes())
    if any(
        (folder / half / wnid).is_dir() for half in ("train", "val", "test") for wnid in classes
    ):
        return True
    if not (folder / "images").is_dir():
        return False
    with os.scandir(folder / "images") as entries:
        names = (FILE_NAME.fullmatch(entry.name) for entry in entries)
        return any(match and match[1] in classes for match in names)


def described(root: Path) -> str:
    """Return a data root with what was found there instead of a copy."""
    if not root.exists():
        return f"{root} (which does not exist)"
    if root.is_file():
        return f"{root} (which is a file; an archive's name must begin with mini)"
    return f"{root} (which holds {some(sorted(p.name for p in root.iterdir())) or 'nothing'})"


def some(names: Sequence[str]) -> str:
    """Return the first of some names, for a message."""
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
