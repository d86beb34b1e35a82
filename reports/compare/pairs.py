"""Rows of runs compared pair by pair: which may be, how far apart they are, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pandas as pd

from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.statistics import (
    FEWEST_PAIRS,
    LEVEL,
    PAIRING,
    holm,
    paired_test,
    pairs_needed,
    smallest_p,
)
from fscil_bench.spec import RunSpec

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


def terms(spec: RunSpec) -> dict[str, str]:
    """Return what two rows must share so that a run of one answers the same as one of the other.

    The same classes, shots and test images, and an engine that draws and counts them alike.
    """
    shared = ("class_order", "base_classes", "way", "shot", "sessions", "test_from_train")
    return {
        "split": spec.split,
        "shots": str(spec.shots),
        **{name: str(getattr(spec.protocol, name)) for name in shared},
        "data fingerprint": spec.representation.data_fingerprint,
        "engine": spec.engine,
    }


def on_equal_terms(chosen: Chosen, *apart: str) -> list[list[str]]:
    """Return the labels of rows whose terms are alike but for some, in order of appearance."""
    found = pd.DataFrame({label: terms(spec) for label, spec in chosen.specs.items()}).T
    alike = found.groupby([name for name in found if name not in apart], sort=False)
    return [list(group.index) for _, group in alike]


def compared_pairs(chosen: Chosen) -> pd.DataFrame:
    """Return one line for each figure and pair of rows on equal terms that share seeds.

    Differences are first minus second, in percentage points, paired by seed and
    representation_seed. Holm's correction is over all pairs of a figure that can be tested: too
    few can show nothing, whatever they are, and take no part.
    """
    lines = [
        {"figure": figure, "first": first, "second": second} | tested
        for figure, measure in FIGURES.items()
        for group in on_equal_terms(chosen)
        for first, second in combinations(group, 2)
        if (tested := _tested(chosen.of(first), chosen.of(second), measure))
    ]
    pairs = pd.DataFrame(lines)
    if pairs.empty:
        return pairs
    for _, own in pairs[pairs["n"] >= FEWEST_PAIRS].groupby("figure"):
        pairs.loc[own.index, "p_holm"] = holm(own["p"].tolist())
    return pairs.assign(outcome=[_outcome(pair) for pair in pairs.itertuples()])


def sentences(pairs: pd.DataFrame) -> list[str]:
    """Return a sentence for each pair of one figure, and one where no difference could hold."""
    tested = pairs[pairs["n"] >= FEWEST_PAIRS]
    lines = [_sentence(pair, len(tested)) for pair in pairs.itertuples()]
    needed = pairs_needed(len(tested))
    if len(tested) and tested["n"].max() < needed:
        lines.append(
            f"With {len(tested)} comparisons and at most {tested['n'].max()} pairs each none can "
            f"hold after correction: that takes {needed} pairs, or fewer rows (--set rows=...)."
        )
    return lines


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
