"""Which rows of a table are meant: operations on the frame of runs.

What makes a specification the usual one is in `usual`, how rows are named in `labels` and how a
user names them in `selectors`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import pandas as pd

from fscil_bench.defaults import FIRST_METHOD, REPRESENTATION
from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.errors import FscilError, StoreError, UsageError, nearest
from fscil_bench.reporting.frame import Results, run_frame
from fscil_bench.reporting.labels import row_labels
from fscil_bench.reporting.selectors import fitting
from fscil_bench.reporting.statistics import PAIRING
from fscil_bench.reporting.usual import (
    on_own_terms,
    registered_protocol,
    ruler_variant,
    usual_params,
    usual_representation,
    usual_run,
)
from fscil_bench.request import Selection
from fscil_bench.running.commands import for_copies, plugin_words, protocol_word
from fscil_bench.running.sessions import SPLITS, outlier_fraction
from fscil_bench.spec import RepresentationSpec, RunSpec
from fscil_bench.store.runs import StoredRun

Made = TypeVar("Made", bound=StoredRun | StoredEpisodes)


@dataclass(frozen=True)
class Chosen:
    """Table rows: each averages runs that are alike in everything but the axes of chance.

    Attributes:
        results: where they come from.
        frame: a row for each run (`run_frame`), indexed by `key`, with the `label` of its table
            row, unique to that, and how many runs of it were left out, `older` (earlier code made
            them) and `repeated` (a newer one has the same seeds). Runs of one label stand together
            by (representation_seed, seed), labels in the order of the table.
        notes: what was left out, for readers.
        problems: what cannot be read.
    """

    results: Results
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows, in order."""
        return tuple(self.frame["label"].unique())

    @cached_property
    def specs(self) -> dict[str, RunSpec]:
        """The specification of each row's first run; others differ from it in their seeds alone."""
        firsts = self.frame.drop_duplicates("label")["label"]
        return {label: self.results.run(str(key)).spec for key, label in firsts.items()}

    def of(self, label: str) -> pd.DataFrame:
        """Return the runs of a row."""
        return self._parts[label]

    @cached_property
    def _parts(self) -> dict[str, pd.DataFrame]:
        grouped = self.frame.groupby("label", sort=False)
        return {str(label): part for label, part in grouped}

    def spec(self, label: str) -> RunSpec:
        """Return the specification of a row's first run."""
        return self.specs[label]

    def runs(self, label: str) -> list[StoredRun]:
        """Return the stored runs of a row."""
        return [self.results.run(str(key)) for key in self.of(label).index]

    def axes(self, label: str) -> set[tuple[int, int]]:
        """Return the pairs (representation_seed, seed) that a row has."""
        return set(self.of(label)[list(PAIRING)].itertuples(index=False, name=None))

    @cached_property
    def sessions(self) -> pd.DataFrame:
        """The results frame of these runs, with their `label`, in order of labels."""
        found = self.results.frame.set_index("key").loc[self.frame.index].reset_index()
        return found.assign(label=found["key"].map(self.frame["label"]))

    def keep(self, labels: Iterable[str]) -> Chosen:
        """Return some of the rows, in the order given, under the shortest labels that tell these.

        A label can change by that: `row` identifies a row for good.
        """
        parts = [self.of(label) for label in labels]
        frame = pd.concat(parts) if parts else self.frame.iloc[:0]
        return replace(self, frame=labelled(frame, self.results))

    def where(self, meant: Callable[[RunSpec], bool]) -> Chosen:
        """Return the rows of which that is true."""
        return self.keep(label for label in self.labels if meant(self.specs[label]))


Choice = Callable[[Chosen], Chosen]
"""Which of a protocol's rows are meant where none is asked for by its own terms."""


def asked_for(spec: RunSpec, selection: Selection) -> bool:
    """Return whether a selection asks for runs of a specification."""
    return (
        selection.protocol in (None, spec.protocol.name)
        and (not selection.methods or spec.method in selection.methods)
        and (not selection.representations or spec.representation.name in selection.representations)
        and (not selection.seeds or spec.seed in selection.seeds)
        and selection.split in (None, spec.split)
    )


