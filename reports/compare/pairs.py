"""Rows of runs compared pair by pair: which may be, how far apart they are, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from fscil_bench.spec import RunSpec
from fscil_bench.store.runs import StoredRun

from ._claims_accuracy import FIGURES
from ._paired import high, low
from ._rows import Row
from ._significance import LEVEL, PairedTest, holm, paired_test, smallest_p

Outcome = Literal[
    "holds after correction",
    "only without correction",
    "cannot be told apart",
    "too few pairs",
    "equal in every pair",
]
FEWEST = next(n for n in range(1, 99) if smallest_p(n) < LEVEL)
"""Pairs below which Wilcoxon's test passes the level whatever they are."""


@dataclass(frozen=True)
class Pair:
    """Two rows that share seeds; `tests` holds what each figure says, in percentage points."""

    first: Row
    second: Row
    tests: Mapping[str, PairedTest]

    @property
    def name(self) -> str:
        """Both labels."""
        return f"{self.first.label} − {self.second.label}"

    def outcome(self, figure: str) -> Outcome:
        """Return what can be said by the rule: Holm's p below the level."""
        test = self.tests[figure]
        if test.zeros == len(test.differences):
            return "equal in every pair"
        if len(test.differences) < FEWEST:
            return "too few pairs"
        if test.adjusted < LEVEL:
            return "holds after correction"
        return "only without correction" if test.p < LEVEL else "cannot be told apart"


def terms(spec: RunSpec) -> dict[str, str]:
    """Return what two rows must share so that a run of one answers the same as one of the other.

    The same classes, shots and test images, and an engine that draws and counts them alike.
    """
    protocol = spec.protocol
    shared = ("class_order", "base_classes", "way", "shot", "sessions", "test_from_train")
    return {
        "split": spec.split,
        "shots": str(spec.shots),
        **{name: str(getattr(protocol, name)) for name in shared},
        "data fingerprint": spec.representation.data_fingerprint,
        "engine": spec.engine,
    }


def on_equal_terms(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows in groups whose terms are alike, in order of appearance."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(terms(row.spec).values()), []).append(row)
    return list(groups.values())


def compared_pairs(groups: Sequence[Sequence[Row]]) -> list[Pair]:
    """Return every two rows of a group that share seeds, corrected over all that can be tested.

    Each figure is a family of its own. Too few pairs can show nothing, whatever they are, and take
    no part in the correction.
    """
    pairs = [
        Pair(one, two, tests)
        for group in groups
        for one, two in combinations(group, 2)
        if (tests := _tests(one, two))
    ]
    corrected = [dict(pair.tests) for pair in pairs]
    for figure in FIGURES:
        tested = [index for index, pair in enumerate(pairs) if is_tested(pair, figure)]
        adjusted = holm([pairs[index].tests[figure].p for index in tested])
        for index, p in zip(tested, adjusted, strict=True):
            corrected[index][figure] = replace(pairs[index].tests[figure], adjusted=p)
    return [replace(pair, tests=tests) for pair, tests in zip(pairs, corrected, strict=True)]


def is_tested(pair: Pair, figure: str) -> bool:
    """Whether a pair of rows has the figure and pairs enough to show anything."""
    test = pair.tests.get(figure)
    return test is not None and len(test.differences) >= FEWEST


def sentence(pair: Pair, figure: str, comparisons: int) -> str:
    """Say in plain words what is known of a pair; `comparisons` are those corrected over."""
    test, outcome = pair.tests[figure], pair.outcome(figure)
    count = len(test.differences)
    if outcome == "equal in every pair":
        return f"{pair.first.label} and {pair.second.label} are equal in all {_pairs(count)}."
    mean = test.interval.mean
    side = "above" if mean > 0 else "below" if mean < 0 else "on average exactly beside"
    apart = f"{abs(mean):.2f} points {side}" if mean else side
    text = f"{pair.first.label} is {apart} {pair.second.label}"
    text += f" ({_interval_words(test)}{_pairs(count)}"
    text += f", {test.zeros} of them equal)" if test.zeros else ")"
    return f"{text}: {_conclusion(outcome, test, comparisons)}."


def _conclusion(outcome: Outcome, test: PairedTest, comparisons: int) -> str:
    ps = f"Wilcoxon p = {p_text(test.p)}"
    if comparisons > 1:
        ps += f", {p_text(test.adjusted)} after Holm's correction over {comparisons} pairs"
    if outcome == "too few pairs":
        least = p_text(smallest_p(len(test.differences)))
        return f"too few pairs, of which Wilcoxon's p is at least {least} whatever they are"
    if outcome == "holds after correction":
        return f"this holds{' after correction' if comparisons > 1 else ''} ({ps})"
    if outcome == "only without correction":
        return f"this does not hold after correction ({ps}), so that they cannot be told apart"
    return f"they cannot be told apart ({ps})"


def p_text(p: float) -> str:
    """Return a p with two significant digits."""
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def _interval_words(test: PairedTest) -> str:
    if math.isnan(test.interval.half_width):
        return ""
    bounds = f"{low(test.interval):z.2f} to {high(test.interval):z.2f}".replace("-", "−")
    return f"95 % interval {bounds} over "


def _pairs(count: int) -> str:
    return f"{count} pair" if count == 1 else f"{count} pairs"


def _tests(one: Row, two: Row) -> dict[str, PairedTest]:
    runs = [{_axes(run): run for run in row.runs} for row in (one, two)]
    shared = sorted(runs[0].keys() & runs[1].keys())
    if not shared:
        return {}
    sides = [[own[key] for key in shared] for own in runs]
    found = {name: [_values(side, value) for side in sides] for name, value in FIGURES.items()}
    return {
        name: paired_test(first, second)
        for name, (first, second) in found.items()
        # A protocol without new classes has no harmonic mean.
        if not any(map(math.isnan, [*first, *second]))
    }


def _values(runs: Sequence[StoredRun], value: Callable[[StoredRun], float]) -> list[float]:
    return [value(run) for run in runs]


def _axes(run: StoredRun) -> tuple[int, int]:
    return run.spec.representation.seed, run.spec.seed
