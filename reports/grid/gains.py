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
        sides = {v: (grid.ruler(first, v), grid.ruler(second, v)) for v in VARIANTS}
        lines.append({"label": f"{of} − {over}", "of": of, "over": over} | _gains(sides, PAIRING))
    return _with_pairs(lines)


def method_gains(grid: Grid, facts: pd.DataFrame) -> pd.DataFrame:
    """Return what each method gains over the ruler's variants on the same trained networks.

    `facts`, by label, stand beside each row.
    """
    lines = []
    for label, runs in grid.frame.groupby("label", sort=False):
        column, ruler = runs["column"].iloc[0], runs["ruler"]
        # Over itself a ruler gains nothing.
        sides = {v: (runs[ruler != v], grid.ruler(column, v)) for v in VARIANTS}
        if ruler.iloc[0] != "default":
            own = {str(name): fact for name, fact in facts.loc[label].items()}
            lines.append({"label": label, **own, **_gains(sides, NETWORK)})
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


def _gains(
    sides: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], on: tuple[str, str]
) -> dict[str, Any]:
    """Return first − second in points, for each variant and measure, and their most pairs."""
    cells: dict[str, Any] = {"runs": 0}
    for variant, pair in sides.items():
        first, second = (side.set_index(list(on)) for side in pair)
        for measure in MEASURED:
            gain = paired_interval(first[measure].to_dict(), second[measure].to_dict())
            key = f"{variant}_{measure}"
            cells |= {f"{key}_mean": gain.mean, f"{key}_half_width": gain.half_width}
            cells[f"{key}_n"] = gain.count
            cells["runs"] = max(cells["runs"], gain.count)
    return cells


def _with_pairs(lines: list[dict[str, Any]]) -> pd.DataFrame:
    found = pd.DataFrame([line for line in lines if line["runs"]])
    if len(found):
        found.insert(1, "runs", found.pop("runs"))
    return found
