"""Every figure of a run: what it is called, its formula, its unit and its good end, once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import pandas as pd

Unit = Literal["%", "points", "s", "bytes"]


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
    """

    key: str
    heading: str
    latex: str
    better: Literal["highest", "lowest", "none"]
    unit: Unit
    of: Callable[[pd.DataFrame], pd.Series]
    group: str = ""
    limits: tuple[float, float] = (0, math.inf)

    @property
    def formula(self) -> str:
        """The formula as plain text."""
        return plain(self.latex)


_SIGNS = {
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


_LAST = "Last session (%)"
ACCURACY = (
    r"$A_t$ is the accuracy after session $t$, in \%: correct / total, top-1, over the test images "
    "and the joint label space of all classes seen so far; $T$ is the last session."
)
"""What the formulas call accuracy (LaTeX)."""
INTERVAL = (
    r"Each is computed run by run; $\pm$ is the half-width of the 95\,\% Student-t interval of the "
    r"mean over a row's $n$ runs, $t \cdot s / \sqrt{n}$ with $s$ the sample standard deviation."
)
"""What an interval is (LaTeX)."""

PERCENT = (0.0, 100.0)
_ACCURACY = partial(Measure, better="highest", unit="%", limits=PERCENT)
_BY_CLASS = partial(_ACCURACY, group=_LAST)
_LOSS = partial(Measure, better="lowest", unit="points", limits=(-100.0, 100.0))
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
        Measure(
            "seconds",
            "Seconds",
            "Seconds are those of learning and scoring in all sessions (lower is better).",
            "lowest",
            "s",
            lambda f: (f["learn_seconds"] + f["score_seconds"]).groupby(f["key"], sort=False).sum(),
        ),
        Measure(
            "bytes",
            "Bytes",
            "Bytes are what the method keeps after the last session (lower is better).",
            "lowest",
            "bytes",
            lambda f: _last(f, "state_bytes"),
        ),
    )
}
"""By key, in the order of columns."""


def formulas(*keys: str) -> list[str]:
    """Return what a table with these measures says of them, in LaTeX."""
    return [ACCURACY, *(MEASURES[key].latex for key in keys), INTERVAL]
