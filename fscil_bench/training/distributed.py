"""One base training on several devices: a process each, among which every batch is divided.

Processes are spawned and join in a group of torch.distributed, nccl's on GPUs and gloo's on the
CPU. The first writes checkpoints and tells how far it is; the first error ends them all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc

import numpy as np
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from fscil_bench.data.pixels import Images
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import load_registry
from fscil_bench.progress import Progress, Silent, Task
from fscil_bench.protocol import Recipe
from fscil_bench.representation import Representation, TrainedRepresentation, TrainingBatch
from fscil_bench.spec import RepresentationSpec
from fscil_bench.training.compute import autocast, usable_cores
from fscil_bench.training.loop import BaseTraining, LabelledImages, TrainingState
from fscil_bench.training.weights import Pretraining

LEAST_SHARE = 2
"""Images of a batch that a device needs: batch normalisation cannot learn from one."""
GRACE = 1.0
"""Seconds in which a process that was killed is seen to have ended, once another complains."""
NORMALISATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def refuse_indivisible(representation: Representation, recipe: Recipe, devices: int) -> None:
    """Refuse a training whose batches cannot be divided among so many devices.

    Raises:
        UsageError: the loss is no mean over images, or the shares would not be equal; or this
            process is still importing the script that started it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            f"--devices {devices} starts processes, which import the script that asks for them: "
            'put its calls under `if __name__ == "__main__":`'
        )
    if not averages(type(representation)):
        raise UsageError(
            f"--devices {devices}: the loss of representation {representation.name!r} is not said "
            "to be a mean over single images (mean_over_images): where it compares images of a "
            "batch with one another, the shares of a batch have another loss than the whole; leave "
            "--devices out"
        )
    size = recipe.batch_size
    fitting = [n for n in range(1, size // LEAST_SHARE + 1) if size % n == 0]
    if devices not in fitting:
        near = min(fitting, key=lambda n: abs(n - devices), default=1)
        raise UsageError(
            f"--devices {devices}: a batch of {size} images cannot be divided into so many equal "
            f"shares of {LEAST_SHARE} or more; the nearest number that works is {near}"
        )


def averages(kind: type[Representation]) -> bool:
    """Return what the class says that the loss in use comes from; one that says nothing denies."""
    for each in kind.__mro__:
        if "mean_over_images" in vars(each):
            return bool(vars(each)["mean_over_images"])
        if "loss" in vars(each):
            return False
    return False


def refuse_absent(device: torch.device, devices: int) -> None:
    """Refuse more devices than are here.

    Raises:
        UsageError: there are fewer, or they are of a kind that cannot join; or this process may not
            start others.
    """
    if device.type not in ("cuda", "cpu") or device.index is not None:
        raise UsageError(
            f"--devices {devices} takes the first GPUs of CUDA that this process sees, or cores of "
            f"the CPU: write --device cuda or --device cpu, not {device}"
        )
    gpus = device.type == "cuda"
    here = torch.cuda.device_count() if gpus else usable_cores()
    if devices > here:
        what = "GPU" if gpus else "core"
        raise UsageError(f"--devices {devices}: {here} {what}{'s' * (here != 1)} can be used here")
    if multiprocessing.current_process().daemon:
        raise UsageError(
            f"--devices {devices}: this worker may not start processes; start workers with "
            "DASK_DISTRIBUTED__WORKER__DAEMON=False in their environment"
        )


def share(batch: np.ndarray, rank: int, devices: int) -> tuple[np.ndarray, float]:
    """Return a process's part of a batch's indices, and which part of the whole it is.

    Shares of an epoch's last batch may differ by one. Where they would be too small, the first
    processes divide it, and the others see some of it at no weight.
    """
    working = max(1, min(devices, len(batch) // LEAST_SHARE))
    if rank >= working:
        return batch[:LEAST_SHARE], 0.0
    own = np.array_split(batch, working)[rank]
    return own, len(own) / len(batch)


class DistributedTraining(BaseTraining):
    """The training of one representation, each of whose batches `spec.devices` devices share.

    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.

    An epoch's batches are those of one device. The gradients of the shares are averaged, so that a
    step is that of the whole batch but for the order of sums, where the loss is a mean over images
    and two things do not matter: each process draws its augmentation from a generator of its own;
    and batch normalisation is of the whole batch on GPUs (SyncBatchNorm, for PyTorch's own layers),
    but of a process's share on the CPU, where the first one's running statistics are kept.

    Every process loads the files of plug-ins `plugins`.
    """

    plugins: tuple[Path, ...] = ()

    def run(self, folder: Path, progress: Progress) -> TrainedRepresentation:
        """Train, or load from `folder` what is finished, likewise.

        Raises:
            FscilError: the loss is not finite, or a process failed.
            StoreError: a file in `folder` is damaged or cannot be written.
            UsageError: there are fewer devices.
        """
        if not (folder / "weights.safetensors").exists():
            refuse_absent(self.device, self.spec.devices)
            self._train(folder, progress)
        return super().run(folder, Silent())  # what is left is to choose and keep the weights

    def _train(self, folder: Path, progress: Progress) -> None:
        count, name = self.spec.devices, self.spec.name
        threads = max(1, torch.get_num_threads() // count)
        with ExitStack() as stack:
            meeting = Path(stack.enter_context(TemporaryDirectory(prefix="fscil-bench-"))) / "store"
            handed = _Handed(
                self.spec,
                _Packed.of(self.base),
                _Packed.of(self.heldout),
                self.device.type,
                self.pretraining,
                self.plugins,
                folder,
                meeting,
                threads,
            )
            title = f"base training ({name}, {count} devices)"
            task = stack.enter_context(progress.task(title, self.spec.recipe.epochs))
            running = {}
            for rank in range(count):
                connection, process = stack.enter_context(_started(handed, rank))
                running[connection] = process
            _follow(running, task, progress.say)


@contextmanager
def _started(handed: _Handed, rank: int) -> Iterator[tuple[Connection, BaseProcess]]:
    """Start a process, and let it end with the block, whatever it does."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(handed, rank, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours, process
    finally:
        process.kill()
        process.join()
        ours.close()


def _follow(
    running: Mapping[Connection, BaseProcess], task: Task, say: Callable[[str], None]
) -> None:
    """Take what the processes tell until all are done.

    Raises:
        FscilError: one of them failed.
    """
    left = dict(running)
    while left:
        for connection in wait(list(left)):
            assert isinstance(connection, Connection)
            try:
                told = connection.recv()
            except (EOFError, OSError):
                left[connection].join()
                raise _ended(left[connection], len(running)) from None
            if told is None:
                del left[connection]
            elif isinstance(told, str):
                say(told)
            elif isinstance(told, FscilError):
                # Where another process was killed, that is why this one fails.
                time.sleep(GRACE)
                killed = [process for process in running.values() if process.exitcode]
                raise _ended(killed[0], len(running)) if killed else told
            else:
                task.update(*told)


def _ended(process: BaseProcess, count: int) -> FscilError:
    code = process.exitcode or 0
    reason = "it was killed, or out of memory" if code < 0 else "it says above why"
    return FscilError(
        f"base training: one of {count} processes ended with exit code {code}: {reason}; the same "
        "command goes on from the last whole epoch"
    )


@dataclass(frozen=True)
class _Packed:
    """Chosen images on their way to another process; a mapped file goes by its name."""

    flat: Path | np.ndarray
    images: Images
    members: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, chosen: LabelledImages) -> _Packed:
        flat, empty = chosen.images.flat, replace(chosen.images, flat=np.empty(0, np.uint8))
        file = Path(getattr(flat, "filename", None) or "")
        mapped = file.is_file() and file.stat().st_size == flat.nbytes  # and no part of it
        return cls(file if mapped else np.asarray(flat), empty, chosen.members, chosen.labels)

    def unpacked(self) -> LabelledImages:
        flat = self.flat if isinstance(self.flat, np.ndarray) else np.memmap(self.flat, mode="r")
        return LabelledImages(replace(self.images, flat=flat), self.members, self.labels)


@dataclass(frozen=True)
class _Handed:
    """What a process is started with: everything by name, since plug-ins cannot be sent.

    `meeting` is the file in which processes find one another.
    """

    spec: RepresentationSpec
    base: _Packed
    heldout: _Packed
    device: str
    pretraining: Pretraining
    plugins: tuple[Path, ...]
    folder: Path
    meeting: Path
    threads: int

    def training(self, rank: int) -> Rank:
        """Return the process's training."""
        spec, registry = self.spec, load_registry(self.plugins)
        plugin = registry.get("representation", spec.name)
        params = parse_params(f"representation {spec.name!r}", plugin.value.Params, spec.params)
        made = plugin.value(params)
        backbone, _ = registry.backbone(spec.backbone, made.reading())
        device = torch.device(f"cuda:{rank}" if self.device == "cuda" else self.device)
        base, heldout = self.base.unpacked(), self.heldout.unpacked()
        training = Rank(spec, made, backbone, base, heldout, device, self.pretraining)
        training.rank = rank
        return training


def _end_with_parent() -> None:
    """End this process as soon as the one that started it has ended, even by a signal."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(handed: _Handed, rank: int, connection: Connection) -> None:
    """Train in a process of its own; tell how far it is, and what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches it too, and needs no traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        torch.set_num_threads(handed.threads)
        training = handed.training(rank)
        if training.device.type == "cuda":
            torch.cuda.set_device(training.device)
        count = handed.spec.devices
        store = distributed.FileStore(str(handed.meeting), count)  # type: ignore[attr-defined]
        backend = "nccl" if training.device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=count)
        training.train(handed.folder, _Telling(connection) if rank == 0 else Silent())
        distributed.destroy_process_group()
        connection.send(None)
    except (Exception, SystemExit) as error:  # it may be anybody's code
        with suppress(OSError, EOFError):  # whoever listens may have ended
            connection.send(_explained(error, handed.spec.name, rank))
            # To leave now would end the others with an error about that.
            connection.recv()


def _explained(error: BaseException, name: str, rank: int) -> FscilError:
    """Return an error that another process can read, with the traceback as its note."""
    if isinstance(error, FscilError) and type(error).__module__ == FscilError.__module__:
        told = error
    else:
        told = FscilError(
            f"representation {name!r} failed in base training, in process {rank}: "
            f"{type(error).__name__}: {error}; --debug shows where"
        )
    told.add_note(format_exc())
    return told


class _Telling(Silent):
    """Sends what is to be shown to the process that shows it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @contextmanager
    def task(self, *_: object) -> Iterator[Task]:
        yield self

    def update(self, done: float, note: str = "") -> None:
        self.connection.send((done, note))

    def say(self, message: str) -> None:
        self.connection.send(message)


class Objective(nn.Module):
    """A representation's loss with all that it trains, as one module, so that DDP can wrap it."""

    def __init__(
        self, representation: Representation, backbone: nn.Module, head: nn.Module
    ) -> None:
        super().__init__()
        self.representation, self.backbone, self.head = representation, backbone, head
        # DDP looks for parameters without a gradient, and warns where there are none.
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, batch: TrainingBatch) -> torch.Tensor:
        """Return the scalar loss of a share."""
        return self.representation.loss(self.backbone, self.head, batch)


class Rank(BaseTraining):
    """One process's part of a training on several devices; `rank` numbers it from 0."""

    rank: int
    objective: DistributedDataParallel
    draws: torch.Generator
    weight: float

    def train(self, folder: Path, progress: Progress) -> None:
        """Train all epochs that a checkpoint lacks; the first process writes it."""
        epochs, state = self.spec.recipe.epochs, self.fresh_state()
        checkpoint = folder / "checkpoint.safetensors"
        if checkpoint.exists():
            state.load(checkpoint)
            progress.say(f"resuming base training after epoch {state.epoch} of {epochs}")
        self.objective = self._divided(state)
        with progress.task("", epochs) as task:
            while state.epoch < epochs:
                self.train_epoch(state, task)
                if self.rank == 0:
                    self._evaluate_epoch(state)
                    state.save(checkpoint)

    def train_epoch(self, state: TrainingState, task: Task) -> None:
        """Train one epoch, every image once among all processes, likewise."""
        self.draws = self.random.torch("epoch", state.epoch, "rank", self.rank)
        super().train_epoch(state, task)

    def step(self, state: TrainingState, batch: TrainingBatch) -> torch.Tensor:
        """Take one step together; return the detached loss of the whole batch."""
        count = self.spec.devices
        with autocast(self.spec.precision, self.device):
            loss = self.objective(batch) * (count * self.weight)  # DDP averages over processes
        state.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        state.optimiser.step()
        whole: torch.Tensor = loss.detach().float()
        distributed.all_reduce(whole)
        return whole / count

    def _batch(self, indices: np.ndarray, epoch: int, generator: torch.Generator) -> TrainingBatch:
        del generator  # drew the order of images, the same for all
        own, self.weight = share(indices, self.rank, self.spec.devices)
        return super()._batch(own, epoch, self.draws)

    def _divided(self, state: TrainingState) -> DistributedDataParallel:
        objective = Objective(self.representation, state.backbone, state.head)
        if self.device.type == "cuda":
            _normalise_together(objective)
        # What a loss leaves out must keep having no gradient, and so no weight decay.
        return DistributedDataParallel(objective, find_unused_parameters=True)


def _normalise_together(module: nn.Module) -> None:
    """Let batch normalisation see whole batches; layers that do more than it stay as they are."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in NORMALISATIONS:
                setattr(parent, name, nn.SyncBatchNorm.convert_sync_batchnorm(child))  # type: ignore[no-untyped-call]
