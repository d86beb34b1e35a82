"""Which runs speak of which method where: a cell is one protocol on one representation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from fscil_bench.defaults import STRONGER
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import FEATURES
from fscil_bench.report import Lack
from fscil_bench.reporting.choice import Chosen, check_names, chosen, own_split, terms
from fscil_bench.reporting.frame import Results
from fscil_bench.reporting.labels import PLAIN, changed_params, method_title, named_values
from fscil_bench.reporting.lacks import lacking_scores
from fscil_bench.reporting.statistics import PAIRING
from fscil_bench.reporting.usual import (
    on_own_terms,
    registered_protocol,
    ruler_variant,
    usual_params,
)
from fscil_bench.request import seeds_text
from fscil_bench.running.commands import changes, default_params
from fscil_bench.spec import RunSpec, brought_title, digest_of

from .statistics import Task

NETWORK = ("backbone", "pretraining", "images")
"""Fields of a protocol that a representation may change; the recipe too, if nothing is trained."""


@dataclass(frozen=True)
class Cell:
    """One protocol on one representation.

    Attributes:
        dataset: whose images they are; cells of one data set are no independent evidence.
        runs: a measure by method, each indexed by representation_seed and seed.
    """

    name: str
    dataset: str
    runs: Mapping[str, pd.Series]

    @cached_property
    def together(self) -> frozenset[str]:
        """The methods that can be ranked: those with the seeds that most methods have."""
        counts = Counter(seeds for own in self.runs.values() for seeds in own.index)
        most = max(counts.values(), default=0)
        first = min((seeds for seeds, count in counts.items() if count == most), default=None)
        return frozenset(method for method, own in self.runs.items() if first in own.index)

    def task(self, methods: Sequence[str]) -> Task:
        """Return the values of methods, (methods, runs), over the seeds that all of them have."""
        if not set(methods) <= set(self.runs):
            return np.empty((len(methods), 0))
        shared = pd.concat([self.runs[method] for method in methods], axis=1, join="inner")
        return shared.to_numpy(float).T

    def apart(self) -> Iterator[str]:
        """Say which methods share no seed with others, so that these are no pair here."""
        for method in self.runs:
            others = [m for m in self.runs if m != method and not self.task([method, m]).size]
            if others and method not in self.together:
                yield (
                    f"{self.name}: {method} has {_seeds(self.runs[method])} alone and shares none "
                    f"with {', '.join(others)}: no pair there."
                )


@dataclass
class Left:
    """What cells lack.

    Attributes:
        notes: what is stored and was left out, with the reason.
        lacks: what would have to be made.
    """

    notes: list[str] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)


def cells_of(results: Results, measure: str, every: bool) -> tuple[list[Cell], Left]:
    """Return the cells of all protocols asked for, by name, and what was left out of them.

    Of each method the rows with nothing set by hand, and class means' stronger variant. Rows on
    other shots, sessions or recipe than their protocol's make cells of their own if `every` is
    true, else none. Pseudo-incremental protocols, on which parameters are chosen, are none.
    """
    check_names(results)
    cells: list[Cell] = []
    left = Left()
    for protocol in dict.fromkeys(run.spec.protocol.name for run in results.runs):
        if results.selection.protocol not in (None, protocol):
            continue
        found = chosen(replace(results, selection=replace(results.selection, protocol=protocol)))
        if found.labels and found.spec(found.labels[0]).protocol.test_from_train is None:
            cells += _of_protocol(found, measure, every, left)
            left.notes += found.notes
    left.notes = list(dict.fromkeys(left.notes))
    return sorted(cells, key=lambda cell: cell.name), left


def block(cells: Sequence[Cell]) -> tuple[list[str], list[Cell]]:
    """Return the methods and cells that are ranked: in each cell all of them share some seeds.

    A cell of one method ranks nothing. While any is missing, the method or else the cell goes that
    lacks the largest share.
    """
    kept = [cell for cell in cells if len(cell.together) > 1]
    methods = list(dict.fromkeys(method for cell in kept for method in cell.runs))
    while methods and kept:
        has = np.array([[method in cell.together for cell in kept] for method in methods])
        if has.all():
            break
        of_methods, of_cells = (~has).mean(axis=1), (~has).mean(axis=0)
        if of_methods.max() >= of_cells.max():
            methods.pop(int(of_methods.argmax()))
        else:
            kept.pop(int(of_cells.argmax()))
    return methods, kept


def _of_protocol(found: Chosen, measure: str, every: bool, left: Left) -> Iterator[Cell]:
    registry, split = found.results.registry, own_split(found)
    meant = found.where(lambda s: usual_params(s, registry) or bool(ruler_variant(s, registry)))
    others = {
        label: told for label, s in meant.specs.items() if (told := _others(s, split, registry))
    }
    if others and not every:
        meant = meant.keep(label for label in meant.labels if label not in others)
        told = "; ".join(dict.fromkeys(others.values()))
        left.notes.append(
            f"{found.spec(found.labels[0]).protocol.name}: {len(others)} "
            f"row{'s' * (len(others) > 1)} on other terms than the protocol's left out ({told}); "
            "--set all=true takes them, as cells of their own."
        )
    groups: dict[str, dict[str, list[str]]] = {}
    for label, spec in meant.specs.items():
        apart = _others(spec, split, registry)
        place = digest_of([spec.representation.shared(), spec.views, apart])
        groups.setdefault(place, {}).setdefault(digest_of(terms(spec)), []).append(label)
    names: Counter[str] = Counter()
    for by_terms in groups.values():
        # Of rows that cannot be compared (another engine, other shots) most of them, or the newest.
        *_, labels = sorted(by_terms.values(), key=lambda own: (len(own), _newest(meant, own)))
        spec = meant.spec(labels[0])
        name = _name(spec, _others(spec, split, registry), registry)
        names[name] += 1
        name += f" #{names[name]}" if names[name] > 1 else ""
        rest = sum(map(len, by_terms.values())) - len(labels)
        if rest:
            left.notes.append(
                f"{name}: {rest} row{'s' * (rest > 1)} of other shots or code left out."
            )
        shown = dict(_methods(meant, labels))
        left.lacks += lacking_scores(meant.keep(shown.values()), [measure])
        runs = {method: _values(meant.of(label), measure) for method, label in shown.items()}
        empty = [method for method, own in runs.items() if not len(own)]
        if empty:
            left.notes.append(f"{name}: {', '.join(empty)} left out, whose runs lack the measure.")
        if len(empty) < len(runs):
            whole = {method: own for method, own in runs.items() if len(own)}
            yield Cell(name, spec.protocol.dataset, whole)


def _methods(meant: Chosen, labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each method's name and its row: as its paper states it, if there is one, or newest."""
    registry = meant.results.registry

    def rank(label: str) -> tuple[bool, str]:
        spec = meant.spec(label)
        published = default_params(registry, "method", spec.method, spec.protocol)
        return all(published.get(k, v) == v for k, v in spec.params.items()), _newest(
            meant, [label]
        )

    # The last of a name stays.
    yield from {
        _method(meant.spec(label), registry): label for label in sorted(labels, key=rank)
    }.items()


