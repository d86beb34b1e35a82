"""Results of several folders brought together, packed for others, taken in, and removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np

from fscil_bench.episodes.store import read_episodes
from fscil_bench.errors import StoreError, UsageError, nearest, no_file
from fscil_bench.request import parse_seeds
from fscil_bench.spec import RunSpec, features_name
from fscil_bench.store.files import replaced_file, replaced_folder, work_folders
from fscil_bench.store.runs import ARTIFACTS, SCHEMA_VERSION, read_run
from fscil_bench.store.tensors import load_tensors, stored_digest

RUNS, EPISODES, NETWORKS, CHOICES = "runs", "episodes", "networks", "choices of parameters"
SINGULAR = {
    RUNS: "run",
    EPISODES: "set of episodes",
    NETWORKS: "network",
    CHOICES: "choice of parameters",
}
WEIGHTS = "weights.safetensors"
MEMBERS = {
    RUNS: re.compile(r"runs/[^/\\]+/[^/\\]+/[0-9a-f]{16}/(run\.json|(predictions|artifacts)\.npz)"),
    EPISODES: re.compile(r"episodes/[^/\\]+/[^/\\]+/[0-9a-f]{16}/(episodes\.json|accuracies\.npy)"),
    NETWORKS: re.compile(r"representations/[0-9a-f]{16}/weights\.safetensors"),
    CHOICES: re.compile(r"tuned/[^/\\]+/[^/\\]+/[^/\\]+\.json"),
}
"""What of a folder of results belongs together, and the names of its files."""
UNREADABLE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError)
"""What unpacking raises: a damaged archive, a cut or an encrypted member, an unknown method."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of a packed file, so that the same results make the same archive."""
ADVICE = re.compile(
    r"(;|, or) remove (the folder .* and run it again|this file, and what it held is made again)"
)
"""What messages on damaged work advise."""


@dataclass(frozen=True)
class Piece:
    """A piece of finished work in a folder of results.

    Attributes:
        kind: what it is, one of `MEMBERS`.
        place: where it lies below the folder.
        path: where it lies.
        spec: of the run, or of that whose base session episodes stand on; None of the rest.
    """

    kind: str
    place: Path
    path: Path
    spec: RunSpec | None = None

    @property
    def files(self) -> list[Path]:
        """Its files."""
        found = [self.path] if self.path.is_file() else sorted(self.path.iterdir())
        return [each for each in found if MEMBERS[self.kind].fullmatch(self._member(each))]

    def _member(self, file: Path) -> str:
        return (self.place / file.relative_to(self.path)).as_posix()

    def members(self) -> Iterator[tuple[str, Path]]:
        """Yield its files with the names that they have in an archive."""
        for file in self.files:
            yield self._member(file), file


@dataclass
class Moved:
    """What was taken over, by kind, how much was there and equal, and what there is to say."""

    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)
    equal: int = 0

    def told(self, where: str) -> str:
        """Return it in a line; `where` says where to, as "into results"."""
        parts = [f"{n} {SINGULAR.get(kind, kind) if n == 1 else kind}" for kind, n in self._some()]
        *most, last = parts or ["nothing"]
        there = f"{self.equal} {'was' if self.equal == 1 else 'were'} there already"
        if not parts and self.equal:
            return f"nothing new: {'all ' * (self.equal > 1 and not self.remarks)}{there}"
        moved = f"{', '.join(most)}{' and ' * bool(most)}{last} {where}"
        return f"{moved}; {there}" if self.equal else moved

    def _some(self) -> list[tuple[str, int]]:
        return [(kind, count) for kind, count in self.counts.items() if count]


