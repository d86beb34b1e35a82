"""Where results lie and how they are written: the only module that knows paths."""

from __future__ import annotations

import gc
import html
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from platformdirs import user_cache_path
from pydantic import BaseModel, ConfigDict, Field, field_validator

from fscil_bench.errors import StoreError, shown
from fscil_bench.metrics import (
    CONFIDENCE,
    NOT_SCORED,
    OWN,
    SessionMetrics,
    accuracy,
    calibration_error,
    session_metrics,
)
from fscil_bench.options import Options
from fscil_bench.spec import RunSpec, brought_title
from fscil_bench.store.caches import KINDS
from fscil_bench.store.files import (
    read_record,
    record_text,
    remedy,
    replaced_file,
    replaced_folder,
    work_folders,
    write_text,
)
from fscil_bench.store.tensors import stored_digest

SCHEMA_VERSION = 1
RESULTS_VARIABLE = "FSCIL_BENCH_RESULTS"
CACHE_VARIABLE = "FSCIL_BENCH_CACHE"
PREDICTIONS, ARTIFACTS = "predictions.npz", "artifacts.npz"
PROBE = 2**16
"""Bytes that are written to see whether there is room: a full disk still takes an empty file."""
MOST_CLASSES = np.iinfo(np.int16).max


Count = Annotated[int, Field(ge=0, lt=2**63)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)] | Annotated[float, Field(allow_inf_nan=False)]
"""What records hold: anything beyond can only be damage, and would spoil whole reports."""


class SessionRecord(BaseModel):
    """What one session cost: seconds of learning and scoring, bytes kept afterwards."""

    model_config = ConfigDict(frozen=True)

    index: Count
    classes_seen: Count
    learn_seconds: Amount
    score_seconds: Amount
    state_bytes: Count


def told_flag(flag: str) -> str:
    """Return a flag as tables say it: why a copy is no published one, `data check` tells."""
    before, mark, _ = flag.partition("unofficial data (")
    return f"{before}unofficial copy" if mark else flag


class WorkRecord(BaseModel):
    """What is recorded of finished work of either kind, a run or few-shot episodes.

    Attributes:
        train_images: (fewest, most) training images of a class in the copy of the data used.
        test_images: the same for test images.
        pretrain_seconds: what the method learnt from base data alone took, when it was made.
        flags: words that a table must show beside the row.
        notes: what the method has to say of itself (repairs, steps not converged).
        parameters: how the method's parameters came about, in a phrase.
        network: digest of the representation's weights; empty in records that do not tell.
    """

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA_VERSION
    key: str
    train_images: tuple[Count, Count]
    test_images: tuple[Count, Count]
    pretrain_seconds: Amount = 0.0
    flags: tuple[str, ...] = ()
    notes: dict[str, Number | str] = {}
    parameters: str = ""
    network: str = ""
    environment: dict[str, Any] = {}
    created: str = ""

    @property
    def told_flags(self) -> tuple[str, ...]:
        """The flags as tables say them."""
        return tuple(map(told_flag, self.flags))


class RunRecord(WorkRecord):
    """`run.json`: the specification of a finished run and everything measured but predictions.

    Attributes:
        peak_memory: bytes of the process at most, in the sessions (elsewhere than on Linux: until
            they ended).
        load: processes that wanted to run by core, in the run's last minute or the one before a
            stop, whichever was busier; 0 where not known.
        representation_log: epochs, seconds, losses and held-out accuracy of base training.
    """

    spec: RunSpec
    class_names: tuple[str, ...]
    sessions: tuple[SessionRecord, ...]
    peak_memory: Count = 0
    load: Amount = 0.0
    representation_log: dict[str, Any] = {}

    @field_validator("representation_log")
    @classmethod
    def _has_numbers(cls, log: dict[str, Any]) -> dict[str, Any]:
        for name in ("seconds", "best_epoch"):
            value = log.get(name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1e12):
                raise ValueError(f"{name} is {shown(value)}, no number")
        return log


