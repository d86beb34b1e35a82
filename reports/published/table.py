"""The block of published rows in a report: a table with its footnotes and sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, product
from string import ascii_lowercase

import pandas as pd

from fscil_bench.protocol import Protocol
from fscil_bench.report import Column, Section, Table

from .rows import QUANTITIES, PublishedRow, Source, Value

ABOUT = (
    "Published accuracies under their published names, not measured here; a name that also stands "
    "among the measured rows is not the same code. Avg, PD and PR are computed from the row, "
    "whatever is printed; where that is something else, a footnote says so. Rows stand by their "
    "last session, the best at the end. Where no footnote tells how the epoch was chosen, it is "
    "not known."
)
SECOND_HAND = "Second-hand: not read in a source of those who got it, but where others print it."
LAST_DIGIT = 0.02
"""Up to this, in the second decimal, a printed figure is only rounded otherwise."""
HALF_DIGIT = 0.005 + 1e-9


def published_section(name: str, protocol: Protocol, rows: Sequence[PublishedRow]) -> Section:
    """Return published rows of a protocol, in the order given; `name` is the table's."""
    notes = [footnotes(row, protocol) for row in rows]
    marks = dict(zip(dict.fromkeys(note for each in notes for note in each), _letters()))  # noqa: B905 - letters have no end
    lines = [
        {
            **_line(row, protocol),
            "footnotes": " ".join(own),
            "sources": "; ".join(row.sources),
            "references": "; ".join(filter(None, (s.paper.reference for s in row.first_sources))),
            "second_hand": row.second_hand,
            "marks": " ".join(marks[note] for note in own),
        }
        for row, own in zip(rows, notes, strict=True)
    ]
    sessions = range(protocol.sessions + 1)
    columns = [
        Column("published_name", "Published", kind="text"),
        *(Column(f"session_{t}", str(t), "Accuracy in session (%)", "number") for t in sessions),
        *(Column(key, heading, kind="number") for heading, key in QUANTITIES.items()),
        Column("marks", "Notes", kind="text"),
    ]
    below = [ABOUT, *(f"[{mark}] {text}" for text, mark in marks.items()), *_source_lines(rows)]
    return Section("Published", (Table(name, pd.DataFrame(lines), columns, notes=below),))


def footnotes(row: PublishedRow, protocol: Protocol) -> list[str]:
    """Return every footnote of a row, each once; `protocol` tells what the usual terms are."""
    found = [
        *other_terms(row, protocol),
        *([SECOND_HAND] if row.second_hand else []),
        *_disagreements(row),
        *_printed_otherwise(row, protocol),
    ]
    return list(dict.fromkeys(found))


def other_terms(row: PublishedRow, protocol: Protocol) -> list[str]:
    """Return in what a row is not on the protocol's terms, and what else must stand beside it."""
    notes = ["Not of this protocol."] if row.terms.other_protocol else []
    if row.test_chosen:
        notes.append(f"Epoch chosen on test data, by {row.terms.chosen_on_test}.")
    if row.backbone.lower() != protocol.backbone.lower():
        notes.append(f"Other backbone: {row.backbone}; this protocol's is {protocol.backbone}.")
    if row.pretraining != protocol.pretraining:
        notes.append(f"Pre-training {row.pretraining}; this protocol's is {protocol.pretraining}.")
    if row.terms.epochs and int(row.terms.epochs) != protocol.recipe.epochs:
        notes.append(
            f"Other epochs: {row.terms.epochs} of base training; this protocol's recipe has "
            f"{protocol.recipe.epochs}."
        )
    remarks = filter(None, row.terms.remark.split("; "))
    return notes + [f"{remark[0].upper()}{remark[1:]}." for remark in remarks]


def _disagreements(row: PublishedRow) -> Iterator[str]:
    """Yield a footnote for each source that contradicts the row, with the sessions concerned."""
    by_source: dict[str, list[Value]] = {}
    for value in row.others:
        by_source.setdefault(value.source.printed_in, []).append(value)
    for source, values in by_source.items():
        word = "session" if len(values) == 1 else "sessions"
        sessions = ", ".join(str(value.session) for value in values)
        texts = ", ".join(value.text for value in values)
        yield f"Sources disagree: {row.method}, {word} {sessions}: {texts} in {source}."


def _printed_otherwise(row: PublishedRow, protocol: Protocol) -> Iterator[str]:
    """Yield a footnote for each printed figure that the row does not give."""
    for printed in row.printed:
        value = row.figures(protocol.sessions)[QUANTITIES[printed.quantity]]
        gap = abs(float(printed.text) - value)
        if gap > HALF_DIGIT:
            kind = "last digit" if gap <= LAST_DIGIT else "wrong"
            yield (
                f"{printed.quantity} printed as {printed.text} ({printed.source}; {kind}); "
                f"{row.method}'s accuracies give {value:.2f}."
            )


def _line(row: PublishedRow, protocol: Protocol) -> dict[str, str | float]:
    """Return a row with its terms, accuracies and figures in percent, and figures as printed."""
    printed = {each.quantity: each.text for each in row.printed}
    return {
        "published_name": row.method,
        **{f"session_{t}": value for t, value in enumerate(row.accuracies(protocol.sessions))},
        **row.figures(protocol.sessions),
        **{f"printed_{key}": printed.get(short, "") for short, key in QUANTITIES.items()},
        "backbone": row.backbone,
        "pretraining": row.pretraining,
        "epochs": row.terms.epochs,
        "chosen_on_test": row.terms.chosen_on_test,
    }


def _source_lines(rows: Sequence[PublishedRow]) -> Iterator[str]:
    """Yield each source with what it is known as and the rows that it prints."""
    found: dict[Source, list[str]] = {}
    for row in rows:
        for source in row.first_sources:
            key = Source(source.printed_in, paper=source.paper)
            found.setdefault(key, []).append(row.method)
    for source, methods in found.items():
        reference = f", of {source.paper.reference}" if source.paper.reference else ""
        yield f"Source {source.printed_in}{reference}: {', '.join(methods)}"


def _letters() -> Iterator[str]:
    """Yield a, b and so on to z, then aa, ab and so on."""
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            yield "".join(letters)
