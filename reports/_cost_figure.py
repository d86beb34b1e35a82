"""The figure of the cost study: memory and time against recurrent steps and classes seen."""

from __future__ import annotations

from collections.abc import Mapping

from fscil_bench.metrics import Interval
from fscil_bench.store.runs import StoredRun

from ._costs import FLOAT, fixed_bytes, learning_seconds
from ._figures import Curve
from ._panels import Panel, panel_figure, panel_lines, point
from ._run_values import over_runs
from ._study import Drawing
from ._terms import Terms

Runs = Mapping[int, StoredRun]

KIB = 1024
FREE_LUNCH = "free_lunch"


def covariance_bytes(run: StoredRun, terms: Terms) -> int:
    """Return the bytes of a run's stored covariances: all that it keeps of them, or its budget."""
    if run.spec.method != FREE_LUNCH:
        return FLOAT * terms.dim**2
    whole = FLOAT * terms.protocol.base_classes * terms.dim**2
    return min(whole, int(run.spec.params.get("byte_budget", 0)) or whole)


def cost_drawing(
    terms: Terms, runs: Mapping[str, Runs], timed: Mapping[str, Runs], own: str
) -> Drawing:
    """Return the figure.

    Args:
        terms: of the study.
        runs: by name: `ldc, R = 0`, ..., and Free-Lunch.
        timed: those whose times compare, under the same names.
        own: the name of LDC as it is set.
    """
    steps = {name: float(name.rpartition(" ")[2]) for name in runs if name != FREE_LUNCH}
    compared = {"ldc": runs.get(own, {}), FREE_LUNCH: runs.get(FREE_LUNCH, {})}
    clocked = {"ldc": timed.get(own, {}), FREE_LUNCH: timed.get(FREE_LUNCH, {})}
    recurrent, seen = "Recurrent steps R", "Classes seen"
    panels = [
        Panel(recurrent, "Covariance, unit (KiB)", _memory_by_step(terms, runs, steps), log=True),
        Panel(seen, "Stored (KiB)", _memory_by_class(terms, compared), log=True),
        Panel(recurrent, "Learning, all sessions (s)", _time_by_step(timed, steps)),
        Panel(seen, "Learning, a session (s)", _time_by_class(clocked)),
    ]
    panels = [panel for panel in panels if panel.curves]
    caption = (
        "Above, memory: (a) what LDC keeps beside its classes (covariance and unit, measured) and "
        "Free-Lunch's covariances, which have no R; (b) covariances, the whole state, and one "
        f"covariance for each class seen, 4·C·D² bytes, for comparison. LDC has {own[5:]} there. "
        "Below, time: (c) learning in all sessions after the base session, (d) in each; bands are "
        "95 % intervals over seeds."
    )
    lines = panel_lines(panels)
    return Drawing("cost-curves", caption, lambda: panel_figure(panels), lines)


def _memory_by_step(
    terms: Terms, runs: Mapping[str, Runs], steps: Mapping[str, float]
) -> tuple[Curve, ...]:
    kept = [point(fixed_bytes(next(iter(runs[name].values()))) / KIB) for name in steps]
    curves = [Curve("ldc", list(steps.values()), kept)] if steps else []
    if FREE_LUNCH in runs and steps:
        run = next(iter(runs[FREE_LUNCH].values()))
        same = [point(covariance_bytes(run, terms) / KIB)] * len(steps)
        curves.append(Curve(FREE_LUNCH, list(steps.values()), same))
    return tuple(curves)


def _memory_by_class(terms: Terms, runs: Mapping[str, Runs]) -> tuple[Curve, ...]:
    curves: list[Curve] = []
    seen: list[int] = []
    for name, own in runs.items():
        for run in list(own.values())[:1]:
            seen = [session.classes_seen for session in run.record.sessions]
            covariance = [point(covariance_bytes(run, terms) / KIB)] * len(seen)
            state = [point(s.state_bytes / KIB) for s in run.record.sessions]
            curves += [Curve(name, seen, covariance), Curve(f"{name}, whole state", seen, state)]
    if seen:
        every = [point(FLOAT * count * terms.dim**2 / KIB) for count in seen]
        curves.append(Curve("a covariance a class", seen, every))
    return tuple(curves)


def _time_by_step(timed: Mapping[str, Runs], steps: Mapping[str, float]) -> tuple[Curve, ...]:
    measured = {name: over_runs(timed[name], learning_seconds) for name in steps if timed[name]}
    places = [steps[name] for name in measured]
    curves = [Curve("ldc", places, list(measured.values()))] if measured else []
    if timed.get(FREE_LUNCH) and measured:
        same = over_runs(timed[FREE_LUNCH], learning_seconds)
        curves.append(Curve(FREE_LUNCH, places, [same] * len(places)))
    return tuple(curves)


def _time_by_class(timed: Mapping[str, Runs]) -> tuple[Curve, ...]:
    curves = []
    for name, own in timed.items():
        if own:
            sessions = next(iter(own.values())).record.sessions[1:]
            seconds = [_session_seconds(own, session.index) for session in sessions]
            curves.append(Curve(name, [s.classes_seen for s in sessions], seconds))
    return tuple(curves)


def _session_seconds(runs: Runs, index: int) -> Interval:
    return over_runs(runs, lambda run: run.record.sessions[index].learn_seconds)
