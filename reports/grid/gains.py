"""What representations and methods gain, by pairs of runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.protocol import Recipe
from fscil_bench.reporting.labels import PLAIN
from fscil_bench.reporting.statistics import PAIRING, paired_interval
from fscil_bench.spec import RunSpec

from .places import Grid

VARIANTS = ("default", "stronger")
MEASURED = ("last", "average", "last_base", "last_new", "last_harmonic")
"""The measures that the grid shows; all but the average of the last session."""
NETWORK = ("network", "seed")
"""What two runs on one trained network share if they are a pair."""


def representation_gains(grid: Grid, recipe: Recipe) -> pd.DataFrame:
    """Return what representations gain over the baseline's, and flipped views over plain ones.

    Under each variant of the ruler, paired by representation seed and seed.
    """
    lines = []
    for first, second in _compared_columns(grid, recipe):
        of, over = grid.columns[first], grid.columns[second]
        gains = {
            variant: _gains(grid.ruler(first, variant), grid.ruler(second, variant), PAIRING)
            for variant in VARIANTS
        }
        lines.append(_line(f"{of} − {over}", gains, {"of": of, "over": over}))
    return _with_pairs(lines)


def method_gains(grid: Grid, facts: pd.DataFrame) -> pd.DataFrame:
    """Return what each method gains over the ruler's variants on the same trained networks.

    `facts`, by label, stand beside each row.
    """
    lines = []
    for label, runs in grid.frame.groupby("label", sort=False):
        column, ruler = runs["column"].iloc[0], runs["ruler"]
        gains = {
            # Over itself a ruler gains nothing.
            variant: _gains(runs[ruler != variant], grid.ruler(column, variant), NETWORK)
            for variant in VARIANTS
        }
        if ruler.iloc[0] != "default":
            lines.append(_line(str(label), gains, facts.loc[label].to_dict()))
    return _with_pairs(lines)


def _compared_columns(grid: Grid, recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield pairs of columns: each with the baseline of its views, and flipped with plain."""
    firsts = grid.frame.drop_duplicates("column").set_index("column")["label"]
    specs = {str(column): grid.chosen.spec(label) for column, label in firsts.items()}
    # Of several baselines the one that is trained as the protocol says.
    baselines = sorted(
        (c for c, spec in specs.items() if spec.representation.name == REPRESENTATION),
        key=lambda column: specs[column].protocol.recipe != recipe,
    )
    for column, spec in specs.items():
        own = [c for c in baselines if specs[c].views == spec.views and c != column]
        if spec.representation.name != REPRESENTATION:
            yield from ((column, base) for base in own[:1])
        if spec.views != PLAIN:
            yield from ((column, c) for c in specs if _same_but_views(specs[c], spec))


def _same_but_views(plain: RunSpec, flipped: RunSpec) -> bool:
    one, two = (s.representation.model_copy(update={"seed": 0}) for s in (plain, flipped))
    return plain.views == PLAIN and one == two


def _gains(first: pd.DataFrame, second: pd.DataFrame, on: tuple[str, str]) -> dict[str, Any]:
    """Return first − second in points, measure by measure; nothing without a pair."""
    cells: dict[str, Any] = {}
    for measure in MEASURED:
        one, two = (side.set_index(list(on))[measure].to_dict() for side in (first, second))
        interval = paired_interval(one, two)
        cells[f"{measure}_mean"] = interval.mean
        cells[f"{measure}_half_width"] = interval.half_width
        cells[f"{measure}_n"] = interval.count
    return cells


def _line(
    label: str, gains: Mapping[str, Mapping[str, Any]], facts: Mapping[Any, Any]
) -> dict[str, Any]:
    cells = {f"{v}_{name}": value for v, own in gains.items() for name, value in own.items()}
    pairs = max(value for name, value in cells.items() if name.endswith("_n"))
    return {"label": label, "runs": pairs, **facts, **cells}


def _with_pairs(lines: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([line for line in lines if line["runs"]])
