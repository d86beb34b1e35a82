"""What distribution calibration costs: bytes and seconds, against recurrent steps and classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.facts import human_bytes
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import number

from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure, told
from .terms import StudyParams, Terms
from .values import FLOAT, busy_remarks, once, one_machine, points
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
    "seeds; learning in the last session, and in all sessions after the base session."
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

    def variants(self, terms: Terms[CostParams]) -> dict[str, Variant]:
        """Return LDC with 0 to `steps` recurrent steps, and Free-Lunch.

        Raises:
            UsageError: the protocol has no sessions, in which anything could cost anything.
        """
        if terms.protocol.sessions == 0:
            raise UsageError(
                f"cost compares few-shot sessions, and protocol {terms.protocol.name!r} has none"
            )
        # R as LDC is set stands for LDC in the comparison with Free-Lunch.
        counts = sorted({*range(terms.params.steps + 1), terms.recurrent_steps})
        ldc = {_name(r): terms.complete(recurrent_steps=r) for r in counts}
        return ldc | {FREE_LUNCH: terms.free_lunch()}

    def findings(self, terms: Terms[CostParams], shelf: Shelf) -> Findings:
        """Return bytes and seconds of both methods."""
        made = {name: own for name, own in shelf.named().items() if len(own)}
        covariances = {FREE_LUNCH: _free_lunch_bytes(terms)}
        runs = {
            name: _stored(name, own, covariances.get(name, FLOAT * terms.dim**2))
            for name, own in one_machine(made).items()
        }
        left = sum(int(own["learning"].isna().sum()) for own in runs.values())
        machines = [f"{left} runs of other machines count in no time."] if left else []
        note = NOTE.format(dim=terms.dim, base=terms.protocol.base_classes)
        return Findings(
            [
                Notes(_sentences(terms, runs)),
                Section("Memory and time", [interval_table(self.name, runs, COLUMNS, note)]),
                _figure(terms, runs),
            ],
            runs,
            [*machines, *busy_remarks(runs)],
        )


def _name(steps: int) -> str:
    return f"ldc, R = {steps}"


def _free_lunch_bytes(terms: Terms[CostParams]) -> int:
    """Return the bytes of Free-Lunch's stored covariances: of all base classes, or its budget."""
    given = settings(terms.params.free_lunch_set)
    params = typed_params(FREE_LUNCH, given, terms.protocol, terms.registry)
    whole = FLOAT * terms.dim**2 * terms.protocol.base_classes
    return min(whole, params.byte_budget or whole)


def _stored(name: str, runs: pd.DataFrame, covariance: int) -> pd.DataFrame:
    """Return runs with what their method stores, in KiB, and the seconds of the unit's training."""
    run = runs.iloc[0]
    # Once for all seeds; the least, if oftener: other work on the machine only adds to it.
    unit = runs["pretrain_seconds"].min() if name != FREE_LUNCH else math.nan
    stored = {
        "covariance": covariance,
        "state_base": run["state_0"],
        "state_last": run["bytes"],
        "class_bytes": run["class_bytes"],
        "kept": run["fixed_bytes"],
    }
    columns = {key: once(runs, count / KIB) for key, count in stored.items()}
    return runs.assign(**columns, unit=once(runs, unit))


def _sentences(terms: Terms[CostParams], runs: Runs) -> list[str]:
    sentences = []
    own, figure = _name(terms.recurrent_steps), "learning time over all sessions"
    if own in runs and FREE_LUNCH in runs:
        one, many = (int(KIB * runs[name]["covariance"].iloc[0]) for name in (own, FREE_LUNCH))
        sentences.append(
            f"Covariances take {human_bytes(one)} in ldc, however many classes were seen, and "
            f"{human_bytes(many)} in free_lunch: {number(many / one)} times as many."
        )
        sentences += told(runs, [(own, FREE_LUNCH)], "learning", figure, "seconds")
    steps = [name for name in runs if name != FREE_LUNCH]
    if len(steps) > 1:
        fewest, most = steps[0], steps[-1]
        sizes = [int(runs[name]["fixed_bytes"].iloc[0]) for name in (fewest, most)]
        sentences.append(
            f"From {fewest} to {most} what ldc stores beside its classes grows by "
            f"{max(sizes) - min(sizes):,} bytes."
        )
        sentences += told(runs, [(most, fewest)], "learning", figure, "seconds")
    return sentences


def _figure(terms: Terms[CostParams], runs: Runs) -> Figure:
    recurrent, classes = "Recurrent steps R", "Classes seen"
    named = {"ldc": _name(terms.recurrent_steps), FREE_LUNCH: FREE_LUNCH}
    compared = {label: runs[name] for label, name in named.items() if name in runs}
    stored = _stored_by_class(terms, compared)
    sessions = {n: f"learn_{t}" for t, n in enumerate(terms.seen) if t}
    drawn = {
        "what LDC keeps beside its classes (covariance and unit, measured) and Free-Lunch's "
        "covariances, which have no R": Panel(
            recurrent, "Covariance, unit (KiB)", _by_step(runs, "kept", "covariance"), log=True
        ),
        "covariances, the whole state, and one covariance for each class seen, 4·C·D² bytes, for "
        "comparison": Panel(classes, "Stored (KiB)", stored, log=True),
        "seconds of learning in all sessions after the base session": Panel(
            recurrent, "Learning, all sessions (s)", _by_step(runs, "learning", "learning")
        ),
        "the same session by session": Panel(
            classes, "Learning, a session (s)", points(compared, sessions)
        ),
    }
    note = f"R = {terms.recurrent_steps} against classes seen; bands are 95 % intervals over seeds."
    return panel_figure("cost-curves", drawn, note)


def _by_step(runs: Runs, of_ldc: str, of_rival: str) -> pd.DataFrame:
    """Return a column of LDC by R, and one of Free-Lunch, which has no R, at the same places."""
    steps = {int(name.split()[-1]): own for name, own in runs.items() if name != FREE_LUNCH}
    drawn = {"ldc": {r: own[of_ldc] for r, own in steps.items()}}
    if FREE_LUNCH in runs:
        drawn[FREE_LUNCH] = dict.fromkeys(steps, runs[FREE_LUNCH][of_rival])
    return points(drawn)


def _stored_by_class(terms: Terms[CostParams], compared: Runs) -> pd.DataFrame:
    drawn: dict[str, dict[int, pd.Series]] = {}
    for label, own in compared.items():
        drawn[label] = dict.fromkeys(terms.seen, own["covariance"])
        states = enumerate(terms.seen)
        whole = {n: once(own, own[f"state_{t}"].iloc[0] / KIB) for t, n in states}
        drawn[f"{label}, whole state"] = whole
    if drawn:
        every = {n: pd.Series([FLOAT * n * terms.dim**2 / KIB]) for n in terms.seen}
        drawn["a covariance a class"] = every
    return points(drawn)
