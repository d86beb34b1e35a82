"""The rows that a report of one protocol draws, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fscil_bench.errors import FscilError, StoreError, UsageError, nearest
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import ReportInput
from fscil_bench.running.sessions import SPLITS, outlier_fraction
from fscil_bench.store.runs import StoredRun

from ._missing import plain_command
from ._readable import readable
from ._rows import Row, chosen_runs, group_rows
from ._selectors import chosen_rows
from ._usual import usual_rows

Choice = Callable[[Sequence[Row], Registry], list[Row]]
"""Which of a protocol's rows are meant where none is asked for by its own terms."""

FIRST_METHOD = "ncm"
"""What to run where nothing is stored: it takes seconds once the network is trained."""

FIRST_PROTOCOL = "glyphs"
"""What to run it on: no data are needed."""


def rows_of_protocol(report: str, given: ReportInput, rows: str) -> tuple[list[Row], list[str]]:
    """Return the rows that were asked for, best last session first, and what is wrong with others.

    Args:
        report: its name, for messages.
        given: the runs and the selection.
        rows: selectors of rows, with `;` between; empty takes all rows of the selection.

    Raises:
        UsageError: no protocol was named, or a name or row that is not there.
        FscilError: nothing stored fits; the message gives a command that would make a run.
        StoreError: nothing that fits can be read.
    """
    good, problems = readable(_asked_runs(report, given), lambda run: run.metrics)
    problems = [*given.unread_runs, *problems]
    if not good:
        raise StoreError("no run can be read; " + "; ".join(problems))
    found = chosen_rows(group_rows(good, given.registry), rows, given.registry)
    return sorted(found, key=_last_accuracy, reverse=True), problems


def meant_rows(
    report: str, given: ReportInput, rows: str, every: bool, choose: Choice = usual_rows
) -> tuple[list[Row], list[str], list[str]]:
    """Return the rows that are meant, a note on those left out, and what is wrong with others.

    Where neither `rows` nor a split is asked for, nor `every` row, these are what `choose` takes:
    after a few studies a method has dozens of rows, which its name alone does not mean.

    Raises:
        UsageError: as `rows_of_protocol` does, and the other errors too.
    """
    found, problems = rows_of_protocol(report, given, rows)
    named = every or rows.strip() or given.selection.split
    kept = found if named else choose(found, given.registry)
    count = len(found) - len(kept)
    note = (
        f"{count} more {'row is' if count == 1 else 'rows are'} stored, with parameters set by "
        "hand or on other terms than the protocol's: shots, sessions, class order or recipe "
        "(--set all=true takes them too, --set rows=... some of them)."
    )
    return kept, [note] if count else [], problems


def _last_accuracy(row: Row) -> float:
    return row.interval(lambda run: run.accuracies[-1]).mean


def _asked_runs(report: str, given: ReportInput) -> list[StoredRun]:
    selection = given.selection
    stored = ", ".join(sorted({run.spec.protocol.name for run in given.runs})) or "none"
    if selection.protocol is None:
        raise UsageError(f"{report} shows one protocol: name it with --protocol; stored: {stored}")
    runs = chosen_runs(given.runs, selection)
    if runs:
        return runs
    _check_names(given)
    methods = selection.methods or (FIRST_METHOD,)
    brought = next(iter(selection.representations), None)
    seed = next(iter(selection.seeds), 0)
    raise FscilError(
        f"no stored run fits protocol {selection.protocol!r} and what else was asked for "
        f"(protocols with runs: {stored}); make one: "
        f"{plain_command(methods[0], selection, brought, seed, given.registry)}"
    )


def _check_names(given: ReportInput) -> None:
    """Refuse names that are neither stored nor registered: no command could make their runs."""
    stored = {"protocol": {run.spec.protocol.name for run in given.runs}}
    stored["method"] = {run.spec.method for run in given.runs}
    stored["representation"] = {run.spec.representation.name for run in given.runs}
    selection = given.selection
    asked = {
        "protocol": (selection.protocol or "",),
        "method": selection.methods,
        "representation": selection.representations,
    }
    split, splits = selection.split, {*SPLITS, *(run.spec.split for run in given.runs)}
    if split is not None and outlier_fraction(split) is None and split not in splits:
        raise UsageError(f"unknown split {split!r}; {nearest(split, splits)}")
    for kind, names in asked.items():
        known = stored[kind] | set(given.registry.names(kind))
        for name in names:
            if name not in known:
                raise UsageError(f"unknown {kind} {name!r}; {nearest(name, known)}")
