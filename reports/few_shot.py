"""The field's table of ordinary few-shot classification: accuracy over episodes of new classes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Report, ReportInput, ReportOutput
from fscil_bench.request import Design, RunRequest, Selection, Wanted, seeds_text
from fscil_bench.running.commands import protocol_word, wanted_commands
from fscil_bench.store.files import write_text

from ._episode_table import episode_notes, episode_table
from ._episodes import EpisodeRow, chosen_episodes, episode_rows
from ._latex import escape_latex, latex_table
from ._one_protocol import FIRST_METHOD
from ._readable import readable
from ._tables import csv_table, escape_markdown, markdown_table

MEANING = (
    "N-way K-shot: an episode has N of the protocol's new classes, K labelled images of each from "
    "the training half of the data, and queries of each from the test half, to be told apart from "
    "one another alone. The accuracy of an episode is correct / total, in %; n counts episodes, "
    "and ± is the half-width of the 95 % Student-t interval of their mean, t · s / √n with s the "
    "sample standard deviation. All methods get the same episodes."
)
MEANING_LATEX = (
    r"$N$-way $K$-shot: an episode has $N$ of the protocol's new classes, $K$ labelled images of "
    r"each from the training half of the data, and queries of each from the test half, to be told "
    r"apart from one another alone. The accuracy of an episode is correct / total, in \%; $n$ "
    r"counts episodes, and $\pm$ is the half-width of the 95\,\% Student-$t$ interval of their "
    r"mean, $t \cdot s / \sqrt{n}$ with $s$ the sample standard deviation. All methods get the "
    r"same episodes."
)
DIFFERENCE = (
    "Columns with − show the mean difference to {name} over the episodes that both have, in "
    "percentage points, with the interval of the paired differences."
)


def _numbers(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Shots = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), BeforeValidator(_numbers)
]
"""One or several numbers; on a command line `1,5`."""


class FewShot(Report):
    """One row a method: accuracy of ordinary few-shot classification, and paired differences.

    Shows whatever episodes are stored for a protocol. The parameters say which it should have, and
    which `--run-missing` makes: of the methods named, or of all that learn episodes from frozen
    features. Those that learn from images take hours of training, and are made if named.
    """

    name = "few-shot"
    title = "Ordinary few-shot classification, N-way K-shot, with intervals over episodes"

    @dataclass(frozen=True)
    class Params:
        """What should be stored, and the method (or row) `against` which others are compared."""

        way: Annotated[int, Field(ge=2)] = 5
        shots: Shots = (1, 5)
        queries: Annotated[int, Field(ge=1)] = 15
        episodes: Annotated[int, Field(ge=1)] = 600
        against: str = ""

    params: Params

    def requests(self, selection: Selection, registry: Registry) -> Sequence[Wanted]:
        """Return the episodes of the methods named, or of all that learn them without images."""
        named = selection.methods or _learning_from_features(registry)
        given = self.params
        return [
            Wanted(
                RunRequest(method, _protocol(selection), representation, seed=seed),
                episodes=Design(given.way, shot, given.queries, given.episodes),
            )
            for method in named
            for representation in selection.representations or ("cosine",)
            for shot in given.shots
            for seed in selection.seeds or (0,)
        ]

    def build(self, given: ReportInput) -> ReportOutput:
        """Write few-shot.md / .csv / .tex."""
        selection, registry = given.selection, given.registry
        asked = chosen_episodes(given.episodes, selection)
        stored, problems = readable(asked, lambda each: each.accuracies)
        damaged = [*given.unread_episodes, *problems]
        known = {each.spec.run.protocol.name for each in given.episodes}
        missing = self._missing(known, selection, registry, stored)
        if not stored:
            plain = _plain_command(selection, registry)
            cheap = (each for each in missing if f"--method {FIRST_METHOD} " in each)
            command = next(cheap, missing[0] if missing else plain)
            raise FscilError(
                f"no stored episodes fit protocol {selection.protocol!r} and what else was asked "
                f"for; make some: {command}" + "".join(f"\n{problem}" for problem in damaged)
            )
        rows = sorted(episode_rows(stored, registry), key=_last_accuracy)
        columns, cells = episode_table(rows, self.params.against)
        notes = episode_notes(rows, registry) + damaged
        compared = DIFFERENCE.format(name=self.params.against) if self.params.against else ""
        text = _markdown(rows[0], markdown_table(columns, cells), compared, notes, missing)
        lines = [MEANING_LATEX, *(escape_latex(line) for line in (compared, *notes) if line)]
        contents = {
            "md": text,
            "csv": csv_table(columns, cells),
            "tex": latex_table(columns, cells, lines),
        }
        files = {given.folder / f"{self.name}.{kind}": value for kind, value in contents.items()}
        for path, content in files.items():
            write_text(path, content)
        return ReportOutput(text, tuple(files), missing, tuple(damaged))

    def _missing(
        self,
        known: Container[str],
        selection: Selection,
        registry: Registry,
        stored: Sequence[StoredEpisodes],
    ) -> tuple[str, ...]:
        """Return the commands for what should be stored and is not; `known` names protocols.

        Raises:
            UsageError: no protocol is named, or nothing is known or stored of it.
        """
        name = _protocol(selection)
        if name in known and name not in registry.names("protocol"):
            return ()  # of a file that is not given, no command can be written
        registry.get("protocol", name)
        wanted = self.requests(selection, registry)
        return tuple(wanted_commands([w for w in wanted if not _is_stored(w, stored)], registry))


def _learning_from_features(registry: Registry) -> list[str]:
    """Return the methods that learn episodes from the features of any representation."""
    methods = ((name, registry.get("method", name).value) for name in registry.names("method"))
    return [
        name
        for name, method in methods
        if method.learns_episodes() and not method.needs.images and not method.needs.extras
    ]


def _protocol(selection: Selection) -> str:
    if selection.protocol is None:
        raise UsageError(f"{FewShot.name} shows one protocol: name it with --protocol")
    return selection.protocol


def _plain_command(selection: Selection, registry: Registry) -> str:
    """Return the command for episodes on a protocol whose file is not given."""
    words = ["fscil-bench episodes --method", ",".join(selection.methods) or FIRST_METHOD]
    words += ["--protocol", protocol_word(_protocol(selection), registry)]
    return " ".join([*words, "--seeds", seeds_text(selection.seeds or (0,))])


def _last_accuracy(row: EpisodeRow) -> float:
    """Return the accuracy in the row's last setting: the best row ends the table."""
    return row.interval(max(row.stored)).mean


