"""Representations × methods of one protocol: which rows belong, and where each stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fscil_bench.metrics import average_accuracy
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.spec import RunSpec, digest_of
from fscil_bench.store.runs import StoredRun

from ._labels import BASELINE_REPRESENTATION, PLAIN, changed_params, named_values
from ._rows import Row
from ._tables import Column
from ._usual import alike, ruler_variant, usual_params, usual_representation

OLDER = "made by earlier code, which knew other parameters"

FIGURES: Mapping[Column, Callable[[StoredRun], float]] = {
    Column("last", "Last"): lambda run: run.accuracies[-1],
    Column("average", "Avg"): lambda run: average_accuracy(run.accuracies),
    Column("base", "Base"): lambda run: run.metrics[-1].base,
    Column("new", "New"): lambda run: run.metrics[-1].new,
    Column("harmonic", "HM"): lambda run: run.metrics[-1].harmonic,
}
"""What the grid shows of a run, as fractions; all but the average of the last session."""


@dataclass(frozen=True)
class Place:
    """Where a row stands in the grid.

    Attributes:
        row: its runs.
        method: the method with the parameters that are not its defaults.
        brought: the representation's label, views included.
        column: identifies representation, recipe and views; rows of one column are comparable.
        ruler: `default` or `stronger` if the row is one of the ruler's two, else empty.
    """

    row: Row
    method: str
    brought: str
    column: str
    ruler: str = ""

    @property
    def spec(self) -> RunSpec:
        """The specification of the row's first run."""
        return self.row.spec

    @property
    def label(self) -> str:
        """Method and representation."""
        return f"{self.method} [{self.brought}]"


@dataclass(frozen=True)
class Grid:
    """The places of a grid, column by column, and why rows are not among them, with counts."""

    places: Sequence[Place]
    left_out: Mapping[str, int]

    @property
    def columns(self) -> dict[str, str]:
        """Return the labels of the columns by what identifies them, in order of showing."""
        return {place.column: place.brought for place in self.places}

    def ruler(self, column: str, variant: str) -> Place | None:
        """Return the ruler's row in a column: `default` or `stronger`."""
        found = (p for p in self.places if p.column == column and p.ruler == variant)
        return next(found, None)


def grid_of(
    rows: Sequence[Row], protocol: Protocol, split: str, every: bool, registry: Registry
) -> Grid:
    """Return the grid of rows on the terms of `protocol` and `split`.

    Args:
        rows: of one protocol.
        protocol: the terms; its recipe may differ from column to column.
        split: how shots are chosen.
        every: whether rows with parameters set by hand belong too.
        registry: tells the defaults.
    """
    left_out: dict[str, int] = {}
    kept = []
    for row in rows:
        reason = _reason(row.spec, protocol, split, every, registry)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            kept.append(row)
    labels = column_labels([row.spec for row in kept], registry)
    places: dict[str, Place] = {}
    for row in sorted(kept, key=lambda row: row.runs[-1].record.created):
        place = _place(row, labels[column_of(row.spec)], registry)
        if place.label in places:
            left_out[OLDER] = left_out.get(OLDER, 0) + 1
        places[place.label] = place
    return Grid(sorted(places.values(), key=_order), left_out)


def column_of(spec: RunSpec) -> str:
    """Identify what rows of one column share: representation but its seed, recipe, data, views."""
    return digest_of([_brought(spec), spec.views])


def column_labels(specs: Sequence[RunSpec], registry: Registry) -> dict[str, str]:
    """Return a label for each column: `fact, dim=20, flip`, with what else tells them apart."""
    columns = {column_of(spec): spec for spec in specs}
    plain = {column: _plain_label(spec, registry) for column, spec in columns.items()}
    labels = {}
    for column, spec in columns.items():
        same = [_flat(columns[other]) for other, text in plain.items() if text == plain[column]]
        mine = _flat(spec)
        own = {n: v for n, v in mine.items() if any(each.get(n) != v for each in same)}
        labels[column] = ", ".join([plain[column], *named_values(own)])
    return labels


def _reason(spec: RunSpec, protocol: Protocol, split: str, every: bool, registry: Registry) -> str:
    """Return why a row does not belong, or nothing."""
    if not alike(spec.protocol, protocol, "recipe"):
        return "of another shape or order of classes"
    if spec.split != split:
        return f"of split {spec.split}"
    if every:
        return ""
    if not usual_representation(spec, registry):
        return "whose representation has parameters set by hand (all=true shows them)"
    if not usual_params(spec, registry) and not ruler_variant(spec, registry):
        return "whose method has parameters set by hand (all=true shows them)"
    return ""


def _place(row: Row, brought: str, registry: Registry) -> Place:
    spec = row.spec
    changed = named_values(changed_params(registry, "method", spec.method, spec.params))
    method = f"{spec.method} ({', '.join(changed)})" if changed else spec.method
    return Place(row, method, brought, column_of(spec), ruler_variant(spec, registry))


def _order(place: Place) -> tuple[bool, str, bool, str, float]:
    """Sort by column, the baseline first and plain before flipped views, then by last session."""
    spec = place.spec
    name = spec.representation.name
    last = place.row.interval(lambda run: run.accuracies[-1]).mean
    flipped = spec.views != PLAIN
    return name != BASELINE_REPRESENTATION, name, flipped, place.brought, last


def _plain_label(spec: RunSpec, registry: Registry) -> str:
    brought = spec.representation
    changed = changed_params(registry, "representation", brought.name, brought.params)
    views = [spec.views] if spec.views != PLAIN else []
    return ", ".join([brought.name, *named_values(changed), *views])


def _brought(spec: RunSpec) -> dict[str, Any]:
    return spec.representation.model_dump(mode="json", exclude={"seed", "code", "engine"})


def _flat(spec: RunSpec) -> dict[str, Any]:
    """Return what a label may have to add: the recipe's fields beside the representation's."""
    data = _brought(spec)
    return {**data.pop("recipe"), **data}
