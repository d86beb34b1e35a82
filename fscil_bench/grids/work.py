"""What a worker does: one node of the graph at a time, with what it keeps between tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fscil_bench.errors import FscilError, WriteError
from fscil_bench.grids.graph import Kind
from fscil_bench.options import Options
from fscil_bench.progress import Silent, Task
from fscil_bench.request import RunRequest
from fscil_bench.running.workbench import Plan, Workbench
from fscil_bench.spec import Views
from fscil_bench.store.files import replaced_file

ATTRIBUTE = "fscil_bench"
"""Under which name a Dask worker holds its `Benches`."""
TOPIC, EVERY = "fscil-bench", 2.0
"""Under which topic workers tell how far they are, and the seconds between two words of it."""
SENT = ("results/runs", "results/representations", "cache/features", "cache/pretrained")
"""What workers that do not share a store send one another."""


@dataclass(frozen=True)
class Job:
    """A node as a worker is told of it.

    Attributes:
        kind: what is made.
        key: identifies it.
        options: where things lie and how to compute, with absolute paths.
        request: of the first of its runs, or of one that needs it.
        expected: the key of that run, which the worker must come to as well.
        seeds: of its runs.
        view: of a view its name, the half of the data, and how features are read.
        force: make stored runs again.
        artifacts: store named arrays too.
        apart: whether the worker has a store of its own, and sends what it made.
    """

    kind: Kind
    key: str
    options: Options
    request: RunRequest
    expected: str
    seeds: tuple[int, ...] = ()
    view: tuple[str, str, Views] | None = None
    force: bool = False
    artifacts: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Done:
    """What came of a job: seconds, errors of runs by seed, and files where a store is not shared.

    Files are named as `results/runs/...` or `cache/features/...`.
    """

    seconds: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def make(job: Job, *before: Done) -> Done:
    """Do a job on the worker that this runs on, after those that it needs.

    Raises:
        FscilError: it failed; only runs that fail do not cost the others of a batch theirs.
    """
    from distributed import get_worker

    worker = get_worker()
    fresh = Benches(Path(worker.local_directory), Heard(worker.log_event))
    benches: Benches = vars(worker).setdefault(ATTRIBUTE, fresh)
    try:
        return benches.make(job, before)
    except FscilError:
        raise
    except (Exception, SystemExit) as error:  # nobody else may know its class
        raise FscilError(f"{type(error).__name__}: {error}") from None


class Heard(Silent):
    """Progress of a worker: what it is at is logged as an event, which clients hear of."""

    def __init__(self, log: Callable[[str, Any], None]) -> None:
        self.log, self.key = log, ""
        self._last = float("-inf")

    @contextmanager
    def task(
        self,
        title: str,
        total: float,
        kinds: Sequence[Hashable] = (),  # noqa: ARG002
    ) -> Iterator[Task]:
        """Return a context whose task is told of under the `key` of the node that is made."""
        yield _HeardTask(self, title, total)

    def tell(self, title: str, done: float, total: float) -> None:
        """Log how far something is, unless that was told just before."""
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            share = done / total if total else 0.0
            far = f"{int(done)} of {int(total)}" if total > 1 else f"{share:.0%}"
            event = {"key": self.key, "told": f"{title}, {far}", "share": share}
            self.log(TOPIC, event)


@dataclass(frozen=True)
class _HeardTask:
    owner: Heard
    title: str
    total: float

    def update(self, done: float, note: str = "") -> None:  # noqa: ARG002
        self.owner.tell(self.title, done, self.total)


class Benches:
    """A worker's workbenches: networks, features and plug-ins stay loaded between tasks.

    A store of its own lies in `folder`, and goes with the process.
    """

    def __init__(self, folder: Path, progress: Heard) -> None:
        self._folder, self._progress = folder, progress
        self._benches: dict[Options, Workbench] = {}
        self._home: TemporaryDirectory[str] | None = None
        self._made: dict[str, set[str]] = {}

    def make(self, job: Job, before: Sequence[Done]) -> Done:
        """Do a job; see the function of this name."""
        started = time.perf_counter()
        self._progress.key = job.key
        home = self._own_home() if job.apart else None
        there = _files(home) if home else set()
        if home:
            for each in before:
                there |= _unpack(each.files, home)
        bench, plan = self._planned(job, home)
        failures = _work(bench, plan, job)
        made = self._made.setdefault(job.key, set())
        made |= _files(home) - there if home else set()
        files = {name: (home / name).read_bytes() for name in sorted(made)} if home else {}
        return Done(time.perf_counter() - started, failures, files)

    def _planned(self, job: Job, home: Path | None) -> tuple[Workbench, Plan]:
        """Return a workbench, and the plan of a job with the key that the client came to.

        A workbench that is kept has plug-ins and data as they were when it was opened: where it
        comes to another key, another is opened.
        """
        options = job.options
        if home is not None:
            options = options.changed(results=home / "results", cache=home / "cache")
        kept = self._benches.get(options)
        if kept is not None:
            with suppress(FscilError):
                plan = kept.plan(job.request)
                if plan.spec.key == job.expected:
                    return kept, plan
        bench = self._benches[options] = Workbench.open(options, self._progress)
        plan = bench.plan(job.request)
        if plan.spec.key != job.expected:
            raise FscilError(
                f"the worker comes to another key than the client ({plan.spec.key}, not "
                f"{job.expected}): it has other code, plug-ins or data; give workers the version "
                "of fscil-bench and the files that the client has, and start them again"
            )
        return bench, plan

    def _own_home(self) -> Path:
        if self._home is None:
            self._home = TemporaryDirectory(prefix="fscil-bench-", dir=self._folder)
        return Path(self._home.name)


def _work(bench: Workbench, plan: Plan, job: Job) -> dict[int, str]:
    """Make what a job says; return the errors of its runs by seed."""
    if job.kind == "network":
        bench.network(plan)
    elif job.kind == "view" and job.view is not None:
        bench.extract(plan, bench.network(plan), *job.view)
    elif job.kind == "learnt":
        bench.begin(plan)
    failures = {}
    for seed in job.seeds:
        own = replace(plan, spec=plan.spec.model_copy(update={"seed": seed}))
        try:
            bench.run(own, job.force, job.artifacts)
        except WriteError:
            raise
        except (Exception, SystemExit) as error:
            kind = "" if isinstance(error, FscilError) else f"{type(error).__name__}: "
            failures[seed] = f"{kind}{error}"
    return failures


def _files(home: Path) -> set[str]:
    """Return the files of a store that others may need."""
    found = (path for place in SENT for path in (home / place).rglob("*") if path.is_file())
    return {path.relative_to(home).as_posix() for path in found}


def _unpack(files: dict[str, bytes], home: Path) -> set[str]:
    """Write what another worker made, and return all of its names."""
    for name, content in files.items():
        if not (home / name).exists():
            with suppress(FileExistsError), replaced_file(home / name) as new:
                new.write_bytes(content)
    return set(files)
