"""What a grid has to make, as a graph: networks, their views, what is learnt on them, runs.

A node is keyed by what decides its result: it is made once, however many runs need it. Runs take
seconds, so that they come in batches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Literal

from fscil_bench.errors import StoreError
from fscil_bench.grids.times import Times
from fscil_bench.protocol import FEATURES
from fscil_bench.request import RunRequest, seeds_text
from fscil_bench.running.workbench import Plan, Workbench, learnt_file
from fscil_bench.spec import RunSpec, Views, brought_title, digest_of
from fscil_bench.store.runs import Store, StoredRun
from fscil_bench.training.features import has_features, weights_file

Kind = Literal["network", "view", "learnt", "runs"]
BATCH_SECONDS = 60.0
"""What a batch of runs should take: long beside a task's overhead, short beside a grid."""
MOST_RUNS, UNKNOWN_RUNS = 500, 25
"""Runs of a batch at most, and where their time is not known."""


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed alone; `plan` is that of the first."""

    request: RunRequest
    plan: Plan
    seeds: tuple[int, ...]

    def spec(self, seed: int) -> RunSpec:
        """Return the specification of one of them."""
        return self.plan.spec.model_copy(update={"seed": seed})

    def key(self, seed: int) -> str:
        """Return the key of one of them, a hundred times faster than from its specification."""
        return digest_of(self._fields | {"seed": seed})

    @cached_property
    def _fields(self) -> dict[str, object]:
        return self.plan.spec.model_dump()

    def title(self, seeds: Sequence[int]) -> str:
        """Name some of them in a line."""
        spec = self.plan.spec
        told = f"seed{'s' * (len(seeds) > 1)} {seeds_text(seeds)}"
        return f"{spec.method} on {_place(self.plan)}, {told}"


@dataclass(frozen=True)
class Node:
    """Something that is made by one process at a time.

    Attributes:
        kind: what it is.
        key: identifies it by what decides it.
        title: names it in a message.
        row: one of the rows that need it.
        needs: keys of the nodes that must be made before.
        seeds: of a batch of runs.
        view: of a view its name, the half of the data, and how features are read.
        on_gpu: whether it takes a GPU, where workers have some.
        seconds: what it should take; None where that is not known.
    """

    kind: Kind
    key: str
    title: str
    row: Row
    needs: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    view: tuple[str, str, Views] | None = None
    on_gpu: bool = False
    seconds: float | None = None

    @property
    def devices(self) -> int:
        """How many devices it takes at once: more than one for a training alone."""
        own = self.row.plan.spec.representation
        return own.devices if self.kind == "network" and not own.network else 1


@dataclass
class Graph:
    """A grid: what is stored of it, and what is to be made.

    Attributes:
        rows: what was asked for.
        nodes: what is to be made by key, each after those that it needs.
        runs: what is stored, by row and seed.
        damaged: stored runs that cannot be read and are not made again, with the reason, likewise.
        stored: how many nodes of a kind need not be made; of runs, how many.
    """

    rows: list[Row]
    nodes: dict[str, Node] = field(default_factory=dict)
    runs: dict[tuple[int, int], StoredRun] = field(default_factory=dict)
    damaged: dict[tuple[int, int], StoreError] = field(default_factory=dict)
    stored: Counter[Kind] = field(default_factory=Counter)
    _there: set[str] = field(default_factory=set)

    def add(self, node: Node, stored: bool) -> bool:
        """Take a node up, unless it is stored; return whether it is to be made."""
        if not stored:
            self.nodes.setdefault(node.key, node)
        elif node.key not in self._there:
            self._there.add(node.key)
            self.stored[node.kind] += 1
        return not stored

    def of(self, kind: Kind) -> list[Node]:
        """Return the nodes of a kind that are to be made."""
        return [node for node in self.nodes.values() if node.kind == kind]

    @property
    def missing(self) -> int:
        """How many runs are to be made."""
        return sum(len(node.seeds) for node in self.of("runs"))

    def lines(self) -> Iterator[str]:
        """Yield the graph as lines: a node each, the batches of a row together."""
        for kind in ("network", "view", "learnt"):
            for node in self.of(kind):
                yield f"{_NAMES[kind]:<9} {node.title}: {_hours([node])}"
        for row, batches in groupby(self.of("runs"), key=lambda node: node.row):
            own = list(batches)
            seeds = [seed for node in own for seed in node.seeds]
            told = f"{len(seeds)} run{'s' * (len(seeds) > 1)} in {len(own)} batch"
            yield f"{'runs':<9} {row.title(seeds)}: {told}{'es' * (len(own) > 1)}, {_hours(own)}"

    def summary(self, workers: int = 1) -> str:
        """Return in a line what is stored, what would be made, and how long that takes."""
        made = Counter(node.kind for node in self.nodes.values())
        parts = []
        for kind, name in _PLURALS.items():
            todo = self.missing if kind == "runs" else made[kind]
            parts.append(f"{name}: {todo} to make, {self.stored[kind]} stored")
        if self.damaged:
            parts[-1] += f", {len(self.damaged)} damaged"
        return f"{'; '.join(parts)}; {_hours(list(self.nodes.values()), workers)}"


_NAMES = {"network": "network", "view": "features", "learnt": "learnt"}
_PLURALS: Mapping[Kind, str] = {
    "network": "networks",
    "view": "halves of features",
    "learnt": "learnt from base data",
    "runs": "runs",
}


def rows_of(bench: Workbench, requests: Sequence[RunRequest]) -> list[Row]:
    """Resolve requests: those that follow one another and differ in their seed alone, once."""
    rows = []
    for first, alike in groupby(requests, key=_Alike):
        seeds = tuple(request.seed for request in alike)
        rows.append(Row(first.request, bench.plan(first.request), seeds))
    return rows


def graph_of(
    store: Store,
    rows: list[Row],
    times: Times,
    workers: int = 1,
    force: bool = False,
    artifacts: bool = False,
    shared: bool = True,
) -> Graph:
    """Return what is to be made of rows, and what is stored.

    Args:
        store: where it is stored.
        rows: what was asked for.
        times: what earlier work took.
        workers: how many processes share the work.
        force: make stored runs again.
        artifacts: runs must have their named arrays.
        shared: whether workers see the store's cache.
    """
    graph = Graph(rows)
    for number, row in enumerate(rows):
        missing = []
        present = {} if force else _present(store, row, artifacts)
        for seed in row.seeds:
            found = present.get(seed)
            if found is None:
                missing.append(seed)
            elif isinstance(found, StoreError):
                graph.damaged[number, seed] = found
            else:
                graph.runs[number, seed] = found
                graph.stored["runs"] += 1
        if missing:
            _add(graph, store, row, missing, times, workers, shared)
    return graph


@dataclass(frozen=True, eq=False)
class _Alike:
    """A request compared without its seed."""

    request: RunRequest

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Alike)
        return self.request == replace(other.request, seed=self.request.seed)


def _present(store: Store, row: Row, artifacts: bool) -> dict[int, StoredRun | StoreError]:
    """Return the stored runs of a row by seed, or what is wrong with them.

    One folder is listed, however many there are.
    """
    parent = store.run_folder(row.plan.spec).parent
    listed = {path.name for path in parent.glob("*")} if parent.is_dir() else set()
    if not listed:
        return {}
    found: dict[int, StoredRun | StoreError] = {}
    for seed in row.seeds:
        if row.key(seed) in listed:
            try:
                run = store.find(row.spec(seed))
            except StoreError as error:
                found[seed] = error
                continue
            if run is not None and (not artifacts or _has_arrays(run)):
                found[seed] = run
    return found


def _has_arrays(run: StoredRun) -> bool:
    try:
        return bool(run.artifacts())
    except StoreError:
        return False


def _add(
    graph: Graph,
    store: Store,
    row: Row,
    missing: Sequence[int],
    times: Times,
    workers: int,
    shared: bool,
) -> None:
    """Add the batches of a row's missing runs to a graph, and what they need."""
    plan, spec, needs = row.plan, row.plan.spec, row.plan.method.needs
    key = spec.representation.key
    before: list[str] = []

    def add(node: Node, stored: bool) -> None:
        if graph.add(node, stored):
            before.append(node.key)

    trained = weights_file(store, key).exists()
    network = Node(
        "network",
        f"network-{key}",
        _network_title(spec),
        row,
        on_gpu=True,
        seconds=times.network(spec),
    )
    add(network, trained)
    from_network = tuple(before)
    for view in _views(plan):
        name, half, read = view
        there = trained and shared and has_features(store, key, name, half, read)
        node_key = f"view-{digest_of([key, *view])}"
        title = f"{name}{', mirrored' * (read == 'flip')}, {half} images, {_place(plan)}"
        add(
            Node("view", node_key, title, row, from_network, view=view, on_gpu=True),
            there,
        )
    if plan.method.has_pretraining():
        params = {name: spec.params[name] for name in plan.method.pretrain_params}
        parts = [spec.method, spec.code, spec.engine, spec.views, plan.final_class_count, params]
        learnt = Node(
            "learnt",
            f"learnt-{digest_of([key, *parts])}",
            f"{spec.method} from base data, {_place(plan)}",
            row,
            tuple(before),
            on_gpu=needs.images,
            seconds=times.learnt(spec),
        )
        add(learnt, trained and shared and learnt_file(store, plan).exists())
    seconds = times.run(spec)
    for seeds in _batches(missing, seconds, workers, alone=needs.images):
        graph.nodes[f"runs-{row.key(seeds[0])}-{len(seeds)}"] = Node(
            "runs",
            f"runs-{row.key(seeds[0])}-{len(seeds)}",
            row.title(seeds),
            row,
            tuple(before),
            seeds,
            on_gpu=needs.images,
            seconds=None if seconds is None else seconds * len(seeds),
        )


