"""A grid carried out: nodes handed to workers, runs taken as they come, failures named."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from fscil_bench.errors import FscilError, StoreError, WriteError, some
from fscil_bench.grids.graph import Graph, Kind, Node, Row, graph_of
from fscil_bench.grids.status import StatusFile
from fscil_bench.grids.times import Times
from fscil_bench.grids.work import TOPIC, Done, Job, make
from fscil_bench.grids.workers import (
    MOST_DEATHS,
    Pool,
    Workers,
    device_of,
    expected,
    opened,
    require,
)
from fscil_bench.options import Options, option
from fscil_bench.params import files_of
from fscil_bench.progress import Task
from fscil_bench.request import RunRequest
from fscil_bench.running.workbench import Workbench
from fscil_bench.spec import digest_of
from fscil_bench.store.files import replaced_file, replaced_folder
from fscil_bench.store.runs import Store, StoredRun
from fscil_bench.training.features import weights_file

if TYPE_CHECKING:
    from distributed import Future

Told = Callable[[str, StoredRun | BaseException], None]
LOOKS = 0.1
"""Seconds between two looks at what has finished."""
GUESSES: dict[Kind, float] = {"network": 600.0, "view": 20.0, "learnt": 60.0, "runs": 5.0}
"""Seconds of a node whose time is not known, of a batch by run: for the share that is done."""
TOPICS = ("all", TOPIC)
"""Events that are heard of: the scheduler's own, and how far workers are."""
SENT_BACK = ("network", "runs")
"""What the client writes where workers do not share its store."""


def run_grid(
    bench: Workbench,
    rows: list[Row],
    workers: Workers,
    told: Told,
    force: bool = False,
    artifacts: bool = False,
) -> list[StoredRun]:
    """Make all runs that are asked for on many processes, or take those that are stored.

    Args:
        bench: plans; its store takes the results.
        rows: what is asked for, resolved.
        workers: where the processes come from.
        told: is given the title of each run with what was made, or with the error.
        force: make stored runs again.
        artifacts: store the methods' named arrays too.

    Raises:
        FscilError: some runs failed, or the scheduler went away; the others are stored.
        UsageError: Dask is not installed, or no worker can be had.
        WriteError: results cannot be written.
    """
    shared, times = workers.store_through == "worker", Times(bench.store)

    def planned(count: int) -> Graph:
        return graph_of(bench.store, rows, times, count, force, artifacts, shared)

    graph = planned(workers.count)
    refuse_impossible(graph, workers, bench.options)
    made = {run.key: run for run in graph.runs.values()}
    for (number, seed), run in graph.runs.items():
        told(rows[number].title((seed,)), run)
    for (number, seed), error in graph.damaged.items():
        told(rows[number].title((seed,)), error)
    failed = len(graph.damaged)
    if graph.nodes:
        if workers.scheduler:
            bench.progress.say(f"connecting to {workers.scheduler}")
        with opened(workers, bench.options) as pool:
            graph = graph if pool.count == workers.count else planned(pool.count)
            bench.progress.say(
                f"{pool.count} workers of {pool.threads} thread{'s' * (pool.threads > 1)}, "
                f"{pool.gpus} with a GPU; dashboard {pool.client.dashboard_link}"
            )
            bench.progress.say(graph.summary(pool.count))
            execution = _Execution(bench, graph, pool, told, force, artifacts, shared)
            execution.run()
        made |= execution.made
        failed += execution.failed
    keys = [row.key(seed) for row in rows for seed in row.seeds]
    if failed:
        rest = "; the others are stored" if made else ""
        raise FscilError(f"{failed} of {len(keys)} runs failed{rest}")
    return [made[key] for key in keys]


def refuse_impossible(graph: Graph, workers: Workers, options: Options) -> None:
    """Refuse what no worker could make, as far as is known before any is started.

    Raises:
        UsageError: Dask is not installed, or workers lack the devices that are asked for.
    """
    require("dask_jobqueue" if workers.cluster else "distributed")
    machines = expected(workers, options)
    if machines is not None:
        for node in graph.nodes.values():
            device_of(machines, options, node.on_gpu, node.devices)


