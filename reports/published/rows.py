"""Published accuracies as papers print them, with their sources and the terms they were got on."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.errors import UsageError, nearest
from fscil_bench.metrics import average_accuracy, performance_drop, performance_retention
from fscil_bench.protocol import Protocol

FOLDER = Path(__file__).parent
"""Where the tables lie: `published.csv`, and `published_…` sources, terms and printed."""


QUANTITIES = {"Avg": "average", "PD": "performance_drop", "PR": "performance_retention"}
"""What sources print beside accuracies, with the measure that it is."""


@dataclass(frozen=True)
class Source:
    """Where a value is printed first, and where later papers and tables repeat it."""

    printed_in: str
    repeated_in: str = ""


@dataclass(frozen=True)
class Value:
    """An accuracy in percent, as printed."""

    session: int
    text: str
    source: Source


@dataclass(frozen=True)
class Printed:
    """A figure that a source prints beside a row: `quantity` is one of `QUANTITIES`."""

    quantity: str
    text: str
    source: str


@dataclass(frozen=True)
class Terms:
    """On what terms a row was got, as far as papers and released code tell.

    Attributes:
        epochs: of base training, as text; empty where not known.
        chosen_on_test: by which test accuracy the epoch was chosen, `none: …` where it was not
            chosen on test data; empty where not known.
        other_protocol: whether it is of another division of the data than its name says.
        remark: what else must stand beside the row; several with `; ` between.
    """

    epochs: str = ""
    chosen_on_test: str = ""
    other_protocol: bool = False
    remark: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """One method on one protocol under its published name.

    Attributes:
        values: the first source's value of each session that is known, by session.
        others: what other sources print for the same method and session.
        printed: figures that sources print beside the row.
    """

    method: str
    backbone: str
    pretraining: str
    values: Mapping[int, Value]
    others: tuple[Value, ...] = ()
    terms: Terms = Terms()
    printed: tuple[Printed, ...] = ()

    @property
    def sources(self) -> list[str]:
        """Where its accuracies are printed first."""
        return list(dict.fromkeys(value.source.printed_in for value in self.values.values()))

    @property
    def test_chosen(self) -> bool:
        """Whether its epoch is known to have been chosen on test data."""
        chosen = self.terms.chosen_on_test
        return bool(chosen) and not chosen.startswith("none")

    def accuracies(self, sessions: int) -> list[float]:
        """Return the accuracy of sessions 0 … `sessions` in percent, NaN where it is not known."""
        return [
            float(self.values[t].text) if t in self.values else math.nan
            for t in range(sessions + 1)
        ]

    def figures(self, sessions: int) -> dict[str, float]:
        """Return average, drop and retention in percent, by measure; NaN if not known."""
        accuracies = self.accuracies(sessions)
        return {
            "average": average_accuracy(accuracies),
            "performance_drop": performance_drop(accuracies),
            "performance_retention": 100 * performance_retention(accuracies),
        }


def published_rows(protocol: Protocol, folder: Path = FOLDER) -> list[PublishedRow]:
    """Return what is published for a protocol, the best last session at the end.

    A protocol that takes its shots from another one has that one's rows. Rows with other sessions
    than the protocol's are left out.
    """
    name = next((n for n in protocol.published_as if n in _protocols(folder)), None)
    if name is None:
        return []
    found = [row for row in _rows(name, folder) if max(row.values) == protocol.sessions]
    return sorted(found, key=lambda row: row.accuracies(protocol.sessions)[-1])


def chosen_published(rows: Sequence[PublishedRow], names: str) -> list[PublishedRow]:
    """Return the published rows that are named: `all`, `none`, or names with `;` between.

    Raises:
        UsageError: a name is not among them.
    """
    if names.strip() in ("all", "none"):
        return list(rows) if names.strip() == "all" else []
    known = {row.method for row in rows}
    wanted = list(filter(None, (name.strip() for name in names.split(";"))))
    for name in wanted:
        if name not in known:
            hint = nearest(name, known) if known else "nothing is published for this protocol"
            raise UsageError(f"published={names!r}: no published row {name!r}; {hint}")
    return [row for row in rows if row.method in wanted]


def _rows(protocol: str, folder: Path) -> list[PublishedRow]:
    sources = {
        line["source"]: Source(line["printed_in"], line["repeated_in"])
        for line in _lines(folder / "published_sources.csv")
    }
    terms = {
        line["method"]: _terms(line)
        for line in _of_protocol(folder / "published_terms.csv", protocol)
    }
    printed: dict[str, list[Printed]] = {}
    for line in _of_protocol(folder / "published_printed.csv", protocol):
        figure = Printed(line["quantity"], line["printed"], line["source"])
        printed.setdefault(line["method"], []).append(figure)
    methods: dict[str, list[dict[str, str]]] = {}
    for line in _of_protocol(folder / "published.csv", protocol):
        methods.setdefault(line["method"], []).append(line)
    return [
        _row(lines, sources, terms.get(method, Terms()), tuple(printed.get(method, ())))
        for method, lines in methods.items()
    ]


def _terms(line: Mapping[str, str]) -> Terms:
    other = line["other_protocol"] == "1"
    return Terms(line["epochs"], line["chosen_on_test"], other, line["remark"])


def _row(
    lines: list[dict[str, str]],
    sources: Mapping[str, Source],
    terms: Terms,
    printed: tuple[Printed, ...],
) -> PublishedRow:
    first, others = {}, []
    for line in lines:
        value = Value(int(line["session"]), line["accuracy"], sources[line["source"]])
        if line["disagrees"] == "1":
            others.append(value)
        else:
            first[value.session] = value
    return PublishedRow(
        method=lines[0]["method"],
        backbone=lines[0]["backbone"],
        pretraining=lines[0]["pretrained"],
        values=first,
        others=tuple(others),
        terms=terms,
        printed=printed,
    )


def _protocols(folder: Path) -> set[str]:
    return {line["protocol"] for line in _lines(folder / "published.csv")}


def _of_protocol(path: Path, protocol: str) -> list[dict[str, str]]:
    return [line for line in _lines(path) if line["protocol"] == protocol]


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
