"""A claim of the paper, what was measured of it, and the verdict that a rule gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.store.runs import StoredRun

from ._paired import OPEN, UNTESTED, Verdict, above_zero, all_of, high, low, paired_interval

NOTHING = Interval(math.nan, math.nan, 0)
NO_RUNS = "its runs are not stored"


@dataclass(frozen=True)
class Part:
    """One comparison that a claim needs.

    Attributes:
        verdict: what the claim's rule says of it.
        name: what tells it from the claim's other parts.
        interval: the figure that is judged, in `unit`; NaN where nothing is to be averaged.
        unit: of the figure.
        detail: what both sides reached, or why it is not tested.
        difference: whether the figure is a difference, and not a ratio.
    """

    verdict: Verdict
    name: str = ""
    interval: Interval = NOTHING
    unit: str = "points"
    detail: str = ""
    difference: bool = True

    @property
    def smallest(self) -> float:
        """The smallest difference that the runs could have shown; NaN if that is not known."""
        return self.interval.half_width if self.difference else math.nan


@dataclass(frozen=True)
class Claim:
    """A claim with its parts; it holds only if each of them does.

    Attributes:
        letter: its letter in the list of claims.
        statement: what the paper says.
        rule: what is compared with what, and when the claim holds.
        parts: what was measured.
        pairs: what the intervals are taken over.
    """

    letter: str
    statement: str
    rule: str
    parts: tuple[Part, ...]
    pairs: str = "seeds"

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim as a whole."""
        return all_of(part.verdict for part in self.parts)


def untested(reason: str, name: str = "") -> Part:
    """Return a part that nothing can be said of."""
    return Part(UNTESTED, name, detail=reason)


def compared(
    first: Mapping[int, StoredRun],
    second: Mapping[int, StoredRun],
    value: Callable[[StoredRun], float],
    name: str = "",
    unit: str = "points",
) -> Part:
    """Return the part that claims a higher value for the first runs than for the second.

    Args:
        first: runs by seed.
        second: the runs they are paired with.
        value: the figure of a run, in `unit`.
        name: of the part.
        unit: of the figure.
    """
    ours = {seed: value(run) for seed, run in first.items()}
    theirs = {seed: value(run) for seed, run in second.items()}
    return contrasted(ours, theirs, name, unit)


def contrasted(
    ours: Mapping[int, float], theirs: Mapping[int, float], name: str = "", unit: str = "points"
) -> Part:
    """Return the part that claims higher values for `ours` than for `theirs`, paired by key."""
    interval = paired_interval(ours, theirs)
    if interval.count == 0:
        return untested(NO_RUNS, name)
    return Part(above_zero(interval), name, interval, unit, both_sides(ours, theirs))


def both_sides(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Return the means of both sides over the keys that they share."""
    shared = [key for key in ours if key in theirs]
    means = [mean_interval([side[key] for key in shared]).mean for side in (ours, theirs)]
    return f"{number(means[0])} against {number(means[1])}"


def part_text(part: Part, pairs: str) -> str:
    """Return a part in words: its figure with interval and pairs, its sides, or why it has none."""
    head = f"{part.name}: " if part.name else ""
    if math.isnan(part.interval.mean):
        return f"{head}{part.detail}"
    written = signed if part.difference else number
    figure = written(part.interval.mean)
    if part.interval.count > 1:
        figure += f" [{written(low(part.interval))}, {written(high(part.interval))}]"
    sides = f"; {part.detail}" if part.detail else ""
    text = f"{head}{figure} {part.unit} (n = {part.interval.count} {pairs}{sides})"
    if part.verdict == OPEN and not math.isnan(part.smallest):
        text += f"; the smallest that could have shown: {number(part.smallest)}"
    return text


def measured_text(claim: Claim) -> str:
    """Return all that was measured of a claim; where it has several parts, with their verdicts."""
    texts = [part_text(part, claim.pairs) for part in claim.parts]
    if len(texts) == 1:
        return texts[0]
    verdicts = [part.verdict for part in claim.parts]
    return "; ".join(f"{text}: {verdict}" for text, verdict in zip(texts, verdicts, strict=True))


def number(value: float) -> str:
    """Return a number with two decimals, or two significant digits if it is smaller than 0.1.

    What is smaller than 1e-12 is what rounding leaves of 0.
    """
    value = 0.0 if abs(value) < 1e-12 else value
    plain = value == 0 or math.isnan(value) or abs(value) >= 0.1
    return (f"{value:z.2f}" if plain else f"{value:.2g}").replace("-", "−")


def signed(value: float) -> str:
    """Return a number with its sign."""
    return f"+{number(value)}" if value >= 1e-12 else number(value)
