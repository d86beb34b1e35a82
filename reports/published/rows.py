"""Published accuracies as papers print them, with their sources and the terms they were got on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from fscil_bench.errors import UsageError, nearest
from fscil_bench.metrics import average_accuracy, performance_drop, performance_retention
from fscil_bench.params import words
from fscil_bench.protocol import Protocol

FOLDER = Path(__file__).parent
"""Where the tables lie: `published.csv`, and its papers, sources, terms, recipes and figures."""
QUANTITIES = {"Avg": "average", "PD": "performance_drop", "PR": "performance_retention"}
"""What sources print beside accuracies, with the measure that it is."""
COUNTERPART = ("counterpart", "params", "representation", "representation_params")
"""Columns of `published_recipes.csv` that make a `Counterpart`; others make a `Training`."""
PAPER = "paper:"
"""Stands before the name of a paper whose rows are meant."""


@dataclass(frozen=True)
class Paper:
    """What prints figures: a paper with the code it released, a list or a note.

    Attributes:
        own: words in the names of methods that its authors ran; other rows it has from others.
        title: of the paper; empty, as the rest, where it is not known.
        venue: with the year.
        number: of arXiv, or DOI.
        link: where it can be read.
    """

    name: str = ""
    own: tuple[str, ...] = ("",)
    title: str = ""
    venue: str = ""
    number: str = ""
    link: str = ""

    @property
    def reference(self) -> str:
        """What is known of it as one phrase."""
        title = f'"{self.title}"' if self.title else ""
        return ", ".join(filter(None, (title, self.venue, self.number, self.link)))


@dataclass(frozen=True)
class Source:
    """Where a value is printed first, and where later papers and tables repeat it."""

    printed_in: str
    repeated_in: str = ""
    paper: Paper = Paper()
    repeated_by: tuple[str, ...] = ()

    @property
    def papers(self) -> tuple[str, ...]:
        """The names of all that print the value."""
        return (self.paper.name, *self.repeated_by)


@dataclass(frozen=True)
class Value:
    """An accuracy in percent, as printed."""

    session: int
    text: str
    source: Source


@dataclass(frozen=True)
class Printed:
    """A figure that a source prints beside a row: `quantity` is one of `QUANTITIES`."""

    quantity: str
    text: str
    source: str


@dataclass(frozen=True)
class Terms:
    """On what terms a row was got, as far as papers and released code tell.

    Attributes:
        epochs: of base training, as text; empty where not known.
        chosen_on_test: by which test accuracy the epoch was chosen, `none: …` where it was not
            chosen on test data; empty where not known.
        other_protocol: whether it is of another division of the data than its name says.
        remark: what else must stand beside the row; several with `; ` between.
    """

    epochs: str = ""
    chosen_on_test: str = ""
    other_protocol: bool = False
    remark: str = ""


@dataclass(frozen=True)
class Counterpart:
    """What here is meant to be a row's method: its name, and that of the representation it needs.

    Parameters, of both, are those that tell it from others of the name, as text.
    """

    method: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    representation: str = ""
    representation_params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """How released code (or, where there is none, the paper) gets a row; "" is not told.

    Attributes:
        objective: of base training, where it is no representation's here.
        schedule: of the rate, `cosine` or `step, FACTOR at EPOCH, EPOCH`.
        augment: operations under their names here, in order.
        fill: what AutoAugment fills uncovered places with.
        batch_norm: images that batch normalisation sees at once, the batch's share of one GPU.
        resize: shorter side in pixels that test images are brought to, or `none`.
        session_0: what scores the base session, `the method` if what scores all others does.
        source: where that is read.
    """

    objective: str = ""
    batch_size: str = ""
    lr: str = ""
    schedule: str = ""
    weight_decay: str = ""
    augment: str = ""
    fill: str = ""
    temperature: str = ""
    batch_norm: str = ""
    precision: str = ""
    resize: str = ""
    session_0: str = ""
    shots: str = ""
    source: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """One method on one protocol under its published name.

    Attributes:
        values: the first source's value of each session that is known, by session.
        others: what other sources print for the same method and session.
        printed: figures that sources print beside the row.
        counterpart: the method here that is meant to be the same; None if there is none.
    """

    method: str
    backbone: str
    pretraining: str
    values: Mapping[int, Value]
    others: tuple[Value, ...] = ()
    terms: Terms = Terms()
    printed: tuple[Printed, ...] = ()
    training: Training = Training()
    counterpart: Counterpart | None = None

    @property
    def first_sources(self) -> list[Source]:
        """Where its accuracies are printed first, each place once."""
        found = {value.source.printed_in: value.source for value in self.values.values()}
        return list(found.values())

    @property
    def sources(self) -> list[str]:
        """The same in words."""
        return [source.printed_in for source in self.first_sources]

    @property
    def papers(self) -> set[str]:
        """The names of all papers, lists and notes that print one of its accuracies."""
        values = (*self.values.values(), *self.others)
        return {name for value in values for name in value.source.papers}

    @property
    def second_hand(self) -> bool:
        """Whether accuracies are known only as others than those who got them print them."""
        papers = [source.paper for source in self.first_sources]
        return not all(any(word in self.method for word in paper.own) for paper in papers)

    @property
    def test_chosen(self) -> bool:
        """Whether its epoch is known to have been chosen on test data."""
        chosen = self.terms.chosen_on_test
        return bool(chosen) and not chosen.startswith("none")

    def accuracies(self, sessions: int) -> list[float]:
        """Return the accuracy of sessions 0 … `sessions` in percent, NaN where it is not known."""
        return [
            float(self.values[t].text) if t in self.values else math.nan
            for t in range(sessions + 1)
        ]

    def figures(self, sessions: int) -> dict[str, float]:
        """Return average, drop and retention in percent, by measure; NaN if not known."""
        accuracies = self.accuracies(sessions)
        return {
            "average": average_accuracy(accuracies),
            "performance_drop": performance_drop(accuracies),
            "performance_retention": 100 * performance_retention(accuracies),
        }


def published_name(protocol: Protocol) -> str | None:
    """Return the name under which papers print a protocol's rows; None if they print none.

    A protocol that takes its shots from another one has that one's rows.
    """
    known = set(_table("published.csv")["protocol"])
    return next((name for name in protocol.published_as if name in known), None)


def published_rows(protocol: Protocol) -> list[PublishedRow]:
    """Return what is published for a protocol, the best last session at the end.

    Rows with other sessions than the protocol's are left out.
    """
    values, name = _table("published.csv"), published_name(protocol)
    if name is None:
        return []
    sources, recipes = _sources(), _recipes(name)
    terms, printed = (
        table[table["protocol"] == name].set_index("method").drop(columns="protocol")
        for table in (_table("published_terms.csv"), _table("published_printed.csv"))
    )
    terms["other_protocol"] = terms["other_protocol"] == "1"
    rows = [
        _row(
            lines,
            sources,
            Terms(**terms.loc[method]) if method in terms.index else Terms(),
            tuple(Printed(*line) for line in printed[printed.index == method].to_numpy()),
            recipes.get(str(method), {}),
        )
        for method, lines in values[values["protocol"] == name].groupby("method", sort=False)
    ]
    found = [row for row in rows if max(row.values) == protocol.sessions]
    return sorted(found, key=lambda row: row.accuracies(protocol.sessions)[-1])


def chosen_published(rows: Sequence[PublishedRow], names: str) -> list[PublishedRow]:
    """Return the published rows that are meant.

    Args:
        rows: of a protocol.
        names: `all`, `none`, or several with `;` between: of rows, or `paper:NAME` for all rows
            of which that paper prints an accuracy.

    Raises:
        UsageError: a name is not among them.
    """
    if names.strip() in ("all", "none"):
        return list(rows) if names.strip() == "all" else []
    methods = {row.method for row in rows}
    papers = {f"{PAPER}{name}" for row in rows for name in row.papers}
    wanted = set(filter(None, (name.strip() for name in names.split(";"))))
    for name in sorted(wanted - methods - papers):
        known = papers if name.startswith(PAPER) else methods
        hint = nearest(name, known) if known else "nothing is published for this protocol"
        raise UsageError(f"published={names!r}: no published row {name!r}; {hint}")
    return [
        row
        for row in rows
        if row.method in wanted or wanted & {f"{PAPER}{name}" for name in row.papers}
    ]


def of_measured(rows: Sequence[PublishedRow], measured: pd.DataFrame) -> list[PublishedRow]:
    """Return the published rows of methods that were measured.

    They are meant to be the same, on the representation that the published one needs, or have the
    same name.

    Args:
        rows: of a protocol.
        measured: `method`, `title` of the method, and `representation` of what was measured.
    """
    pairs = set(zip(measured["method"], measured["representation"], strict=True))
    alone, titles = set(measured["method"]), set(measured["title"])

    def same(counterpart: Counterpart | None) -> bool:
        if counterpart is None:
            return False
        own = counterpart.method, counterpart.representation
        return own in pairs if counterpart.representation else counterpart.method in alone

    return [row for row in rows if row.method in titles or same(row.counterpart)]


def _row(
    lines: pd.DataFrame,
    sources: Mapping[str, Source],
    terms: Terms,
    printed: tuple[Printed, ...],
    recipe: Mapping[str, str],
) -> PublishedRow:
    values = [
        Value(int(session), text, sources[source])
        for session, text, source in lines[["session", "accuracy", "source"]].to_numpy()
    ]
    told = list(zip(values, lines["disagrees"] == "1", strict=True))
    method, backbone, pretraining = lines[["method", "backbone", "pretrained"]].iloc[0]
    training = {name: text for name, text in recipe.items() if name not in COUNTERPART}
    return PublishedRow(
        method,
        backbone,
        pretraining,
        values={value.session: value for value, other in told if not other},
        others=tuple(value for value, other in told if other),
        terms=terms,
        printed=printed,
        training=Training(**training),
        counterpart=_counterpart(*(recipe[name] for name in COUNTERPART)) if recipe else None,
    )


def _counterpart(method: str, params: str, representation: str, own: str) -> Counterpart:
    def values(text: str) -> dict[str, str]:
        return dict(part.split("=") for part in words(text))

    return Counterpart(method, values(params), representation, values(own))


def _recipes(protocol: str) -> dict[str, dict[str, str]]:
    """Return a protocol's lines of the table of counterparts and trainings, by published name."""
    lines = _table("published_recipes.csv").to_dict("records")
    return {
        line["method"]: {
            str(key): text for key, text in line.items() if key not in ("protocol", "method")
        }
        for line in lines
        if line["protocol"] == protocol
    }


def _sources() -> dict[str, Source]:
    begins: dict[str, Paper] = {}
    for line in _table("published_papers.csv").to_dict("records"):
        own = tuple(filter(None, line["own"].split(";")))
        rest = {key: line[key] for key in ("title", "venue", "number", "link")}
        begins[line["begins"]] = Paper(line["paper"], own, **rest)

    def paper(text: str) -> Paper:
        return next(each for start, each in begins.items() if text.startswith(start))

    return {
        key: Source(
            printed,
            repeated,
            paper(printed),
            tuple(paper(each).name for each in filter(None, repeated.split("; "))),
        )
        for key, printed, repeated in _table("published_sources.csv").to_numpy()
    }


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / name, dtype=str, keep_default_na=False)
