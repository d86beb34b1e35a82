"""What the site shows, and the choices that its filters offer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fscil_bench
from fscil_bench.store.runs import StoredRun

from ._site_entries import COLUMNS, MEASURED, PUBLISHED, Entry, Point
from ._site_pages import counted
from ._site_shelf import Shelf
from .main_table import FORMULAS

FILTERS = ("protocol", "terms", "kind", "representation", "split", "views", "backbone")
"""Fields of an entry that the leaderboard can be filtered by."""


@dataclass(frozen=True)
class Content:
    """All that the site shows; `damaged` says what could not be read."""

    entries: Sequence[Entry]
    runs: Sequence[StoredRun]
    shelves: Sequence[Shelf]
    damaged: Sequence[str]

    def of_kind(self, kind: str) -> list[Entry]:
        """Return the entries that are measured, or published."""
        return [entry for entry in self.entries if entry.kind == kind]

    def shared(self) -> dict[str, Any]:
        """Return what every page may show."""
        return {
            "version": fscil_bench.__version__,
            "newest": max(run.record.created for run in self.runs),
            "columns": COLUMNS,
            "formulas": FORMULAS,
            "measured": MEASURED,
            "published": PUBLISHED,
        }

    def protocols(self) -> list[str]:
        """Return all protocols: of most runs first, then those for tuning, then published ones."""
        counts = Counter(run.spec.protocol.name for run in self.runs)
        tuning = {r.spec.protocol.name for r in self.runs if r.spec.protocol.test_from_train}
        names = sorted({entry.protocol for entry in self.entries})
        return sorted(names, key=lambda name: (not counts[name], name in tuning, -counts[name]))

    def choices(self) -> dict[str, list[str]]:
        """Return the values that each filter offers; what is not known is not offered."""
        found = {name: sorted({getattr(e, name) for e in self.entries}) for name in FILTERS}
        found["protocol"] = self.protocols()
        return {name: [value for value in values if value] for name, values in found.items()}

    def curves(self) -> list[Mapping[str, Any]]:
        """Return the points of each entry, as the page's script draws them."""
        return [
            {"name": entry.name, "kind": entry.kind, **_coordinates(entry.points)}
            for entry in self.entries
        ]

    def summary(self, first: Path) -> str:
        """Say in Markdown what was made of what."""
        figures = sum(len(shelf.figures) for shelf in self.shelves)
        return (
            f"A site of {counted(len(self.runs), 'run')} in "
            f"{counted(len(self.of_kind(MEASURED)), 'row')}, "
            f"{counted(len(self.of_kind(PUBLISHED)), 'published row')} and "
            f"{counted(figures, 'figure')} of {counted(len(self.shelves), 'report')}. "
            f"Open {first} in a browser."
        )


def _coordinates(points: Sequence[Point]) -> dict[str, list[float | None]]:
    """Return coordinates as lists; None stands where a session is not known, and breaks the line.

    A line from the first session to the last would claim those between.
    """
    found: dict[str, list[float | None]] = {"session": [], "seen": [], "mean": [], "half": []}
    expected = points[0].session
    for point in points:
        mean, half = point.accuracy.mean, _known(point.accuracy.half_width)
        known = (point.session, point.classes_seen, mean, half)
        gap = [(None, None, None, None)] if point.session != expected else []
        for values in (*gap, known):
            for each, value in zip(found.values(), values, strict=True):
                each.append(value)
        expected = point.session + 1
    return found


def _known(value: float) -> float | None:
    """Return a number as JSON can say it, which has no NaN."""
    return None if math.isnan(value) else value