def _is_stored(wanted: Wanted, stored: Sequence[StoredEpisodes]) -> bool:
    """Return whether some parameters of the method have what is wanted, or more episodes."""
    request, design = wanted.request, wanted.episodes or Design()
    asked = (
        *(request.method, request.representation, request.representation_seed, request.seed),
        *(design.way, design.shot, design.queries),
    )
    for each in stored:
        run, own = each.spec.run, each.spec.design
        trained = run.representation
        have = (run.method, trained.name, trained.seed, run.seed, own.way, own.shot, own.queries)
        if have == asked and own.episodes >= design.episodes:
            return True
    return False


def _markdown(
    row: EpisodeRow, table: str, compared: str, notes: Sequence[str], missing: Sequence[str]
) -> str:
    protocol = row.spec.protocol
    parts = [
        f"# {escape_markdown(protocol.title)} ({escape_markdown(protocol.name)}): few-shot "
        "classification",
        table.rstrip(),
        escape_markdown(MEANING),
        *([escape_markdown(compared)] if compared else []),
        "\n".join(f"- {escape_markdown(note)}" for note in notes),
    ]
    if missing:
        parts.append("\n".join(["Missing:", "", *(f"- `{command}`" for command in missing)]))
    return "\n\n".join(parts) + "\n"
