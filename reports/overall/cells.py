"""Which runs speak of which method where: a cell is one protocol on one representation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from fscil_bench.defaults import STRONGER
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.choice import Chosen, chosen, own_rows, terms
from fscil_bench.reporting.frame import Results
from fscil_bench.reporting.labels import PLAIN, changed_params, method_title, named_values
from fscil_bench.reporting.statistics import PAIRING
from fscil_bench.reporting.usual import registered_protocol, ruler_variant, usual_params
from fscil_bench.running.commands import default_params
from fscil_bench.spec import RunSpec, digest_of

from .statistics import Task

TRAINED = ("recipe", "backbone", "pretraining", "images")
"""Fields of a protocol that a representation may change."""


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

    def task(self, methods: Sequence[str]) -> Task:
        """Return the values of methods, (methods, runs), over the seeds that all of them have."""
        if not set(methods) <= set(self.runs):
            return np.empty((len(methods), 0))
        shared = pd.concat([self.runs[method] for method in methods], axis=1, join="inner")
        return shared.to_numpy(float).T


def cells_of(results: Results, measure: str) -> tuple[list[Cell], list[str]]:
    """Return the cells of all protocols asked for, by name, and what was left out of them.

    Of each method the rows with nothing set by hand, and class means' stronger variant.
    Pseudo-incremental protocols, on which parameters are chosen, are none.
    """
    cells: list[Cell] = []
    notes: list[str] = []
    for protocol in dict.fromkeys(run.spec.protocol.name for run in results.runs):
        if results.selection.protocol not in (None, protocol):
            continue
        found = chosen(replace(results, selection=replace(results.selection, protocol=protocol)))
        if found.labels and found.spec(found.labels[0]).protocol.test_from_train is None:
            cells += _of_protocol(found, measure, notes)
            notes += found.notes
    return sorted(cells, key=lambda cell: cell.name), list(dict.fromkeys(notes))


def block(cells: Sequence[Cell]) -> tuple[list[str], list[Cell]]:
    """Return the methods and cells that are ranked: each of these methods has each of these cells.

    While any is missing, the method or else the cell goes that lacks the largest share.
    """
    kept = list(cells)
    methods = list(dict.fromkeys(method for cell in cells for method in cell.runs))
    while methods and kept:
        has = np.array([[method in cell.runs for cell in kept] for method in methods])
        if has.all():
            break
        of_methods, of_cells = (~has).mean(axis=1), (~has).mean(axis=0)
        if of_methods.max() >= of_cells.max():
            methods.pop(int(of_methods.argmax()))
        else:
            kept.pop(int(of_cells.argmax()))
    return methods, [cell for cell in kept if cell.task(methods).size]


def _of_protocol(found: Chosen, measure: str, notes: list[str]) -> Iterator[Cell]:
    registry, own = found.results.registry, own_rows(found, *TRAINED)
    meant = own.where(lambda s: usual_params(s, registry) or bool(ruler_variant(s, registry)))
    groups: dict[str, dict[str, list[str]]] = {}
    for label, spec in meant.specs.items():
        place = digest_of([spec.representation.shared(), spec.views])
        groups.setdefault(place, {}).setdefault(digest_of(terms(spec)), []).append(label)
    names: Counter[str] = Counter()
    for by_terms in groups.values():
        # Of rows that cannot be compared (another engine, other shots) most of them, or the newest.
        *_, labels = sorted(by_terms.values(), key=lambda own: (len(own), _newest(meant, own)))
        spec = meant.spec(labels[0])
        name = _name(spec, registry)
        names[name] += 1
        name += f" #{names[name]}" if names[name] > 1 else ""
        left = sum(map(len, by_terms.values())) - len(labels)
        if left:
            notes.append(f"{name}: {left} row{'s' * (left > 1)} of other shots or code left out.")
        runs = {m: _values(meant.of(label), measure) for m, label in _methods(meant, labels)}
        yield Cell(name, spec.protocol.dataset, {m: own for m, own in runs.items() if len(own)})


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


def _name(spec: RunSpec, registry: Registry) -> str:
    brought = spec.representation
    words = [
        brought.name,
        *named_values(changed_params(registry, "representation", brought.name, brought.params)),
        *([brought.backbone] * (brought.backbone != registered_protocol(spec, registry).backbone)),
        *([spec.views] * (spec.views != PLAIN)),
    ]
    return f"{spec.protocol.name} [{', '.join(words)}]"
