"""Workers in jobs of a batch system, through dask-jobqueue: what a TOML file says of them."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fscil_bench.errors import UsageError, shown

if TYPE_CHECKING:
    from dask_jobqueue.core import JobQueueCluster

System = Literal["slurm", "pbs", "lsf", "sge", "htcondor"]
CLUSTERS: Mapping[System, str] = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "lsf": "LSFCluster",
    "sge": "SGECluster",
    "htcondor": "HTCondorCluster",
}
ACCOUNTS: Mapping[System, str] = {
    "slurm": "account",
    "pbs": "account",
    "lsf": "project",
    "sge": "project",
}
"""What dask-jobqueue calls the account that pays."""
GPUS: Mapping[System, Callable[[int], Any]] = {
    "slurm": lambda count: [f"--gres=gpu:{count}"],
    "pbs": lambda _: [],  # among the resources of its chunk, see `_settings`
    "lsf": lambda count: [f'-gpu "num={count}"'],
    "sge": lambda count: [f"-l gpu={count}"],
    "htcondor": lambda count: {"request_gpus": str(count)},
}
"""How a job asks for GPUs, where its site has no other way; then `directives` say it."""
TIMES: Mapping[System, tuple[str, str]] = {
    "slurm": (r"(\d+-)?\d+(:\d+){0,2}|UNLIMITED|INFINITE", "HH:MM:SS or DAYS-HH:MM:SS"),
    "pbs": (r"\d+(:\d+){0,2}", "HH:MM:SS"),
    "lsf": (r"\d+(:\d+)?(/\S+)?", "HH:MM"),
    "sge": (r"\d+(:\d+){0,2}|INFINITY", "HH:MM:SS"),
}
"""How each system writes the time of a job: a pattern, and the form that a message names."""
LIMITS: Mapping[System, str] = {
    "slurm": "#SBATCH -t ",
    "pbs": "#PBS -l walltime=",
    "lsf": "#BSUB -W ",
    "sge": "#$ -l h_rt=",
}
"""How the line begins by which dask-jobqueue limits a job, to half an hour where nobody does."""
LEAST, MOST = 1e6, 1e18
"""Bytes of memory or disk that a job has at least, and at most."""


def _line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("one line of text, not an empty one")
    return text


def _size(text: str) -> str:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(?:([kMGTP])i?)?B", text)
    bytes_ = float(found[1]) * 1000 ** " kMGTP".index(found[2] or " ") if found else 0.0
    if not LEAST <= bytes_ <= MOST:
        raise ValueError("a size as 16GB or 512MiB")
    return text


Line = Annotated[str, AfterValidator(_line)]
Size = Annotated[str, AfterValidator(_size)]
"""A number of bytes, as 16GB or 512MiB."""
KEPT = {"MALLOC_TRIM_THRESHOLD_": 1 << 28, "MALLOC_MMAP_THRESHOLD_": 1 << 25}
"""Bytes of freed memory a worker keeps: with Dask's 64 KiB runs take three times as long."""
MEANT = {"partition": "queue"}
"""What a key is called here that a system calls otherwise."""
PLACEHOLDER = "tcp://SCHEDULER:8786"


