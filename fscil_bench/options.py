"""Where things lie and how to compute: the same options for every command and function."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, SupportsIndex

from fscil_bench.errors import UsageError, nearest, shown
from fscil_bench.protocol import Protocol, Recipe

DATA_VARIABLE = "FSCIL_BENCH_DATA"
PLACES = ("data_root", "results", "cache", "unofficial_data", "skip_broken")
"""Options that a command must repeat to find the same data and results, and take them."""
KINDS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("device", "precision"), (str, "its name, as text")),
    **dict.fromkeys(("unofficial_data", "skip_broken"), (bool, "True or False")),
    "threads": (SupportsIndex | None, "a whole number"),
    "devices": (SupportsIndex, "a whole number"),
}
"""What options may be that are no paths, and how a message says it."""


def option(default: Any, *flags: str, told: str) -> Any:
    """Return a dataclass field that the command line offers too, with `told` as its help."""
    return field(default=default, metadata={"flags": flags, "help": told})


def given_path(value: Path | str | None) -> Path | None:
    """Return a path that a user gave; an empty text is none, and never the current folder."""
    return Path(value) if value is not None and str(value).strip() else None


@dataclass(frozen=True)
class Options:
    """What is not part of a result but decides where it comes from and how it is computed.

    An empty path is as good as none.
    """

    data_root: Path | str | None = option(
        None,
        told="Folder or archive where data sets are looked for first, before "
        "$FSCIL_BENCH_DATA and ./data.",
    )
    device: str = option("auto", told="auto, cpu, cuda, cuda:1, mps ...")
    precision: str = option(
        "auto", told="Of base training: auto (bf16 where it is measured to be faster), fp32, bf16."
    )
    threads: int | None = option(
        None, told="Threads on the CPU. (default: the cores that are free at the start)"
    )
    devices: int = option(
        1, told="GPUs, or processes on the CPU, that one base training divides its batches among."
    )
    weights: Path | str | None = option(
        None, told="A file of pre-trained weights, or none. (default: the protocol's)"
    )
    features: Path | str | None = option(
        None, told="A file of features: nothing is trained, and no image is needed."
    )
    network: Path | str | None = option(
        None,
        told="Take this network instead of training one: released (this suite's own), a name, or a "
        "file; see `networks list`.",
    )
    unofficial_data: bool = option(
        False, "--unofficial-data", told="Use a copy that is not the published one."
    )
    skip_broken: bool = option(
        False, "--skip-broken", told="Leave out images that cannot be decoded."
    )
    results: Path | str | None = option(
        None, told="Folder of results. (default: $FSCIL_BENCH_RESULTS or ./results)"
    )
    cache: Path | str | None = option(
        None, told="Folder of caches. (default: $FSCIL_BENCH_CACHE or the system's)"
    )
    plugins: Sequence[Path | str] = option(
        (), "--plugin", told="A Python file that brings plug-ins. Repeatable."
    )

    def __post_init__(self) -> None:
        """Make paths of texts; an empty one is left away, and never the current folder.

        Raises:
            UsageError: a value of another kind, or a path that no system can have.
        """
        files = [self.plugins] if isinstance(self.plugins, str | Path) else self.plugins
        if isinstance(files, bytes) or not isinstance(files, Iterable):
            raise UsageError(f"plugins = {shown(files)}: give the path of a file, or several")
        object.__setattr__(self, "plugins", tuple(files))
        own = [(each.name, getattr(self, each.name)) for each in fields(Options)]
        for name, value in [*own, *(("plugins", each) for each in self.plugins)]:
            kind, told = KINDS.get(name, (str | Path | None, "a path"))
            if not isinstance(value, kind) and value is not self.plugins:
                raise UsageError(f"{name} = {shown(value)}: give {told}")
        if self.devices < 1:
            raise UsageError(f"--devices {self.devices}: give a number from 1 on")
        for each in (*vars(self).values(), *self.plugins):
            if "\0" in str(each):
                raise UsageError(f"{str(each)!r}: a path holds no NUL character")
        for name in ("data_root", "features", "results", "cache"):
            value = getattr(self, name)
            object.__setattr__(self, name, given_path(value))
        for name in ("weights", "network"):
            value = getattr(self, name)
            object.__setattr__(self, name, value if str(value or "").strip() else None)
        if self.weights is not None and self.network is not None:
            raise UsageError(
                "--weights and --network: a network is taken as it is; give one of them"
            )
        plugins = tuple(each for each in self.plugins if str(each).strip())
        object.__setattr__(self, "plugins", plugins)

    @property
    def plugin_files(self) -> tuple[Path, ...]:
        """The plug-in files."""
        return tuple(map(Path, self.plugins))

    @property
    def results_folder(self) -> Path | None:
        """The folder of results, if one is named."""
        return Path(self.results) if self.results else None

    @property
    def cache_folder(self) -> Path | None:
        """The folder of caches, if one is named."""
        return Path(self.cache) if self.cache else None

    def changed(self, **changes: Any) -> Options:
        """Return these options with some fields changed.

        Raises:
            UsageError: an unknown name.
        """
        known = [each.name for each in fields(self)]
        for name in changes:
            if name not in known:
                told = nearest(name, known)
                if name in {*Protocol.model_fields, *Recipe.model_fields} - {"name", "recipe"}:
                    told = f"run and tune change a protocol's field by overrides={{{name!r}: ...}}"
                raise UsageError(f"unknown option {name!r}; {told}")
        return replace(self, **changes)

    def words(self, *names: str) -> list[str]:
        """Return those options that are given, as they are typed; of these names, or of all."""
        found: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value == each.default or (names and each.name not in names):
                continue
            flag = next(iter(each.metadata["flags"]), f"--{each.name.replace('_', '-')}")
            values = value if isinstance(value, list | tuple) else [value]
            found += [flag] if value is True else [w for v in values for w in (flag, str(v))]
        return found

    def command(self, *words: str, only: Sequence[str] = ()) -> str:
        """Return a command that works when pasted: with the options given, or `only` some."""
        return f"fscil-bench {shlex.join([*words, *self.words(*only)])}"

    def completed(self, command: str) -> str:
        """Return a command with those options of `PLACES` that are given and that it lacks."""
        there = shlex.split(command)
        lacking = [self.words(name) for name in PLACES]
        more = [word for words in lacking if words and words[0] not in there for word in words]
        return f"{command} {shlex.join(more)}" if more else command

    @property
    def data_roots(self) -> tuple[Path, ...]:
        """The places in which data sets are looked for, the given one first."""
        candidates = (self.data_root, os.environ.get(DATA_VARIABLE, "").strip(), "data")
        return tuple(Path(place) for place in candidates if place)