def _views(plan: Plan) -> list[tuple[str, str, Views]]:
    """Return the halves of features that a plan's runs read: view, half, how they are read."""
    if plan.dataset.features is not None:
        return []
    needs, read = plan.method.needs, plan.spec.views
    halves = ("train", "test")
    found = [(name, half, read) for name in needs.features for half in halves]
    found += [(name, "train", read) for name in needs.base_views]
    if plan.spec.split.startswith("outlier:"):
        found += [("plain", half, "plain") for half in halves]
    return list(dict.fromkeys(found))


def _batches(
    seeds: Sequence[int], seconds: float | None, workers: int, alone: bool
) -> Iterator[tuple[int, ...]]:
    """Yield seeds in batches: of some time, and so that every worker gets one."""
    if alone:
        size = 1
    elif seconds is None:
        size = UNKNOWN_RUNS
    else:
        size = min(MOST_RUNS, math.floor(BATCH_SECONDS / max(seconds, 1e-3)))
    size = max(1, min(size, math.ceil(len(seeds) / workers)))
    for start in range(0, len(seeds), size):
        yield tuple(seeds[start : start + size])


def _place(plan: Plan) -> str:
    spec = plan.spec
    seed = spec.representation.seed
    brought = brought_title(spec.representation)
    return f"{spec.protocol.name} [{brought}{f', seed {seed}' * bool(seed)}]"


def _network_title(spec: RunSpec) -> str:
    brought = spec.representation
    title = f"{brought_title(brought)} on {spec.protocol.name}"
    if brought.backbone == FEATURES:
        return title
    return f"{title}, {spec.protocol.backbone}, representation seed {brought.seed}"


def _hours(nodes: Sequence[Node], workers: int = 1) -> str:
    """Return how long nodes take, in hours of one process, or of several that share them."""
    known = [node.seconds for node in nodes if node.seconds is not None]
    unknown = len(nodes) - len(known)
    if not known:
        return "time not known" if nodes else "nothing to do"
    hours = sum(known) / 3600 / workers
    told = f"about {hours:.1f} h" if hours >= 0.1 else f"about {60 * hours:.1f} min"
    told += f" on {workers} processes" if workers > 1 else ""
    return f"{told}, without {unknown} of unknown time" if unknown else told
