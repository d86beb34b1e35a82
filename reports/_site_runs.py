"""What the pages of rows and runs show beside the leaderboard's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fscil_bench.metrics import Interval, SessionMetrics
from fscil_bench.plugins.registry import Registry
from fscil_bench.running.commands import command_for
from fscil_bench.store.runs import RunRecord, SessionRecord, StoredRun

from ._facts import image_facts
from ._rows import Row

Facts = Sequence[Sequence[str]]


@dataclass(frozen=True)
class RunPage:
    """What the page of a run shows; facts are a name and a text each.

    Attributes:
        row: what its table row is called, and `shown` whether it averages this run.
        sessions: what each session cost and reached.
        images: how many images a class the data had.
    """

    run: StoredRun
    row: str
    shown: bool
    command: str
    sessions: Sequence[tuple[SessionRecord, SessionMetrics]]
    images: Facts
    notes: Facts
    environment: Facts
    spec: Facts
    log: Facts


def run_page(run: StoredRun, row: Row, registry: Registry) -> RunPage:
    """Return what the page of a run shows; `row` is the table row of its kind."""
    record = run.record
    return RunPage(
        run=run,
        row=row.label,
        shown=run in row.runs,
        command=command_for(run.spec, registry),
        sessions=list(zip(record.sessions, run.metrics, strict=True)),
        images=[text.split(": ", 1) for text in image_facts(run.spec, [record]).values()],
        notes=list(flat(record.notes)),
        environment=list(flat(record.environment)),
        spec=list(flat(record.spec.model_dump(mode="json"))),
        log=list(flat(record.representation_log)),
    )


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) for each value of nested mappings; long lists are shortened."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _text(value)


def session_intervals(row: Row) -> list[tuple[int, int, dict[str, Interval]]]:
    """Return session, classes seen and intervals in percent for each session of a row."""

    def of(session: int, name: str) -> Interval:
        return row.interval(lambda run: 100 * float(getattr(run.metrics[session], name)))

    names = ("accuracy", "base", "new", "latest", "harmonic")
    return [
        (s.index, s.classes_seen, {name: of(s.index, name) for name in names})
        for s in row.runs[0].record.sessions
    ]


def class_sessions(record: RunRecord) -> list[tuple[str, Sequence[str]]]:
    """Return a heading and the class names of each session, the base session first."""
    protocol, names = record.spec.protocol, record.class_names
    return [
        (f"Session {t}" if t else "Base session", [names[c] for c in protocol.session_classes(t)])
        for t in range(protocol.sessions + 1)
    ]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        texts = [_text(each) for each in value]
        if len(texts) > 8:
            return f"{', '.join(texts[:3])}, … {texts[-1]} ({len(texts)} values)"
        return ", ".join(texts) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None or value in ("", {}):
        return "none"
    return str(value)
