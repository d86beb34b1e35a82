"""The field's table of ordinary few-shot classification: accuracy over episodes of new classes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from fscil_bench.defaults import FIRST_METHOD, REPRESENTATION
from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.metrics import mean_interval
from fscil_bench.params import AS_WORDS
from fscil_bench.plugins.registry import Registry
from fscil_bench.report import Column, Document, Lack, Notes, Report, Table
from fscil_bench.reporting.choice import asked_for, of_one_network, other_network_lines
from fscil_bench.reporting.facts import (
    bytes_text,
    fact_lines,
    flags_text,
    image_facts,
    name_lines,
    notes_text,
    parameters_text,
    training_facts,
    unequal_lines,
)
from fscil_bench.reporting.measures import PERCENT
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.request import Design, RunRequest, Wanted, seeds_text
from fscil_bench.running.commands import (
    Standing,
    protocol_word,
    standings_of,
    wanted_commands,
)

from .episodes import EpisodeRow, episode_rows, reference_row

MEANING = (
    r"$N$-way $K$-shot: an episode has $N$ of the protocol's new classes, $K$ labelled images of "
    r"each from the training half of the data, and queries of each from the test half, to be told "
    r"apart from one another alone. The accuracy of an episode is correct / total, in \%; $n$ "
    r"counts episodes, and $\pm$ is the half-width of the 95\,\% Student-t interval of their "
    r"mean, $t \cdot s / \sqrt{n}$ with $s$ the sample standard deviation. All methods get the "
    r"same episodes."
)
"""What the numbers are (LaTeX)."""
DIFFERENCE = (
    "Columns with − show the mean difference to {name} over the episodes that both have, in "
    "percentage points, with the interval of the paired differences."
)


Shots = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), AS_WORDS]
"""One or several numbers; on a command line `1,5`."""


class FewShot(Report):
    """One row a method: accuracy of ordinary few-shot classification, and paired differences.

    Shows whatever episodes are stored for a protocol. The parameters say which it should have, and
    which `--run-missing` makes: of the methods named, or of all that learn episodes from frozen
    features. Those that learn from images take hours of training, and are made if named.
    """

    name = "few-shot"
    title = "Ordinary few-shot classification, N-way K-shot, with intervals over episodes"
    whole = True

    @dataclass(frozen=True)
    class Params:
        """What should be stored, and the method (or row) `against` which others are compared.

        Attributes:
            way: classes of an episode; by default 5, or as many as are new.
            shots: labelled images of each class.
            queries: of each class; by default 15, or as many test images as each class has.
            episodes: how many are drawn.
            against: a method, or the label of a row.
        """

        way: Annotated[int, Field(ge=2)] | None = None
        shots: Shots = (1, 5)
        queries: Annotated[int, Field(ge=1)] | None = None
        episodes: Annotated[int, Field(ge=1)] = 600
        against: str = ""

    def requests(self, params: Any) -> Sequence[Wanted]:
        """Return the episodes of the methods named, or of all that learn them without images."""
        selection, registry = self.results.selection, self.results.registry
        known = ((name, registry.get("method", name).value) for name in registry.names("method"))
        named = selection.methods or [
            name
            for name, method in known
            if method.learns_episodes() and not method.needs.images and not method.needs.extras
        ]
        protocol, _ = registry.protocol(self._protocol)
        new = protocol.classes_used - protocol.base_classes
        way = params.way or max(2, min(Design.way, new))
        designs = [
            Design(way, shot, params.queries, params.episodes).settled(self.results.test_images)
            for shot in params.shots
        ]
        return [
            Wanted(RunRequest(method, self._protocol, representation, seed=seed), episodes=design)
            for method in named
            for representation in selection.representations or (REPRESENTATION,)
            for design in designs
            for seed in selection.seeds or (0,)
        ]

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return the table, with paired differences if they are asked for.

        Raises:
            UsageError: no protocol is named, or nothing is known of it; `against` is no row.
            FscilError: nothing stored fits; the message gives a command that makes some.
        """
        del frame
        registry = self.results.registry
        asked = [e for e in self.results.episodes if asked_for(e.spec.run, self.results.selection)]
        readable = [each for each in asked if each.readable]
        stored, left = of_one_network(readable)
        problems = [f"left out: {each.damage}" for each in asked if not each.readable]
        damaged = [*self.results.unread_episodes, *problems]
        missing = self._missing(params, stored)
        if not stored:
            raise FscilError(self._nothing(missing) + "".join(f"\n{each}" for each in damaged))
        rows = episode_rows(stored, registry)
        # The best row of the last setting ends the table.
        rows.sort(key=lambda row: row.interval(max(row.accuracies)).mean)
        protocol = rows[0].spec.protocol
        return Document(
            title=f"{protocol.title} ({protocol.name}): few-shot classification",
            parts=[
                episode_table(rows, params.against),
                *([DIFFERENCE.format(name=params.against)] if params.against else []),
                Notes([*episode_notes(rows, registry), *other_network_lines(left, "set")]),
            ],
            lacks=[Lack("", command) for command in missing],
            warnings=damaged,
        )

    @property
    def _protocol(self) -> str:
        if self.results.selection.protocol is None:
            raise UsageError(f"{self.name} shows one protocol: name it with --protocol")
        return self.results.selection.protocol

    def _missing(self, params: Any, stored: Sequence[StoredEpisodes]) -> list[str]:
        """Return the commands for what should be stored and is not."""
        registry = self.results.registry
        known = {each.spec.run.protocol.name for each in self.results.episodes}
        if self._protocol in known and self._protocol not in registry.names("protocol"):
            return []  # of a file that is not given, no command can be written
        registry.get("protocol", self._protocol)
        found = standings_of((each.spec.run for each in stored), registry)
        only = {name: own[0] for name, own in found.items() if len(own) == 1}
        wanted = [
            replace(each, options=only.get(each.request.representation, Standing()).words)
            for each in self.requests(params)
            if not _is_stored(each, stored)
        ]
        return wanted_commands(wanted, registry)

    def _nothing(self, missing: Sequence[str]) -> str:
        """Say that nothing is stored, with the cheapest command that makes some."""
        selection = self.results.selection
        words = ["fscil-bench episodes --method", ",".join(selection.methods) or FIRST_METHOD]
        words += ["--protocol", protocol_word(self._protocol, self.results.registry)]
        plain = " ".join([*words, "--seeds", seeds_text(selection.seeds or (0,))])
        command = missing[0] if missing else plain
        if not selection.methods:
            command = re.sub(r"--method \S+", f"--method {FIRST_METHOD}", command)
        return (
            f"no stored episodes fit protocol {self._protocol!r} and what else was asked for; "
            f"make some: {command}"
        )


