"""Which runs a complete grid has, and the commands for those that are not stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.request import RunRequest, Selection, Wanted
from fscil_bench.running.commands import default_params, wanted_commands

from ._grid import Grid
from ._usual import RULER, STRONGER, usual_params

SEEDS = tuple(range(10))
"""What --run-missing makes where no seeds are asked for."""


def grid_runs(selection: Selection, views: Sequence[str], registry: Registry) -> list[Wanted]:
    """Return the runs of all methods that need no images on all representations.

    Of the methods and representations named, if any are.

    Raises:
        UsageError: no protocol is named, or a name that is not registered.
    """
    if selection.protocol is None:
        raise UsageError("grid shows one protocol: name it with --protocol")
    registry.protocol(selection.protocol)
    requests = [
        RunRequest(
            method,
            selection.protocol,
            brought,
            params=params,
            seed=seed,
            split=selection.split,
            views=each,
        )
        for brought in selection.representations or registry.names("representation")
        for each in views
        for method, params in _variants(selection, brought, registry)
        for seed in selection.seeds or SEEDS
    ]
    return [Wanted(request) for request in requests]


def missing_commands(
    grid: Grid, selection: Selection, views: Sequence[str], registry: Registry
) -> tuple[str, ...]:
    """Return the commands for what the grid should have, for the seeds that some row has."""
    if selection.protocol not in registry.names("protocol"):
        return ()  # of a file that is not given, no command can be written
    have = {seed for place in grid.places for _, seed in place.row.axes}
    asked = replace(selection, seeds=selection.seeds or tuple(sorted(have)))
    stored = {
        (
            (place.spec.method, place.ruler == "stronger"),
            (place.spec.representation.name, place.spec.views, seed),
        )
        for place in grid.places
        if place.ruler or usual_params(place.spec, registry)
        for _, seed in place.row.axes
    }
    wanted = grid_runs(asked, views, registry)
    return tuple(wanted_commands([w for w in wanted if _kind(w.request) not in stored], registry))


def _kind(request: RunRequest) -> tuple[tuple[str, bool], tuple[str, str, int]]:
    method = request.method, bool(request.params)
    return method, (request.representation, request.views, request.seed)


def _variants(
    selection: Selection, brought: str, registry: Registry
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the methods that can stand on a representation, and the ruler's stronger variant."""
    extras = set(registry.get("representation", brought).value.extras)
    for name in selection.methods or registry.names("method"):
        needs = registry.get("method", name).value.needs
        if needs.images or set(needs.extras) - extras:
            continue
        yield name, {}
        if name == RULER and set(STRONGER) <= set(default_params(registry, "method", name)):
            yield name, STRONGER
