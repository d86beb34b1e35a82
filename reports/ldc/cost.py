"""What distribution calibration costs: bytes and seconds, against recurrent steps and classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.metrics import Interval
from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.facts import human_bytes
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import difference_sentence, number

from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure
from .terms import StudyParams, Terms
from .values import FLOAT, busy_remarks, curves, difference, interval, once, one_machine, point
from .variants import Variant, settings, typed_params

KIB = 1024
FREE_LUNCH = "free_lunch"
Runs = Mapping[str, pd.DataFrame]
"""By name: `ldc, R = 0`, …, and Free-Lunch."""

COLUMNS = (
    Column("covariance", "Covariance", "Stored (KiB)", best="lowest"),
    Column("state_base", "All, base", "Stored (KiB)", best="lowest"),
    Column("state_last", "All, last", "Stored (KiB)", best="lowest"),
    Column("class_bytes", "A new class", "Stored (KiB)", best="lowest"),
    Column("unit", "Unit", "Seconds"),
    Column("last_learning", "Last session", "Seconds", best="lowest"),
    Column("learning", "All sessions", "Seconds", best="lowest"),
)
NOTE = (
    "Stored, in KiB: covariances, 4·D² bytes for LDC's one and 4·C0·D² for Free-Lunch's of the C0 "
    "base classes (D = {dim}, C0 = {base}); everything that is kept, after the base session and "
    "after the last, and for each new class, measured on the method's state. Seconds of wall-clock "
    "time on one machine, whatever else it was doing: training the calibration unit, once for all "
    "seeds; learning in the last session, and in all sessions after the base session, ± the "
    "half-width of the 95 % Student-t interval over n seeds."
)


@dataclass(frozen=True)
class CostParams(StudyParams):
    """Parameters of the report.

    Attributes:
        steps: the most recurrent steps R that are tried, beginning with 0.
    """

    steps: Annotated[int, Field(ge=1)] = 5


class Cost(Study):
    """Memory and time of LDC and Free-Lunch against recurrent steps and classes seen."""

    name = "cost"
    title = "What calibration costs"
    Params = CostParams

    def variants(self, terms: Terms, params: CostParams) -> list[Variant]:
        """Return LDC with 0 to `steps` recurrent steps, and Free-Lunch.

        Raises:
            UsageError: the protocol has no sessions, in which anything could cost anything.
        """
        if terms.protocol.sessions == 0:
            raise UsageError(
                f"cost compares few-shot sessions, and protocol {terms.protocol.name!r} has none"
            )
        return [*_ldc(terms, params).values(), terms.free_lunch()]

    def findings(self, terms: Terms, shelf: Shelf, params: CostParams) -> Findings:
        """Return bytes and seconds of both methods."""
        ldc = _ldc(terms, params).items()
        runs = {_name(r): shelf.runs(variant).assign(steps=r) for r, variant in ldc}
        runs[FREE_LUNCH] = shelf.runs(terms.free_lunch())
        runs = one_machine({name: own for name, own in runs.items() if len(own)})
        runs = {name: _stored(name, own, terms) for name, own in runs.items()}
        left = sum(int(own["learning"].isna().sum()) for own in runs.values())
        machines = [f"{left} runs of other machines count in no time."] if left else []
        note = NOTE.format(dim=terms.dim, base=terms.protocol.base_classes)
        return Findings(
            [
                Notes(_sentences(terms, runs)),
                Section("Memory and time", [interval_table("cost", runs, COLUMNS, note)]),
                _figure(terms, runs),
            ],
            runs,
            [*machines, *busy_remarks(runs)],
        )


def _ldc(terms: Terms, params: CostParams) -> dict[int, Variant]:
    # R as LDC is set stands for LDC in the comparison with Free-Lunch.
    counts = sorted({*range(params.steps + 1), terms.recurrent_steps})
    return {r: terms.complete(recurrent_steps=r) for r in counts}


def _name(steps: int) -> str:
    return f"ldc, R = {steps}"


def _covariance_bytes(name: str, terms: Terms) -> int:
    """Return the bytes of a method's stored covariances: all that it keeps, or its budget."""
    one = FLOAT * terms.dim**2
    if name != FREE_LUNCH:
        return one
    given = settings(terms.params.free_lunch_set)
    params = typed_params(FREE_LUNCH, given, terms.protocol, terms.registry)
    whole = one * terms.protocol.base_classes
    return min(whole, params.byte_budget or whole)


def _stored(name: str, runs: pd.DataFrame, terms: Terms) -> pd.DataFrame:
    """Return runs with what their method stores, in KiB, and the seconds of the unit's training."""
    run = runs.iloc[0]
    # Once for all seeds; the least, if oftener: other work on the machine only adds to it.
    unit = runs["pretrain_seconds"].min() if name != FREE_LUNCH else math.nan
    stored = {
        "covariance": _covariance_bytes(name, terms),
        "state_base": run["state_0"],
        "state_last": run["bytes"],
        "class_bytes": run["class_bytes"],
    }
    columns = {key: once(runs, count / KIB) for key, count in stored.items()}
    return runs.assign(**columns, unit=once(runs, unit))