def episode_table(rows: Sequence[EpisodeRow], against: str) -> Table:
    """Return the accuracy of each row in each setting, and what it is above `against`.

    Raises:
        UsageError: `against` names no row, or several.
    """
    settings = sorted({setting for row in rows for setting in row.accuracies})
    columns = [Column(s.key, s.title, best="highest", limits=PERCENT) for s in settings]
    if against:
        titles = {f"{s.key}_difference": f"{s.title} − {against}" for s in settings}
        columns += [Column(key, title, best="highest") for key, title in titles.items()]
    lines = []
    for row in rows:
        cells = [row.interval(setting) for setting in settings]
        line = {"label": row.label, "runs": max(cell.count for cell in cells), **_identity(row)}
        if against:
            other = reference_row(row, rows, against)
            cells += [row.minus(other, s) if other else mean_interval([]) for s in settings]
        for column, cell in zip(columns, cells, strict=True):
            line[f"{column.key}_mean"] = cell.mean
            line[f"{column.key}_half_width"] = cell.half_width
            line[f"{column.key}_n"] = cell.count
        lines.append(line)
    return Table("few-shot", pd.DataFrame(lines), [*ROW_COLUMNS, *columns], formulas=[MEANING])


def episode_notes(rows: Sequence[EpisodeRow], registry: Registry) -> list[str]:
    """Return the lines under a table of episodes, with what was left out of it."""
    return [
        *fact_lines([(row.label, _facts(row, registry)) for row in rows]),
        *unequal_lines([row.spec for row in rows]),
        *name_lines({row.spec.method for row in rows}, registry),
        *(
            f"{row.label}: {row.older} stored sets of episodes left out, made with an earlier "
            "version of the code."
            for row in rows
            if row.older
        ),
    ]


def _identity(row: EpisodeRow) -> dict[str, Any]:
    spec = row.spec
    return {
        "method": spec.method,
        "params": json.dumps(spec.params, sort_keys=True),
        "representation": spec.representation.name,
        "representation_params": json.dumps(spec.representation.params, sort_keys=True),
        "representation_seed": spec.representation.seed,
        "protocol": spec.protocol.name,
        "seeds": " ".join(map(str, row.seeds)),
        "queries": row.queries,
        "row": spec.row,
        "version": row.stored[0].spec.version,
    }


def _facts(row: EpisodeRow, registry: Registry) -> dict[str, str]:
    spec, records = row.spec, [each.record for each in row.stored]
    counts = {setting.title: len(own) for setting, own in row.accuracies.items()}
    told = counts if len(set(counts.values())) > 1 else {}  # else the table's n says it
    facts = {
        **training_facts(spec, registry),
        **image_facts(spec, records),
        "new": f"{spec.protocol.classes_used - spec.protocol.base_classes} new classes",
        "queries": f"{row.queries} queries a class",
        "draws": f"episodes drawn by seed {', '.join(map(str, row.seeds))}",
        "representation_seed": f"representation_seed {spec.representation.seed}",
        "counts": ", ".join(f"{title} n = {count}" for title, count in told.items()),
        "parameters": parameters_text([record.parameters for record in records]),
        "stored": f"{bytes_text([record.state_bytes for record in records])} stored",
        "engine": f"engine {spec.engine}, of the episodes {row.stored[0].spec.engine}",
        "flags": flags_text(records),
        "notes": notes_text(records),
    }
    return {name: text for name, text in facts.items() if text}


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
