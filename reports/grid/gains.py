"""The grid's tables: what each row reaches, and what representations and methods gain by pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from fscil_bench.metrics import Interval
from fscil_bench.protocol import Recipe
from fscil_bench.store.runs import StoredRun

from ._grid import FIGURES, Grid, Place
from ._labels import BASELINE_REPRESENTATION, PLAIN
from ._paired import paired_interval
from ._tables import Column, TableRow

VARIANTS = ("default", "stronger")


def figure_columns() -> list[Column]:
    """Return the grid's columns, all but the average under the last session's heading."""
    return [
        column if column.key == "average" else replace(column, group="Last session")
        for column in sorted(FIGURES, key=lambda column: column.key != "average")
    ]


def figure_row(place: Place) -> TableRow:
    """Return a row's figures in percent."""
    cells = {column.key: _percent(place.row.interval(value)) for column, value in FIGURES.items()}
    return TableRow(place.label, len(place.row.runs), cells, _facts(place))


def gain_columns(grid: Grid) -> list[Column]:
    """Return a group of columns for each of the ruler's variants there is; no cell is the best."""
    names = {place.ruler: place.method for place in grid.places}
    return [
        Column(f"{variant}_{column.key}", column.heading, names[variant], best="none")
        for variant in VARIANTS
        if variant in names
        for column in FIGURES
    ]


def representation_gains(grid: Grid, recipe: Recipe) -> list[TableRow]:
    """Return what representations gain over the baseline's, and flipped views over plain ones.

    Under each variant of the ruler, paired by representation seed and seed.
    """
    rows = []
    for first, second in _compared_columns(grid, recipe):
        cells: dict[str, Interval] = {}
        facts = {"of": grid.columns[first], "over": grid.columns[second]}
        for variant in VARIANTS:
            pair = grid.ruler(first, variant), grid.ruler(second, variant)
            cells |= _gains(variant, *pair, _seeds)
        label = f"{grid.columns[first]} − {grid.columns[second]}"
        rows.append(TableRow(label, _pairs(cells), cells, facts))
    return [row for row in rows if row.count]


def method_gains(grid: Grid) -> list[TableRow]:
    """Return what each method gains over the ruler's variants on the same trained networks."""
    rows = []
    for place in grid.places:
        if place.ruler == "default":
            continue
        cells: dict[str, Interval] = {}
        for variant in VARIANTS:
            if place.ruler != variant:
                cells |= _gains(variant, place, grid.ruler(place.column, variant), _network)
        rows.append(TableRow(place.label, _pairs(cells), cells, _facts(place)))
    return [row for row in rows if row.count]


def heat_lines(grid: Grid) -> list[dict[str, str | int | float]]:
    """Return one line for each cell of the heat map: the last session's accuracy in percent."""
    lines: list[dict[str, str | int | float]] = []
    for place in grid.places:
        cell = _percent(place.row.interval(lambda run: run.accuracies[-1]))
        lines.append(
            {
                "method": place.method,
                "representation": place.brought,
                "mean": cell.mean,
                "low": cell.mean - cell.half_width,
                "high": cell.mean + cell.half_width,
                "n": cell.count,
            }
        )
    return lines


def _compared_columns(grid: Grid, recipe: Recipe) -> list[tuple[str, str]]:
    """Return pairs of columns: each with the baseline of its views, and flipped with plain."""
    first = {place.column: place for place in reversed(grid.places)}
    order = list(grid.columns)
    # Of several baselines the one that is trained as the protocol says.
    baselines = sorted(
        (c for c in order if first[c].spec.representation.name == BASELINE_REPRESENTATION),
        key=lambda column: first[column].spec.protocol.recipe != recipe,
    )
    pairs = []
    for column in order:
        spec = first[column].spec
        own = [c for c in baselines if first[c].spec.views == spec.views and c != column]
        if spec.representation.name != BASELINE_REPRESENTATION:
            pairs += [(column, base) for base in own[:1]]
        if spec.views != PLAIN:
            pairs += [(column, c) for c in order if _same_but_views(first[c], first[column])]
    return pairs


def _same_but_views(plain: Place, flipped: Place) -> bool:
    seeds = {"seed": 0}
    brought = [p.spec.representation.model_copy(update=seeds) for p in (plain, flipped)]
    return plain.spec.views == PLAIN and brought[0] == brought[1]


def _gains(
    variant: str,
    first: Place | None,
    second: Place | None,
    key: Callable[[StoredRun], Hashable],
) -> dict[str, Interval]:
    """Return first − second in points, by figure; empty if there is no such row."""
    if first is None or second is None:
        return {}
    cells = {}
    for column, value in FIGURES.items():
        mine, theirs = (
            {key(run): 100 * value(run) for run in place.row.runs} for place in (first, second)
        )
        interval = paired_interval(mine, theirs)
        if interval.count:
            cells[f"{variant}_{column.key}"] = interval
    return cells


def _seeds(run: StoredRun) -> Hashable:
    return run.spec.representation.seed, run.spec.seed


def _network(run: StoredRun) -> Hashable:
    return run.spec.representation.key, run.spec.seed


def _pairs(cells: dict[str, Interval]) -> int:
    return max((cell.count for cell in cells.values()), default=0)


def _facts(place: Place) -> dict[str, str | int | float]:
    spec = place.spec
    return {
        "method": spec.method,
        "params": json.dumps(spec.params, sort_keys=True),
        "representation": spec.representation.name,
        "representation_params": json.dumps(spec.representation.params, sort_keys=True),
        "views": spec.views,
        "epochs": spec.protocol.recipe.epochs,
        "split": spec.split,
        "seeds": _words(seed for _, seed in place.row.axes),
        "representation_seeds": _words(seed for seed, _ in place.row.axes),
        "row": spec.row,
    }


def _percent(interval: Interval) -> Interval:
    return replace(interval, mean=100 * interval.mean, half_width=100 * interval.half_width)


def _words(numbers: Iterable[int]) -> str:
    return " ".join(str(number) for number in sorted(set(numbers)))


def best_first(lines: Sequence[dict[str, str | int | float]], name: str) -> list[str]:
    """Return the values of `name` in heat-map lines, those with the highest mean first."""
    means: dict[str, list[float]] = {}
    for line in lines:
        means.setdefault(str(line[name]), []).append(float(line["mean"]))
    return sorted(means, key=lambda each: -math.fsum(means[each]) / len(means[each]))