def pieces(results: Path, remarks: list[str]) -> Iterator[Piece]:
    """Yield what a folder of results holds; what cannot be read is left out, with a remark."""
    readers: dict[str, Callable[[Path], Any]] = {RUNS: read_run, EPISODES: read_episodes}
    for kind, read in readers.items():
        for folder in work_folders(results / kind):
            try:
                found = read(folder)
            except StoreError as error:
                remarks.append(f"left out: {error}")
                continue
            spec: RunSpec = found.spec if kind == RUNS else found.spec.run
            own = (kind, spec.protocol.name, spec.method)
            if found.damage:
                remarks.append(f"left out: {found.damage}")
            elif folder.relative_to(results).parts[:-1] != own:
                remarks.append(f"left out: {folder} is no place for {'/'.join(own)}")
            else:
                yield Piece(kind, folder.relative_to(results), folder, spec)
    for file in sorted(results.glob(f"representations/[!.]*/{WEIGHTS}")):
        yield Piece(NETWORKS, file.parent.relative_to(results), file.parent)
    for file in sorted(results.glob("tuned/*/*/*.json")):
        try:
            json.loads(file.read_text(encoding="utf-8"))["params"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            remarks.append(f"left out: {file}: no choice of parameters ({error!r})")
            continue
        yield Piece(CHOICES, file.relative_to(results), file)


def merge(sources: Mapping[str, Path], target: Path) -> Moved:
    """Bring the results of some folders, named for messages, together in `target`.

    What `target` holds stays; of equal work the first is kept, but one with named arrays before one
    without. Of one network with different weights, and of one choice of parameters made twice, the
    first is kept too, with a remark. All is compared before anything is written.

    Raises:
        StoreError: two runs (or sets of episodes) of one key differ in what they predicted.
        UsageError: a source is no folder.
    """
    for name, folder in sources.items():
        if not folder.is_dir():
            told = "; `results import` takes archives" if folder.is_file() else ""
            raise UsageError(f"{name}: no folder of results{told}")
    moved = Moved()
    folders = {str(target): target, **sources}
    kept, conflicts, equal = _brought_together(folders, target, moved.remarks)
    if conflicts:
        more = f" (and {len(conflicts) - 1} more)" if len(conflicts) > 1 else ""
        raise StoreError(
            f"one key and different predictions: {conflicts[0]}{more}; nothing was written. "
            "Machines differ in the last bits: make the runs of one of them with other seeds, or "
            "remove them with `fscil-bench results remove --where key=...`"
        )
    for piece in kept:
        place = target / piece.place
        if piece.path == place:
            moved.equal += piece.place in equal
            continue
        if piece.kind in (RUNS, EPISODES) and place.exists() and _is_newer(place):
            moved.remarks.append(f"{place}: of a newer fscil-bench, left as it is")
            continue
        _copy(piece, place)
        moved.counts[piece.kind] += 1
    return moved


def _brought_together(
    folders: Mapping[str, Path], target: Path, remarks: list[str]
) -> tuple[list[Piece], list[str], set[Path]]:
    """Return a piece of work for each place in some folders, where runs contradict, and agree."""
    kept: dict[Path, tuple[str, Piece]] = {}
    conflicts: list[str] = []
    equal: set[Path] = set()
    for name, folder in folders.items():
        for piece in pieces(folder, remarks):
            if piece.kind == NETWORKS and not (target / piece.place).exists():
                try:
                    load_tensors(piece.path / WEIGHTS)
                except StoreError as error:
                    remarks.append(f"left out: {error}")
                    continue
            owner, first = kept.setdefault(piece.place, (name, piece))
            if owner == name:
                continue
            told = f"{piece.place} of {owner} and of {name}"
            try:
                same = _same(first, piece)
            except StoreError as error:
                remarks.append(f"{told}: that of {owner} is kept ({error})")
                continue
            if same:
                equal.add(piece.place)
                if _has_arrays(piece) and not _has_arrays(first):
                    kept[piece.place] = name, piece
            elif piece.kind in (RUNS, EPISODES):
                conflicts.append(told)
            else:
                remarks.append(f"{told} differ; that of {owner} is kept")
    return [piece for _, piece in kept.values()], conflicts, equal


def export(found: Iterable[Piece], file: Path) -> Moved:
    """Pack pieces of work into a zip archive, which is the same for the same work.

    Raises:
        WriteError: it cannot be written.
    """
    moved = Moved()
    with replaced_file(file) as new, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        for piece in sorted(found, key=lambda piece: piece.place):
            moved.counts[piece.kind] += 1
            for name, path in piece.members():
                member = zipfile.ZipInfo(name, EPOCH)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = 0o644 << 16
                archive.writestr(member, path.read_bytes())
    return moved


def take(file: Path, target: Path) -> Moved:
    """Take in what `export` packed, as `merge` does.

    Raises:
        StoreError: as `merge`; or the archive is damaged, or holds anything but results.
        UsageError: it is no file.
    """
    if not file.is_file():
        raise UsageError(
            f"{file}: {no_file(file)}; `results import` takes an archive that `results export` "
            f"wrote, and `results merge FOLDER... --out {target}` folders of results"
        )
    told = str(file)
    with TemporaryDirectory(prefix="fscil-bench-") as folder:
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    _refuse_foreign(file, member)
                for member in archive.infolist():
                    told = f"{file}: {member.filename}"
                    archive.extract(member, folder)
        except UNREADABLE as error:
            raise StoreError(f"{told}: not readable as part of a zip archive ({error})") from error
        moved = merge({str(file): Path(folder)}, target)
    moved.remarks = [_of_archive(text, f"{folder}{os.sep}", file) for text in moved.remarks]
    return moved


def _of_archive(remark: str, folder: str, file: Path) -> str:
    """Return a remark on what was unpacked in `folder` as one on its archive.

    Nothing in there can be removed or run again.
    """
    if folder not in remark:
        return remark
    return ADVICE.sub("", remark).replace(folder, f"{file}: ")


def chosen(found: Sequence[Piece], where: Mapping[str, str]) -> list[Piece]:
    """Return the runs and episodes that fit all conditions; without one, all.

    Args:
        found: pieces of work; only runs and episodes fit a condition.
        where: name of a value -> the values wanted, with commas between; seeds may be ranges.

    Raises:
        UsageError: no run has a value of such a name.
    """
    if not where:
        return list(found)
    rows = [(piece, _values(piece)) for piece in found if piece.spec is not None]
    known = {name for _, row in rows for name in row}
    wanted = {name: _wanted(name, text) for name, text in where.items()}
    for name in wanted:
        if rows and name not in known:
            raise UsageError(f"--where {name}: no run has such a value; {nearest(name, known)}")
    return [
        p for p, row in rows if all(row.get(n, {"unset"}) & texts for n, texts in wanted.items())
    ]


def remove(found: Iterable[Piece]) -> Iterator[Piece]:
    """Remove finished work, one piece after the other, and folders that are empty then.

    What an interrupted removal left behind goes with what is removed beside it. Of a piece that is
    a symbolic link the link goes, and what it leads to stays.

    Yields:
        Each piece that is gone.

    Raises:
        StoreError: one cannot be removed; those before it are gone.
    """
    for piece in found:
        try:
            _remove(piece.path)
        except OSError as error:
            raise StoreError(
                f"{piece.path}: cannot be removed ({error.strerror or error}); what was named "
                "before it is gone"
            ) from error
        yield piece


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):  # another removal may be faster
        if path.is_symlink():
            path.unlink()
        else:
            # Out of sight in one step: half a run would be reported as damaged.
            path.replace(path.with_name(f".{path.name}-{uuid4().hex}.removed"))
    for left in path.parent.glob(".*.removed"):
        shutil.rmtree(left, ignore_errors=True)
    for folder in (path.parent, path.parent.parent):
        with suppress(OSError):  # not empty, a link, or gone
            folder.rmdir()


