"""Representations × methods: what each pair reaches, and what each of the two gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd

from fscil_bench.defaults import RULER, STRONGER
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.params import AS_WORDS
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Column, Document, Figure, Lack, Notes, Report, Section, Table
from fscil_bench.reporting.accuracy import accuracy_frame
from fscil_bench.reporting.choice import Chosen, own_split, rows_of_protocol
from fscil_bench.reporting.heat_map import heat_map
from fscil_bench.reporting.measures import MEASURES, formulas
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.reporting.usual import alike, registered_protocol, ruler_variant, usual_params
from fscil_bench.request import RunRequest, Selection, Wanted
from fscil_bench.running.commands import changes, default_params, wanted_commands

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
GAINS = (
    "In percentage points, with the 95 % Student-t interval of the paired differences; n counts "
    "the pairs. An interval that holds 0 shows no difference."
)
OVER_BASELINE = (
    "What each representation gains over cosine with the same views, and averaged views over "
    "plain ones, under class means in two variants; paired by seed. "
)
OVER_RULER = (
    "What each method gains over class means in two variants on the same trained network; paired "
    "by network and seed. "
)


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
        """Return the runs of all methods that need no images on all representations."""
        return _grid_runs(self.results.selection, params.views, self.results.registry)

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
                *_gain_sections(grid, representation_gains(grid, protocol.recipe), facts),
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


def _gain_sections(
    grid: Grid, representations: pd.DataFrame, facts: pd.DataFrame
) -> Iterator[Section]:
    """Yield the tables of gains that have rows: a group of columns for each ruler there is."""
    rulers = grid.frame.drop_duplicates("ruler").set_index("ruler")["shown"]
    columns = [
        replace(column, key=f"{variant}_{column.key}", best="none")
        for variant in VARIANTS
        if variant in rulers.index
        for column in _columns(str(rulers[variant]))
    ]
    methods = method_gains(grid, facts)
    for kind, first, note, found in (
        ("representation", "Compared", OVER_BASELINE, representations),
        ("method", "Method", OVER_RULER, methods),
    ):
        if len(found):
            shown = [replace(ROW_COLUMNS[0], heading=first), ROW_COLUMNS[1], *columns]
            table = Table(f"{kind}-gains", found, shown, notes=[note + GAINS])
            yield Section(f"What {kind}s gain", [table])


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


def _grid_runs(selection: Selection, views: Sequence[str], registry: Registry) -> list[Wanted]:
    """Return the runs of all methods that need no images on all representations.

    Of the methods and representations named, if any are.

    Raises:
        UsageError: no protocol is named, or a name that is not registered.
    """
    if selection.protocol is None:
        raise UsageError("grid shows one protocol: name it with --protocol")
    registry.protocol(selection.protocol)
    split, protocol = selection.split, selection.protocol
    requests = [
        RunRequest(method, protocol, brought, params=params, seed=seed, split=split, views=each)
        for brought in selection.representations or registry.names("representation")
        for each in views
        for method, params in _variants(selection, brought, registry)
        for seed in selection.seeds or SEEDS
    ]
    return [Wanted(request) for request in requests]


def _missing_runs(grid: Grid, views: Sequence[str], split: str) -> list[Wanted]:
    """Return the runs that the grid should have, for the seeds that some row has."""
    selection, registry = grid.chosen.results.selection, grid.chosen.results.registry
    if selection.protocol not in registry.names("protocol"):
        return []  # of a file that is not given, no command can be written
    rows = [(spec, grid.chosen.axes(label)) for label, spec in grid.chosen.specs.items()]
    have = {seed for _, axes in rows for _, seed in axes}
    asked = replace(selection, seeds=selection.seeds or tuple(sorted(have)), split=split)
    stored = {
        (spec.method, variant == "stronger", spec.representation.name, spec.views, seed)
        for spec, axes in rows
        if (variant := ruler_variant(spec, registry)) or usual_params(spec, registry)
        for _, seed in axes
    }
    changed = [changes(spec.protocol, registry) for spec, _ in rows]
    # What all rows share is meant; of several recipes none is.
    overrides = changed[0] if all(each == changed[0] for each in changed) else {}
    return [
        replace(wanted, request=replace(wanted.request, overrides=overrides))
        for wanted in _grid_runs(asked, views, registry)
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
