"""Which measured rows answer which published ones, and which runs would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.params import params_dict, parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.choice import Chosen, chosen
from fscil_bench.reporting.frame import Results
from fscil_bench.reporting.labels import method_title
from fscil_bench.reporting.usual import alike, registered_protocol
from fscil_bench.request import RunRequest, Wanted
from fscil_bench.running.commands import FEATURE_FILE, Standing, default_params
from fscil_bench.spec import RunSpec

from ..published import PublishedRow, published_name
from .terms import SHOTS, differing, obstacles, published_terms, recipe_terms

SEEDS = tuple(range(10))
"""What --run-missing makes where no seeds are asked for."""


@dataclass(frozen=True)
class Pair:
    """A published row and the row of a table that answers it."""

    published: PublishedRow
    rows: Chosen
    label: str

    @property
    def spec(self) -> RunSpec:
        """The specification of the measured row's first run."""
        return self.rows.spec(self.label)

    @property
    def title(self) -> str:
        """The measured method, with the representation that is not the baseline's in brackets."""
        brought = self.spec.representation.name
        title = method_title(self.spec.method, self.rows.results.registry)
        return title if brought == REPRESENTATION else f"{title} [{brought}]"

    @property
    def obstacles(self) -> list[str]:
        """Why the two cannot be compared, if they cannot."""
        brought = self.spec.representation
        # A network from a file that is not trained any further may be the published one itself.
        pretraining = brought.pretraining if brought.recipe.epochs else self.published.pretraining
        return obstacles(self.published, brought.backbone, pretraining)


def measured_tables(
    results: Results, name: str, rows: Sequence[PublishedRow], every: bool
) -> list[Chosen]:
    """Return, of each protocol with rows published as `name`, the table rows that answer one.

    On the protocol's own sessions, and its own recipe or, with `every`, any; the shots are the
    published ones or drawn by seed.
    """
    registry, apart = results.registry, ("recipe",) * every
    protocols = {run.spec.protocol.name: run.spec for run in results.runs}
    tables = []
    for own, spec in protocols.items():
        protocol = registered_protocol(spec, registry)
        if published_name(protocol) != name:
            continue

        def meant(spec: RunSpec, protocol: Protocol = protocol) -> bool:
            usual = spec.split in SHOTS and spec.views == "plain"
            on_terms = usual and alike(spec.protocol, protocol, *apart)
            return on_terms and any(_answers(spec, row, registry) for row in rows)

        asked = replace(results.selection, protocol=own)
        tables.append(chosen(replace(results, selection=asked)).where(meant))
    return tables


def measured_pairs(rows: Sequence[PublishedRow], tables: Sequence[Chosen]) -> list[Pair]:
    """Return every published row with each row that answers it."""
    return [
        Pair(row, table, label)
        for row in rows
        for table in tables
        for label, spec in table.specs.items()
        if _answers(spec, row, table.results.registry)
    ]


def wanted_runs(
    rows: Sequence[PublishedRow], name: str, results: Results
) -> Iterator[tuple[PublishedRow, list[Wanted]]]:
    """Yield the runs that would answer each row that can be compared at all.

    They are on the protocol whose recipe is nearest the published one, and on drawn shots or a
    network that was given where all stored runs on its data are.
    """
    registry, selection = results.registry, results.selection
    known = [registry.protocol(own)[0] for own in registry.names("protocol")]
    family = [protocol for protocol in known if published_name(protocol) == name]
    for row in rows:
        own, told = row.counterpart, published_terms(row)
        fit = [p for p in family if not obstacles(row, p.backbone, p.pretraining)]
        if own is None or own.method not in registry.names("method") or not fit:
            continue
        if selection.methods and own.method not in selection.methods:
            continue
        gaps = [len(differing(told, recipe_terms(p.recipe, p.images))) for p in fit]
        nearest = fit[gaps.index(min(gaps))]
        request = RunRequest(
            own.method,
            nearest.name,
            own.representation,
            params=own.params,
            representation_params=own.representation_params,
            split=selection.split or results.drawn_split(nearest),
        )
        seeds = selection.seeds or SEEDS
        on = results.standing(nearest.name, own.representation)
        if FEATURE_FILE in on.words:  # which answer no published row
            on = Standing()
        request = replace(request, representation_seed=on.seed)
        yield row, [Wanted(replace(request, seed=seed), options=on.words) for seed in seeds]


def _answers(spec: RunSpec, row: PublishedRow, registry: Registry) -> bool:
    """Return whether a specification is what a row's counterpart means, nothing else changed."""
    own, brought = row.counterpart, spec.representation
    if own is None or (spec.method, brought.name) != (own.method, own.representation):
        return False
    parts = (
        ("method", spec.method, spec.params, own.params),
        ("representation", brought.name, brought.params, own.representation_params),
    )
    for kind, name, params, told in parts:
        meant = default_params(registry, kind, name, spec.protocol)
        meant |= _typed(registry, kind, name, told)
        if any(meant.get(key, value) != value for key, value in params.items()):
            return False
    return True


def _typed(registry: Registry, kind: str, name: str, told: Mapping[str, str]) -> dict[str, Any]:
    """Return parameters that are given as text as JSON values."""
    if not told:
        return {}
    params = parse_params(name, registry.get(kind, name).value.Params, told)
    values: dict[str, Any] = json.loads(json.dumps(params_dict(params)))
    return {key: values[key] for key in told}
