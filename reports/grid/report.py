"""Representations × methods: what each pair reaches, and what each of the two gains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd

from fscil_bench.defaults import REPRESENTATION, RULER, STRONGER
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.params import AS_WORDS, parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol, Recipe
from fscil_bench.report import Column, Document, Figure, Lack, Notes, Report, Section, Table
from fscil_bench.reporting.accuracy import accuracy_frame
from fscil_bench.reporting.choice import Chosen, asked_for, own_split, rows_of_protocol
from fscil_bench.reporting.heat_map import heat_map
from fscil_bench.reporting.measures import MEASURES, formulas
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.reporting.usual import (
    alike,
    registered_protocol,
    ruler_variant,
    usual_params,
    usual_representation,
)
from fscil_bench.request import RunRequest, Selection, Wanted
from fscil_bench.running.commands import changes, default_params, wanted_commands
from fscil_bench.spec import RunSpec

from .gains import MEASURED, VARIANTS, method_gains, representation_gains
from .places import Grid, grid_notes, grid_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FACTS = [
    *("method", "params", "representation", "representation_params", "views", "epochs"),
    *("split", "seeds", "representation_seeds", "row"),
]
SEEDS = tuple(range(10))
"""What --run-missing makes where no seeds are asked for."""
WITH_INTERVAL = (
    "In percentage points, with the 95 % Student-t interval of the paired differences{but}; n "
    "counts the pairs. An interval that holds 0 shows no difference."
)
OF_ONE_PAIR = "In percentage points, of one pair each, so that there is no interval."


class GridReport(Report):
    """One row a representation and method, with what each gains over the baseline's."""

    name = "grid"
    title = "Representations × methods, with what each gains, paired by seed"

    @dataclass(frozen=True)
    class Params:
        """`all` shows rows with parameters set by hand too; `views` are those that are needed."""

        all: bool = False
        views: Annotated[tuple[Literal["plain", "flip"], ...], AS_WORDS] = ("plain",)

    def requests(self, params: Any) -> Sequence[Wanted]:
        """Return the runs of the methods on the representations that are stored or named.

        Where neither are, of all methods that need no images on all representations.

        Raises:
            UsageError: no protocol is named, or a name that is not registered.
        """
        selection, registry = self.results.selection, self.results.registry
        if selection.protocol is None:
            raise UsageError("grid shows one protocol: name it with --protocol")
        protocol, _ = registry.protocol(selection.protocol)
        stored = [run.spec for run in self.results.runs if asked_for(run.spec, selection)]
        asked = _named(selection, stored, registry)
        every = replace(
            asked,
            methods=asked.methods or tuple(_without_images(registry)),
            representations=asked.representations or tuple(registry.names("representation")),
            seeds=asked.seeds or SEEDS,
            split=asked.split or self.results.drawn_split(protocol),
        )
        return _grid_runs(every, params.views, stored, registry)

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return the grid, two tables of gains, and a heat map of the last session.

        Raises:
            UsageError: no protocol was named, or something that is not there.
            FscilError: nothing stored fits.
        """
        del frame
        found = rows_of_protocol(self.results, self.name)
        registry = self.results.registry
        protocol = registered_protocol(found.spec(found.labels[0]), registry)
        split = self.results.selection.split or own_split(found) or protocol.split
        grid = grid_of(found, _terms(found, protocol), split, params.all)
        if grid.frame.empty:
            reasons = "; ".join(f"{n} {reason}" for reason, n in grid.left_out.items())
            raise FscilError(
                f"no stored row of {protocol.name!r} belongs into the grid; left out: {reasons}"
            )
        facts = accuracy_frame(grid.chosen)
        facts["epochs"] = grid.frame.groupby("label", sort=False)["epochs"].first()
        facts = facts[FACTS]
        heat = heat_numbers(grid)
        missing = wanted_commands(_missing_runs(grid, params.views, split), registry)
        return Document(
            title=f"{protocol.title} ({protocol.name}): representations × methods",
            parts=[
                _grid_table(grid, facts),
                *_gain_sections(grid, protocol.recipe, facts),
                Figure(
                    "heat-map",
                    lambda: _heat_map(heat, list(grid.columns.values())),
                    heat,
                    "the last session's accuracy.",
                ),
                Notes(grid_notes(grid)),
            ],
            lacks=[Lack("", command) for command in missing],
            warnings=found.problems,
        )


def _terms(found: Chosen, protocol: Protocol) -> Protocol:
    """Return the protocol that the grid is of: cut as the best row's, if none has its own cut."""
    specs = list(found.specs.values())
    own = any(alike(spec.protocol, protocol, "recipe") for spec in specs)
    return protocol if own else specs[0].protocol


def heat_numbers(grid: Grid) -> pd.DataFrame:
    """Return a line for each cell of the heat map: the last session's accuracy in %."""
    names = grid.frame.drop_duplicates("label").set_index("label")
    cells = aggregate(grid.frame, "label", ["last"])
    mean, half = cells["last_mean"], cells["last_half_width"]
    columns = {"method": names["shown"], "representation": names["brought"], "mean": mean}
    columns |= {"low": mean - half, "high": mean + half, "n": cells["last_n"]}
    return pd.DataFrame(columns).reset_index(drop=True)


def _grid_table(grid: Grid, facts: pd.DataFrame) -> Table:
    cells = aggregate(grid.frame, "label", MEASURED)
    cells = pd.concat([cells["runs"], facts, cells.drop(columns="runs")], axis="columns")
    columns = _columns(group="Last session")
    # The average is of all sessions, and stands before what is of the last.
    columns.sort(key=lambda column: column.key != "average")
    columns[0] = replace(columns[0], group="")
    return Table("grid", cells, [*ROW_COLUMNS, *columns], formulas=formulas(*MEASURED))


