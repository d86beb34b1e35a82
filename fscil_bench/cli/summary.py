"""What is said of runs when they end: a line each, and a table of what differs in chance alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fscil_bench.metrics import average_accuracy, mean_interval
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.tables import NOTHING, UNBOUNDED, escape_markdown, mean_text
from fscil_bench.running.commands import named_with_changes
from fscil_bench.spec import RunSpec, brought_title
from fscil_bench.store.runs import StoredRun

FIGURES: dict[str, Callable[[StoredRun], float]] = {
    "last": lambda run: run.accuracies[-1],
    "avg": lambda run: average_accuracy(run.accuracies),
    "base": lambda run: run.metrics[-1].base,
    "new": lambda run: run.metrics[-1].new,
    "HM": lambda run: run.metrics[-1].harmonic,
}
"""Column -> figure of a run; all but `avg` of the last session."""


def summary_line(stored: StoredRun) -> str:
    """Return a run's last session in a line, with its folder."""
    last = stored.metrics[-1]
    return (
        f"last session {100 * last.accuracy:.2f} % (base {100 * last.base:.2f}, new "
        f"{100 * last.new:.2f}) of {last.images} test images in {last.classes} classes  "
        f"[{stored.folder}]"
    )


def alarms(stored: StoredRun, registry: Registry) -> list[str]:
    """Return what tells that a run's method did less than it was asked for, or learnt nothing."""
    spec, first = stored.spec, stored.metrics[0]
    meanings = getattr(registry.get("method", spec.method).value, "alarms", {})
    told = [
        f"{name} = {stored.record.notes[name]}: {meaning}"
        for name, meaning in meanings.items()
        if stored.record.notes.get(name)
    ]
    if first.hardly_above_chance:
        told.append(
            f"session 0: {100 * first.accuracy:.2f} % of {first.classes} classes, where chance is "
            f"{100 / first.classes:.2f} %: hardly anything was learnt; {_remedy(spec)}"
        )
    return [f"{spec.method} on {spec.protocol.name}: {line}" for line in told]


def _remedy(spec: RunSpec) -> str:
    trained = not spec.representation.network and spec.representation.recipe.epochs
    recipe = "more --epochs, another --recipe lr=... or " if trained else ""
    return f"{recipe}other values of the method's parameters may help"


def summary_table(runs: Sequence[StoredRun], registry: Registry) -> str:
    """Return a Markdown table of runs: mean and 95 % interval over seeds, accuracies in %."""
    rows: dict[str, list[StoredRun]] = {}
    for run in runs:
        rows.setdefault(run.spec.row, []).append(run)
    lines = [
        f"| protocol | representation | method | runs | {' | '.join(FIGURES)} |",
        "|---|---|---|---:|" + "---:|" * len(FIGURES),
    ]
    for own in rows.values():
        spec = own[0].spec
        cells = [
            spec.protocol.name,
            _brought(spec),
            named_with_changes(spec, registry),
            str(len(own)),
        ]
        cells += [_cell([figure(run) for run in own]) for figure in FIGURES.values()]
        lines.append(f"| {' | '.join(map(escape_markdown, cells))} |")
    unbounded = any(f"± {NOTHING}" in line for line in lines)
    return "\n".join([*lines, *(["", UNBOUNDED] if unbounded else [])])


def _brought(spec: RunSpec) -> str:
    name = brought_title(spec.representation)
    return name if spec.views == "plain" else f"{name} + {spec.views}"


def _cell(values: Sequence[float]) -> str:
    found = mean_interval([100 * value for value in values])
    return mean_text(found.mean, found.half_width)
