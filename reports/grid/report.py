"""Representations × methods: what each pair reaches, and what each of the two gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd

from fscil_bench.errors import FscilError
from fscil_bench.params import AS_WORDS
from fscil_bench.report import Column, Document, Figure, Lack, Notes, Report, Section, Table
from fscil_bench.reporting.accuracy import accuracy_frame
from fscil_bench.reporting.choice import rows_of_protocol
from fscil_bench.reporting.heat_map import heat_map
from fscil_bench.reporting.measures import MEASURES, formulas
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.reporting.usual import registered_protocol
from fscil_bench.request import Wanted
from fscil_bench.running.commands import wanted_commands

from .gains import MEASURED, VARIANTS, method_gains, representation_gains
from .places import Grid, grid_notes, grid_of
from .runs import grid_runs, missing_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FACTS = [
    *("method", "params", "representation", "representation_params", "views", "epochs"),
    *("split", "seeds", "representation_seeds", "row"),
]
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
        return grid_runs(self.results.selection, params.views, self.results.registry)

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
        split = self.results.selection.split or protocol.split
        grid = grid_of(found, protocol, split, params.all)
        if grid.frame.empty:
            reasons = "; ".join(f"{n} {reason}" for reason, n in grid.left_out.items())
            raise FscilError(
                f"no stored row of {protocol.name!r} belongs into the grid; left out: {reasons}"
            )
        facts = accuracy_frame(grid.chosen)
        facts["epochs"] = grid.frame.groupby("label", sort=False)["epochs"].first()
        facts = facts[FACTS]
        heat = heat_numbers(grid)
        missing = wanted_commands(missing_runs(grid, params.views), registry)
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
    drawn = heat.assign(text=mean + width.fillna(""))
    means = drawn.groupby("method", sort=False)["mean"].mean()
    best_first = means.sort_values(ascending=False, kind="stable").index
    values, words = (
        drawn.pivot_table(name, "method", "representation", "first").loc[best_first, columns]
        for name in ("mean", "text")
    )
    return heat_map(values, words.fillna(""), "Accuracy, last session (%)")
