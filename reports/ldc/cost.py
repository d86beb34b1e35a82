"""What distribution calibration costs: bytes and seconds, against recurrent steps and classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.report import ReportInput
from fscil_bench.store.runs import StoredRun

from ._claims import number
from ._cost_figure import FREE_LUNCH, KIB, Runs, cost_drawing, covariance_bytes
from ._costs import (
    busy_remarks,
    class_bytes,
    fixed_bytes,
    learning_seconds,
    one_machine,
    unit_seconds,
)
from ._facts import human_bytes
from ._panels import point
from ._rows import Row
from ._run_values import difference, over_runs
from ._sentences import difference_sentence
from ._shelf import Shelf
from ._study import Findings, Study, Table
from ._tables import Column, TableRow
from ._terms import StudyParams, Terms
from ._variants import Variant

COLUMNS = (
    Column("covariance", "Covariance", "Stored (KiB)", "lowest"),
    Column("state_base", "All, base", "Stored (KiB)", "lowest"),
    Column("state_last", "All, last", "Stored (KiB)", "lowest"),
    Column("class_bytes", "A new class", "Stored (KiB)", "lowest"),
    Column("unit", "Unit", "Seconds", "none"),
    Column("session", "Last session", "Seconds", "lowest"),
    Column("sessions", "All sessions", "Seconds", "lowest"),
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

    params: CostParams

    def variants(self, terms: Terms) -> list[Variant]:
        """Return LDC with 0 to `steps` recurrent steps, and Free-Lunch.

        Raises:
            UsageError: the protocol has no sessions, in which anything could cost anything.
        """
        if terms.protocol.sessions == 0:
            raise UsageError(
                f"cost compares few-shot sessions, and protocol {terms.protocol.name!r} has none"
            )
        return [*self._ldc(terms).values(), terms.free_lunch()]

    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return bytes and seconds of both methods."""
        del given
        runs = {f"ldc, R = {r}": shelf.runs(variant) for r, variant in self._ldc(terms).items()}
        runs[FREE_LUNCH] = shelf.runs(terms.free_lunch())
        runs = {name: own for name, own in runs.items() if own}
        timed = one_machine(runs)
        note = NOTE.format(dim=terms.dim, base=terms.protocol.base_classes)
        rows = [_row(name, own, timed[name], terms) for name, own in runs.items()]
        own_steps = f"ldc, R = {terms.recurrent_steps}"
        drawing = cost_drawing(terms, runs, timed, own_steps)
        shown = [Row(tuple(own.values()), name) for name, own in runs.items()]
        remarks = [*_machines(runs, timed), *busy_remarks(timed)]
        table = Table("cost", "Memory and time", note, COLUMNS, rows)
        sentences = _sentences(terms, runs, timed, own_steps)
        return Findings(sentences, [table], [drawing], shown, remarks)

    def _ldc(self, terms: Terms) -> dict[int, Variant]:
        # R as LDC is set stands for LDC in the comparison with Free-Lunch.
        counts = sorted({*range(self.params.steps + 1), terms.recurrent_steps})
        return {r: terms.complete(recurrent_steps=r) for r in counts}


def _row(name: str, own: Runs, timed: Runs, terms: Terms) -> TableRow:
    run = next(iter(own.values()))
    first, last = run.record.sessions[0], run.record.sessions[-1]
    stored = {
        "covariance": covariance_bytes(run, terms),
        "state_base": first.state_bytes,
        "state_last": last.state_bytes,
        "class_bytes": class_bytes(run)[-1],
    }
    cells = {key: point(count / KIB) for key, count in stored.items()}
    if timed:
        cells["session"] = over_runs(timed, _last_seconds)
        cells["sessions"] = over_runs(timed, learning_seconds)
        if name != FREE_LUNCH:
            cells["unit"] = point(unit_seconds(timed))
    return TableRow(name, len(own), cells)


def _last_seconds(run: StoredRun) -> float:
    return run.record.sessions[-1].learn_seconds


def _machines(runs: Mapping[str, Runs], timed: Mapping[str, Runs]) -> list[str]:
    left = sum(map(len, runs.values())) - sum(map(len, timed.values()))
    return [f"{left} runs of other machines count in no time."] if left else []


def _sentences(
    terms: Terms, runs: Mapping[str, Runs], timed: Mapping[str, Runs], own: str
) -> list[str]:
    sentences = []
    ldc, rival = runs.get(own), runs.get(FREE_LUNCH)
    if ldc and rival:
        one, many = (covariance_bytes(next(iter(r.values())), terms) for r in (ldc, rival))
        sentences.append(
            f"Covariances take {human_bytes(one)} in ldc, however many classes were seen, and "
            f"{human_bytes(many)} in free_lunch: {number(many / one)} times as many."
        )
        ours, theirs = timed[own], timed[FREE_LUNCH]
        interval = difference(ours, theirs, learning_seconds)
        figure = "learning time over all sessions"
        sentences.append(difference_sentence(own, FREE_LUNCH, figure, interval, "seconds"))
    steps = [name for name in runs if name != FREE_LUNCH]
    if len(steps) > 1:
        fewest, most = steps[0], steps[-1]
        sizes = {fixed_bytes(next(iter(runs[name].values()))) for name in (fewest, most)}
        grown = max(sizes) - min(sizes)
        sentences.append(
            f"From {fewest} to {most} what ldc stores beside its classes grows by {grown:,} bytes."
        )
        interval = difference(timed[most], timed[fewest], learning_seconds)
        figure = "learning time over all sessions"
        sentences.append(difference_sentence(most, fewest, figure, interval, "seconds"))
    return sentences
