"""One run: a method taken through every session, its predictions recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fscil_bench.errors import FscilError
from fscil_bench.method import Checkpoint, Method, batches
from fscil_bench.metrics import NOT_SCORED
from fscil_bench.params import params_dict, refuse_unstorable
from fscil_bench.plugins.contract import Contract
from fscil_bench.progress import Progress
from fscil_bench.running.sessions import SessionMaker
from fscil_bench.store.runs import SessionRecord

SAVED_EVERY = 60.0
"""Seconds after which a run's state is kept, when a session has ended."""
QUERY_BATCH = 2000
"""Test samples scored at once; no score may depend on it."""


@dataclass(frozen=True)
class Outcome:
    """What a run produced: predictions (sessions, test samples), costs, artifacts, notes."""

    predictions: np.ndarray
    sessions: tuple[SessionRecord, ...]
    artifacts: dict[str, np.ndarray]
    notes: dict[str, int | float | str]


def run_sessions(
    method: Method,
    maker: SessionMaker,
    keep_artifacts: bool,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Let `method` learn every session in turn, and predict all classes seen after each.

    With a checkpoint a run that was stopped goes on after the last session that was kept, if its
    method has no notes.

    Raises:
        FscilError: the method returns scores of a wrong shape or that are not finite.
    """
    count = maker.protocol.sessions + 1
    records, predicted = _taken_up(method, checkpoint)
    predictions = np.full((count, len(maker.dataset.test)), NOT_SCORED, dtype=np.int64)
    predictions[: len(records)] = predicted
    artifacts: dict[str, np.ndarray] = {}
    saved = time.monotonic()
    with progress.task(f"{method.name}: sessions", count) as task:
        task.update(len(records))
        for number in range(len(records), count):
            session = maker.session(number)
            started = time.perf_counter()
            learn = method.learn_session if number else method.learn_base
            with named(method, f"in session {number}"):
                learn(session)
            learnt = time.perf_counter()
            refuse_diverged(method, session.classes_seen, f"in session {number}")
            indices = maker.test_indices(number)
            predictions[number, indices] = predict(method, maker, indices, session.classes_seen)
            scored = time.perf_counter()
            records.append(
                SessionRecord(
                    index=number,
                    classes_seen=session.classes_seen,
                    learn_seconds=learnt - started,
                    score_seconds=scored - learnt,
                    state_bytes=_state_bytes(method),
                )
            )
            if keep_artifacts:
                artifacts |= _artifacts(method, number)
            # Notes are no part of the state: what a method has to say would be lost.
            elif checkpoint and time.monotonic() - saved >= SAVED_EVERY and not notes_of(method):
                checkpoint.save(_kept(method, records, predictions))
                saved = time.monotonic()
            task.update(number + 1)
    return Outcome(predictions, tuple(records), artifacts, notes_of(method))


def _taken_up(
    method: Method, checkpoint: Checkpoint | None
) -> tuple[list[SessionRecord], torch.Tensor]:
    """Bring a method to where its run was stopped; return the records and predictions so far."""
    found = checkpoint.load() if checkpoint else None
    if found is None:
        return [], torch.empty(0, 1)
    device = method.context.device
    state = {
        name: tensor.to(device) if name in found["on_device"] else tensor
        for name, tensor in found["state"].items()
    }
    with named(method, "taking up its state"):
        method.load_state_dict(state)
    return [SessionRecord(**each) for each in found["records"]], found["predictions"]


def _kept(
    method: Method, records: Sequence[SessionRecord], predictions: np.ndarray
) -> dict[str, Any]:
    """Return what a checkpoint holds of the sessions that are done."""
    with named(method, "giving its state"):
        state = method.state_dict()
    return {
        "state": {name: tensor.detach().cpu() for name, tensor in state.items()},
        "on_device": [name for name, tensor in state.items() if tensor.device.type != "cpu"],
        "records": [record.model_dump() for record in records],
        "predictions": torch.from_numpy(predictions[: len(records)]),
    }


@contextmanager
def named(plugin: Contract | type[Contract], when: str) -> Iterator[None]:
    """Say which plug-in failed, and when, of errors that do not."""
    try:
        yield
    except (FscilError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        raise FscilError(
            f"{plugin.kind} {plugin.name!r} failed {when}: {type(error).__name__}: {error}; "
            "--debug shows where"
        ) from error


def refuse_diverged(method: Method, classes_seen: int, when: str) -> None:
    """Refuse what a method keeps if it is not finite.

    Raises:
        FscilError: a tensor of its state is not; it and the first class are named.
    """
    with named(method, "giving its state"):
        for name, tensor in method.state_dict().items():
            finite = tensor.isfinite()
            if bool(finite.all()):
                continue
            by_class = finite.dim() and len(finite) == classes_seen
            place = f" of class {int((~finite).nonzero()[0, 0])}" if by_class else ""
            raise FscilError(
                f"method {method.name!r} diverged {when}: its {name}{place} "
                f"{'is' if place else 'are'} not finite; {_remedy(method)}"
            )


def _remedy(method: Method) -> str:
    """Say what may be tried where numbers are not finite."""
    usual = params_dict(type(method).Params())
    changed = [
        f"{name} = {value} (by default {usual[name]})"
        for name, value in params_dict(method.params).items()
        if value != usual[name]
    ]
    if changed:
        return f"{', '.join(changed)}: try values nearer to the defaults"
    return "its parameters are the defaults: the features may be too large or too small for them"


def _artifacts(method: Method, number: int) -> dict[str, np.ndarray]:
    with named(method, f"giving the artifacts of session {number}"):
        found = {f"session{number}/{k}": np.asarray(v) for k, v in method.artifacts().items()}
    for name, array in found.items():
        if array.dtype.hasobject:
            raise FscilError(f"method {method.name!r}: artifact {name!r} is no array of numbers")
    return found


def notes_of(method: Method) -> dict[str, int | float | str]:
    """Return what a method has to say of the run, checked."""
    with named(method, "giving its notes"):
        notes = dict(method.notes())
    for name, value in notes.items():
        if not isinstance(value, int | float | str):
            raise FscilError(
                f"method {method.name!r}: note {name!r} is {value!r}, not a number or a string"
            )
    refuse_unstorable(f"method {method.name!r}: note", notes)
    return notes


def _state_bytes(method: Method) -> int:
    with named(method, "giving its state"):
        return method.state_bytes()


@torch.no_grad()
def predict(
    method: Method, maker: SessionMaker, indices: np.ndarray, classes_seen: int
) -> np.ndarray:
    """Return the class with the highest score for each test sample; the lower id wins a tie.

    Raises:
        FscilError: scores of a wrong shape, or not finite.
    """
    predicted = []
    for part in batches(len(indices), QUERY_BATCH):
        with named(method, f"scoring {classes_seen} classes"):
            scores = method.scores(maker.queries(indices[part]))
        expected = (len(indices[part]), classes_seen)
        predicted.append(
            best_columns(method, scores, expected, "classes seen", f"after {classes_seen} classes")
        )
    return np.concatenate(predicted)


def best_columns(
    method: Method, scores: torch.Tensor, expected: tuple[int, int], columns: str, when: str
) -> np.ndarray:
    """Return the column of the highest score for each query, the first of equals.

    Args:
        method: whose scores they are, for messages.
        scores: what it returned.
        expected: (queries, columns).
        columns: what the columns stand for, for messages.
        when: when it returned them, for messages.

    Raises:
        FscilError: scores of a wrong shape, or not finite.
    """
    if not isinstance(scores, torch.Tensor) or scores.is_complex():
        raise FscilError(
            f"method {method.name!r} returned {type(scores).__name__} as scores; a tensor of "
            f"real numbers (queries, {columns}) is expected"
        )
    if tuple(scores.shape) != expected:
        raise FscilError(
            f"method {method.name!r} returned scores of shape {tuple(scores.shape)}, "
            f"expected (queries, {columns}) = {expected}"
        )
    if not bool(torch.isfinite(scores).all()):
        raise FscilError(
            f"method {method.name!r} returned scores that are not finite {when}; {_remedy(method)}"
        )
    values = scores.detach().cpu()
    # In their own type: rounded to float32, scores that differ could be equal.
    exact = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    best: np.ndarray = exact.numpy().argmax(axis=1)
    return best