def of_one_network(made: Sequence[Made]) -> tuple[list[Made], list[Made]]:
    """Return what was made from one network for each training, that of the newest, and the rest.

    One specification trains other weights on another machine, or with other threads, and what
    differs between two networks is not the methods'. A record that does not tell its network has
    the one that others with its representation have, if that is one; else one of its own.
    """
    trained = [_representation(each) for each in made]
    frame = pd.DataFrame(
        {
            "training": [spec.training for spec in trained],
            "key": [spec.key for spec in trained],
            "network": [each.record.network or None for each in made],
            "created": [each.record.created for each in made],
        },
        dtype=object,
    )
    known = frame.groupby("key")["network"]
    frame["network"] = frame["network"].fillna(
        known.transform("first").where(known.transform("nunique") == 1, frame["key"])
    )
    ordered = frame.sort_values("created", kind="stable")
    newest = ordered.groupby("training")["network"].transform("last")
    kept = frame["network"].eq(newest)
    parts = {side: [made[place] for place in kept.index[kept == side]] for side in (True, False)}
    return parts[True], parts[False]


def other_network_lines(left: Sequence[StoredRun | StoredEpisodes], what: str) -> list[str]:
    """Say how many `what` (in the singular) of each training `of_one_network` leaves out."""
    groups: dict[tuple[str, int], list[str]] = {}
    for each in left:
        brought = _representation(each)
        groups.setdefault((brought.name, brought.seed), []).append(_run_spec(each).method)
    return [
        f"{len(methods)} {what}{'s' * (len(methods) > 1)} of {', '.join(sorted(set(methods)))} "
        f"left out: made from another network of representation {name}, representation_seed "
        f"{seed}, than the newest, so that more than the methods would differ."
        for (name, seed), methods in groups.items()
    ]


def _run_spec(made: StoredRun | StoredEpisodes) -> RunSpec:
    return made.spec if isinstance(made, StoredRun) else made.spec.run


def _representation(made: StoredRun | StoredEpisodes) -> RepresentationSpec:
    return _run_spec(made).representation


