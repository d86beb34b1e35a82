"""Footnotes of published rows: where their terms differ, and what is printed wrongly."""

from __future__ import annotations

from collections.abc import Iterator

from fscil_bench.protocol import Protocol

from .rows import QUANTITIES, PublishedRow, Value

LAST_DIGIT = 0.02
"""Up to this, in the second decimal, a printed figure is only rounded otherwise."""

HALF_DIGIT = 0.005 + 1e-9


def footnotes(row: PublishedRow, protocol: Protocol) -> list[str]:
    """Return every footnote of a row, each once; `protocol` tells what the usual terms are."""
    found = [*other_terms(row, protocol), *_disagreements(row), *_printed_otherwise(row, protocol)]
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
