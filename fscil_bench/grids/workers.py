"""Which processes do the work of a grid: of this machine, of a running scheduler, of a cluster."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.errors import UsageError, shown
from fscil_bench.options import Options, option

if TYPE_CHECKING:
    from distributed import Client, SpecCluster

    from fscil_bench.grids.jobs import JobFile

MOST_DEATHS = 3
"""How many workers may die of a task before it counts as failed."""
CONFIG = {
    "distributed.scheduler.allowed-failures": MOST_DEATHS,
    # A worker keeps features and networks in memory for its next task; to stop it for that, or to
    # move tasks' results to disk, would only wait for what is never freed.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.worker-saturation": 1.0,
    # Dask has memory handed back at once, and runs on features then take three times as long.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}
"""A task is repeated three times after its worker died; one that takes all memory is stopped."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MOST_JOBS = 4096
ADDRESS = re.compile(r"inproc://.+|[a-z]+://[^/\s]+:\d{1,5}/?")
"""A scheduler's address; one in this very process has no port."""
PATIENCE = 60.0
"""Seconds in which a running scheduler must have a worker."""


@dataclass(frozen=True)
class Workers:
    """Where the processes of a grid come from; nothing named is this process alone."""

    jobs: int | None = option(
        None, told="Work with so many processes of this machine, each with --threads."
    )
    scheduler: str | None = option(
        None, told="Work with the workers of a running Dask scheduler: tcp://HOST:8786."
    )
    cluster: Path | str | None = option(
        None, told="Work in jobs of Slurm, PBS, LSF, SGE or HTCondor, as a TOML file says."
    )
    store_through: str = option(
        "worker",
        told="Who writes results: worker (all see the folder of results) or client (they do not).",
    )

    def __post_init__(self) -> None:
        """Check what was named.

        Raises:
            UsageError: more than one place, or a value that is none.
        """
        named = [name for name in ("jobs", "scheduler", "cluster") if getattr(self, name)]
        if len(named) > 1:
            raise UsageError(f"--{' and --'.join(named)}: name one place to work in")
        if self.jobs is not None and not 1 <= self.jobs <= MOST_JOBS:
            raise UsageError(f"--jobs {shown(self.jobs)}: give 1 to {MOST_JOBS} processes")
        if self.scheduler and not ADDRESS.fullmatch(self.scheduler):
            raise UsageError(f"--scheduler {shown(self.scheduler)}: write tcp://HOST:PORT")
        if self.store_through not in ("worker", "client"):
            raise UsageError(f"--store-through {shown(self.store_through)}: write worker or client")
        if self.store_through == "client" and not named:
            raise UsageError("--store-through: goes with --jobs, --scheduler or --cluster")

    @property
    def named(self) -> bool:
        """Whether there is a place to work in besides this process."""
        return bool(self.jobs or self.scheduler or self.cluster)

    @property
    def job_file(self) -> JobFile | None:
        """What the file of a cluster says."""
        from fscil_bench.grids.jobs import JobFile

        return JobFile.read(Path(self.cluster)) if self.cluster else None

    @property
    def count(self) -> int:
        """How many processes there will be, as far as is known before."""
        file = self.job_file
        return file.workers if file is not None else self.jobs or 1


@dataclass(frozen=True)
class Machines:
    """What workers there are.

    Attributes:
        count: how many there are.
        gpus: how many of them have a GPU of their own.
        threads: with how many threads each computes.
        most_gpus: how many a worker has that has several.
    """

    count: int
    gpus: int
    threads: int
    most_gpus: int = 1


@dataclass(frozen=True)
class Pool(Machines):
    """Workers that can be reached; `client` hands them work."""

    client: Client = field(kw_only=True)


def expected(workers: Workers, options: Options) -> Machines | None:
    """Return the workers that would be started; those of a scheduler are not known before."""
    file, jobs = workers.job_file, workers.jobs
    if file is not None:
        threads = options.threads or file.cores
        return Machines(file.workers, file.workers * min(1, file.gpus), threads, file.gpus)
    if jobs is not None:
        return Machines(jobs, min(jobs, _gpus(options)), options.threads or _share(jobs))
    return None


@contextmanager
def opened(workers: Workers, options: Options) -> Iterator[Pool]:
    """Start or reach the workers, and let those that were started go in the end.

    Raises:
        UsageError: what was named is not there.
    """
    import dask
    from distributed import Client

    with ExitStack() as stack:
        stack.enter_context(dask.config.set(CONFIG))
        if workers.scheduler:
            yield _reached(workers.scheduler, options, stack)
            return
        file, known = workers.job_file, expected(workers, options)
        assert known is not None, "a place is named"
        if file is not None:
            starting: AbstractContextManager[SpecCluster] = file.started(options.threads)
        else:
            starting = local_cluster(known.count, known.gpus, known.threads)
        with uninterrupted():
            client = stack.enter_context(Client(stack.enter_context(starting)))
        yield Pool(**vars(known), client=client)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM count once the block is done, Ctrl-C never in processes it starts.

    Dask cannot undo half a start, and a process that still imports would write a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    sent: list[int] = []
    stops = signal.SIGINT, signal.SIGTERM
    handlers = {each: signal.signal(each, lambda number, _: sent.append(number)) for each in stops}
    try:
        with _masked():
            yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler or signal.SIG_DFL)
    for number in sent[:1]:
        signal.raise_signal(number)


