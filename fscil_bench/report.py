"""The report contract: from stored runs to tables and figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fscil_bench.plugins.contract import Contract
from fscil_bench.request import Selection, Wanted

if TYPE_CHECKING:
    from fscil_bench.episodes.store import StoredEpisodes
    from fscil_bench.plugins.registry import Registry
    from fscil_bench.reporting.evaluation import Evaluation
    from fscil_bench.store.runs import StoredRun


@dataclass(frozen=True)
class ReportInput:
    """What a report draws from: all stored runs, what was asked for, a folder to write into.

    `registry` tells the defaults of plug-ins, for labels and commands; `episodes` are all stored
    few-shot episodes; `evaluation` reads features and true labels, where there are caches to read;
    `unread_runs` and `unread_episodes` say what of the protocol has a record that cannot be read.
    """

    selection: Selection
    runs: Sequence[StoredRun]
    folder: Path
    registry: Registry
    episodes: Sequence[StoredEpisodes] = ()
    evaluation: Evaluation | None = None
    unread_runs: tuple[str, ...] = ()
    unread_episodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportOutput:
    """What a report made: `text` (Markdown, for the terminal), its files, and what it lacked.

    `missing` holds the commands that would make the runs that the report needs and did not find;
    `warnings` what could not be read; `failures` which missing runs could not be made, and why.
    """

    text: str
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


class Report(Contract):
    """A table, figure or study: one file, drawn from stored runs alone."""

    kind = "report"
    title: ClassVar[str]

    def __init__(self, params: Any) -> None:
        self.params = params

    def requests(self, selection: Selection, registry: Registry) -> Sequence[Wanted]:
        """Return every run that the report needs, whether stored or not; those stored are skipped.

        Only for a report that knows its runs beforehand; any other draws what is there.
        """
        del selection, registry
        return ()

    @abstractmethod
    def build(self, given: ReportInput) -> ReportOutput:
        """Write the report's files into `given.folder` and return what to show.

        Raises:
            FscilError: no run fits; the message gives the command that would make one.
        """
