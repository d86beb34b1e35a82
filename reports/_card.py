"""What a card says of a table row: its facts by heading, its numbers, and its commands."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fscil_bench.metrics import (
    Interval,
    SessionMetrics,
    average_accuracy,
    base_forgetting,
    performance_drop,
    performance_retention,
)
from fscil_bench.plugins.registry import Registry
from fscil_bench.request import seeds_text
from fscil_bench.running.commands import command_for
from fscil_bench.store.runs import StoredRun

from ._card_facts import card_facts
from ._figures import Curve
from ._rows import Row

PARAGRAPHS = 2
"""Of a method's docstring: its first line, and the paragraph below it."""

SESSION_NUMBERS: Mapping[str, Callable[[SessionMetrics], float]] = {
    "Accuracy": lambda metrics: metrics.accuracy,
    "Base": lambda metrics: metrics.base,
    "New": lambda metrics: metrics.new,
    "HM": lambda metrics: metrics.harmonic,
}
"""What is shown of every session, all in percent."""
SUMMARY: Mapping[str, Callable[[StoredRun], float]] = {
    "Avg": lambda run: average_accuracy(run.accuracies),
    "PD": lambda run: performance_drop(run.accuracies),
    "PR": lambda run: performance_retention(run.accuracies),
    "Base forgetting": lambda run: base_forgetting(run.metrics),
}
"""What sums all sessions up, in percent or percentage points."""


@dataclass(frozen=True)
class CardContent:
    """A card before it is set in Markdown, LaTeX or CSV.

    Attributes:
        title: the row and the protocol.
        about: paragraphs on the method, from its docstring.
        classes_seen: after each session.
        sessions: intervals of every session, in percent, by name.
        summary: intervals over all sessions, by name.
        facts: headings, each with what it says by name.
        commands: what makes the runs.
    """

    title: str
    about: Sequence[str]
    classes_seen: Sequence[int]
    sessions: Mapping[str, Sequence[Interval]]
    summary: Mapping[str, Interval]
    facts: Mapping[str, Mapping[str, str]]
    commands: Sequence[str]


def card_content(row: Row, registry: Registry) -> CardContent:
    """Return what the card of a row says."""
    protocol = row.spec.protocol
    sessions = range(len(row.runs[0].record.sessions))
    return CardContent(
        title=f"{row.label} on {protocol.title} ({protocol.name})",
        about=about_method(row.spec.method, registry),
        classes_seen=[protocol.classes_seen(t) for t in sessions],
        sessions={
            name: [_percent(row, lambda run, t=t, of=of: of(run.metrics[t])) for t in sessions]  # type: ignore[misc]
            for name, of in SESSION_NUMBERS.items()
        },
        summary={name: _percent(row, of) for name, of in SUMMARY.items()},
        facts=card_facts(row, registry),
        commands=row_commands(row, registry),
    )


def card_curves(content: CardContent) -> list[Curve]:
    """Return accuracy on all, base and new classes against the number of classes seen."""
    names = {"all classes": "Accuracy", "base classes": "Base", "new classes": "New"}
    seen = content.classes_seen
    return [Curve(label, seen, content.sessions[name]) for label, name in names.items()]


def about_method(name: str, registry: Registry) -> list[str]:
    """Return the first paragraphs of a method's docstring, each as one line."""
    if name not in registry.names("method"):
        return [f"No method of this name is installed; --plugin gives the file of {name}."]
    text = inspect.cleandoc(registry.get("method", name).value.__doc__ or "No description.")
    # Backticks mark code in docstrings, and mean something else in Markdown and LaTeX.
    parts = text.replace("`", "").split("\n\n")[:PARAGRAPHS]
    return [" ".join(part.split()) for part in parts]


def row_commands(row: Row, registry: Registry) -> list[str]:
    """Return the command lines that make a row's runs, one for each representation seed."""
    commands = []
    for first in sorted({representation_seed for representation_seed, _ in row.axes}):
        own = [run.spec for run in row.runs if run.spec.representation.seed == first]
        words = shlex.split(command_for(own[0], registry))
        words[words.index("--seeds") + 1] = seeds_text([spec.seed for spec in own])
        commands.append(shlex.join(words))
    return commands


def _percent(row: Row, value: Callable[[StoredRun], float]) -> Interval:
    return row.interval(lambda run: 100 * value(run))
