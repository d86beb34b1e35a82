"""Every figure of a run: what it is called, its formula, its unit and its good end, once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pandas as pd

from fscil_bench.errors import UsageError, nearest

Unit = Literal["%", "points", "s", "MB", "bytes"]


@dataclass(frozen=True)
class Measure:
    r"""A figure of a whole run.

    Attributes:
        key: names it in frames and CSV.
        heading: stands above its column.
        latex: its formula as a sentence, mathematics between `$`, `%` written `\%`.
        better: which end is the good one.
        unit: of its values; accuracies are in %.
        limits: between which its values lie.
        of: its value by `key`, of a results frame whose rows are in order of sessions.
        group: heading over this and neighbouring columns.
        scored: whether it is counted from scores, which runs made with `--artifacts` alone keep.
    """

    key: str
    heading: str
    latex: str
    better: Literal["highest", "lowest", "none"]
    unit: Unit
    of: Callable[[pd.DataFrame], pd.Series]
    group: str = ""
    limits: tuple[float, float] = (0, math.inf)
    scored: bool = False

    @property
    def formula(self) -> str:
        """The formula as plain text."""
        return plain(self.latex)


_SIGNS = {
    r"\alpha": "α",
    r"\cdot": "·",
    r"\dots": "…",
    r"\pm": "±",
    r"\max": "max",
    r"\times": "×",
    r"\sum": "Σ",
    r"\%": "%",
    r"\,": " ",
    " - ": " − ",
}


def plain(latex: str) -> str:
    r"""Return a formula's LaTeX as plain text: `$A_0 \cdot n$` becomes `A_0 · n`."""
    text = re.sub(r"\\mathrm\{([^}]*)\}", r"\1", latex)
    text = re.sub(r"\\sqrt\{([^}]*)\}", r"√\1", text)
    for command, sign in _SIGNS.items():
        text = text.replace(command, sign)
    return text.replace("$", "")


def _first(frame: pd.DataFrame, column: str) -> pd.Series:
    return frame.drop_duplicates("key", keep="first").set_index("key")[column]


def _last(frame: pd.DataFrame, column: str) -> pd.Series:
    return frame.drop_duplicates("key", keep="last").set_index("key")[column]


def _forgetting(frame: pd.DataFrame) -> pd.Series:
    last = _last(frame, "base")
    earlier = frame[frame.duplicated("key", keep="last")]
    best = earlier.groupby("key", sort=False)["base"].max().reindex(last.index)
    return (best - last).where(best.notna(), 0.0)


def generalised(frame: pd.DataFrame, alpha: float) -> pd.Series:
    """Return gAcc(α) of each run of a results frame, as a fraction (Tang et al., ECCV 2024).

    In it the base session weighs as much as α later sessions. As their released code has it, the
    base session alone counts 0 at α = 0, where nothing has a weight.
    """
    later, index = frame["new_sessions"].fillna(0.0), frame["session"]
    weights = (alpha + index).replace(0, math.nan)
    each = ((alpha * frame["base"] + index * later) / weights).fillna(0.0)
    return each.groupby(frame["key"], sort=False).mean()


def _generalised_area(frame: pd.DataFrame) -> pd.Series:
    """Return the area under gAcc(α) by trapezia between the integers, over its width."""
    last = frame.drop_duplicates("key", keep="last").set_index("key")
    way = (last["classes_seen"] - last["base_classes"]) / last["session"].replace(0, math.nan)
    widths = (last["base_classes"] / way).fillna(0).astype(int)
    areas = pd.Series(math.nan, index=widths.index)
    for width, own in widths[widths > 0].groupby(widths):
        part = frame[frame["key"].isin(own.index)]
        curve = pd.DataFrame({alpha: generalised(part, alpha) for alpha in range(width + 1)})
        areas[own.index] = (curve.sum(axis=1) - (curve[0] + curve[width]) / 2) / width
    return areas


