"""Footnotes of published rows: where their terms differ, and what is printed wrongly."""

from __future__ import annotations

from dataclasses import dataclass, field

from fscil_bench.protocol import Protocol

from ._published import PublishedRow, Value

LAST_DIGIT = 0.02
"""Up to this, in the second decimal, a printed figure is only rounded otherwise."""

HALF_DIGIT = 0.005 + 1e-9


@dataclass(frozen=True)
class RowNotes:
    """Footnotes of a row: to its name, and to single cells by column (`session_3`, `PD`)."""

    name: tuple[str, ...]
    cells: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def all(self) -> list[str]:
        """Return every footnote of the row, each once."""
        return list(dict.fromkeys([*self.name, *(n for each in self.cells.values() for n in each)]))


def row_notes(row: PublishedRow, protocol: Protocol) -> RowNotes:
    """Return a row's footnotes; `protocol` tells what the usual terms are."""
    cells: dict[str, tuple[str, ...]] = {}
    for value_note, sessions in _disagreements(row).items():
        for session in sessions:
            cells[f"session_{session}"] = (*cells.get(f"session_{session}", ()), value_note)
    for quantity, note in _printed_otherwise(row, protocol):
        cells[quantity] = (*cells.get(quantity, ()), note)
    return RowNotes(tuple(_terms(row, protocol)), cells)


def _terms(row: PublishedRow, protocol: Protocol) -> list[str]:
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


def _disagreements(row: PublishedRow) -> dict[str, list[int]]:
    """Return a footnote for each source that contradicts the row, with the sessions concerned."""
    by_source: dict[str, list[Value]] = {}
    for value in row.others:
        by_source.setdefault(value.source.printed_in, []).append(value)
    notes = {}
    for source, values in by_source.items():
        word = "session" if len(values) == 1 else "sessions"
        sessions = ", ".join(str(value.session) for value in values)
        texts = ", ".join(value.text for value in values)
        note = f"Sources disagree: {row.method}, {word} {sessions}: {texts} in {source}."
        notes[note] = [value.session for value in values]
    return notes


def _printed_otherwise(row: PublishedRow, protocol: Protocol) -> list[tuple[str, str]]:
    """Return the column and the footnote of each printed figure that the row does not give."""
    notes = []
    for printed in row.printed:
        value = row.figures(protocol.sessions)[printed.quantity]
        gap = abs(float(printed.text) - value)
        if gap <= HALF_DIGIT:
            continue
        kind = "last digit" if gap <= LAST_DIGIT else "wrong"
        text = (
            f"Printed as {printed.text} ({printed.source}; {kind}); {row.method}'s accuracies "
            f"give {value:.2f}."
        )
        notes.append((printed.quantity, text))
    return notes
