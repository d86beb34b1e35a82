"""Representations × methods: what each pair reaches, and what each of the two gains."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.params import AS_WORDS
from fscil_bench.protocol import Protocol, Recipe
from fscil_bench.report import Column, Document, Figure, Lack, Notes, Report, Section, Table
from fscil_bench.reporting.accuracy import accuracy_frame
from fscil_bench.reporting.choice import Chosen, own_split, rows_of_protocol
from fscil_bench.reporting.heat_map import heat_map
from fscil_bench.reporting.measures import MEASURES, formulas
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.reporting.usual import alike, registered_protocol
from fscil_bench.request import Wanted
from fscil_bench.running.commands import wanted_commands

from .gains import MEASURED, VARIANTS, method_gains, representation_gains
from .lacks import every_run, missing_runs
from .places import Grid, grid_notes, grid_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FACTS = [
    *("method", "params", "representation", "representation_params", "views", "epochs"),
    *("split", "seeds", "representation_seeds", "row"),
]
WITH_INTERVAL = (
    "In percentage points, with the 95 % Student-t interval of the paired differences{but}; n "
    "counts the pairs. An interval that holds 0 shows no difference."
)
ANY = (-math.inf, math.inf)
"""Limits of a difference."""
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
        return every_run(self.results, protocol, params.views)

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
        missing = wanted_commands(missing_runs(grid, params.views, split), registry)
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
            replace(column, key=f"{variant}_{column.key}", best="none", limits=ANY)
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
    return [
        Column(each.key, each.heading, group, best=each.better, limits=each.limits)
        for each in found
    ]


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
