"""The cache folder: how it is marked, what in it may be removed, and whether it is as written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from fscil_bench.data.reader import file_digest
from fscil_bench.errors import StoreError
from fscil_bench.store.files import TEMPORARY, write_text

TAG = "CACHEDIR.TAG"
TAGGED = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Caches of fscil-bench, made again when they are needed: `fscil-bench data clear`.\n"
)
"""The first line is the one by which backups know caches (bford.info/cachedir)."""

KINDS = {
    "images": re.compile(r"[A-Za-z0-9][\w.-]*-[0-9a-f]{16}"),
    "features": re.compile(r"[0-9a-f]{16}-[0-9a-f]{12}-[a-z0-9-]+"),
    "pretrained": re.compile(r"[0-9a-f]{16}"),
    "sessions": re.compile(r"[0-9a-f]{16}"),
    "precision": re.compile(r"[0-9a-f]{16}"),
}
"""Folders of the cache, and what the engine calls what it keeps in them."""

FILES = {
    "images": re.compile(r"meta\.json|(train|test)(_[a-z]+)?\.(bin|npy)"),
    "features": re.compile(r"done\.json|features\.npy|part-\d+\.safetensors"),
    "pretrained": re.compile(r"tensors\.safetensors|checkpoint\.pt"),
    "sessions": re.compile(r"checkpoint\.pt"),
    "precision": re.compile(r"measured\.json"),
}
"""What the engine writes there; a folder with anything else in it is somebody's own."""

LEFT_OVER = re.compile(rf"\..+\.{TEMPORARY}[a-z0-9_]{{8}}")
"""What `replaced_file` and `replaced_folder` call what is not whole yet."""

_EARLIER = (
    *(r"digests\.json", r"CACHEDIR\.TAG", r"\.writable", r"(run|episodes)\.json"),
    *(r"(weights|checkpoint)\.safetensors", "[0-9a-f]{16}"),
    *(pattern.pattern for pattern in (*KINDS.values(), *FILES.values())),
)
EARLIER_LEFT_OVER = re.compile(rf"\.({'|'.join(_EARLIER)})(\.old)?\.[a-z0-9_]{{8}}")
"""What earlier versions called it, of names that are the engine's own."""

WORK = (
    ".*",
    "representations/.*",
    "representations/*/.*",
    *(f"{kind}/*/*/.*" for kind in ("runs", "episodes", "reports", "tuned")),
)
"""Where in a cache and in results something may be half-written."""


def mark(cache: Path) -> None:
    """Mark a folder as the engine's cache, if it can be written to."""
    tag = cache / TAG
    if not tag.exists():
        with suppress(StoreError):
            write_text(tag, TAGGED)


def is_marked(cache: Path) -> bool:
    """Tell whether the engine has marked a folder as its cache."""
    try:
        return (cache / TAG).read_text(encoding="utf-8", errors="replace") == TAGGED
    except OSError:
        return False


def cached(cache: Path) -> Iterator[tuple[Path, int]]:
    """Yield every folder that the engine keeps in a cache, with its size in bytes."""
    for path in _kept(cache):
        if _is_own(path):
            yield path, _size(path)


def foreign(cache: Path) -> Iterator[Path]:
    """Yield what lies where caches are kept and is not the engine's."""
    for path in _kept(cache):
        if not _is_own(path) and not _is_left_over(path):
            yield path


def left_over(cache: Path, results: Path | None = None) -> Iterator[tuple[Path, int]]:
    """Yield the temporary files and folders of a cache and of results, with their sizes in bytes.

    They are what killed processes left, or what others are writing at the moment.
    """
    patterns = [(cache, ".*")]
    patterns += [(cache, f"{kind}/{name}") for kind in KINDS for name in (".*", "*/.*")]
    if results is not None:
        patterns += [(results, name) for name in WORK]
    for path in sorted({path for root, pattern in patterns for path in root.glob(pattern)}):
        if _is_left_over(path):
            yield path, path.stat().st_size if path.is_file() else _size(path)


def remembered_digests(
    cache: Path, paths: Iterable[Path], algorithm: str = "sha256"
) -> dict[Path, str]:
    """Return the digests of files, remembered in the cache while sizes and times do not change."""
    memo = cache / "digests.json"
    try:
        known = TypeAdapter(dict[str, str]).validate_json(memo.read_bytes())
    except (OSError, ValueError):
        known = {}
    keys = {path: _state(path, algorithm) for path in paths}
    new = {key: file_digest(path, algorithm) for path, key in keys.items() if key not in known}
    if new:
        mark(cache)
        with suppress(StoreError):  # where it cannot be kept, it is computed again
            write_text(memo, json.dumps(known | new, indent=1))
    return {path: (known | new)[key] for path, key in keys.items()}


def changed_file(cache: Path, folder: Path, written: Mapping[str, str]) -> str | None:
    """Return what is wrong with a cache's files, by the digests they were written with, or None.

    A file is read whole only after its size or times have changed.
    """
    found = remembered_digests(cache, [folder / name for name in written])
    changed = [name for name, digest in written.items() if found[folder / name] != digest]
    return f"{changed[0]} is not as it was written" if changed else None


def _state(path: Path, algorithm: str) -> str:
    status = path.stat()
    # Tools that copy or unpack set the time of the content back, but not that of the change.
    times = f"{status.st_mtime_ns}:{status.st_ctime_ns}"
    return f"{algorithm}:{path.resolve()}:{status.st_size}:{times}"


def _kept(cache: Path) -> list[Path]:
    folders = [cache / kind for kind in KINDS if not (cache / kind).is_symlink()]
    return sorted(path for folder in folders for path in folder.glob("*"))


def _is_own(path: Path) -> bool:
    named = KINDS[path.parent.name].fullmatch(path.name) is not None
    if not named or not path.is_dir() or path.is_symlink():
        return False
    files = FILES[path.parent.name]
    return all(files.fullmatch(each.name) or _is_left_over(each) for each in path.iterdir())


def _is_left_over(path: Path) -> bool:
    named = LEFT_OVER.fullmatch(path.name) or EARLIER_LEFT_OVER.fullmatch(path.name)
    return named is not None and not path.is_symlink()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
