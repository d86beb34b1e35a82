"""Representations × methods of one protocol: which rows belong, and where each stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.facts import left_out_lines, name_lines, row_facts, unequal_lines
from fscil_bench.reporting.labels import PLAIN, changed_params, named_values
from fscil_bench.reporting.usual import alike, ruler_variant, usual_params, usual_representation
from fscil_bench.spec import RunSpec, brought_title, digest_of

OLDER = "made by earlier code, which knew other parameters"


@dataclass(frozen=True)
class Grid:
    """The rows of a grid, column by column, and why others are not among them, with counts.

    The frame of `chosen` says of each run besides: `shown` (the method with the parameters that
    are not its defaults), `column` (identifies representation, recipe and views: rows of one
    column are comparable), `brought` (the column's label), `ruler` (`default` or `stronger` if
    the row is one of the ruler's two, else empty), `network` (the trained representation).
    """

    chosen: Chosen
    left_out: Mapping[str, int]

    @property
    def frame(self) -> pd.DataFrame:
        """One row a run."""
        return self.chosen.frame

    @property
    def columns(self) -> dict[str, str]:
        """The labels of the columns by what identifies them, in order of showing."""
        return dict(zip(self.frame["column"], self.frame["brought"], strict=True))

    def ruler(self, column: str, variant: str) -> pd.DataFrame:
        """Return the runs of the ruler's row in a column: `default` or `stronger`."""
        return self.frame[(self.frame["column"] == column) & (self.frame["ruler"] == variant)]


def grid_of(found: Chosen, protocol: Protocol, split: str, every: bool) -> Grid:
    """Return the grid of rows on the terms of `protocol` and `split`.

    Args:
        found: rows of one protocol.
        protocol: the terms; its recipe may differ from column to column.
        split: how shots are chosen.
        every: whether rows with parameters set by hand belong too.
    """
    registry, specs = found.results.registry, found.specs
    reasons = {
        label: _reason(spec, protocol, split, every, registry) for label, spec in specs.items()
    }
    left_out = Counter(reason for reason in reasons.values() if reason)
    kept = {label: specs[label] for label, reason in reasons.items() if not reason}
    names = column_labels(list(kept.values()), registry)
    runs = found.frame[found.frame["label"].isin(kept)]
    columns = {label: column_of(spec) for label, spec in kept.items()}

    def each(values: Mapping[str, str]) -> pd.Series:
        return runs["label"].map(values).astype(object)

    shown = each({label: _shown(spec, registry) for label, spec in kept.items()})
    brought = each({label: names[column] for label, column in columns.items()})
    frame = runs.assign(
        label=shown + " [" + brought + "]",
        shown=shown,
        column=each(columns),
        brought=brought,
        ruler=each({label: ruler_variant(spec, registry) for label, spec in kept.items()}),
        network=[found.results.run(str(k)).spec.representation.key for k in runs.index],
    )
    newest = frame.groupby("row", sort=False)["created"].last().sort_values(kind="stable")
    rows = frame.drop_duplicates("row").set_index("row")["label"][newest.index]
    older = rows[rows.duplicated(keep="last")]
    if len(older):
        left_out[OLDER] = len(older)
    frame = _ordered(frame[~frame["row"].isin(older.index)])
    return Grid(replace(found, frame=frame), dict(left_out))


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


def grid_notes(grid: Grid) -> list[str]:
    """Return what must be said of the rows, gathered by what is said: a line a fact, not a row."""
    chosen = grid.chosen
    facts = pd.DataFrame({label: row_facts(chosen, label) for label in chosen.labels}).T
    shared, lines = [], []
    for name, texts in facts.items():
        for text, own in texts.groupby(texts, sort=False):
            if len(own) == len(facts):
                shared.append(str(text))
            elif name != "representation":  # which the labels name
                lines.append(f"{text}: {_named(own.index, grid)}.")
    return [
        *(["All rows: " + "; ".join(shared) + "."] if shared else []),
        *lines,
        *unequal_lines(list(chosen.specs.values())),
        *left_out_lines(chosen),
        *chosen.notes,
        *name_lines({spec.method for spec in chosen.specs.values()}, chosen.results.registry),
        *(
            f"{count} stored {'row' if count == 1 else 'rows'} left out, {reason}."
            for reason, count in grid.left_out.items()
        ),
    ]


def _named(labels: Collection[str], grid: Grid) -> str:
    """Return the labels; a column that is there as a whole is named as such."""
    names: list[str] = []
    for brought, own in grid.frame.groupby("brought", sort=False)["label"].unique().items():
        meant = [label for label in own if label in labels]
        names += [f"all on {brought}"] if len(meant) == len(own) else meant
    return "; ".join(names)


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


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by column, the baseline first and plain before flipped views, then by last session."""
    order = frame.assign(
        other=frame["representation"] != REPRESENTATION,
        flipped=frame["views"] != PLAIN,
        mean=frame.groupby("label")["last"].transform("mean"),
    )
    by = ["other", "representation", "flipped", "brought", "mean"]
    return frame.loc[order.sort_values(by, kind="stable").index]


def _shown(spec: RunSpec, registry: Registry) -> str:
    changed = named_values(
        changed_params(registry, "method", spec.method, spec.params, spec.protocol)
    )
    return f"{spec.method} ({', '.join(changed)})" if changed else spec.method


def _plain_label(spec: RunSpec, registry: Registry) -> str:
    brought = spec.representation
    changed = changed_params(
        registry, "representation", brought.name, brought.params, spec.protocol
    )
    views = [spec.views] if spec.views != PLAIN else []
    return ", ".join([brought_title(brought), *named_values(changed), *views])


def _brought(spec: RunSpec) -> dict[str, Any]:
    return spec.representation.shared()


def _flat(spec: RunSpec) -> dict[str, Any]:
    """Return what a label may have to add: the recipe's fields beside the representation's."""
    data = _brought(spec)
    return {**data.pop("recipe"), **data}