def _seconds(frame: pd.DataFrame, *columns: str) -> pd.Series:
    return frame[list(columns)].sum(axis=1).groupby(frame["key"], sort=False).sum()


_LAST = "Last session (%)"
ACCURACY = (
    r"$A_t$ is the accuracy after session $t$, in \%: correct / total, top-1, over the test images "
    "and the joint label space of all classes seen so far; $T$ is the last session."
)
"""What the formulas call accuracy (LaTeX)."""
INTERVAL = (
    r"Each is computed run by run; $\pm$ is the half-width of the 95\,\% Student-t interval of the "
    r"mean over a row's $n$ runs, $t \cdot s / \sqrt{n}$ with $s$ the sample standard deviation. "
    "The best mean of a column is bold where it differs from the next by more than the root of the "
    "sum of their squared half-widths."
)
"""What an interval is (LaTeX)."""

PERCENT = (0.0, 100.0)
_ACCURACY = partial(Measure, better="highest", unit="%", limits=PERCENT)
_BY_CLASS = partial(_ACCURACY, group=_LAST)
_LOSS = partial(Measure, better="lowest", unit="points", limits=(-100.0, 100.0))
_COST = partial(Measure, better="lowest")
MEASURES: Mapping[str, Measure] = {
    measure.key: measure
    for measure in (
        _ACCURACY("first", "First", "First $= A_0$.", of=lambda f: 100 * _first(f, "accuracy")),
        _ACCURACY("last", "Last", "Last $= A_T$.", of=lambda f: 100 * _last(f, "accuracy")),
        _ACCURACY(
            "average",
            "Avg",
            r"Avg $= (A_0 + \dots + A_T) / (T + 1)$.",
            of=lambda f: 100 * f.groupby("key", sort=False)["accuracy"].mean(),
        ),
        _LOSS(
            "performance_drop",
            "PD",
            "PD $= A_0 - A_T$, in percentage points (lower is better).",
            of=lambda f: 100 * (_first(f, "accuracy") - _last(f, "accuracy")),
        ),
        _ACCURACY(
            "performance_retention",
            "PR",
            r"PR $= A_T / A_0$, in \%.",
            limits=(0.0, math.inf),
            of=lambda f: 100 * _last(f, "accuracy") / _first(f, "accuracy").replace(0, math.nan),
        ),
        _BY_CLASS(
            "last_base",
            "Base",
            "Base is $A_T$ counted over test images of base classes alone.",
            of=lambda f: 100 * _last(f, "base"),
        ),
        _BY_CLASS(
            "last_new",
            "New",
            "New is $A_T$ counted over test images of all later classes alone.",
            of=lambda f: 100 * _last(f, "new"),
        ),
        _BY_CLASS(
            "last_harmonic",
            "HM",
            r"HM $= 2 \cdot \mathrm{Base} \cdot \mathrm{New} / (\mathrm{Base} + \mathrm{New})$.",
            of=lambda f: 100 * _last(f, "harmonic"),
        ),
        _BY_CLASS(
            "last_harmonic_classes",
            "HM by class",
            "HM by class is the harmonic mean of the mean accuracies of base and of later classes, "
            "in which a class counts alike however many test images it has (Xian et al., 2017, "
            "eq. 4).",
            of=lambda f: 100 * _last(f, "harmonic_classes"),
        ),
        _LOSS(
            "base_forgetting",
            "Forgetting",
            "Forgetting is the highest Base of the sessions before the last minus the last, in "
            "percentage points (Chaudhry et al., 2018, eq. 3; lower is better).",
            of=lambda f: 100 * _forgetting(f),
        ),
        _LOSS(
            "average_forgetting",
            "Avg forgetting",
            "Avg forgetting is the mean over all sessions but the last of the highest accuracy on "
            "their classes before the last session minus that after it, in percentage points "
            "(Chaudhry et al., 2018, eq. 3; lower is better).",
            of=lambda f: 100 * _last(f, "forgetting"),
        ),
        _ACCURACY(
            "gacc_1",
            "gAcc(1)",
            r"gAcc(1) is gAcc$(\alpha)$ at $\alpha = 1$: the mean over $t$ of $(\alpha \cdot "
            r"a_t(0) + a_t(1) + \dots + a_t(t)) / (\alpha + t)$, with $a_t(j)$ the accuracy on the "
            r"classes of session $j$ after session $t$; the base session counts as $\alpha$ others "
            "(Tang et al., 2024).",
            of=lambda f: 100 * generalised(f, 1),
        ),
        _ACCURACY(
            "gacc_area",
            "gAcc area",
            r"gAcc area is that under gAcc$(\alpha)$ from 0 to the base classes over the later "
            "classes of a session, rounded down, by trapezia between whole numbers and over its "
            r"width; at $\alpha = 0$ session 0 counts 0, as in the released code (Tang et al., "
            "2024).",
            of=lambda f: 100 * _generalised_area(f),
        ),
        _ACCURACY(
            "new_own_labels",
            "New, own labels",
            "New, own labels is counted after the last session over test images of later classes "
            "with these alone to choose from: no figure of FSCIL, whose label space is joint (runs "
            "made with --artifacts).",
            of=lambda f: 100 * _first(f, "own_labels"),
            scored=True,
        ),
        Measure(
            "ece",
            "ECE",
            r"ECE $= \sum_b (n_b / n) \cdot |\mathrm{acc}_b - \mathrm{conf}_b|$ is the expected "
            r"calibration error after the last session, in \%, over 15 bins of confidence of equal "
            r"width, $b$ from above $(b - 1) / 15$ to $b / 15$, with $n_b$ of the $n$ test images, "
            "their accuracy and mean confidence (Guo et al., 2017, eq. 3; lower is better); "
            "confidence is the softmax of scores as the method gives them (runs made with "
            "--artifacts).",
            "lowest",
            "%",
            lambda f: 100 * _first(f, "calibration_error"),
            limits=PERCENT,
            scored=True,
        ),
        _COST(
            "seconds",
            "Seconds",
            "Seconds are those of learning and scoring in all sessions (lower is better).",
            unit="s",
            of=lambda f: _seconds(f, "learn_seconds", "score_seconds"),
        ),
        _COST(
            "learn_seconds",
            "Learning (s)",
            "Learning (s) is in all sessions together (lower is better).",
            unit="s",
            of=lambda f: _seconds(f, "learn_seconds"),
        ),
        _COST(
            "score_seconds",
            "Inference (s)",
            "Inference (s) is the scoring of all test images of all sessions (lower is better).",
            unit="s",
            of=lambda f: _seconds(f, "score_seconds"),
        ),
        _COST(
            "memory",
            "Memory (MB)",
            "Memory (MB) is the most that the process had in the sessions, with all that it had "
            "loaded (lower is better).",
            unit="MB",
            of=lambda f: (_first(f, "peak_memory") / 1e6).replace(0, math.nan),
        ),
        _COST(
            "bytes",
            "Bytes",
            "Bytes are what the method keeps after the last session (lower is better).",
            unit="bytes",
            of=lambda f: _last(f, "state_bytes"),
        ),
    )
}
"""By key, in the order of columns."""


def named_measures(text: str) -> list[str]:
    """Return the keys of the measures that a text names, with commas between.

    Raises:
        UsageError: there is no such measure.
    """
    keys = [part.strip() for part in text.split(",") if part.strip()]
    for key in keys:
        if key not in MEASURES:
            raise UsageError(f"unknown measure {key!r}; {nearest(key, MEASURES)}")
    return keys


def formulas(*keys: str) -> list[str]:
    """Return what a table with these measures says of them, in LaTeX."""
    return [ACCURACY, *(MEASURES[key].latex for key in keys), INTERVAL]