def _method(spec: RunSpec, registry: Registry) -> str:
    title = method_title(spec.method, registry)
    stronger = ruler_variant(spec, registry) == "stronger"
    return f"{title} ({', '.join(named_values(STRONGER))})" if stronger else title


def _newest(chosen: Chosen, labels: Sequence[str]) -> str:
    return max(str(chosen.of(label)["created"].max()) for label in labels)


def _values(runs: pd.DataFrame, measure: str) -> pd.Series:
    return runs.set_index(list(PAIRING))[measure].dropna()


def _name(spec: RunSpec, others: str, registry: Registry) -> str:
    brought, usual = spec.representation, registered_protocol(spec, registry).backbone
    words = [
        brought_title(brought),
        *named_values(
            changed_params(registry, "representation", brought.name, brought.params, spec.protocol)
        ),
        *([brought.backbone] * (brought.backbone not in (usual, FEATURES))),
        *([spec.views] * (spec.views != PLAIN)),
    ]
    own = f" ({others})" if others else ""
    return f"{spec.protocol.name}{own} [{', '.join(words)}]"


def _others(spec: RunSpec, split: str | None, registry: Registry) -> str:
    """Return in what but its network a run is not on its protocol's own terms; empty if it is."""
    untrained = spec.protocol.recipe.epochs == 0 or spec.representation.network
    apart = (*NETWORK, *(["recipe"] if untrained else []))
    if on_own_terms(spec, registry, *apart, split=split):
        return ""
    changed = changes(spec.protocol, registry)
    if spec.split != (split or registered_protocol(spec, registry).split):
        changed |= {"split": spec.split}
    told = named_values({name: v for name, v in changed.items() if name not in NETWORK})
    return ", ".join(told) or "another version of the protocol"


def _seeds(runs: pd.Series) -> str:
    """Return the seeds of runs; those of base training too, unless it is the first alone."""
    trained, own = (sorted(set(runs.index.get_level_values(name))) for name in PAIRING)
    text = f"seed{'s' * (len(own) > 1)} {seeds_text(own)}"
    return text if trained == [0] else f"{text}, representation_seed {seeds_text(trained)}"