def _gain_sections(grid: Grid, recipe: Recipe, facts: pd.DataFrame) -> Iterator[Section]:
    """Yield the tables of gains that have rows: a group of columns for each ruler with pairs."""
    rulers = grid.frame.drop_duplicates("ruler").set_index("ruler")["shown"]
    for kind, first, found in (
        ("representation", "Compared", representation_gains(grid, recipe)),
        ("method", "Method", method_gains(grid, facts)),
    ):
        if not len(found):
            continue
        paired = [variant for variant in VARIANTS if found[f"{variant}_last_n"].any()]
        columns = [
            replace(column, key=f"{variant}_{column.key}", best="none")
            for variant in paired
            for column in _columns(str(rulers[variant]))
        ]
        means = "class means" + " in two variants" * (len(paired) > 1)
        if kind == "method":
            text = f"What each method gains over {means} on the same trained network; paired by "
            text += "network and seed."
        else:
            text = f"What {_compared(grid, found)}, under {means}; paired by seed."
        counts = [int(n) for v in paired for key in MEASURED for n in found[f"{v}_{key}_n"] if n]
        shown = [replace(ROW_COLUMNS[0], heading=first), ROW_COLUMNS[1], *columns]
        notes = [f"{text} {_interval_text(counts)}"]
        yield Section(f"What {kind}s gain", [Table(f"{kind}-gains", found, shown, notes=notes)])


def _compared(grid: Grid, gains: pd.DataFrame) -> str:
    """Say which pairs of columns a table of gains of representations has."""
    names = grid.frame.drop_duplicates("brought").set_index("brought")["representation"]
    views = gains["of"].map(names).eq(gains["over"].map(names))
    told = []
    if not views.all():
        told.append(f"each representation gains over {REPRESENTATION} with the same views")
    if views.any():
        told.append("averaged views gain over plain ones")
    return ", and what ".join(told)


def _interval_text(counts: Collection[int]) -> str:
    """Say what is beside means of so many pairs."""
    if set(counts) == {1}:
        return OF_ONE_PAIR
    return WITH_INTERVAL.format(but=" (of one pair there is none)" * (1 in counts))


def _columns(group: str) -> list[Column]:
    found = [MEASURES[key] for key in MEASURED]
    return [Column(each.key, each.heading, group, best=each.better) for each in found]


def _heat_map(heat: pd.DataFrame, columns: Sequence[str]) -> Drawing:
    mean = heat["mean"].map("{:.2f}".format)
    width = (heat["high"] - heat["mean"]).map("\n±{:.2f}".format, na_action="ignore")
    drawn = heat.assign(text=mean + width.astype(object).fillna(""))
    means = drawn.groupby("method", sort=False)["mean"].mean()
    best_first = means.sort_values(ascending=False, kind="stable").index
    values, words = (
        drawn.pivot_table(name, "method", "representation", "first").loc[best_first, columns]
        for name in ("mean", "text")
    )
    return heat_map(values, words.fillna(""), "Accuracy, last session (%)")


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
    """Return the runs of the methods named on the representations named.

    Overrides that all stored rows share hold for these too, but for the recipe where nothing is
    trained; the ruler's stronger variant is among them unless only the other is stored.
    """
    shared = _shared(stored, registry)
    rulers = {variant for spec in stored if (variant := ruler_variant(spec, registry))}
    requests = [
        RunRequest(
            method,
            asked.protocol or "",
            brought,
            params=params,
            seed=seed,
            split=asked.split,
            overrides=_taken(shared, brought, registry),
            views=each,
        )
        for brought in asked.representations
        for each in views
        for method, params in _variants(asked.methods, brought, registry, rulers != {"default"})
        for seed in asked.seeds
    ]
    return [Wanted(request) for request in requests]


def _taken(overrides: Mapping[str, Any], brought: str, registry: Registry) -> Mapping[str, Any]:
    """Return what of overrides a representation takes: no recipe, if it trains nothing."""
    if _trains(brought, registry):
        return overrides
    return {name: value for name, value in overrides.items() if name not in Recipe.model_fields}


def _trains(brought: str, registry: Registry) -> bool:
    """Return whether a representation trains anything with its defaults, as far as is known."""
    if brought not in registry.names("representation"):
        return True
    kind = registry.get("representation", brought).value
    trains: bool = kind(parse_params(brought, kind.Params, {})).is_trained()
    return trains


def _missing_runs(grid: Grid, views: Sequence[str], split: str) -> list[Wanted]:
    """Return the runs that the grid should have, for the seeds that some row has."""
    selection, registry = grid.chosen.results.selection, grid.chosen.results.registry
    if selection.protocol not in registry.names("protocol"):
        return []  # of a file that is not given, no command can be written
    rows = [(spec, grid.chosen.axes(label)) for label, spec in grid.chosen.specs.items()]
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
        (spec.method, variant == "stronger", spec.representation.name, spec.views, seed)
        for spec, axes in rows
        if (variant := ruler_variant(spec, registry)) or usual_params(spec, registry)
        for _, seed in axes
    }
    return [
        wanted
        for wanted in _grid_runs(asked, views, specs, registry)
        if (
            *(wanted.request.method, bool(wanted.request.params), wanted.request.representation),
            *(wanted.request.views, wanted.request.seed),
        )
        not in stored
    ]


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