def current(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a run frame that may be averaged, rows in order of their first run.

    Of several code versions of a row the one with the newest run stays, and of several runs with
    the same seeds the newest. `older` and `repeated` say how many of its row were left out.
    """
    ordered = runs.sort_values("created", kind="stable")
    newest = ordered.groupby("row", sort=False)["version"].transform("last")
    valid = ordered[ordered["version"] == newest]
    kept = valid.drop_duplicates(["row", *PAIRING], keep="last")
    stored, ours, left = (each["row"].value_counts() for each in (ordered, valid, kept))
    kept = kept.assign(
        older=kept["row"].map(stored - ours),
        repeated=kept["row"].map(ours - left),
        place=kept["row"].map({row: place for place, row in enumerate(ordered["row"].unique())}),
    )
    return kept.sort_values(["place", *PAIRING], kind="stable").drop(columns="place")


def labelled(runs: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return a run frame with the `label` of each run's row."""
    firsts = runs.drop_duplicates("row")
    specs = [results.run(str(key)).spec for key in firsts.index]
    labels = dict(zip(firsts["row"], row_labels(specs, results.registry), strict=True))
    return runs.assign(label=runs["row"].map(labels).astype(object))


def chosen(results: Results) -> Chosen:
    """Return all rows that the selection asks for, in order of their first run.

    Each representation seed has one network (`of_one_network`).
    """
    asked = [run for run in results.runs if asked_for(run.spec, results.selection)]
    problems = [results.damaged[run.key] for run in asked if run.key in results.damaged]
    whole = [run for run in asked if run.key not in results.damaged]
    kept, left = of_one_network(whole)
    frame = results.frame
    runs = current(run_frame(frame[frame["key"].isin([run.key for run in kept])]))
    notes = tuple(other_network_lines(left, "run"))
    return Chosen(results, labelled(runs, results), notes, (*results.unread_runs, *problems))


def rows_of_protocol(results: Results, report: str, rows: str = "") -> Chosen:
    """Return the rows that were asked for, best last session first.

    Args:
        results: what is stored, and the selection.
        report: its name, for messages.
        rows: selectors of rows, with `;` between; empty takes all rows of the selection.

    Raises:
        UsageError: no protocol was named, or a name or row that is not there.
        FscilError: nothing stored fits; the message gives a command that would make a run.
        StoreError: nothing that fits can be read.
    """
    _check_asked(results, report)
    found = chosen(results)
    if found.frame.empty:
        raise StoreError("no run can be read; " + "; ".join(found.problems))
    found = found.keep(fitting(rows, found.specs))
    last = found.frame.groupby("label", sort=False)["last"].mean()
    return found.keep(last.sort_values(ascending=False, kind="stable").index)


ELSEWHERE = (
    "No stored row is on the protocol's own shots, sessions, class order and recipe: rows on other "
    "terms stand in their place, and need not be alike."
)


def meant_rows(
    results: Results, report: str, rows: str, every: bool, choose: Choice | None = None
) -> Chosen:
    """Return the rows that are meant, with a note on those left out.

    Where neither `rows` nor a split is asked for, nor `every` row, these are what `choose` takes,
    by default `usual_rows`: after a few studies a method has dozens of rows, which its name alone
    does not mean.

    Raises:
        UsageError: as `rows_of_protocol` does, and the other errors too.
    """
    found = rows_of_protocol(results, report, rows)
    if every or rows.strip() or results.selection.split:
        return found
    kept = (choose or usual_rows)(found)
    registry, split = results.registry, own_split(found)
    if not any(on_own_terms(spec, registry, split=split) for spec in kept.specs.values()):
        kept = replace(kept, notes=(*kept.notes, ELSEWHERE))
    count = len(found.labels) - len(kept.labels)
    note = (
        f"{count} more {'row is' if count == 1 else 'rows are'} stored, with parameters set by "
        "hand or on other terms than the protocol's: shots, sessions, class order or recipe "
        "(--set all=true takes them too, --set rows=... some of them)."
    )
    return replace(kept, notes=(*kept.notes, note)) if count else kept


def plain_command(
    method: str, results: Results, representation: str | None, seeds: str | int
) -> str:
    """Return the command for runs of which nothing is stored that it could be copied from.

    Split, network and copy are those of what is stored on the same data.
    """
    registry, selection = results.registry, results.selection
    name, split, dataset = selection.protocol or "", selection.split, None
    if name in registry.names("protocol"):
        protocol, _ = registry.protocol(name)
        dataset, split = protocol.dataset, split or results.drawn_split(protocol)
    if method in registry.names("representation"):
        representation = representation or method
    words = plugin_words(registry, method, dataset, representation or REPRESENTATION)
    words += ["--method", method, "--protocol", protocol_word(name, registry)]
    words += ["--representation", representation] if representation else []
    words += ["--split", split] if split else []
    standing = results.standing(name, representation or REPRESENTATION)
    words += ["--representation-seed", str(standing.seed)] if standing.seed else []
    words += standing.words
    command = f"fscil-bench run {shlex.join([*words, '--seeds', str(seeds)])}"
    return for_copies(command, registry, results.copies)


def own_rows(found: Chosen, *apart: str) -> Chosen:
    """Return the rows on their protocol's own shots, sessions and recipe; all, if there is none.

    But for the fields `apart` of the protocol.
    """
    registry, split = found.results.registry, own_split(found)
    own = found.where(lambda spec: on_own_terms(spec, registry, *apart, split=split))
    return own if own.labels else found


def own_split(found: Chosen) -> str | None:
    """Return the split that a protocol's rows are meant to be on, None for the protocol's own.

    Where no row has that, the shots are drawn: a copy of the data may have no published ones.
    """
    registry = found.results.registry
    own = (spec.split == registered_protocol(spec, registry).split for spec in found.specs.values())
    return None if any(own) else "seeded"


def usual_rows(found: Chosen, *apart: str) -> Chosen:
    """Return the rows that are meant where only methods are named.

    On their protocol's shots, sessions, class order and recipe, but for the fields `apart`; of each
    method those with nothing set by hand, and of class means the stronger variant too. A method
    without any such row keeps all its rows.
    """
    registry, split = found.results.registry, own_split(found)

    def meant(spec: RunSpec) -> bool:
        plain = usual_params(spec, registry) or bool(ruler_variant(spec, registry))
        own = on_own_terms(spec, registry, *apart, split=split)
        return plain and usual_representation(spec, registry) and own

    having = {spec.method for spec in found.specs.values() if meant(spec)}
    return found.where(lambda spec: spec.method not in having or meant(spec))


def drawn_rows(found: Chosen, most: int) -> Chosen:
    """Return at most `most` rows, in their order, for a figure that can tell no more apart.

    Of each method on each representation one comes first, the one with nothing set by hand if
    there is one; then a second of each, and so on. Rows of another shape than the protocol's come
    last.
    """
    registry, specs = found.results.registry, found.specs

    def rank(label: str) -> tuple[bool, bool]:
        return not usual_run(specs[label], registry), not usual_params(specs[label], registry)

    counts: Counter[tuple[str, str, str]] = Counter()
    turns: dict[str, tuple[bool, int]] = {}
    for label in sorted(specs, key=rank):
        spec = specs[label]
        kind = spec.method, spec.representation.name, spec.views
        turns[label] = not on_own_terms(spec, registry, "recipe"), counts[kind]
        counts[kind] += 1
    kept = set(sorted(specs, key=turns.__getitem__)[:most])
    return found.keep(label for label in found.labels if label in kept)


def terms(spec: RunSpec) -> dict[str, str]:
    """Return what two rows must share so that a run of one answers the same as one of the other.

    The same classes, shots and test images, and an engine that draws and counts them alike.
    """
    shared = ("class_order", "base_classes", "way", "shot", "sessions", "test_from_train")
    return {
        "split": spec.split,
        "shots": str(spec.shots),
        **{name: str(getattr(spec.protocol, name)) for name in shared},
        "data fingerprint": spec.representation.data_fingerprint,
        "engine": spec.engine,
    }


def on_equal_terms(chosen: Chosen, *apart: str) -> list[list[str]]:
    """Return the labels of rows whose terms are alike but for some, in order of appearance."""
    found = pd.DataFrame({label: terms(spec) for label, spec in chosen.specs.items()}).T
    alike = found.groupby([name for name in found if name not in apart], sort=False)
    return [list(group.index) for _, group in alike]


def _check_asked(results: Results, report: str) -> None:
    """Refuse a selection that nothing stored fits.

    Raises:
        UsageError: it names no protocol, or something that is not there.
        FscilError: its runs could be made, but are not stored.
    """
    selection, specs = results.selection, [run.spec for run in results.runs]
    check_names(results)
    stored = ", ".join(sorted({spec.protocol.name for spec in specs})) or "none"
    if selection.protocol is None:
        raise UsageError(f"{report} shows one protocol: name it with --protocol; stored: {stored}")
    if any(asked_for(spec, selection) for spec in specs):
        return
    methods = selection.methods or (FIRST_METHOD,)
    brought = next(iter(selection.representations), None)
    seed = next(iter(selection.seeds), 0)
    raise FscilError(
        f"no stored run fits protocol {selection.protocol!r} and what else was asked for "
        f"(protocols with runs: {stored}); make one: "
        f"{plain_command(methods[0], results, brought, seed)}"
    )


def check_names(results: Results) -> None:
    """Refuse names that are neither stored nor registered: no command could make their runs.

    Raises:
        UsageError: the selection has one.
    """
    selection, specs = results.selection, [run.spec for run in results.runs]
    asked = [] if selection.protocol is None else [selection.protocol]
    named: Mapping[str, tuple[Iterable[str], set[str]]] = {
        "protocol": (asked, {spec.protocol.name for spec in specs}),
        "method": (selection.methods, {spec.method for spec in specs}),
        "representation": (selection.representations, {s.representation.name for s in specs}),
    }
    split, splits = selection.split, {*SPLITS, *(spec.split for spec in specs)}
    if split is not None and outlier_fraction(split) is None and split not in splits:
        raise UsageError(f"unknown split {split!r}; {nearest(split, splits)}")
    for kind, (names, stored) in named.items():
        known = stored | set(results.registry.names(kind))
        for name in names:
            if name not in known:
                told = results.registry.other_kind(name) or nearest(name, known)
                raise UsageError(f"unknown {kind} {name!r}; {told}")
