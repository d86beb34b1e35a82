"""Documents of reports, built from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fscil_bench.episodes.store import stored_episodes
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Document, Figure, Part, Report, ReportOutput, Section, Table
from fscil_bench.reporting.document import markdown, write_document
from fscil_bench.reporting.frame import Results
from fscil_bench.reporting.tables import flat
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store


@dataclass(frozen=True)
class Made:
    """A document with ways to look into it."""

    document: Document
    folder: Path

    @property
    def text(self) -> str:
        """The document as Markdown."""
        return markdown(self.document)

    @property
    def missing(self) -> list[str]:
        """The commands of what is lacking."""
        return [lack.command for lack in self.document.lacks]

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames of all tables by name."""
        return {p.name: flat(p.frame) for p in _flat(self.document.parts) if isinstance(p, Table)}

    @property
    def figures(self) -> dict[str, Figure]:
        """All figures by name."""
        return {p.name: p for p in _flat(self.document.parts) if isinstance(p, Figure)}

    def write(self) -> ReportOutput:
        """Write the document's files."""
        return write_document(self.document, self.folder, "report")


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Callable[..., Made]:
    """Return a function that builds a report of all that is stored; `asked` makes the selection."""

    def build(kind: type[Report], params: dict[str, Any] | None = None, **asked: Any) -> Made:
        results = Results(
            registry,
            Selection(**{"protocol": "toy", **asked}),
            tuple(store.runs()[0]),
            tuple(stored_episodes(store)[0]),
        )
        own = parse_params("report", kind.Params, params or {})
        return Made(kind(results).build(results.frame, own), tmp_path / "out")

    return build


@pytest.fixture
def write_last(factory: Any) -> Callable[..., None]:
    """Return a function that writes a method's runs, one for each seed.

    Of 40 base images so many are right in the last session, and 10 of 20 new ones.
    """

    def write(method: str, last: Sequence[int], **changes: Any) -> None:
        for seed, base in enumerate(last):
            spec = factory.spec(method, seed, **changes)
            factory.write(spec, [(36, 0), (34, 6), (base, 10)])

    return write


def _flat(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, Section):
            yield from _flat(part.parts)
