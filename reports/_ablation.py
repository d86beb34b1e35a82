"""The paper's ablation of LDC: what each part adds, session by session."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ._accuracy import accuracy_cells, accuracy_columns
from ._rows import Row
from ._shelf import Shelf
from ._tables import Column, TableRow
from ._variants import Variant

BASELINE, SAMPLER, MAPPING, RECURRENT = "baseline", "+ sampler", "+ mapping", "+ recurrent"


def ablation_variants(make: Callable[..., Variant], recurrent_steps: int) -> dict[str, Variant]:
    """Return the rows of the ablation by name.

    The paper's "Gaussian sampler" includes the mapping; what the sampler does with the shared
    covariance alone is a row of its own here.

    Args:
        make: returns the variant of LDC with the parameters that it is given.
        recurrent_steps: R of the last row.
    """
    return {
        BASELINE: make(sampler="none"),
        SAMPLER: make(sampler="gaussian", covariance="shared", recurrent_steps=0),
        MAPPING: make(sampler="gaussian", covariance="mapped", recurrent_steps=0),
        RECURRENT: make(sampler="gaussian", covariance="mapped", recurrent_steps=recurrent_steps),
    }


def ablation_table(
    shelf: Shelf, variants: Mapping[str, Variant]
) -> tuple[list[Column], list[TableRow]]:
    """Return columns and rows of the table; a row without runs is left out."""
    runs = {name: tuple(shelf.runs(variant).values()) for name, variant in variants.items()}
    rows = [Row(own, name) for name, own in runs.items() if own]
    return (accuracy_columns(rows) if rows else []), [accuracy_cells(row) for row in rows]
