"""Which runs a complete grid has, and which of them are not stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fscil_bench.defaults import RULER, STRONGER
from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.usual import ruler_variant, usual_params
from fscil_bench.request import RunRequest, Selection, Wanted
from fscil_bench.running.commands import default_params

from .places import Grid

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


def missing_runs(grid: Grid, views: Sequence[str]) -> list[Wanted]:
    """Return the runs that the grid should have, for the seeds that some row has."""
    selection, registry = grid.chosen.results.selection, grid.chosen.results.registry
    if selection.protocol not in registry.names("protocol"):
        return []  # of a file that is not given, no command can be written
    rows = [(spec, grid.chosen.axes(label)) for label, spec in grid.chosen.specs.items()]
    have = {seed for _, axes in rows for _, seed in axes}
    asked = replace(selection, seeds=selection.seeds or tuple(sorted(have)))
    stored = {
        (spec.method, variant == "stronger", spec.representation.name, spec.views, seed)
        for spec, axes in rows
        if (variant := ruler_variant(spec, registry)) or usual_params(spec, registry)
        for _, seed in axes
    }
    return [
        wanted
        for wanted in grid_runs(asked, views, registry)
        if (
            *(wanted.request.method, bool(wanted.request.params), wanted.request.representation),
            *(wanted.request.views, wanted.request.seed),
        )
        not in stored
    ]


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
