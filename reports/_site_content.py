"""What the site shows, and the choices that its filters offer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fscil_bench
from fscil_bench.store import StoredRun

from ._site_entries import COLUMNS, MEASURED, PUBLISHED, Entry
from ._site_shelf import Shelf
from .main_table import FORMULAS

FILTERS = ("protocol", "kind", "representation", "split", "views", "backbone")
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
            {
                "name": entry.name,
                "kind": entry.kind,
                "session": [p.session for p in entry.points],
                "seen": [p.classes_seen for p in entry.points],
                "mean": [p.accuracy.mean for p in entry.points],
                # JSON has no NaN.
                "half": [_known(p.accuracy.half_width) for p in entry.points],
            }
            for entry in self.entries
        ]

    def summary(self, first: Path) -> str:
        """Say in Markdown what was made of what."""
        figures = sum(len(shelf.figures) for shelf in self.shelves)
        return (
            f"A site of {len(self.runs)} runs in {len(self.of_kind(MEASURED))} rows, "
            f"{len(self.of_kind(PUBLISHED))} published rows and {figures} figures of "
            f"{len(self.shelves)} reports. Open {first} in a browser."
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
