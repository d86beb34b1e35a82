"""The card: one method on one protocol on one page, with all that a reviewer asks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Column, Document, Figure, Notes, Part, Report, Section, Table
from fscil_bench.reporting.choice import Chosen, meant_rows
from fscil_bench.reporting.details import row_details
from fscil_bench.reporting.figures import curves
from fscil_bench.reporting.lacks import lacking_runs
from fscil_bench.reporting.measures import MEASURES, formulas
from fscil_bench.reporting.selectors import HOW
from fscil_bench.reporting.statistics import aggregate
from fscil_bench.reporting.tables import measure_columns
from fscil_bench.running.commands import command_for

MOST = 12
"""Cards that are made at once; a method may have hundreds of rows."""
PARAGRAPHS = 2
"""Of a method's docstring: its first line, and the paragraph below it."""
SESSION = {"accuracy": "Accuracy", "base": "Base", "new": "New", "harmonic": "HM"}
"""What is shown of every session, all in %."""
SUMMARY = ("average", "performance_drop", "performance_retention", "base_forgetting")
CURVES = {"accuracy": "all classes", "base": "base classes", "new": "new classes"}
"""Which of them the figure shows, and what it calls them."""
SESSION_COLUMNS = (
    Column("session", "Session", kind="number", decimals=0),
    Column("classes_seen", "Classes seen", kind="number", decimals=0),
)


class Card(Report):
    """One page for each table row: what it is, its accuracy, its terms, its cost, its identity.

    A method has a row for each set of parameters and settings that it was run with; `rows` chooses
    among them. Runs that differ in their seeds alone are one row, and one card.
    """

    name = "card"
    title = "A method on one page: accuracy, terms, cost, environment, digests, command"

    @dataclass(frozen=True)
    class Params:
        """`rows`: table rows as labels name them, with `;` between.

        Without them, each method's rows with nothing set by hand and class means in Tukey space
        (all rows of a method that has none such); with `all` every row.
        """

        rows: str = ""
        all: bool = False

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return the cards, one below the other; files are named by method and row.

        Raises:
            UsageError: there are too many rows.
            FscilError: nothing stored fits; the message gives a command that would make a run.
        """
        del frame
        chosen = meant_rows(self.results, self.name, params.rows, params.all)
        if len(chosen.labels) > MOST:
            labels = "\n  ".join(chosen.labels)
            raise UsageError(
                f"{len(chosen.labels)} rows fit, and a card shows one; name those wanted (at most "
                f"{MOST}) with --method, --split or --set rows=...: {HOW}; the rows are\n  {labels}"
            )
        # Cards stand alone: only what was asked for by its seed can be missing.
        seeds, protocol = self.results.selection.seeds, chosen.spec(chosen.labels[0]).protocol
        title = f"{protocol.title} ({protocol.name})"
        cards = [
            Section(f"{label} on {title}", [*_card(replace(chosen, frame=chosen.of(label)))])
            for label in chosen.labels
        ]
        one = len(cards) == 1
        return Document(
            title=cards[0].title if one else f"{len(cards)} rows on {title}",
            parts=[*(cards[0].parts if one else cards), Notes(chosen.notes)],
            lacks=lacking_runs(chosen) if seeds else [],
            warnings=chosen.problems,
        )


def _card(chosen: Chosen) -> Iterator[Part]:
    """Yield the parts of the card of the only row."""
    (label,) = chosen.labels
    spec, registry = chosen.spec(label), chosen.results.registry
    stem = f"{spec.method}-{spec.row[:8]}"  # the same whatever else is stored
    sessions = session_frame(chosen)
    summary = aggregate(chosen.frame, "label", SUMMARY)
    details, commands = row_details(chosen, label), row_commands(chosen, label)
    points = curve_points(sessions)
    yield from about_method(spec.method, registry)
    columns = [Column(name, heading) for name, heading in SESSION.items()]
    yield Table(f"{stem}-sessions", sessions, [*SESSION_COLUMNS, *columns])
    measures = [replace(column, best="none", group="") for column in measure_columns(*SUMMARY)]
    said = formulas("last_base", "last_new", "last_harmonic", *SUMMARY)
    yield Table(f"{stem}-summary", summary, measures, formulas=said)
    yield Figure(f"{stem}-curve", lambda: curves(points), points, "accuracy in each session.")
    yield Notes([f"{heading}. {_sentence(each)}" for heading, each in details.items()])
    yield Notes([f"Made by: {command}" for command in commands])
    yield Table(stem, in_full(sessions, summary, details, commands), printed=False)


def about_method(name: str, registry: Registry) -> list[str]:
    """Return the first paragraphs of a method's docstring, each as one line."""
    if name not in registry.names("method"):
        return [f"No method of this name is installed; --plugin gives the file of {name}."]
    text = inspect.cleandoc(registry.get("method", name).value.__doc__ or "No description.")
    # Backticks mark code in docstrings, and mean something else in Markdown and LaTeX.
    parts = text.replace("`", "").split("\n\n")[:PARAGRAPHS]
    return [" ".join(part.split()) for part in parts]


def row_commands(chosen: Chosen, label: str) -> list[str]:
    """Return the command lines that make a row's runs, one for each representation seed."""
    specs = {run.spec.representation.seed: run.spec for run in reversed(chosen.runs(label))}
    axes = sorted(chosen.axes(label))
    return [
        command_for(specs[first], chosen.results.registry, [s for own, s in axes if own == first])
        for first in sorted(specs)
    ]


def session_frame(chosen: Chosen) -> pd.DataFrame:
    """Return a line for each session of the only row, with the intervals of `SESSION` in %."""
    percent = chosen.sessions.assign(**{name: 100 * chosen.sessions[name] for name in SESSION})
    cells = aggregate(percent, ["session", "classes_seen"], SESSION)
    return cells.drop(columns="runs").reset_index()


def curve_points(sessions: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each point drawn: accuracy on all, base and new classes."""
    parts = []
    for name, label in CURVES.items():
        mean, half = sessions[f"{name}_mean"], sessions[f"{name}_half_width"]
        part = sessions[["session", "classes_seen"]].assign(
            mean=mean, low=mean - half, high=mean + half, n=sessions[f"{name}_n"]
        )
        part.insert(0, "label", label)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def in_full(
    sessions: pd.DataFrame,
    summary: pd.DataFrame,
    details: Mapping[str, Mapping[str, str]],
    commands: Sequence[str],
) -> pd.DataFrame:
    """Return a line for each number and fact of a card: heading, name, value, half-width, n."""

    def cell(line: Mapping[Any, Any], key: str) -> list[Any]:
        return [line[f"{key}_{part}"] for part in ("mean", "half_width", "n")]

    lines: list[Sequence[Any]] = []
    for line in sessions.to_dict("records"):
        heading = f"Session {line['session']}"
        lines.append((heading, "Classes seen", line["classes_seen"], None, None))
        lines += [(heading, name, *cell(line, key)) for key, name in SESSION.items()]
    (line,) = summary.to_dict("records")
    lines += [("All sessions", MEASURES[key].heading, *cell(line, key)) for key in SUMMARY]
    for heading, facts in details.items():
        lines += [(heading, name, text, None, None) for name, text in facts.items()]
    lines += [("Made by", "command", command, None, None) for command in commands]
    columns = ["heading", "name", "value", "half_width", "n"]
    return pd.DataFrame(lines, columns=columns, dtype=object)


def _sentence(facts: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in facts.items()) + "."
