"""Which classes a report of single classes shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fscil_bench.errors import UsageError, nearest


def spread_classes(seen: Sequence[int], base: int, new: int) -> list[int]:
    """Return ids of base and of later classes, spread evenly over those there are.

    Args:
        seen: classes seen after each session, base session first.
        base: how many base classes, or all if there are fewer.
        new: how many later ones, likewise.
    """
    return [*_spread(0, seen[0], base), *_spread(seen[0], seen[-1], new)]


def named_classes(text: str, names: Sequence[str], seen: int) -> list[int]:
    """Return the ids of classes given by id or name, with `,` between.

    Args:
        text: what was given.
        names: of all classes, by id.
        seen: how many classes there are to choose from.

    Raises:
        UsageError: there is no such class, or it has not been seen yet.
    """
    found: dict[int, None] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        known = {name: class_id for class_id, name in enumerate(names)}
        class_id = known.get(word, int(word) if word.isdecimal() else -1)
        if not 0 <= class_id < len(names):
            raise UsageError(f"no class {word!r}: give ids or names; {nearest(word, names)}")
        if class_id >= seen:
            raise UsageError(
                f"class {word!r} has not been seen after the session that is shown, which knows "
                f"classes 0 to {seen - 1}; choose a later session or another class"
            )
        found[class_id] = None
    return list(found)


def _spread(start: int, stop: int, count: int) -> list[int]:
    chosen = np.linspace(start, stop - 1, min(count, stop - start))
    return [round(float(each)) for each in chosen]
