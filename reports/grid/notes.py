"""What a grid must say of its rows, gathered by what is said: a line a fact, not a line a row."""

from __future__ import annotations

from collections.abc import Sequence

from fscil_bench.plugins.registry import Registry

from ._facts import left_out_lines, row_facts, unequal_lines
from ._grid import Grid, Place
from ._rows import Row


def grid_notes(grid: Grid, rows: Sequence[Row], registry: Registry) -> list[str]:
    """Return the lines under a grid; `rows` are its places' rows, under the places' labels."""
    facts = [row_facts(row, registry) for row in rows]
    names = list(dict.fromkeys(name for each in facts for name in each))
    shared, lines = [], []
    for name in names:
        groups: dict[str, list[Place]] = {}
        for place, each in zip(grid.places, facts, strict=True):
            groups.setdefault(each.get(name, ""), []).append(place)
        groups.pop("", None)
        for text, places in groups.items():
            if len(places) == len(rows):
                shared.append(text)
            elif name != "representation":  # which the labels name
                lines.append(f"{text}: {_named(places, grid)}.")
    beginning = ["All rows: " + "; ".join(shared) + "."] if shared else []
    return [
        *beginning,
        *lines,
        *unequal_lines([row.spec for row in rows]),
        *left_out_lines(rows),
        *_counted(grid),
    ]


def _named(places: Sequence[Place], grid: Grid) -> str:
    """Return the labels of places; a column that is there as a whole is named as such."""
    names = []
    for column, label in grid.columns.items():
        whole = [place for place in grid.places if place.column == column]
        own = [place for place in places if place.column == column]
        names += [f"all on {label}"] if own == whole else [place.label for place in own]
    return "; ".join(names)


def _counted(grid: Grid) -> list[str]:
    return [
        f"{count} stored {'row' if count == 1 else 'rows'} left out, {reason}."
        for reason, count in grid.left_out.items()
    ]