class JobFile(BaseModel):
    """A TOML file about jobs: one worker each, which does one task at a time.

    Attributes:
        system: the batch system.
        workers: jobs at a time; one that ends is replaced.
        queue: the queue or partition.
        account: who pays.
        time: of a job, as the system writes it; without it the queue's own limit holds.
        memory: of a job, as 16GB.
        cores: of a job; a worker's threads, where --threads names no other number.
        gpus: of a job: a training takes one, or those that --devices says.
        modules: to be loaded before.
        setup: further lines of the job script before the worker starts.
        directives: further lines of its header, as `--constraint=a100`; for HTCondor NAME = VALUE.
        python: which interpreter workers run; by default this one.
        interface: the network by which workers and scheduler reach each other, as ib0.
        logs: a folder for what jobs write.
        disk: of a job, for HTCondor, which asks for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: System
    workers: Annotated[int, Field(ge=1)] = 1
    queue: Line | None = None
    account: Line | None = None
    time: Line | None = None
    memory: Size = "8GB"
    cores: Annotated[int, Field(ge=1)] = 1
    gpus: Annotated[int, Field(ge=0)] = 0
    modules: tuple[Line, ...] = ()
    setup: tuple[Line, ...] = ()
    directives: tuple[Line, ...] = ()
    python: Line | None = None
    interface: Line | None = None
    logs: Line | None = None
    disk: Size = "4GB"

    @classmethod
    def read(cls, path: Path) -> JobFile:
        """Read a file.

        Raises:
            UsageError: it is not there, no TOML, or says something that is not known.
        """
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise UsageError(f"{path}: {cls._told(error)}") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: cannot be read as TOML ({error})") from error

    @classmethod
    def _told(cls, error: ValidationError) -> str:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            told = f"{where}: not a key of a cluster file (known: {', '.join(cls.model_fields)})"
            return f"{told}; write {MEANT[where]}" if where in MEANT else told
        told = str(first.get("ctx", {}).get("error", first["msg"]))
        return f"{where}: {told}, is {shown(first['input'])}" if where else told

    @model_validator(mode="after")
    def _fits_its_system(self) -> Self:
        for told in self._refusals():
            raise ValueError(told)
        return self

    def _refusals(self) -> Iterator[str]:
        """Yield what the system has not, or would leave undone without a word."""
        condor, given = self.system == "htcondor", self.model_fields_set
        for name in ("queue", "account", "time") if condor else ("disk",):
            if name in given:
                own = "; its own go into directives, as 'accounting_group = NAME'" if condor else ""
                yield f"{name}: jobs of {self.system} have none{own}"
        if self.time is not None and self.system in TIMES:
            pattern, form = TIMES[self.system]
            if not re.fullmatch(pattern, self.time):
                yield f"time: {self.system} writes {form}, is {shown(self.time)}"
        for line in self.directives:
            if condor and not re.fullmatch(r"[^=\s]+\s*=.*\S.*", line):
                yield f"directives: {shown(line)}: for htcondor write NAME = VALUE"
        if self.system == "sge":
            yield from self._unbooked()

    def _unbooked(self) -> Iterator[str]:
        """Yield what of a job of SGE nothing books: each site has its own names for it."""
        if self.cores > 1 and not self._directs(r"-pe\s"):
            yield (
                f"cores: sge books {self.cores} by a parallel environment of your site; name it in "
                f"directives, as '-pe smp {self.cores}'"
            )
        if "memory" in self.model_fields_set and not self._directs(r"-l\b"):
            yield (
                "memory: sge books it by a resource of your site; name it in directives, as "
                f"'-l h_vmem=...'; without `memory` a worker is stopped at {self.memory}"
            )

    def script(self, threads: int | None) -> str:
        """Return the job script, as it would be submitted but for the scheduler's address."""
        job = self._cluster_class().job_cls
        made = job(scheduler=PLACEHOLDER, name="fscil-bench", **self._settings(threads))
        text: str = made.job_script()
        return text

    @contextmanager
    def started(self, threads: int | None) -> Iterator[JobQueueCluster]:
        """Start a scheduler here, and jobs that are replaced when they end.

        Raises:
            UsageError: the system's command that submits a job is not on this machine.
        """
        submit = self._cluster_class().job_cls.submit_command.split()[0]
        if shutil.which(submit) is None:
            raise UsageError(
                f"--cluster: {submit!r}, by which jobs of {self.system} are submitted, is not on "
                "this machine; run this where jobs are submitted, or --dry-run to see the script"
            )
        with self._cluster_class()(**self._settings(threads)) as cluster:
            cluster.adapt(minimum_jobs=self.workers, maximum_jobs=self.workers)
            yield cluster

    def _cluster_class(self) -> Any:
        handler = signal.getsignal(signal.SIGINT)
        import dask_jobqueue

        if signal.getsignal(signal.SIGINT) is not handler:  # its import takes Ctrl-C over
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        return getattr(dask_jobqueue, CLUSTERS[self.system])

    def _settings(self, threads: int | None) -> dict[str, Any]:
        """Return the settings of dask-jobqueue's cluster."""
        count = str(threads or self.cores)
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        pauses = ("TARGET", "SPILL", "PAUSE")
        prologue = [f"module load {name}" for name in self.modules]
        prologue += [f"export {name}={count}" for name in variables]
        prologue += [f"export DASK_DISTRIBUTED__WORKER__MEMORY__{name}=False" for name in pauses]
        prologue += [f"export {name}={size}" for name, size in KEPT.items()]
        if self.gpus > 1:  # one training on several starts processes
            prologue.append("export DASK_DISTRIBUTED__WORKER__DAEMON=False")
        arguments = ["--nthreads", "1", *(["--resources", f"GPU={self.gpus}"] if self.gpus else [])]
        settings: dict[str, Any] = {
            "cores": self.cores,
            "memory": self.memory,
            "processes": 1,
            "python": self.python or sys.executable,
            "job_script_prologue": [*prologue, *self.setup],
            # The last --nthreads counts: cores are booked for one task's threads.
            "worker_extra_args": arguments,
            "job_extra_directives": self._directives(),
            "job_name": "fscil-bench",
            "log_directory": self.logs,
            "interface": self.interface,
        }
        if self.system == "htcondor":
            return settings | {"disk": self.disk}
        skipped = [] if self.time else [LIMITS[self.system]]
        if self.system == "pbs" and self._directs(r"-l\s*select="):
            skipped.append("#PBS -l select=")  # which leaves directives alone
        settings["job_directives_skip"] = skipped or None
        if self.system == "pbs" and self.gpus:
            chunk = f"select=1:ncpus={self.cores}:mem={self.memory}:ngpus={self.gpus}"
            settings["resource_spec"] = chunk
        settings |= {"queue": self.queue, "walltime": self.time}
        return settings | {ACCOUNTS[self.system]: self.account}

    def _directs(self, pattern: str) -> bool:
        """Return whether a directive begins so."""
        return any(re.match(pattern, line.strip()) for line in self.directives)

    def _directives(self) -> Any:
        asked = GPUS[self.system](self.gpus) if self.gpus else None
        if self.system == "htcondor":
            pairs = (line.partition("=") for line in self.directives)
            return {**(asked or {}), **{name.strip(): value.strip() for name, _, value in pairs}}
        return [*(asked or []), *self.directives]
