"""The runs that a grid should have: every method on every representation, for the same seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fscil_bench.defaults import RULER, STRONGER
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol, Recipe
from fscil_bench.reporting.choice import asked_for
from fscil_bench.reporting.frame import Results
from fscil_bench.reporting.usual import ruler_variant, usual_params, usual_representation
from fscil_bench.request import RunRequest, Selection, Wanted
from fscil_bench.running.commands import (
    NETWORK,
    changes,
    default_params,
    network_words,
    networks_of,
)
from fscil_bench.spec import RunSpec

from .places import Grid

SEEDS = tuple(range(10))
"""What is wanted where no seeds are asked for."""


def every_run(results: Results, protocol: Protocol, views: Sequence[str]) -> list[Wanted]:
    """Return the runs of the methods on the representations that are stored or named.

    Where neither are, of all methods that need no images on all representations.
    """
    selection, registry = results.selection, results.registry
    stored = [run.spec for run in results.runs if asked_for(run.spec, selection)]
    asked = _named(selection, stored, registry)
    every = replace(
        asked,
        methods=asked.methods or tuple(_without_images(registry)),
        representations=asked.representations or tuple(registry.names("representation")),
        seeds=asked.seeds or SEEDS,
        split=asked.split or results.drawn_split(protocol),
    )
    return _grid_runs(every, views, stored, registry)


def missing_runs(grid: Grid, views: Sequence[str], split: str) -> list[Wanted]:
    """Return the runs that the grid should have, for the seeds that some row has."""
    selection, registry = grid.chosen.results.selection, grid.chosen.results.registry
    if selection.protocol not in registry.names("protocol"):
        return []  # of a file that is not given, no command can be written
    labels = grid.frame["label"].unique()
    rows = [(grid.chosen.spec(label), grid.chosen.axes(label)) for label in labels]
    have = {seed for _, axes in rows for _, seed in axes}
    specs = [spec for spec, _ in rows]
    asked = _named(selection, specs, registry)
    known = {kind: set(registry.names(kind)) for kind in ("method", "representation")}
    asked = replace(
        asked,
        methods=tuple(name for name in asked.methods if name in known["method"]),
        representations=tuple(n for n in asked.representations if n in known["representation"]),
        seeds=asked.seeds or tuple(sorted(have)),
        split=split,
    )
    stored = {
        (
            *(spec.method, variant == "stronger", spec.representation.name, spec.views),
            *(network_words(spec.representation, registry), seed),
        )
        for spec, axes in rows
        if (variant := ruler_variant(spec, registry)) or usual_params(spec, registry)
        for _, seed in axes
    }
    own = () if selection.methods else registry.names("representation")
    return [
        wanted
        for wanted in _grid_runs(asked, views, specs, registry)
        if wanted.request.representation == wanted.request.method
        or wanted.request.method not in own  # published on another representation
        if (
            *(wanted.request.method, bool(wanted.request.params), wanted.request.representation),
            *(wanted.request.views, wanted.options, wanted.request.seed),
        )
        not in stored
    ]


def _named(selection: Selection, stored: Iterable[RunSpec], registry: Registry) -> Selection:
    """Return a selection that names methods and representations: where it does not, the stored.

    Those that have some row with nothing set by hand.
    """
    usual = [
        spec
        for spec in stored
        if (usual_params(spec, registry) or ruler_variant(spec, registry))
        and usual_representation(spec, registry)
    ]
    methods = sorted({spec.method for spec in usual})
    brought = sorted({spec.representation.name for spec in usual})
    return replace(
        selection,
        methods=selection.methods or tuple(methods),
        representations=selection.representations or tuple(brought),
    )


def _without_images(registry: Registry) -> Iterator[str]:
    for name in registry.names("method"):
        if not registry.get("method", name).value.needs.images:
            yield name


def _grid_runs(
    asked: Selection, views: Sequence[str], stored: Sequence[RunSpec], registry: Registry
) -> list[Wanted]:
    """Return the runs of the methods named on the representations named, on each stored network.

    Overrides that all stored rows share hold for these too, but for the recipe where nothing is
    trained; the ruler's stronger variant is among them unless only the other is stored.
    """
    shared = _shared(stored, registry)
    rulers = {variant for spec in stored if (variant := ruler_variant(spec, registry))}
    networks = networks_of(stored, registry)
    return [
        Wanted(
            RunRequest(
                method,
                asked.protocol or "",
                brought,
                params=params,
                seed=seed,
                split=asked.split,
                overrides=_taken(shared, _trains(brought, registry) and NETWORK not in options),
                views=each,
            ),
            options=options,
        )
        for brought in asked.representations
        for options in networks.get(brought, [()])
        for each in views
        for method, params in _variants(asked.methods, brought, registry, rulers != {"default"})
        for seed in asked.seeds
    ]


def _taken(overrides: Mapping[str, Any], trained: bool) -> Mapping[str, Any]:
    """Return what of overrides holds for a representation: no recipe, if nothing is trained."""
    if trained:
        return overrides
    return {name: value for name, value in overrides.items() if name not in Recipe.model_fields}


def _trains(brought: str, registry: Registry) -> bool:
    """Return whether a representation trains anything with its defaults, as far as is known."""
    if brought not in registry.names("representation"):
        return True
    kind = registry.get("representation", brought).value
    trains: bool = kind(parse_params(brought, kind.Params, {})).is_trained()
    return trains


def _shared(specs: Sequence[RunSpec], registry: Registry) -> Mapping[str, Any]:
    """Return the overrides that all rows share; of several recipes none is meant.

    Rows on what trains nothing have none.
    """
    trained = [spec for spec in specs if _trains(spec.representation.name, registry)]
    changed = [changes(spec.protocol, registry) for spec in trained or specs]
    alike = changed and all(each == changed[0] for each in changed)
    return changed[0] if alike else {}


def _variants(
    methods: Sequence[str], brought: str, registry: Registry, stronger: bool
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the methods that can stand on a representation, and the ruler's `stronger` variant."""
    extras = set(registry.get("representation", brought).value.extras)
    for name in methods:
        if set(registry.get("method", name).value.needs.extras) - extras:
            continue
        yield name, {}
        known = set(STRONGER) <= set(default_params(registry, "method", name))
        if stronger and name == RULER and known:
            yield name, STRONGER