def _values(piece: Piece) -> dict[str, set[str]]:
    """Return what conditions can name of a run, as text; a file of features has two names."""
    assert piece.spec is not None
    spec = piece.spec
    brought, protocol = spec.representation, spec.protocol
    named = {
        "kind": piece.kind,
        "key": piece.path.name,
        "method": spec.method,
        "protocol": protocol.name,
        "representation": brought.name,
        "network": brought.key,
        "split": spec.split,
        "seed": spec.seed,
        "representation_seed": brought.seed,
        "views": spec.views,
        "precision": brought.precision,
        "backbone": brought.backbone,
        "epochs": brought.recipe.epochs,
        "shot": protocol.shot,
        "way": protocol.way_text,
        "code": spec.code,
        "engine": spec.engine,
    }
    own = {
        name: {value if isinstance(value, str) else json.dumps(value)}
        for name, value in spec.params.items()
    }
    told = {name: {str(value)} for name, value in named.items()}
    if features := features_name(brought):
        told["features"] = {features, *re.findall(r"\(sha256 ([0-9a-f]+)\)", brought.pretraining)}
    # A method's own parameter goes by its name, wherever the recipe has one of the same name.
    which = {name: told[name] for name in ("kind", "key", "method", "protocol")}
    return told | {"recipe.epochs": told["epochs"]} | own | which


def _wanted(name: str, text: str) -> set[str]:
    if name in ("seed", "representation_seed"):
        return set(map(str, parse_seeds(text)))
    texts = {text, *(part.strip() for part in text.split(","))}
    if name == "features":  # of whose digest records have the first twelve digits
        texts |= {each[:12] for each in texts if re.fullmatch("[0-9a-f]{64}", each)}
    return texts


def _is_newer(place: Path) -> bool:
    """Return whether a run or set of episodes has a schema that this version does not know."""
    for name in ("run.json", "episodes.json"):
        try:
            found = json.loads((place / name).read_text(encoding="utf-8"))["schema_version"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return isinstance(found, int) and found > SCHEMA_VERSION
    return False


def _has_arrays(piece: Piece) -> bool:
    return (piece.path / ARTIFACTS).exists()


def _same(first: Piece, second: Piece) -> bool:
    """Return whether two pieces of one place hold the same."""
    if first.kind == NETWORKS:
        return stored_digest(first.path / WEIGHTS) == stored_digest(second.path / WEIGHTS)
    if first.kind == CHOICES:
        return first.path.read_bytes() == second.path.read_bytes()
    if first.kind == EPISODES:
        one, two = (read_episodes(piece.path).accuracies for piece in (first, second))
        return np.array_equal(one, two)
    runs = [read_run(piece.path) for piece in (first, second)]
    return all(
        np.array_equal(*(getattr(run, name) for run in runs)) for name in ("predictions", "targets")
    )


def _copy(piece: Piece, target: Path) -> None:
    """Copy a piece of work so that it appears whole or not at all."""
    if piece.path.is_file():
        with replaced_file(target) as new:
            shutil.copyfile(piece.path, new)
        return
    with replaced_folder(target) as new:
        for file in piece.files:
            shutil.copyfile(file, new / file.name)


def _refuse_foreign(file: Path, member: zipfile.ZipInfo) -> None:
    """Refuse what is no part of results, and could lie anywhere once it is unpacked."""
    parts = PurePosixPath(member.filename).parts
    known = any(pattern.fullmatch(member.filename) for pattern in MEMBERS.values())
    if not known or any(part in (".", "..") for part in parts):
        raise StoreError(
            f"{file}: holds {member.filename!r}, which is no part of results; archives are written "
            "by `fscil-bench results export`"
        )
