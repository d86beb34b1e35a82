"""Every figure of a run: what it is called, its formula, its unit and its good end, once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd

Unit = Literal["%", "points", "s", "bytes"]


@dataclass(frozen=True)
class Measure:
    r"""A figure of a whole run.

    Attributes:
        key: names it in frames and CSV.
        heading: stands above its column.
        title: names it in a sentence.
        latex: its formula as a sentence, mathematics between `$`, `%` written `\%`.
        better: which end is the good one.
        unit: of its values; accuracies are in %.
        of: its value by `key`, of a results frame whose rows are in order of sessions.
        group: heading over this and neighbouring columns.
    """

    key: str
    heading: str
    title: str
    latex: str
    better: Literal["highest", "lowest", "none"]
    unit: Unit
    of: Callable[[pd.DataFrame], pd.Series]
    group: str = ""

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


def _sum(frame: pd.DataFrame, *columns: str) -> pd.Series:
    return frame[list(columns)].sum(axis="columns").groupby(frame["key"], sort=False).sum()


def _average(frame: pd.DataFrame) -> pd.Series:
    return frame.groupby("key", sort=False)["accuracy"].mean()


def _retention(frame: pd.DataFrame) -> pd.Series:
    first = _first(frame, "accuracy")
    return _last(frame, "accuracy") / first.where(first > 0)


def _forgetting(frame: pd.DataFrame) -> pd.Series:
    last = _last(frame, "base")
    earlier = frame[frame.duplicated("key", keep="last")]
    best = earlier.groupby("key", sort=False)["base"].max().reindex(last.index)
    return (best - last).where(best.notna(), 0.0)


def _percent(
    of: Callable[[pd.DataFrame], pd.Series],
) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: 100 * of(frame)


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

MEASURES: Mapping[str, Measure] = {
    measure.key: measure
    for measure in (
        Measure(
            "first",
            "First",
            "accuracy in the base session",
            "First $= A_0$.",
            "highest",
            "%",
            _percent(lambda frame: _first(frame, "accuracy")),
        ),
        Measure(
            "last",
            "Last",
            "accuracy after the last session",
            "Last $= A_T$.",
            "highest",
            "%",
            _percent(lambda frame: _last(frame, "accuracy")),
        ),
        Measure(
            "average",
            "Avg",
            "average accuracy over sessions",
            r"Avg $= (A_0 + \dots + A_T) / (T + 1)$.",
            "highest",
            "%",
            _percent(_average),
        ),
        Measure(
            "performance_drop",
            "PD",
            "performance drop",
            "PD $= A_0 - A_T$, in percentage points (lower is better).",
            "lowest",
            "points",
            _percent(lambda frame: _first(frame, "accuracy") - _last(frame, "accuracy")),
        ),
        Measure(
            "performance_retention",
            "PR",
            "performance retention",
            r"PR $= A_T / A_0$, in \%.",
            "highest",
            "%",
            _percent(_retention),
        ),
        Measure(
            "last_base",
            "Base",
            "last session's accuracy on base classes",
            "Base is $A_T$ counted over test images of base classes alone.",
            "highest",
            "%",
            _percent(lambda frame: _last(frame, "base")),
            _LAST,
        ),
        Measure(
            "last_new",
            "New",
            "last session's accuracy on new classes",
            "New is $A_T$ counted over test images of all later classes alone.",
            "highest",
            "%",
            _percent(lambda frame: _last(frame, "new")),
            _LAST,
        ),
        Measure(
            "last_harmonic",
            "HM",
            "harmonic mean",
            r"HM $= 2 \cdot \mathrm{Base} \cdot \mathrm{New} / (\mathrm{Base} + \mathrm{New})$.",
            "highest",
            "%",
            _percent(lambda frame: _last(frame, "harmonic")),
            _LAST,
        ),
        Measure(
            "base_forgetting",
            "Forgetting",
            "forgetting of base classes",
            "Forgetting is the highest Base of the sessions before the last minus the last, in "
            "percentage points (Chaudhry et al., 2018, eq. 3; lower is better).",
            "lowest",
            "points",
            _percent(_forgetting),
        ),
        Measure(
            "seconds",
            "Seconds",
            "seconds of all sessions",
            "Seconds are those of learning and scoring in all sessions (lower is better).",
            "lowest",
            "s",
            lambda frame: _sum(frame, "learn_seconds", "score_seconds"),
        ),
        Measure(
            "bytes",
            "Bytes",
            "bytes stored",
            "Bytes are what the method keeps after the last session (lower is better).",
            "lowest",
            "bytes",
            lambda frame: _last(frame, "state_bytes"),
        ),
    )
}
"""By key, in the order of columns."""


def formulas(*keys: str) -> list[str]:
    """Return what a table with these measures says of them, in LaTeX."""
    return [ACCURACY, *(MEASURES[key].latex for key in keys), INTERVAL]
