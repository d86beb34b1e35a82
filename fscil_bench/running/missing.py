"""Makes the runs that a report wants and that are not stored; those that are stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fscil_bench.episodes.run import EpisodesPlan, plan_episodes, run_episodes
from fscil_bench.episodes.store import find_episodes
from fscil_bench.errors import FscilError, StoreError, WriteError
from fscil_bench.request import Wanted
from fscil_bench.running.workbench import Plan, Workbench


def make_missing(bench: Workbench, wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """Make what is not stored, one after the other; return what could not be made, and why.

    Seed by seed: what an interruption leaves can then be compared in pairs, and what is compared
    in time was timed side by side. Everything is planned before anything is run. A run that fails
    does not stop the others, and what an interruption leaves out is made when the same is wanted
    again. A run whose arrays cannot be read counts as not stored.

    Raises:
        WriteError: results cannot be written; no other run is begun.
    """
    todo: list[tuple[Wanted, Callable[[], object]]] = []
    failures: dict[str, None] = {}
    for each in sorted(wanted, key=lambda each: each.request.seed):
        try:
            work = _work(bench, each)
        except FscilError as error:
            # What is wrong with the data is wrong with every run; it is said once.
            failures[str(error)] = None
            continue
        if work is not None:
            todo.append((each, work))
    kinds = [(each.request.method, each.request.protocol, each.episodes) for each, _ in todo]
    with bench.progress.task("missing runs", len(todo), kinds) as task:
        for number, (each, work) in enumerate(todo):
            title = _title(each)
            task.update(number, title)
            try:
                work()
            except WriteError:
                raise
            except (Exception, SystemExit) as error:
                kind = "" if isinstance(error, FscilError) else f"{type(error).__name__}: "
                failures[f"{title}: {kind}{error}"] = None
            task.update(number + 1)
    return tuple(failures)


def _work(bench: Workbench, wanted: Wanted) -> Callable[[], object] | None:
    """Return what makes a run, or None if it is stored."""
    if wanted.episodes is not None:
        episodes = plan_episodes(bench, wanted.request, wanted.episodes)
        if _stored_episodes(bench, episodes):
            return None
        return lambda: _make_episodes(bench, episodes)
    plan = bench.plan(wanted.request)
    if _stored(bench, plan, wanted.artifacts):
        return None
    return lambda: _make(bench, plan, wanted.artifacts)


def _make(bench: Workbench, plan: Plan, artifacts: bool) -> None:
    # Asked again: the same may be wanted twice, or another process have made it by now.
    if not _stored(bench, plan, artifacts):
        # Another report may need the arrays that a damaged run was kept with.
        kept = bench.store.has_artifacts(plan.spec)
        bench.run(plan, force=True, artifacts=artifacts or kept)


def _make_episodes(bench: Workbench, planned: EpisodesPlan) -> None:
    if not _stored_episodes(bench, planned):
        run_episodes(bench, planned, force=True)


def _stored(bench: Workbench, plan: Plan, artifacts: bool) -> bool:
    """Return whether a run is stored and what is wanted of it can be read.

    Raises:
        StoreError: its record is damaged.
    """
    found = bench.store.find(plan.spec)
    if found is None:
        return False
    try:
        return not artifacts or bool(found.artifacts())
    except StoreError:
        return False


def _stored_episodes(bench: Workbench, planned: EpisodesPlan) -> bool:
    """Return whether episodes are stored and their accuracies can be read.

    Raises:
        StoreError: their record is damaged.
    """
    found = find_episodes(bench.store, planned.spec)
    return found is not None and found.readable


def _title(wanted: Wanted) -> str:
    request, design = wanted.request, wanted.episodes
    changed = [f"{name}={value}" for name, value in request.params.items()]
    words = [request.method, *changed, *([request.split] if request.split else [])]
    words += [f"{name}={value}" for name, value in request.overrides.items()]
    words += [design.title] if design else []
    return f"{' '.join(words)}, seed {request.seed}"
