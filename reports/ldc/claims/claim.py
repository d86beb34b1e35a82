"""A claim of the paper, what was measured of it, and the verdict that a rule gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from fscil_bench.metrics import Interval
from fscil_bench.reporting.sentences import number, signed
from fscil_bench.reporting.statistics import OPEN, UNTESTED, Verdict, above_zero, all_of

from ..values import difference

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

    def text(self, pairs: str) -> str:
        """Return it in words: its figure with interval and `pairs`, its sides, or why not."""
        head, found = f"{self.name}: " if self.name else "", self.interval
        if math.isnan(found.mean):
            return head + self.detail
        written = signed if self.difference else number
        figure = written(found.mean)
        if found.count > 1:
            figure += f" [{written(found.low)}, {written(found.high)}]"
        sides = f"; {self.detail}" if self.detail else ""
        text = f"{head}{figure} {self.unit} (n = {found.count} {pairs}{sides})"
        if self.verdict == OPEN and not math.isnan(self.smallest):
            text += f"; the smallest that could have shown: {number(self.smallest)}"
        return text


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

    @property
    def measured(self) -> str:
        """All that was measured of it; of several parts each with its verdict."""
        texts = [part.text(self.pairs) for part in self.parts]
        verdicts = [f": {part.verdict}" * (len(texts) > 1) for part in self.parts]
        return "; ".join(map(str.__add__, texts, verdicts))


def untested(reason: str, name: str = "") -> Part:
    """Return a part that nothing can be said of."""
    return Part(UNTESTED, name, detail=reason)


def compared(
    ours: pd.DataFrame, theirs: pd.DataFrame, key: str, name: str = "", unit: str = "points"
) -> Part:
    """Return the part that claims higher values of column `key`, in `unit`, than `theirs` has.

    Both have a line for each run, or what else makes a pair, by what tells the pairs apart.
    """
    interval = difference(ours, theirs, key)
    if interval.count == 0:
        return untested(NO_RUNS, name)
    return Part(above_zero(interval), name, interval, unit, both_sides(ours, theirs, key))


def both_sides(ours: pd.DataFrame, theirs: pd.DataFrame, key: str) -> str:
    """Return the means of both sides over the pairs."""
    pairs = pd.concat([ours[key], theirs[key]], axis="columns", join="inner").dropna()
    one, two = pairs.mean()
    return f"{number(one)} against {number(two)}"
