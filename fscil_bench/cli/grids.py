"""Grids on the command line: what one would make, and what running ones do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fscil_bench.cli.options import command, complain, say, show
from fscil_bench.errors import FscilError
from fscil_bench.grids.workers import Workers
from fscil_bench.options import Options

if TYPE_CHECKING:
    from fscil_bench.request import RunRequest
    from fscil_bench.running.workbench import Workbench


@command(only=("results",))
def status(options: Options) -> None:
    """Show what the grids do that run on a folder of results."""
    from fscil_bench.grids.status import grids
    from fscil_bench.store.runs import Store

    store = Store.of(options)
    lines = [line for grid in grids(store, say) for line in grid.lines()]
    for line in lines or [f"no grid runs on {store.results}"]:
        show(line)


def show_grid(
    bench: Workbench,
    requests: Sequence[RunRequest],
    workers: Workers,
    force: bool,
    artifacts: bool,
) -> None:
    """Show what a grid would make, what is stored of it, and the script of its jobs.

    Raises:
        UsageError: what the grid itself would refuse before it makes anything.
        FscilError: a stored run is damaged; the rest is shown.
    """
    from fscil_bench.grids.execution import refuse_impossible
    from fscil_bench.grids.graph import graph_of, rows_of
    from fscil_bench.grids.times import Times
    from fscil_bench.training.distributed import refuse_absent

    file = workers.job_file
    rows, times = rows_of(bench, requests), Times(bench.store)
    shared = workers.store_through == "worker"
    graph = graph_of(bench.store, rows, times, workers.count, force, artifacts, shared)
    if workers.named:
        refuse_impossible(graph, workers, bench.options)
    else:
        for node in graph.nodes.values():
            if node.devices > 1:
                refuse_absent(bench.device, node.devices)
    for line in graph.lines():
        show(line)
    show(graph.summary(workers.count))
    if file is not None:
        show(file.script(bench.options.threads).rstrip())
    for (number, seed), error in graph.damaged.items():
        say(rows[number].title((seed,)))
        complain(error, debug=False)
    if graph.damaged:
        runs = sum(len(row.seeds) for row in rows)
        raise FscilError(f"{len(graph.damaged)} of {runs} runs cannot be made")