@dataclass(frozen=True)
class StoredRun:
    """A finished run as read from disk: the record and where its arrays lie."""

    record: RunRecord
    folder: Path

    @property
    def key(self) -> str:
        """The run's key."""
        return self.record.key

    @property
    def spec(self) -> RunSpec:
        """The run's specification."""
        return self.record.spec

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = self._read(PREDICTIONS)
        try:
            _check_arrays(self.record, arrays["predictions"], arrays["targets"])
        except (KeyError, ValueError) as error:
            raise self._damaged(PREDICTIONS, error) from error
        return arrays

    @property
    def predictions(self) -> np.ndarray:
        """Predicted global class ids, int16 (sessions, n); −1 where the class is not seen yet."""
        return self._arrays["predictions"]

    @property
    def targets(self) -> np.ndarray:
        """True global class ids of the test samples, int16 (n,)."""
        return self._arrays["targets"]

    @property
    def damage(self) -> str:
        """What is wrong with the predictions, with the remedy; empty if nothing is."""
        try:
            self._arrays  # noqa: B018 - reading is the check
        except StoreError as error:
            return str(error)
        return ""

    @cached_property
    def metrics(self) -> list[SessionMetrics]:
        """Metrics of every session, computed from the stored predictions."""
        seen = [session.classes_seen for session in self.record.sessions]
        return session_metrics(self.predictions, self.targets, seen)

    def own_labels(self, session: int) -> float:
        """Return the accuracy on later classes, with these alone to choose from.

        NaN where there are none, or the run was made without `--artifacts`.
        """
        seen = self.targets < self.record.sessions[session].classes_seen
        targets = self.targets[seen]
        new = targets >= self.spec.protocol.base_classes
        found = self._of_scores(session, OWN, (2, len(targets)))
        return math.nan if found is None else accuracy(found[1][new], targets[new])

    def calibration_error(self, session: int) -> float:
        """Return the expected calibration error; NaN without `--artifacts`."""
        seen = self.targets < self.record.sessions[session].classes_seen
        found = self._of_scores(session, CONFIDENCE, (int(seen.sum()),))
        correct = self.predictions[session][seen] == self.targets[seen]
        return math.nan if found is None else calibration_error(found, correct)

    def _of_scores(self, session: int, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        name = f"session{self.record.sessions[session].index}/{name}"
        try:
            found = self.artifacts(name).get(name)
        except StoreError:  # whoever needs the arrays themselves is told
            return None
        return found if found is not None and found.shape == shape else None

    @property
    def accuracies(self) -> list[float]:
        """Accuracy of every session."""
        return [session.accuracy for session in self.metrics]

    @property
    def has_artifacts(self) -> bool:
        """Whether the method's named arrays were asked for, and it gave some."""
        return (self.folder / ARTIFACTS).exists()

    def artifacts(self, *names: str) -> dict[str, np.ndarray]:
        """Return the method's named arrays by `session/name`; empty unless they were asked for.

        With `names` only those of them that are there, which leaves the others unread.
        """
        return self._read(ARTIFACTS, names) if self.has_artifacts else {}

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what was run, and the accuracies of every session in %."""
        if self.damage:
            return html.escape(self.damage)
        spec, brought = self.spec, self.spec.representation
        title = f"{spec.method} on {spec.protocol.name}, {brought_title(brought)}, "
        title += f"{spec.split}, seed {spec.seed}, representation seed {brought.seed}"
        rows = {
            "session": [str(session.index) for session in self.record.sessions],
            "classes": [str(session.classes) for session in self.metrics],
        }
        for name in ("accuracy", "base", "new", "harmonic"):
            values = [getattr(session, name) for session in self.metrics]
            rows[name] = ["–" if math.isnan(value) else f"{100 * value:.2f}" for value in values]
        lines = [
            f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            for name, cells in rows.items()
        ]
        return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>"

    def _read(self, name: str, only: Sequence[str] = ()) -> dict[str, np.ndarray]:
        try:
            with np.load(self.folder / name, allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays if not only or key in only}
        except Exception as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: Exception) -> StoreError:
        return StoreError(
            f"{self.folder / name}: damaged ({error}); remove the folder {self.folder} and run "
            "it again"
        )


class Store:
    """Folders of results (runs, representations, reports) and of caches (images, features).

    Args:
        results: where finished work is kept; default $FSCIL_BENCH_RESULTS or ./results.
        cache: what can be made again from the data; default $FSCIL_BENCH_CACHE or the system's
            cache folder.
    """

    def __init__(self, results: Path | None = None, cache: Path | None = None) -> None:
        self.results = results or Path(os.environ.get(RESULTS_VARIABLE, "").strip() or "results")
        self.cache = cache or Path(
            os.environ.get(CACHE_VARIABLE, "").strip() or user_cache_path("fscil-bench")
        )

    @classmethod
    def of(cls, options: Options) -> Store:
        """Return the store that options name."""
        return cls(options.results_folder, options.cache_folder)

    def check_writable(self) -> None:
        """Try to write below both folders, so that no long work ends in vain.

        Raises:
            WriteError: one of them cannot be written to.
        """
        for folder in (self.results, self.cache):
            with replaced_file(folder / ".writable") as probe:
                probe.write_bytes(bytes(PROBE))
            (folder / ".writable").unlink(missing_ok=True)

    def run_folder(self, spec: RunSpec) -> Path:
        """Return where the run of `spec` lies or would lie."""
        return self.results / "runs" / spec.protocol.name / spec.method / spec.key

    def representation_folder(self, key: str) -> Path:
        """Return the folder of a representation: weights, log, checkpoint."""
        return self.results / "representations" / key

    def episodes_folder(self, protocol: str, method: str, key: str) -> Path:
        """Return where the accuracies of few-shot episodes lie or would lie."""
        return self.results / "episodes" / protocol / method / key

    def report_folder(self, name: str, protocol: str | None) -> Path:
        """Return where a report's files are written."""
        return self.results / "reports" / (protocol or "all") / name

    def tuned_file(self, protocol: str, representation: str, method: str) -> Path:
        """Return where the parameters chosen for a method are kept."""
        return self.results / "tuned" / protocol / representation / f"{method}.json"

    def lock(self, name: str) -> Path:
        """Return the lock of something that several processes may want to make at once."""
        return self.results / ".locks" / f"{name}.lock"

    def cache_folder(self, kind: str, key: str) -> Path:
        """Return a cache folder by kind, one of `KINDS`, and key."""
        assert kind in KINDS, f"`data clear` must know the caches of {kind}"
        return self.cache / kind / key

    def find(self, spec: RunSpec) -> StoredRun | None:
        """Return the finished run of `spec`, or None.

        One whose predictions are damaged, or that was made from other weights than are stored now,
        counts as not there, with a warning: whoever asks makes it again.

        Raises:
            StoreError: its record is damaged, or of another schema.
        """
        folder = self.run_folder(spec)
        if not (folder / "run.json").exists():
            return None
        run = read_run(folder)
        try:
            run.predictions  # noqa: B018 - reading is the check
        except StoreError as error:
            place = folder / PREDICTIONS
            warnings.warn(f"{place}: damaged ({error.__cause__}); made again", stacklevel=2)
            return None
        return run if self.has_network(spec, run.record.network, folder) else None

    def network(self, key: str) -> str:
        """Return the digest of a representation's weights, 16 hexadecimal digits; empty without.

        One specification trains other weights on another machine or with other threads.

        Raises:
            StoreError: the file is damaged.
        """
        file = self.representation_folder(key) / "weights.safetensors"
        return stored_digest(file)[:16] if file.exists() else ""

    def has_network(self, spec: RunSpec, network: str, folder: Path) -> bool:
        """Return whether work of a network can stand beside new work; warn if not.

        It cannot if other weights are stored now. Of what records do not tell nothing is known.
        """
        if not network or self.network(spec.representation.key) in ("", network):
            return True
        warnings.warn(
            f"{folder}: made again, as its network is not the one that is stored now", stacklevel=3
        )
        return False

    def has_artifacts(self, spec: RunSpec) -> bool:
        """Return whether the run of `spec` is stored with named arrays, whatever else is damaged.

        Made again without them, it would lose what a report may need.
        """
        return (self.run_folder(spec) / ARTIFACTS).exists()

    def write(
        self,
        record: RunRecord,
        predictions: np.ndarray,
        targets: np.ndarray,
        artifacts: Mapping[str, np.ndarray],
    ) -> StoredRun:
        """Write a finished run; `run.json`, which marks it as finished, comes last.

        Raises:
            StoreError: it cannot be written, or could not be read again.
        """
        folder = self.run_folder(record.spec)
        text = record_text(record)
        with replaced_folder(folder) as new:
            np.savez_compressed(
                new / PREDICTIONS,
                predictions=predictions.astype(np.int16),
                targets=targets.astype(np.int16),
            )
            if artifacts:
                np.savez_compressed(new / ARTIFACTS, **dict(artifacts))  # type: ignore[arg-type]
            write_text(new / "run.json", text)
        return StoredRun(record, folder)

    def runs(self) -> tuple[list[StoredRun], list[StoreError]]:
        """Return all readable runs, oldest first, and what is wrong with the others."""
        runs: list[StoredRun] = []
        errors: list[StoreError] = []
        with _no_collection():
            for folder in work_folders(self.results / "runs"):
                try:
                    runs.append(read_run(folder))
                except StoreError as error:
                    errors.append(error)
        return sorted(runs, key=lambda run: run.record.created), errors


@contextmanager
def _no_collection() -> Iterator[None]:
    """Let no garbage be collected: among thousands of records, looking for it is half the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def read_run(folder: Path) -> StoredRun:
    """Read a run's record.

    Raises:
        StoreError: it is damaged, of another schema, or not the run that its folder names.
    """
    path = folder / "run.json"
    record = read_record(path, RunRecord, SCHEMA_VERSION)
    refuse_seeds(record.spec, path)
    protocol = record.spec.protocol
    seen = [(t, protocol.classes_seen(t)) for t in range(protocol.sessions + 1)]
    if [(session.index, session.classes_seen) for session in record.sessions] != seen:
        raise StoreError(f"{path}: damaged, its sessions are not the protocol's; {remedy(folder)}")
    if len(record.class_names) != protocol.classes_used:
        raise StoreError(
            f"{path}: damaged, it names {len(record.class_names)} classes, the protocol has "
            f"{protocol.classes_used}; {remedy(folder)}"
        )
    return StoredRun(record, folder)


def refuse_seeds(spec: RunSpec, path: Path) -> None:
    """Refuse a specification, read from `path`, whose seeds are none.

    Raises:
        StoreError: they are not.
    """
    for seed in (spec.seed, spec.representation.seed):
        if not 0 <= seed < 2**63:
            raise StoreError(f"{path}: damaged, seed {shown(seed)}; {remedy(path.parent)}")


def _check_arrays(record: RunRecord, predictions: np.ndarray, targets: np.ndarray) -> None:
    """Refuse arrays that are not a run's.

    Raises:
        ValueError: they are of another kind or shape, or do not fit the record.
    """
    if predictions.dtype.kind != "i" or targets.dtype.kind != "i":
        raise ValueError(f"predictions are {predictions.dtype}, targets {targets.dtype}")
    if targets.ndim != 1 or predictions.shape != (len(record.sessions), len(targets)):
        raise ValueError(f"predictions are {predictions.shape}, targets {targets.shape}")
    if targets.min() < 0 or targets.max() > MOST_CLASSES or predictions.min() < NOT_SCORED:
        raise ValueError("targets or predictions are no classes")
    seen = np.array([session.classes_seen for session in record.sessions])
    # Fewer sessions than the data set has classes for leave test images of later classes.
    counts = np.bincount(targets, minlength=seen[-1])[: seen[-1]]
    if (counts.min(), counts.max()) != record.test_images:
        raise ValueError("targets are not the test images of the classes used")
    if (predictions.max(axis=1) >= seen).any():
        raise ValueError("predictions have classes that were not seen yet")
    if ((predictions >= 0) != (targets < seen[:, None])).any():
        raise ValueError("predictions lack test images of classes seen")