class _Execution:
    """One grid under way."""

    def __init__(
        self,
        bench: Workbench,
        graph: Graph,
        pool: Pool,
        told: Told,
        force: bool,
        artifacts: bool,
        shared: bool,
    ) -> None:
        self.bench, self.graph, self.pool, self.told = bench, graph, pool, told
        self.force, self.artifacts, self.shared = force, artifacts, shared
        self.options = everywhere(bench.options, bench.store, pool.threads)
        self.made: dict[str, StoredRun] = {}
        self.failed = self.failed_nodes = 0
        self._said: set[str] = set()
        self._sent: dict[str, Future] = {}
        self._weights = _weights(list(graph.nodes.values()))
        self._events: deque[tuple[float, Any]] = deque()
        self._begun: dict[str, dict[str, Any]] = {}
        self._deaths: Counter[str] = Counter()

    def run(self) -> None:
        """Hand all nodes to the workers, and take what comes back until all has.

        Raises:
            FscilError: the scheduler went away.
            WriteError: results cannot be written; what is not begun is not begun any more.
        """
        client = self.pool.client
        futures: dict[str, Future] = {}
        with ExitStack() as stack:
            stack.callback(self._cancel, futures)
            for topic in TOPICS:
                client.subscribe_topic(topic, self._events.append)
            for node in self.graph.nodes.values():
                futures[node.key] = self._submitted(node, futures)
            status = stack.enter_context(StatusFile(self.bench.store, client.dashboard_link))
            total = sum(self._weights.values())
            task = stack.enter_context(self.bench.progress.task("grid", total))
            self._take(futures, status, task)

    def _cancel(self, futures: dict[str, Future]) -> None:
        """Let nothing more be begun, where an error or the user ends the grid, nor be told."""
        if self.pool.client.status == "running":
            self.pool.client.cancel(list(futures.values()))
            for topic in TOPICS:
                self.pool.client.unsubscribe_topic(topic)

    def _take(self, futures: dict[str, Future], status: StatusFile, task: Task) -> None:
        from distributed import as_completed

        coming = as_completed(list(futures.values()), raise_errors=False)
        nodes = {futures[key].key: self.graph.nodes[key] for key in futures}
        done, weight, started = 0, 0.0, time.monotonic()
        ready: set[str] = set()
        while done < len(futures):
            for future in coming.next_batch(block=False):
                if future.status in ("lost", "pending"):
                    coming.add(future)  # its worker died right after: it is made again
                    continue
                self._finished(nodes[future.key], future)
                done += 1
                ready.add(nodes[future.key].key)
                weight += self._weights[nodes[future.key].key]
            if self.pool.client.status != "running":
                raise self._gone()
            self._hear(nodes)
            if status.due or done == len(futures):
                running = self._running(nodes)
                titles = tuple(map(self._far, running))
                reached = weight + sum(map(self._reached, running))
                if not foreseeable(self.graph, self._weights, ready):
                    reached = 0.0  # of which no time is told
                left = (sum(self._weights.values()) - reached) / reached if reached else None
                left = None if left is None else left * (time.monotonic() - started)
                status.write(done, self.failed_nodes, len(futures), titles, left)
                waiting = len(futures) - done - len(running)
                told = f"{done} of {len(futures)} tasks, {len(running)} running, {waiting} waiting"
                begun = [self._far(node) for node in running if node.key in self._begun]
                task.update(reached, f"{told}; {begun[0]}" if begun else told)
            time.sleep(LOOKS)

    def _hear(self, nodes: dict[str, Node]) -> None:
        """Take the events since the last look: how far workers are, and which of them died."""
        while self._events:
            _, event = self._events.popleft()
            if not isinstance(event, dict):
                continue
            if event.get("action") == "remove-worker" and not event["expected"]:
                self._tell_death([nodes[k] for k in event["processing-tasks"] if k in nodes])
            elif event.get("key") in self.graph.nodes:
                self._begun[event["key"]] = event

    def _tell_death(self, held: list[Node]) -> None:
        """Say that what a worker held is repeated, unless it has been too often."""
        for node in held:
            self._begun.pop(node.key, None)
            self._deaths[node.key] += 1
        again = [node.title for node in held if self._deaths[node.key] <= MOST_DEATHS]
        if again:
            self.bench.progress.say(f"a worker died; what it held is repeated: {some(again, 3)}")

    def _far(self, node: Node) -> str:
        """Return what a node is called, and how far it is."""
        begun = self._begun.get(node.key)
        return f"{node.title}: {begun['told']}" if begun else node.title

    def _reached(self, node: Node) -> float:
        """Return how much of the whole is done of a training under way."""
        begun = self._begun.get(node.key)
        return self._weights[node.key] * begun["share"] if begun and node.kind == "network" else 0.0

    def _running(self, nodes: dict[str, Node]) -> tuple[Node, ...]:
        """Return what workers hold, as the scheduler knows it."""
        try:
            held = self.pool.client.processing()
        except (OSError, TimeoutError, RuntimeError) as error:
            raise self._gone() from error
        keys = (str(key) for own in held.values() for key in own)
        return tuple(nodes[key] for key in keys if key in nodes)

    def _submitted(self, node: Node, futures: dict[str, Future]) -> Future:
        spec = node.row.plan.spec
        device, resources = device_of(self.pool, self.bench.options, node.on_gpu, node.devices)
        # The client's own choice: another measurement would make another network.
        options = self.options.changed(precision=spec.representation.precision, device=device)
        job = Job(
            kind=node.kind,
            key=node.key,
            options=options,
            request=replace(_absolute(node.row), seed=(node.seeds or node.row.seeds)[0]),
            expected=node.row.key((node.seeds or node.row.seeds)[0]),
            seeds=node.seeds,
            view=node.view,
            force=self.force,
            artifacts=self.artifacts,
            apart=not self.shared,
        )
        before = [futures[key] for key in node.needs]
        if not self.shared and f"network-{spec.representation.key}" not in self.graph.nodes:
            before.append(self._stored_network(spec.representation.key))
        # Clients of one scheduler share what is the same, and only that.
        name = [node.key, node.seeds, str(options), self.force, self.artifacts, self.shared]
        key = f"{node.key}-{digest_of(name)}"
        return self.pool.client.submit(make, job, *before, key=key, resources=resources, pure=True)

    def _stored_network(self, key: str) -> Future:
        """Return a stored network on its way to workers that do not share the store."""
        if key not in self._sent:
            file = weights_file(self.bench.store, key)
            name = f"results/{file.relative_to(self.bench.store.results).as_posix()}"
            self._sent[key] = self.pool.client.scatter(Done(files={name: file.read_bytes()}))
        return self._sent[key]

    def _finished(self, node: Node, future: Future) -> None:
        if future.status == "finished":
            if self.shared or node.kind in SENT_BACK:
                self._taken(node, future.result())
        elif future.status == "error":
            self.failed_nodes += 1
            self._failed(node, future.exception())
        else:
            raise self._gone()

    def _taken(self, node: Node, done: Done) -> None:
        """Take what came of a node: write it where workers cannot, and tell of its runs."""
        _write(done.files, self.bench.store)
        for seed in node.seeds:
            title = node.row.title((seed,))
            if seed in done.failures:
                self._tell_failure(title, FscilError(done.failures[seed]), 1)
                continue
            run = self.bench.store.find(node.row.spec(seed))
            if run is None:
                raise StoreError(
                    f"{title}: a worker has stored it, but it is not in "
                    f"{self.bench.store.results}: workers see another folder; with --store-through "
                    "client this process writes"
                )
            self.made[run.key] = run
            self.told(title, run)

    def _failed(self, node: Node, error: BaseException | None) -> None:
        """Name what failed; what needs it has failed with it."""
        if isinstance(error, WriteError):
            raise error
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            own = next(
                n for n in self.graph.nodes.values() if str(error.task).startswith(f"{n.key}-")
            )
            error = FscilError(
                f"{own.title}: its worker died {error.allowed_failures + 1} times: it was killed, "
                "out of memory, or its machine was lost"
            )
        told = error if isinstance(error, Exception) else FscilError(f"failed: {error}")
        self._tell_failure(node.title, told, len(node.seeds))

    def _tell_failure(self, title: str, error: Exception, runs: int) -> None:
        self.failed += runs
        if str(error) not in self._said:
            self._said.add(str(error))
            self.told(title, error)

    def _gone(self) -> FscilError:
        return FscilError(
            "the scheduler is gone: what is finished is stored, and the same command goes on from "
            "there"
        )


