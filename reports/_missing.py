"""Which runs a comparison lacks, each with the command that makes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fscil_bench.commands import command_for
from fscil_bench.registry import Registry
from fscil_bench.report import Selection
from fscil_bench.spec import RunSpec

from ._rows import Row


@dataclass(frozen=True)
class Lack:
    """A run that is not stored: in words, and the command that makes it."""

    what: str
    command: str


def lacking_runs(rows: Sequence[Row], selection: Selection, registry: Registry) -> list[Lack]:
    """Return the runs that a complete table would have and the store has not.

    Asked for by name: every method, representation and seed of the selection. Otherwise: the
    seeds that some row has and another lacks.
    """
    lacks = [lack for row in rows for lack in _of_row(row, rows, selection, registry)]
    return lacks + list(_without_row(rows, selection))


def plain_command(method: str, selection: Selection, representation: str | None, seed: int) -> str:
    """Return the command for a run of which nothing is stored that it could be copied from."""
    words = ["fscil-bench run", f"--method {method}", f"--protocol {selection.protocol}"]
    if representation:
        words.append(f"--representation {representation}")
    if selection.split:
        words.append(f"--split {selection.split}")
    return " ".join([*words, f"--seeds {seed}"])


def _of_row(
    row: Row, rows: Sequence[Row], selection: Selection, registry: Registry
) -> Iterator[Lack]:
    if selection.seeds:
        own = {representation_seed for representation_seed, _ in row.axes}
        wanted = {(first, seed) for first in own for seed in selection.seeds}
    else:
        wanted = {pair for other in rows for pair in other.axes}
    for representation_seed, seed in sorted(wanted - row.axes):
        what = f"{row.label}, seed {seed}"
        if representation_seed:
            what += f", representation_seed {representation_seed}"
        yield Lack(what, _command_like(row.spec, representation_seed, seed, registry))


def _command_like(spec: RunSpec, representation_seed: int, seed: int, registry: Registry) -> str:
    representation = spec.representation.model_copy(update={"seed": representation_seed})
    wanted = spec.model_copy(update={"representation": representation, "seed": seed})
    return command_for(wanted, registry)


def _without_row(rows: Sequence[Row], selection: Selection) -> Iterator[Lack]:
    """Yield the runs of what was asked for by name and has no row at all."""
    stored = {(row.spec.method, row.spec.representation.name) for row in rows}
    methods = selection.methods or sorted({method for method, _ in stored})
    seeds = selection.seeds or sorted({seed for row in rows for _, seed in row.axes}) or (0,)
    for method in methods:
        for representation in selection.representations or (None,):
            if any(m == method and representation in (None, r) for m, r in stored):
                continue
            name = f"{method} [{representation}]" if representation else method
            for seed in seeds:
                command = plain_command(method, selection, representation, seed)
                yield Lack(f"{name}, seed {seed}", command)