@contextmanager
def _masked() -> Iterator[None]:
    """Keep Ctrl-C from this thread, and for good from threads and processes that are started."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # started within, it would let Ctrl-C in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def require(package: str) -> None:
    """Refuse work with Dask where it is not installed.

    Raises:
        UsageError: it is not.
    """
    if find_spec(package) is None:
        raise UsageError(
            f"--jobs, --scheduler and --cluster need the package {package.replace('_', '-')}: "
            "pip install 'fscil-bench[dask]'"
        )


def _reached(address: str, options: Options, stack: ExitStack) -> Pool:
    from distributed import Client

    try:
        client = stack.enter_context(Client(address, timeout=PATIENCE))
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--scheduler {address}: cannot be reached, or has no worker ({error}); start one with "
            f"`dask worker {address} --nthreads 1`, and --resources GPU=1 where it has a GPU"
        ) from error
    found = client.scheduler_info(n_workers=-1)["workers"].values()
    if any(worker["nthreads"] > 1 for worker in found):
        raise UsageError(
            f"--scheduler {address}: its workers do several tasks at once, and PyTorch's threads "
            "would be shared; start them with --nthreads 1, as many as there are to be"
        )
    gpus = [int(worker["resources"].get("GPU", 0)) for worker in found]
    having = sum(each >= 1 for each in gpus)
    return Pool(len(found), having, options.threads or 1, max(gpus), client=client)


@contextmanager
def local_cluster(jobs: int, gpus: int, threads: int) -> Iterator[SpecCluster]:
    """Start processes on this machine; the first have a GPU each, the others see none."""
    from distributed import Nanny, Scheduler, SpecCluster
    from distributed.system import MEMORY_LIMIT

    def worker(number: int) -> Mapping[str, Any]:
        environment = dict.fromkeys(THREADS, str(threads))
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = _device(number) if number < gpus else ""
        options = {
            "nthreads": 1,
            "memory_limit": MEMORY_LIMIT // jobs,
            "env": environment,
            "resources": {"GPU": 1} if number < gpus else {},
            "dashboard": False,
            "silence_logs": "CRITICAL",
        }
        return {"cls": Nanny, "options": options}

    scheduler = {"host": "127.0.0.1", "dashboard": True, "dashboard_address": "127.0.0.1:0"}
    with SpecCluster(
        workers={number: worker(number) for number in range(jobs)},
        scheduler={"cls": Scheduler, "options": scheduler},
        silence_logs="CRITICAL",
        name="fscil-bench",
    ) as cluster:
        yield cluster


def _device(number: int) -> str:
    """Return the name of a GPU among those that this process may use."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[number] if number < len(visible) else str(number)


def _gpus(options: Options) -> int:
    if options.device == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()


def _share(jobs: int) -> int:
    """Return the threads of each of some processes that share this machine's cores."""
    from fscil_bench.training.compute import usable_cores

    return max(1, usable_cores() // jobs)


def device_of(
    pool: Machines, options: Options, on_gpu: bool, devices: int = 1
) -> tuple[str, dict[str, float]]:
    """Return on which device something is computed, and what it takes of a worker.

    With `auto` a training takes a GPU, where workers have some, and runs on frozen features take
    none; who names a GPU gets one for everything. A worker is never given another's. One training
    on several devices takes so many GPUs of one worker.

    Raises:
        UsageError: a GPU is named and no worker has one, or one is named by its number; or no
            worker has so many.
    """
    if devices > 1 and options.device == "cpu":
        raise UsageError(
            f"--devices {devices} --device cpu: a worker trains in one process; leave --devices "
            "out, or train the network before, without --jobs, --scheduler or --cluster"
        )
    if devices > 1 and (not pool.gpus or pool.most_gpus < devices):
        raise UsageError(
            f"--devices {devices}: no worker has so many GPUs; train the network before, in one "
            "process, or start a worker with DASK_DISTRIBUTED__WORKER__DAEMON=False in its "
            f"environment and --resources GPU={devices}"
        )
    taken = {"GPU": float(devices)}
    if options.device == "auto":
        return ("cuda", taken) if on_gpu and pool.gpus else ("cpu", {})
    if not options.device.startswith("cuda"):
        return options.device, {}
    if options.device != "cuda":
        raise UsageError(f"--device {options.device}: each worker has its own GPU; write cuda")
    if not pool.gpus:
        raise UsageError(
            "--device cuda: no worker says that it has a GPU (dask worker --resources GPU=1)"
        )
    return "cuda", taken
