"""Lists the images of a folder that has a folder for each class."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fscil_bench.errors import DataError, some

from .pictures import ENDINGS, Picture, is_image, one_form, picture

HALVES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
}
"""What the folders of halves are called, in small letters -> which half that is."""

IGNORED = frozenset(("__macosx", "thumbs.db", "desktop.ini"))
"""What systems leave behind, in small letters; names that begin with a dot are ignored too."""


def list_tree(folder: Path) -> list[Picture]:
    """Return the images of all classes.

    Raises:
        DataError: there are no class folders, one is empty, the halves have different classes,
            or a folder cannot be read.
    """
    folders = _folders(folder)
    if not folders:
        images = sum(is_image(entry.name) for entry in _entries(folder))
        raise DataError(
            f"{folder}: has no class folders ({images} images lie in it directly); give each "
            "class a folder of its own, or name a CSV with the columns path,label[,split]"
        )
    halves = _halves(folder, folders)
    if halves is None:
        return _classes(folder, folders, folder, None)
    inner = {half: _folders(path) for half, path in halves.items()}
    if not inner["train"].keys() & inner["test"].keys():
        raise DataError(
            f"{folder}: {halves['train'].name}/ and {halves['test'].name}/ have no class in common "
            f"({some(list(inner['train']), 3)}; {some(list(inner['test']), 3)}); give each class a "
            "folder in both, or name a CSV with the columns path,label,split"
        )
    differing = sorted(set(inner["train"]) ^ set(inner["test"]))
    if differing:
        name = differing[0]
        lacking, having = ("test", "train") if name in inner["train"] else ("train", "test")
        raise DataError(
            f"{halves[lacking]}: lacks the class {name!r}, which {halves[having]} has; both "
            f"halves need the same classes (differing: {some(differing)})"
        )
    return [
        one for half, path in halves.items() for one in _classes(path, inner[half], folder, half)
    ]


def _halves(folder: Path, folders: dict[str, Path]) -> dict[str, Path] | None:
    """Return the folders of the two halves, if the folder is divided so.

    Where the test half has no class of the training half (its labels are not public, as often in
    challenges), the validation half is the test half.
    """
    known: dict[str, Path] = {}
    for name, path in folders.items():
        half = HALVES.get(name.casefold())
        if half in known and _folders(path):
            raise DataError(
                f"{folder}: has both {known[half].name}/ and {name}/; which is the {half} half? "
                "Move the other one away"
            )
        if half is not None and _folders(path):
            known[half] = path
    tests = [known[half] for half in ("test", "val") if half in known]
    if "train" not in known or not tests:
        _refuse_likely_halves(folder, folders)
        return None
    train, classes = known["train"], _folders(known["train"]).keys()
    test = next((path for path in tests if _folders(path).keys() & classes), tests[0])
    others = [name for name in folders if name.casefold() not in HALVES]
    if others:
        raise DataError(
            f"{folder}: has {train.name}/ and {test.name}/, and beside them {some(others)}; which "
            "are halves and which are classes? Move one kind away"
        )
    return {"train": train, "test": test}


def _refuse_likely_halves(folder: Path, folders: dict[str, Path]) -> None:
    """Refuse folders that hold the same classes and are called like halves, but not as known."""
    inner = [set(_folders(path)) for path in folders.values()]
    called = all(re.search("train|test|val|eval|dev", name.casefold()) for name in folders)
    if len(folders) > 1 and called and set.intersection(*inner):
        raise DataError(
            f"{folder}: {some(list(folders))} look like halves, they hold the same classes "
            f"({some(sorted(set.intersection(*inner)), 5)}); rename them to train and test"
        )


def _classes(parent: Path, folders: dict[str, Path], root: Path, half: str | None) -> list[Picture]:
    found: list[Picture] = []
    empty = []
    for name, folder in folders.items():
        pictures = [
            picture(path, path.relative_to(root).as_posix(), name, half)
            for path in _images(folder, ())
        ]
        found += pictures
        if not pictures:
            empty.append(name)
    if empty and not found:
        raise DataError(f"{parent}: holds no images in any of its folders ({some(empty)})")
    if empty:
        raise DataError(
            f"{parent}: {len(empty)} class folders hold no images: {some(empty)}; fill or remove "
            f"them (images end in {', '.join(ENDINGS.split())})"
        )
    if len(folders) == 1 and half is None and (inner := _folders(folders[name])):
        raise DataError(
            f"{parent}: all {len(found)} images are of the single class {name!r}; its folder "
            f"holds folders ({some(list(inner))}): if these are the classes, name {folders[name]}"
        )
    return found


def _images(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """Yield the images in and below a folder; `above` are the folders that led here."""
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above and status.st_ino:
        raise DataError(f"{folder}: is a link to a folder that it lies in; remove it")
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _images(folder / entry.name, (*above, here))
        elif is_image(entry.name):
            yield folder / entry.name


def _folders(folder: Path) -> dict[str, Path]:
    """Return the folders in a folder by name, sorted.

    Raises:
        DataError: two names are one and the same to other systems.
    """
    found: dict[str, Path] = {}
    for entry in _entries(folder):
        if entry.is_dir():
            name = one_form(entry.name)
            if name in found:
                raise DataError(
                    f"{folder}: two class folders are called {name!r} in two forms of Unicode; "
                    "rename one of them, or move their images together"
                )
            found[name] = folder / entry.name
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what lies in a folder, sorted by name, without what systems leave behind."""
    try:
        with os.scandir(folder) as entries:
            kept = [
                entry
                for entry in entries
                if not entry.name.startswith(".") and entry.name.casefold() not in IGNORED
            ]
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from error
    return sorted(kept, key=lambda entry: (one_form(entry.name), entry.name))
