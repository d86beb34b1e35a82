"""Accuracy per session as curves: what was measured with bands, what is published behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fscil_bench.metrics import Interval
from fscil_bench.protocol import Protocol
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.store.files import write_text

from ._accuracy import accuracy_curve, curve_lines
from ._drawn_rows import drawn_rows
from ._facts import note_lines
from ._figures import Curve, curve_figure, figure_style, save_figure
from ._missing import Lack, lacking_runs
from ._one_protocol import rows_of_protocol
from ._published import PublishedRow, published_rows
from ._published_alone import PublishedAlone, published_alone
from ._published_notes import row_notes
from ._published_table import chosen_published
from ._selected import files_folder
from ._tables import csv_text, escape_markdown
from ._usual import registered_protocol

CHOSEN = " †"
"""Stands behind the published names whose epoch was chosen on test data."""


@dataclass(frozen=True)
class Lines:
    """The curves of a figure: measured ones, and published ones with their rows."""

    measured: Sequence[Curve]
    published: Mapping[str, tuple[Curve, PublishedRow]]

    @property
    def behind(self) -> list[Curve]:
        """The published curves."""
        return [curve for curve, _ in self.published.values()]

    def csv(self) -> list[dict[str, str | int | float]]:
        """Return one line for each point; `published` tells which points were measured here."""
        measured = [{"published": "", **line} for line in curve_lines(self.measured)]
        # How many runs a published value averages is not known.
        behind = [{"published": "yes", **line, "n": ""} for line in curve_lines(self.behind)]
        return measured + behind


class Curves(Report):
    """Accuracy in each session against the number of classes seen, measured and published."""

    name = "curves"
    title = "Accuracy per session as curves, measured with bands, published as thin lines"

    @dataclass(frozen=True)
    class Params:
        """Which rows are drawn; those that are not are in `curves-all.csv`.

        `rows` are measured ones as the main table calls them, with `;` between; at most `most` of
        them, each method in turn, first with nothing set by hand, then by their last session.
        `published` is all, none, or names with `;` between; of all, the `most_published` best
        whose every session is known and that are of this protocol.
        """

        rows: str = ""
        most: Annotated[int, Field(ge=1)] = 8
        published: str = "all"
        most_published: Annotated[int, Field(ge=0)] = 6

    params: Params

    def build(self, given: ReportInput) -> ReportOutput:
        """Write curves.png / .pdf / .csv, curves.md and, of every row, curves-all.csv."""
        alone = published_alone(given, self.params.rows)
        if alone is not None and self._behind(alone.rows, alone.protocol):
            return self._build_alone(alone, files_folder(given, self.params))
        rows, damaged = rows_of_protocol(self.name, given, self.params.rows)
        protocol = registered_protocol(rows[0].spec, given.registry)
        published = published_rows(protocol)
        drawn = drawn_rows(rows, self.params.most, given.registry)
        behind = self._behind(published, protocol)
        lines = Lines([accuracy_curve(row) for row in drawn], _published(behind, protocol))
        every = Lines([accuracy_curve(row) for row in rows], _published(published, protocol))
        lacks = lacking_runs(drawn, given.selection, given.registry)
        notes = [*note_lines(drawn, given.registry), *damaged]
        text = _markdown(protocol, lines, every, notes, lacks)
        files = self._write(files_folder(given, self.params), text, lines, every)
        missing = tuple(dict.fromkeys(lack.command for lack in lacks))
        return ReportOutput(text, files, missing, tuple(damaged))

    def _build_alone(self, alone: PublishedAlone, folder: Path) -> ReportOutput:
        """Draw what is published, where nothing is measured."""
        protocol = alone.protocol
        lines = Lines([], _published(self._behind(alone.rows, protocol), protocol))
        every = Lines([], _published(alone.rows, protocol))
        parts = [_title(protocol), alone.notice]
        text = "\n\n".join([*parts, *_published_text(protocol, lines, len(alone.rows))]) + "\n"
        files = self._write(folder, text, lines, every)
        return ReportOutput(text, files, (alone.command,))

    def _write(self, folder: Path, text: str, lines: Lines, every: Lines) -> tuple[Path, ...]:
        files = {folder / f"{self.name}.md": text}
        files[folder / f"{self.name}-all.csv"] = csv_text(every.csv())
        for path, content in files.items():
            write_text(path, content)
        return (*_draw(lines, folder, self.name), *files)

    def _behind(self, rows: Sequence[PublishedRow], protocol: Protocol) -> list[PublishedRow]:
        """Return the published rows to draw, the best first."""
        chosen = chosen_published(rows, self.params.published)[::-1]
        if self.params.published.strip() != "all":
            return chosen
        whole = [
            row
            for row in chosen
            if len(row.values) == protocol.sessions + 1 and not row.terms.other_protocol
        ]
        return whole[: self.params.most_published]


def _published(
    rows: Sequence[PublishedRow], protocol: Protocol
) -> dict[str, tuple[Curve, PublishedRow]]:
    """Return the curves of published rows by name; of unknown sessions there is no point."""
    found = {}
    for row in rows:
        sessions = sorted(row.values)
        seen = [protocol.classes_seen(t) for t in sessions]
        values = [Interval(float(row.values[t].text), math.nan, 1) for t in sessions]
        label = row.method + CHOSEN * row.test_chosen
        found[row.method] = Curve(label, seen, values, tuple(sessions)), row
    return found


def _draw(lines: Lines, folder: Path, stem: str) -> tuple[Path, ...]:
    with figure_style():
        figure = curve_figure(
            lines.measured, "Number of classes seen", "Accuracy (%)", lines.behind
        )
        return save_figure(figure, folder, stem, lines.csv())


def _markdown(
    protocol: Protocol,
    lines: Lines,
    every: Lines,
    notes: Sequence[str],
    lacks: Sequence[Lack],
) -> str:
    shown, count = len(lines.measured), len(every.measured)
    parts = [
        _title(protocol),
        f"`curves.png` shows {shown} of {count} measured rows; bands are 95 % Student-t intervals "
        "of the mean over a row's runs. `curves.csv` has every point drawn, `curves-all.csv` those "
        "of all rows.",
        "\n".join(f"- {escape_markdown(note)}" for note in notes),
    ]
    if lacks:
        listed = [f"- {escape_markdown(lack.what)}: `{lack.command}`" for lack in lacks]
        parts.append("\n".join(["Missing:", "", *listed]))
    if lines.published:
        parts += _published_text(protocol, lines, len(every.published))
    return "\n\n".join(parts) + "\n"


def _title(protocol: Protocol) -> str:
    name = f"{escape_markdown(protocol.title)} ({escape_markdown(protocol.name)})"
    return f"# {name}: accuracy per session"


def _published_text(protocol: Protocol, lines: Lines, count: int) -> list[str]:
    listed = []
    for name, (_, row) in lines.published.items():
        source = "; ".join(dict.fromkeys(v.source.printed_in for v in row.values.values()))
        words = " ".join([f"{name} ({source}).", *row_notes(row, protocol).all()])
        listed.append(f"- {escape_markdown(words)}")
    return [
        f"Thin grey lines are {len(lines.published)} of {count} published rows, not measured here "
        "(the best of which every session is known, or those named by --set published=A;B);"
        f"{CHOSEN} marks those whose epoch was chosen on test data.",
        "\n".join(listed),
    ]
