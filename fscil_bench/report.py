"""The report contract: from stored results to a document of tables, figures and notes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fscil_bench.plugins.contract import Contract
from fscil_bench.request import Wanted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

    from fscil_bench.reporting.frame import Results


@dataclass(frozen=True)
class Column:
    """How a printed column reads: `key` names what the frame holds, `heading` what stands above it.

    An interval is read from `{key}_mean`, `{key}_half_width` and `{key}_n`; a number or a text
    from `key`. `best` says which end of a column is the good one, if one is. `width` is the share
    of the line that a column of long texts takes in LaTeX; with 0 it is as wide as its text;
    `bold` is for verdicts. An interval that leaves the `limits` of its figure is not shown.
    """

    key: str
    heading: str
    group: str = ""
    kind: Literal["interval", "number", "text"] = "interval"
    best: Literal["highest", "lowest", "none"] = "none"
    decimals: int = 2
    width: float = 0.0
    bold: bool = False
    limits: tuple[float, float] = (-math.inf, math.inf)


@dataclass(frozen=True)
class Table:
    """A frame with how it is printed.

    Attributes:
        name: stem of the table's own files.
        frame: one row a line; written as CSV in full.
        columns: what is printed of it, in order; by default every column as it is.
        caption: stands above it, plain text.
        formulas: sentences below the table with mathematics, LaTeX as `Measure.latex` has it.
        notes: sentences below these, plain text.
        printed: whether it stands in the document, or is a file of numbers alone.
    """

    name: str
    frame: pd.DataFrame
    columns: Sequence[Column] = ()
    caption: str = ""
    formulas: Sequence[str] = ()
    notes: Sequence[str] = ()
    printed: bool = True


@dataclass(frozen=True)
class Figure:
    """A drawing with the numbers that are drawn, and plain text on it; drawn when it is written."""

    name: str
    draw: Callable[[], Drawing]
    numbers: pd.DataFrame
    caption: str = ""


@dataclass(frozen=True)
class Notes:
    """Sentences, each an item of a list."""

    lines: Sequence[str]
    heading: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a document under a heading of its own."""

    title: str
    parts: Sequence[Part]


Part = str | Table | Figure | Notes | Section
"""What a document is made of; a `str` is a paragraph of plain text."""


@dataclass(frozen=True)
class Lack:
    """Runs that are not stored: in words, and the command that makes them."""

    what: str
    command: str


@dataclass(frozen=True)
class Document:
    """What a report found.

    Attributes:
        title: its heading.
        parts: in the order in which they are read.
        lacks: what the report would need and is not stored.
        warnings: what is stored and could not be read.
        attachments: further files by path below the report's folder (a site's pages).
    """

    title: str
    parts: Sequence[Part] = ()
    lacks: Sequence[Lack] = ()
    warnings: Sequence[str] = ()
    attachments: Mapping[str, str | bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportOutput:
    """A document as written: `text` (Markdown, for the terminal), its files, and what it lacked.

    `missing` holds the commands that would make what the report needs and did not find, with the
    options that name its data and results; `warnings` what could not be read; `failures` which
    missing runs could not be made, and why.
    """

    document: Document = field(repr=False)
    text: str = field(repr=False)
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class Report(Contract):
    """A table, figure or study: one class, drawn from stored results alone.

    `self.results` has what the frame does not say: predictions, named arrays, few-shot episodes,
    features and true labels, the registry, and the selection that was asked for.

    Attributes:
        whole: whether all its files belong together whatever was asked for (a study); else
            a part, as methods, seeds or parameters select it, goes into a folder of its own.
    """

    kind = "report"
    title: ClassVar[str]
    whole: ClassVar[bool] = False

    def __init__(self, results: Results) -> None:
        self.results = results

    def requests(self, params: Any) -> Sequence[Wanted]:
        """Return every run that the report needs, whether stored or not; those stored are skipped.

        Only for a report that knows its runs beforehand; any other draws what is there.
        """
        del params
        return ()

    @abstractmethod
    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return what the report has to show.

        Args:
            frame: stored results, one row a run and session (`fscil_bench.reporting.frame`).
            params: the report's `Params`.

        Raises:
            FscilError: no run fits; the message gives the command that would make one.
        """
