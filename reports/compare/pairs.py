"""Rows of runs compared pair by pair: which may be, how far apart they are, in a sentence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from fscil_bench.reporting.choice import Chosen, on_equal_terms
from fscil_bench.reporting.statistics import (
    FEWEST_PAIRS,
    LEVEL,
    PAIRING,
    holm,
    paired_test,
    pairs_needed,
    smallest_p,
)

FIGURES: Mapping[str, str] = {
    "last session": "last",
    "average over sessions": "average",
    "harmonic mean": "last_harmonic",
}
"""What rows are compared by: the words for it and the measure."""
HOLDS = "holds after correction"
OPEN = "cannot be told apart"
UNCORRECTED = "only without correction"
TOO_FEW = "too few pairs"
EQUAL = "equal in every pair"


def compared_pairs(chosen: Chosen, against: Collection[str] = ()) -> pd.DataFrame:
    """Return one line for each figure and pair of rows on equal terms that share seeds.

    With `against`, of each of these rows and each of the others alone. Differences are first minus
    second, in percentage points, paired by seed and representation_seed. Holm's correction is over
    all pairs of a figure that can be tested: too few can show nothing, whatever they are, and take
    no part.
    """
    lines = [
        {"figure": figure, "first": first, "second": second} | tested
        for figure, measure in FIGURES.items()
        for group in on_equal_terms(chosen)
        for first, second in _pairs(group, against)
        if (tested := _tested(chosen.of(first), chosen.of(second), measure))
    ]
    pairs = pd.DataFrame(lines)
    if pairs.empty:
        return pairs
    for _, own in pairs[pairs["n"] >= FEWEST_PAIRS].groupby("figure"):
        pairs.loc[own.index, "p_holm"] = holm(own["p"].tolist())
    return pairs.assign(outcome=[_outcome(pair) for pair in pairs.itertuples()])


def sentences(pairs: pd.DataFrame, selectors: Mapping[str, str]) -> list[str]:
    """Return a sentence for each pair of one figure, first of all one if no difference can hold.

    Args:
        pairs: the figure's lines of `compared_pairs`.
        selectors: how a user asks for a row, by its name in `pairs`.
    """
    tested = pairs[pairs["n"] >= FEWEST_PAIRS]
    lines = [_sentence(pair, len(tested)) for pair in pairs.itertuples()]
    return [
        *([_hopeless(tested, selectors)] if _most(tested) < pairs_needed(len(tested)) else []),
        *lines,
    ]


def _most(tested: pd.DataFrame) -> int:
    """Return how many pairs the comparisons have at most; as many as one likes if there is none."""
    return int(tested["n"].max()) if len(tested) else 2**31


def _hopeless(tested: pd.DataFrame, selectors: Mapping[str, str]) -> str:
    """Say that no difference can hold, and from how many seeds or rows on one can."""
    most, rows = _most(tested), list(dict.fromkeys([*tested["first"], *tested["second"]]))
    text = (
        f"With {len(tested)} comparisons and at most {most} pairs each none can hold after "
        f"correction, whatever the runs are: that takes {pairs_needed(len(tested))} pairs, which "
        "are as many seeds of every row, or fewer rows (--set rows=...)"
    )
    alone = len(rows) - 1
    if alone < len(tested):
        asked = shlex.quote(f"against={selectors[rows[0]]}")
        text += (
            f"; one row with each of the others (--set {asked}) is "
            f"{alone} comparisons, for which {pairs_needed(alone)} pairs are enough"
        )
    return f"{text}."


def _pairs(group: Sequence[str], against: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield every two of a group, or with `against` these first and each of the others."""
    if not against:
        yield from combinations(group, 2)
    for first in against:
        if first in group:
            yield from ((first, second) for second in group if second not in against)


def _tested(first: pd.DataFrame, second: pd.DataFrame, measure: str) -> dict[str, float]:
    """Return the test of two rows' pairs; nothing where none is shared, or a value is missing."""
    one, two = (side.set_index(list(PAIRING))[measure] for side in (first, second))
    one, two = one.align(two, join="inner")
    # A protocol without new classes has no harmonic mean.
    if one.empty or one.isna().any() or two.isna().any():
        return {}
    test = paired_test(one.sort_index().tolist(), two.sort_index().tolist())
    return {
        "n": len(test.differences),
        "mean": test.interval.mean,
        "low": test.interval.low,
        "high": test.interval.high,
        "bootstrap_low": test.low,
        "bootstrap_high": test.high,
        "equal_pairs": test.zeros,
        "p": test.p,
        "p_holm": math.nan,
    }


def _outcome(pair: Any) -> str:
    if pair.equal_pairs == pair.n:
        return EQUAL
    if pair.n < FEWEST_PAIRS:
        return TOO_FEW
    if pair.p_holm < LEVEL:
        return HOLDS
    return UNCORRECTED if pair.p < LEVEL else OPEN


def _sentence(pair: Any, comparisons: int) -> str:
    """Say in plain words what is known of a pair; `comparisons` are those corrected over."""
    pairs = f"{pair.n} pair{'s' * (pair.n != 1)}"
    if pair.outcome == EQUAL:
        return f"{pair.first} and {pair.second} are equal in all {pairs}."
    side = "above" if pair.mean > 0 else "below" if pair.mean < 0 else "on average exactly beside"
    apart = f"{abs(pair.mean):.2f} points {side}" if pair.mean else side
    bounds = f"{pair.low:z.2f} to {pair.high:z.2f}".replace("-", "−")
    interval = "" if math.isnan(pair.low) else f"95 % interval {bounds} over "
    equal = f", {pair.equal_pairs} of them equal" if pair.equal_pairs else ""
    ps = f"Wilcoxon p = {_p_text(pair.p)}"
    if comparisons > 1:
        ps += f", {_p_text(pair.p_holm)} after Holm's correction over {comparisons} pairs"
    conclusion = {
        TOO_FEW: "too few pairs, of which Wilcoxon's p is at least "
        f"{_p_text(smallest_p(pair.n))} whatever they are",
        HOLDS: f"this holds{' after correction' * (comparisons > 1)} ({ps})",
        UNCORRECTED: f"this does not hold after correction ({ps}), so that they {OPEN}",
        OPEN: f"they {OPEN} ({ps})",
    }[pair.outcome]
    return f"{pair.first} is {apart} {pair.second} ({interval}{pairs}{equal}): {conclusion}."


def _p_text(p: float) -> str:
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"
