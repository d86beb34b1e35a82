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
    Standing,
    changes,
    default_params,
    standing_of,
    standings_of,
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
    return [wanted for _, wanted in _grid_runs(every, views, stored, registry)]


def missing_runs(grid: Grid, views: Sequence[str], split: str) -> list[Wanted]:
    """Return the runs that the grid should have on each network, for the seeds of any row."""
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
            spec.method,
            variant == "stronger",
            spec.representation.name,
            on,
            spec.views,
            seed,
        )
        for spec, axes in rows
        if (variant := ruler_variant(spec, registry)) or usual_params(spec, registry)
        for on in [standing_of(spec, registry)]
        for _, seed in axes
    }
    own = () if selection.methods else registry.names("representation")
    return [
        wanted
        for on, wanted in _grid_runs(asked, views, specs, registry)
        if wanted.request.representation == wanted.request.method
        or wanted.request.method not in own  # published on another representation
        if (
            wanted.request.method,
            bool(wanted.request.params),
            wanted.request.representation,
            on,
            wanted.request.views,
            wanted.request.seed,
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
) -> list[tuple[Standing, Wanted]]:
    """Return the runs of the methods named on the representations named, on each stored network.

    Overrides that all stored rows on it share hold for these too (where there are none, those that
    all others share that are trained), but for the recipe where nothing is trained; the ruler's
    stronger variant is among them unless only the other is stored.
    """
    rulers = {variant for spec in stored if (variant := ruler_variant(spec, registry))}
    standings = standings_of(stored, registry)
    return [
        (
            on,
            Wanted(
                RunRequest(
                    method,
                    asked.protocol or "",
                    brought,
                    params=params,
                    seed=seed,
                    representation_seed=on.seed,
                    split=asked.split,
                    overrides=overrides,
                    views=each,
                ),
                options=on.words,
            ),
        )
        for brought in asked.representations
        for on in standings.get(brought, [Standing()])
        for overrides in [_overrides(brought, on, stored, registry)]
        for each in views
        for method, params in _variants(asked.methods, brought, registry, rulers != {"default"})
        for seed in asked.seeds
    ]


def _overrides(
    brought: str, on: Standing, stored: Sequence[RunSpec], registry: Registry
) -> Mapping[str, Any]:
    """Return what is changed in a protocol for runs that stand beside those that are stored."""
    own = [
        spec
        for spec in stored
        if spec.representation.name == brought and standing_of(spec, registry) == on
    ]
    shared = _shared(own or stored, registry)
    if on.is_trained and _trains(brought, registry):
        return shared
    return {name: value for name, value in shared.items() if name not in Recipe.model_fields}


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
    trained = [
        spec
        for spec in specs
        if _trains(spec.representation.name, registry) and standing_of(spec, registry).is_trained
    ]
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
