"""Which runs a comparison lacks, with the commands that make them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fscil_bench.plugins.registry import Registry
from fscil_bench.request import Selection, seeds_text
from fscil_bench.running.commands import command_for, protocol_word
from fscil_bench.spec import RunSpec

from ._rows import Row


@dataclass(frozen=True)
class Lack:
    """Runs that are not stored and differ in their seed alone: in words, and the command."""

    what: str
    command: str


def lacking_runs(rows: Sequence[Row], selection: Selection, registry: Registry) -> list[Lack]:
    """Return the runs that a complete table would have and the store has not.

    Asked for by name: every method, representation and seed of the selection. Otherwise: the
    seeds that some row has and another lacks.
    """
    lacks = [lack for row in rows for lack in _of_row(row, rows, selection, registry)]
    return lacks + list(_without_row(rows, selection, registry))


def plain_command(
    method: str,
    selection: Selection,
    representation: str | None,
    seeds: str | int,
    registry: Registry,
) -> str:
    """Return the command for runs of which nothing is stored that it could be copied from."""
    protocol = protocol_word(selection.protocol or "", registry)
    words = ["--method", method, "--protocol", protocol]
    words += ["--representation", representation] if representation else []
    words += ["--split", selection.split] if selection.split else []
    return f"fscil-bench run {shlex.join([*words, '--seeds', str(seeds)])}"


def _of_row(
    row: Row, rows: Sequence[Row], selection: Selection, registry: Registry
) -> Iterator[Lack]:
    if selection.seeds:
        own = {representation_seed for representation_seed, _ in row.axes}
        wanted = {(first, seed) for first in own for seed in selection.seeds}
    else:
        wanted = {pair for other in rows for pair in other.axes}
    seeds: dict[int, list[int]] = {}
    for representation_seed, seed in sorted(wanted - row.axes):
        seeds.setdefault(representation_seed, []).append(seed)
    for representation_seed, own_seeds in seeds.items():
        what = f"{row.label}, {_seeds_in_words(own_seeds)}"
        if representation_seed:
            what += f", representation_seed {representation_seed}"
        yield Lack(what, _command_like(row.spec, representation_seed, own_seeds, registry))


def _seeds_in_words(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {seeds_text(seeds)}"


def _command_like(
    spec: RunSpec, representation_seed: int, seeds: Sequence[int], registry: Registry
) -> str:
    representation = spec.representation.model_copy(update={"seed": representation_seed})
    wanted = spec.model_copy(update={"representation": representation, "seed": seeds[0]})
    return command_for(wanted, registry, seeds)


def _without_row(rows: Sequence[Row], selection: Selection, registry: Registry) -> Iterator[Lack]:
    """Yield the runs of what was asked for by name and has no row at all."""
    stored = {(row.spec.method, row.spec.representation.name) for row in rows}
    methods = selection.methods or sorted({method for method, _ in stored})
    seeds = selection.seeds or sorted({seed for row in rows for _, seed in row.axes}) or (0,)
    for method in methods:
        for representation in selection.representations or (None,):
            if any(m == method and representation in (None, r) for m, r in stored):
                continue
            name = f"{method} [{representation}]" if representation else method
            command = plain_command(method, selection, representation, seeds_text(seeds), registry)
            yield Lack(f"{name}, {_seeds_in_words(seeds)}", command)
