"""Accuracy per session as curves: what was measured with bands, what is published behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field

from fscil_bench.protocol import Protocol
from fscil_bench.report import Document, Figure, Notes, Part, Report, Table
from fscil_bench.reporting.accuracy import curve_numbers
from fscil_bench.reporting.choice import drawn_rows, rows_of_protocol
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.figures import curves, far_sentence
from fscil_bench.reporting.lacks import lacking_runs
from fscil_bench.reporting.usual import registered_protocol

from .published import (
    PublishedRow,
    chosen_published,
    footnotes,
    published_alone,
    published_rows,
)

CHOSEN = " †"
"""Stands behind the published names whose epoch was chosen on test data."""


class Curves(Report):
    """Accuracy in each session against the number of classes seen, measured and published."""

    name = "curves"
    title = "Accuracy per session as curves, measured with bands, published as thin lines"

    @dataclass(frozen=True)
    class Params:
        """Which rows are drawn; those that are not are in `curves-all.csv`.

        `rows` are measured ones as the main table calls them, with `;` between; at most `most` of
        them, each method in turn, first with nothing set by hand, then by their last session.
        `published` is all, none, or names (or `paper:LDC`) with `;` between; of all, the
        `most_published` best whose every session is known and that are of this protocol.
        """

        rows: str = ""
        most: Annotated[int, Field(ge=1)] = 8
        published: str = "all"
        most_published: Annotated[int, Field(ge=0)] = 6

    def build(self, frame: pd.DataFrame, params: Params) -> Document:
        """Return the figure, the numbers of every row, and the terms of those drawn."""
        del frame
        alone = published_alone(self.results, params.rows)
        if alone is not None and (behind := _behind(alone.rows, alone.protocol, params)):
            parts = [alone.notice, *_parts([], [], alone.protocol, alone.rows, behind)]
            return Document(_title(alone.protocol), parts, (alone.lack,))
        found = rows_of_protocol(self.results, self.name, params.rows)
        protocol = registered_protocol(found.spec(found.labels[0]), self.results.registry)
        published = published_rows(protocol)
        drawn = drawn_rows(found, params.most)
        measured = [curve_numbers(drawn)], [curve_numbers(found)]
        shown = (
            f"{len(drawn.labels)} of {len(found.labels)} measured rows are drawn; bands are 95 % "
            "Student-t intervals of the mean over a row's runs. curves.csv has every point drawn, "
            "curves-all.csv those of all rows."
        )
        parts = [
            shown,
            *_parts(*measured, protocol, published, _behind(published, protocol, params)),
            Notes(note_lines(drawn)),
        ]
        return Document(_title(protocol), parts, lacking_runs(drawn), found.problems)


def _title(protocol: Protocol) -> str:
    return f"{protocol.title} ({protocol.name}): accuracy per session"


def _behind(
    rows: Sequence[PublishedRow], protocol: Protocol, params: Curves.Params
) -> list[PublishedRow]:
    """Return the published rows to draw, the best first."""
    chosen = chosen_published(rows, params.published)[::-1]
    if params.published.strip() != "all":
        return chosen
    whole = [
        row
        for row in chosen
        if len(row.values) == protocol.sessions + 1 and not row.terms.other_protocol
    ]
    return whole[: params.most_published]


def _parts(
    drawn: Sequence[pd.DataFrame],
    every: Sequence[pd.DataFrame],
    protocol: Protocol,
    published: Sequence[PublishedRow],
    behind: Sequence[PublishedRow],
) -> list[Part]:
    """Return the figure, the numbers of all rows, and what must be said of published ones.

    Args:
        drawn: the points of the measured rows to draw; empty if none is measured.
        every: those of all measured rows.
        protocol: what all of it is about.
        published: all published rows.
        behind: those of them to draw.
    """
    numbers = _numbers(drawn, behind, protocol)
    lines, thin = (numbers[numbers["published"] == mark] for mark in ("", "yes"))
    caption = f"accuracy against the number of classes seen.{far_sentence(lines)}"
    parts: list[Part] = [
        Figure("curves", lambda: curves(lines, behind=thin), numbers, caption),
        Table("curves-all", _numbers(every, published, protocol), printed=False),
    ]
    if behind:
        parts += [
            f"Thin grey lines are {len(behind)} of {len(published)} published rows, not measured "
            "here (the best of which every session is known, or those named by --set "
            f"published=A;B);{CHOSEN} marks those whose epoch was chosen on test data.",
            Notes([_terms(row, protocol) for row in behind]),
        ]
    return parts


def _numbers(
    measured: Sequence[pd.DataFrame], published: Sequence[PublishedRow], protocol: Protocol
) -> pd.DataFrame:
    """Return a line for each point; `published` tells which points were measured here."""
    points = [
        {
            "published": "yes",
            "label": row.method + CHOSEN * row.test_chosen,
            "session": session,
            "classes_seen": protocol.classes_seen(session),
            "mean": float(value.text),
            "low": math.nan,
            "high": math.nan,
        }
        for row in published
        for session, value in sorted(row.values.items())  # noqa: PD011 - no frame
    ]
    frames = [frame.assign(published="") for frame in measured]
    numbers = pd.concat([*frames, pd.DataFrame(points)] if points else frames)
    columns = ["published", "label", "session", "classes_seen", "mean", "low", "high", "n"]
    # How many runs a published value averages is not known.
    return numbers.reindex(columns=columns).astype({"n": "Int64"})


def _terms(row: PublishedRow, protocol: Protocol) -> str:
    return " ".join([f"{row.method} ({'; '.join(row.sources)}).", *footnotes(row, protocol)])