@dataclass(frozen=True)
class WorkerOptions(Options):
    """A worker's options: `roots` are all places in which the client looks for data sets."""

    roots: tuple[Path, ...] = option((), "--data-root", told="Before those of the worker.")

    @property
    def data_roots(self) -> tuple[Path, ...]:
        """The client's places, then the worker's own."""
        return tuple(dict.fromkeys((*self.roots, *super().data_roots)))


def everywhere(options: Options, store: Store, threads: int) -> WorkerOptions:
    """Return options that mean the same in another folder, and on another machine that has them."""

    def whole(value: Path | str | None) -> Path | str | None:
        there = value is not None and Path(value).exists()
        return Path(value).absolute() if there and value is not None else value

    changed = {
        "results": store.results.absolute(),
        "cache": store.cache.absolute(),
        "data_root": None,
        "roots": tuple(root.absolute() for root in options.data_roots if root.exists()),
        "features": whole(options.features),
        "weights": whole(options.weights),
        "network": whole(options.network),
        "plugins": tuple(file.absolute() for file in options.plugin_files),
        "threads": threads,
    }
    return WorkerOptions(**{**vars(options), **changed})


def _absolute(row: Row) -> RunRequest:
    request = row.request
    changes: dict[str, Any] = {"params": {**request.params, **files_of(row.plan.params)}}
    if Path(request.protocol).is_file():
        changes["protocol"] = str(Path(request.protocol).absolute())
    if request.index_list is not None:
        changes["index_list"] = request.index_list.absolute()
    return replace(request, **changes)


