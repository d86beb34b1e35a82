"""The figure of the outlier study: accuracy, and LDC's gain, against where shots come from."""

from __future__ import annotations

from collections.abc import Mapping

from fscil_bench.metrics import Interval
from fscil_bench.store.runs import StoredRun

from ._figures import Curve
from ._panels import Panel, panel_figure, panel_lines
from ._run_values import difference, last_accuracy, over_runs
from ._study import Drawing

Runs = Mapping[int, StoredRun]
Key = tuple[str, str]
"""Split and method."""

METHODS = ("ncm", "free_lunch", "ldc")
RIVALS = METHODS[:2]


def outlier_drawing(runs: Mapping[Key, Runs], names: Mapping[str, str]) -> Drawing:
    """Return the figure; `names` are what the splits are called, in order of drawing."""
    ticks = {float(place): name for place, name in enumerate(names.values())}
    reached = {
        method: {
            split: over_runs(own, last_accuracy) for split in names if (own := runs[split, method])
        }
        for method in METHODS
    }
    apart = {
        f"ldc − {rival}": {split: _gain(runs, split, rival) for split in names} for rival in RIVALS
    }
    x_label = "Shots from the farthest part of a class"
    panels = [
        Panel(x_label, "Accuracy, last session (%)", _curves(reached, names), ticks, bars=True),
        Panel(x_label, "Difference (points)", _curves(apart, names), ticks, bars=True, zero=True),
    ]
    panels = [panel for panel in panels if panel.curves]
    caption = (
        "(a) Accuracy after the last session against where in a class its shots come from, (b) "
        "differences paired by seed; bars are 95 % intervals over seeds."
    )
    lines = panel_lines(panels)
    return Drawing("outlier-curves", caption, lambda: panel_figure(panels), lines)


def _gain(runs: Mapping[Key, Runs], split: str, rival: str) -> Interval:
    return difference(runs[split, "ldc"], runs[split, rival], last_accuracy)


def _curves(
    measured: Mapping[str, Mapping[str, Interval]], names: Mapping[str, str]
) -> tuple[Curve, ...]:
    """Return a curve for each label that has a value, through the splits that it has one for."""
    places = {split: float(place) for place, split in enumerate(names)}
    found = {
        label: {split: interval for split, interval in own.items() if interval.count}
        for label, own in measured.items()
    }
    return tuple(
        Curve(label, [places[split] for split in own], list(own.values()))
        for label, own in found.items()
        if own
    )
