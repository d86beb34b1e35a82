"""Which rows a figure shows if there are more than it can tell apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fscil_bench.plugins.registry import Registry

from ._rows import Row, relabelled
from ._usual import same_shape, usual_params, usual_run


def drawn_rows(rows: Sequence[Row], most: int, registry: Registry) -> list[Row]:
    """Return at most `most` rows, in their order, under the shortest labels that tell them apart.

    Of each method on each representation one comes first, the one with nothing set by hand if
    there is one; then a second of each, and so on. Rows of another shape than the protocol's come
    last.
    """

    def rank(row: Row) -> tuple[bool, bool]:
        return not usual_run(row, registry), not usual_params(row.spec, registry)

    counts: Counter[tuple[str, str, str]] = Counter()
    turns: dict[str, tuple[bool, int]] = {}
    for row in sorted(rows, key=rank):
        spec = row.spec
        kind = spec.method, spec.representation.name, spec.views
        turns[row.label] = not same_shape(spec, registry), counts[kind]
        counts[kind] += 1
    kept = {row.label for row in sorted(rows, key=lambda row: turns[row.label])[:most]}
    return relabelled([row for row in rows if row.label in kept], registry)