def _sentences(terms: Terms, runs: Runs) -> list[str]:
    sentences = []
    own, figure = _name(terms.recurrent_steps), "learning time over all sessions"
    if own in runs and FREE_LUNCH in runs:
        one, many = (_covariance_bytes(name, terms) for name in (own, FREE_LUNCH))
        sentences.append(
            f"Covariances take {human_bytes(one)} in ldc, however many classes were seen, and "
            f"{human_bytes(many)} in free_lunch: {number(many / one)} times as many."
        )
        slower = difference(runs[own], runs[FREE_LUNCH], "learning")
        sentences.append(difference_sentence(own, FREE_LUNCH, figure, slower, "seconds"))
    steps = [name for name in runs if name != FREE_LUNCH]
    if len(steps) > 1:
        fewest, most = steps[0], steps[-1]
        sizes = [int(runs[name]["fixed_bytes"].iloc[0]) for name in (fewest, most)]
        sentences.append(
            f"From {fewest} to {most} what ldc stores beside its classes grows by "
            f"{max(sizes) - min(sizes):,} bytes."
        )
        slower = difference(runs[most], runs[fewest], "learning")
        sentences.append(difference_sentence(most, fewest, figure, slower, "seconds"))
    return sentences


def _figure(terms: Terms, runs: Runs) -> Figure:
    seen = [terms.protocol.classes_seen(t) for t in range(terms.protocol.sessions + 1)]
    recurrent, classes = "Recurrent steps R", "Classes seen"
    panels = [
        Panel(recurrent, "Covariance, unit (KiB)", _memory_by_step(terms, runs), log=True),
        Panel(classes, "Stored (KiB)", _memory_by_class(terms, runs, seen), log=True),
        Panel(recurrent, "Learning, all sessions (s)", _time_by_step(runs)),
        Panel(classes, "Learning, a session (s)", _time_by_class(terms, runs, seen)),
    ]
    caption = (
        "Above, memory: (a) what LDC keeps beside its classes (covariance and unit, measured) and "
        "Free-Lunch's covariances, which have no R; (b) covariances, the whole state, and one "
        "covariance for each class seen, 4·C·D² bytes, for comparison. LDC has R = "
        f"{terms.recurrent_steps} there. Below, time: (c) learning in all sessions after the base "
        "session, (d) in each; bands are 95 % intervals over seeds."
    )
    return panel_figure("cost-curves", panels, caption)


def _ldc_by_steps(runs: Runs) -> dict[int, pd.DataFrame]:
    return {int(own["steps"].iloc[0]): own for n, own in runs.items() if n != FREE_LUNCH}


def _memory_by_step(terms: Terms, runs: Runs) -> pd.DataFrame:
    steps = _ldc_by_steps(runs)
    drawn = {"ldc": {r: point(own["fixed_bytes"].iloc[0] / KIB) for r, own in steps.items()}}
    if FREE_LUNCH in runs:
        drawn[FREE_LUNCH] = dict.fromkeys(steps, point(_covariance_bytes(FREE_LUNCH, terms) / KIB))
    return curves(drawn)


def _memory_by_class(terms: Terms, runs: Runs, seen: Sequence[int]) -> pd.DataFrame:
    drawn: dict[str, dict[int, Interval]] = {}
    for label, own in _compared(terms, runs).items():
        covariance = point(_covariance_bytes(label, terms) / KIB)
        drawn[label] = dict.fromkeys(seen, covariance)
        state = {n: point(own[f"state_{t}"].iloc[0] / KIB) for t, n in enumerate(seen)}
        drawn[f"{label}, whole state"] = state
    if drawn:
        every = {n: point(FLOAT * n * terms.dim**2 / KIB) for n in seen}
        drawn["a covariance a class"] = every
    return curves(drawn)


def _time_by_step(runs: Runs) -> pd.DataFrame:
    steps = _ldc_by_steps(runs)
    drawn = {"ldc": {r: interval(own, "learning") for r, own in steps.items()}}
    if FREE_LUNCH in runs:
        drawn[FREE_LUNCH] = dict.fromkeys(steps, interval(runs[FREE_LUNCH], "learning"))
    return curves(drawn)


def _time_by_class(terms: Terms, runs: Runs, seen: Sequence[int]) -> pd.DataFrame:
    return curves(
        {
            label: {n: interval(own, f"learn_{t}") for t, n in enumerate(seen) if t}
            for label, own in _compared(terms, runs).items()
        }
    )


def _compared(terms: Terms, runs: Runs) -> dict[str, pd.DataFrame]:
    """Return LDC as it is set, and Free-Lunch, as far as they have runs."""
    named = {"ldc": _name(terms.recurrent_steps), FREE_LUNCH: FREE_LUNCH}
    return {label: runs[name] for label, name in named.items() if name in runs}
