"""The block of published rows in a report: a table with its footnotes and sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, product
from string import ascii_lowercase

import pandas as pd

from fscil_bench.protocol import Protocol
from fscil_bench.report import Column, Section, Table

from .notes import footnotes
from .rows import QUANTITIES, PublishedRow

ABOUT = (
    "Published accuracies under their published names, not measured here; a name that also stands "
    "among the measured rows is not the same code. Avg, PD and PR are computed from the row, "
    "whatever is printed; where that is something else, a footnote says so. Rows stand by their "
    "last session, the best at the end. Where no footnote tells how the epoch was chosen, it is "
    "not known, unless it says otherwise."
)


def published_section(name: str, protocol: Protocol, rows: Sequence[PublishedRow]) -> Section:
    """Return published rows of a protocol, in the order given; `name` is the table's."""
    notes = [footnotes(row, protocol) for row in rows]
    marks = dict(zip(dict.fromkeys(note for each in notes for note in each), _letters()))  # noqa: B905 - letters have no end
    lines = [
        {**_line(row, protocol), "footnotes": " ".join(own), "sources": "; ".join(row.sources)}
        | {"marks": " ".join(marks[note] for note in own)}
        for row, own in zip(rows, notes, strict=True)
    ]
    below = [ABOUT, *(f"[{mark}] {text}" for text, mark in marks.items()), *_sources(rows)]
    table = Table(name, pd.DataFrame(lines), _columns(protocol), notes=below)
    return Section("Published", (table,))


def _columns(protocol: Protocol) -> list[Column]:
    sessions = range(protocol.sessions + 1)
    return [
        Column("published_name", "Published", kind="text"),
        *(Column(f"session_{t}", str(t), "Accuracy in session (%)", "number") for t in sessions),
        *(Column(key, heading, kind="number") for heading, key in QUANTITIES.items()),
        Column("marks", "Notes", kind="text"),
    ]


def _line(row: PublishedRow, protocol: Protocol) -> dict[str, str | float]:
    """Return a row with its terms, accuracies and figures in percent, and figures as printed."""
    accuracies = row.accuracies(protocol.sessions)
    printed = {each.quantity: each.text for each in row.printed}
    return {
        "published_name": row.method,
        **{f"session_{t}": value for t, value in enumerate(accuracies)},
        **row.figures(protocol.sessions),
        **{f"printed_{key}": printed.get(short, "") for short, key in QUANTITIES.items()},
        "backbone": row.backbone,
        "pretraining": row.pretraining,
        "epochs": row.terms.epochs,
        "chosen_on_test": row.terms.chosen_on_test,
    }


def _sources(rows: Sequence[PublishedRow]) -> list[str]:
    """Return each source with the rows that it prints."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for source in row.sources:
            found.setdefault(source, []).append(row.method)
    return [f"Source {source}: {', '.join(methods)}" for source, methods in found.items()]


def _letters() -> Iterator[str]:
    """Yield a, b and so on to z, then aa, ab and so on."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            yield "".join(letters)