def foreseeable(graph: Graph, weights: Mapping[str, float], done: Collection[str]) -> bool:
    """Return whether time left can be told: times of most work known, or a fifth of runs done.

    Args:
        graph: the grid.
        weights: what share of the whole each node is.
        done: keys of the nodes that are finished.
    """
    known = sum(weights[node.key] for node in graph.nodes.values() if node.seconds is not None)
    runs = graph.of("runs")
    finished = sum(node.key in done for node in runs)
    return known > sum(weights.values()) / 2 or 0 < len(runs) <= 5 * finished


def _weights(nodes: Sequence[Node]) -> dict[str, float]:
    """Return for each node how much of the whole it is, in seconds as far as they are known."""
    known: dict[Kind, list[float]] = {}
    for node in nodes:
        if node.seconds is not None:
            known.setdefault(node.kind, []).append(node.seconds / max(1, len(node.seeds)))
    guesses = GUESSES | {kind: mean(seconds) for kind, seconds in known.items()}
    return {
        node.key: max(1e-3, node.seconds or guesses[node.kind] * max(1, len(node.seeds)))
        for node in nodes
    }


def _write(files: dict[str, bytes], store: Store) -> None:
    """Write what a worker sent: a run's folder at once, as its record marks it as finished."""
    folders: dict[Path, dict[str, bytes]] = {}
    for name, content in files.items():
        top, _, rest = name.partition("/")
        path = (store.results if top == "results" else store.cache) / rest
        folders.setdefault(path.parent, {})[path.name] = content
    for folder, own in folders.items():
        if "run.json" not in own:
            for name, content in own.items():
                with replaced_file(folder / name) as new:
                    new.write_bytes(content)
            continue
        with replaced_folder(folder) as whole:
            for name, content in own.items():
                (whole / name).write_bytes(content)
