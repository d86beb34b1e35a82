"""A method cannot reach what it must not see: the graph of all it is handed is walked."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray
from fscil_bench.method import Method, Needs
from fscil_bench.protocol import Protocol, Queries, Session
from fscil_bench.request import RunRequest
from fscil_bench.running.runner import Outcome
from fscil_bench.running.sessions import Assignment, CanonicalShots, SessionMaker
from fscil_bench.running.workbench import Plan, Workbench
from fscil_bench.spec import RunSpec
from fscil_bench.store.runs import Store
from fscil_bench.training.features import Features

FORBIDDEN = (
    *(Protocol, Dataset, ImageArray, Images, Features, Assignment, CanonicalShots, SessionMaker),
    *(RunSpec, Plan, Workbench, Store, Outcome),
)
CLASSES, SESSIONS = 37, 11
"""Numbers that no method has by accident: 4 base classes and 11 sessions of 3."""


def reachable(roots: list[Any]) -> Iterator[Any]:
    """Yield every object that can be reached by attributes, items, closures and array bases.

    Modules, classes and the globals of functions are not state that was handed over.
    """
    seen: set[int] = set()
    waiting = list(roots)
    keep = []
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type | types.ModuleType):
            continue
        seen.add(id(value))
        keep.append(value)
        yield value
        if isinstance(value, dict | types.MappingProxyType):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += list(value)
        elif isinstance(value, types.FunctionType):
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]
            waiting += list(value.__defaults__ or ())
        elif isinstance(value, types.MethodType):
            waiting += [value.__self__, value.__func__]
        elif isinstance(value, np.ndarray):
            waiting.append(value.base)
        waiting += list(getattr(value, "__dict__", {}).values())
        for slot in getattr(type(value), "__slots__", ()):
            if isinstance(slot, str) and hasattr(value, slot):
                waiting.append(getattr(value, slot))


class Spy(Method):
    """Keeps everything that it is handed, to be looked through."""

    name = "spy"
    needs = Needs(features=("plain",), images=True)
    handed: ClassVar[list[tuple[int, list[Any]]]] = []

    def learn_base(self, base: Session) -> None:
        Spy.handed.append((0, [self, base]))

    def learn_session(self, session: Session) -> None:
        Spy.handed.append((session.index, [self, session]))

    def scores(self, queries: Queries) -> torch.Tensor:
        session, objects = Spy.handed[-1]
        objects.append(queries)
        return torch.zeros(len(queries), 4 + 3 * session)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        del state


@pytest.fixture(scope="module", autouse=True)
def handed(toy: Any) -> tuple[Dataset, Assignment]:
    bench = toy.bench(Spy)
    overrides = {"classes": CLASSES, "way": 3, "sessions": SESSIONS, "epochs": 1, "holdout": 0.2}
    plan = bench.plan(RunRequest("spy", toy.toml, overrides=overrides))
    Spy.handed.clear()

    made: list[SessionMaker] = []

    def recording(*args: Any) -> SessionMaker:
        made.append(SessionMaker(*args))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fscil_bench.running.workbench.SessionMaker", recording)
        bench.run(plan)
    assert len(Spy.handed) == SESSIONS + 1
    return plan.dataset, made[0].assignment


def test_no_protocol_and_no_machinery_is_reachable() -> None:
    for session, objects in Spy.handed:
        for value in reachable(objects):
            assert not isinstance(value, FORBIDDEN), f"session {session}: {type(value)}"


def test_no_number_of_future_classes_is_reachable() -> None:
    found = []
    for session, objects in Spy.handed[:-1]:
        for value in reachable([o for o in objects if not isinstance(o, Queries)]):
            if isinstance(value, int) and not isinstance(value, bool):
                found.append((session, value))
    assert CLASSES not in {number for _, number in found}
    # 11 is also the id of a class, which session 3 may know.
    assert SESSIONS not in {number for session, number in found if session < 3}


def test_tensors_hold_this_sessions_samples_and_no_more(handed: tuple[Dataset, Assignment]) -> None:
    dataset, assignment = handed
    allowed: set[int] = set(assignment.base) | set(assignment.heldout)
    by_label = dataset.train.labels
    for session, objects in Spy.handed:
        if session:
            allowed = set(assignment.shots[session - 1])
        mine = next(o for o in objects if isinstance(o, Session))
        samples = assignment.shots[session - 1] if session else assignment.base
        assert mine.labels.tolist() == by_label[samples].tolist()
        future = set(range(len(by_label))) - allowed
        assert mine.images is not None
        pixels = {bytes(image.numpy().tobytes()) for image in mine.images}
        for index in list(future)[:: max(1, len(future) // 40)]:
            assert dataset.train.images[index].tobytes() not in pixels
        for value in reachable(objects):
            if isinstance(value, torch.Tensor):
                assert value.untyped_storage().nbytes() == value.numel() * value.element_size(), (
                    "a tensor is a window on a larger block"
                )


def test_queries_carry_no_labels(handed: tuple[Dataset, Assignment]) -> None:
    dataset, _ = handed
    for session, objects in Spy.handed:
        targets = dataset.test.labels[dataset.test.labels < 4 + 3 * session]
        for queries in (o for o in objects if isinstance(o, Queries)):
            assert len(queries) == len(targets)
            for value in reachable([queries]):
                if isinstance(value, torch.Tensor | np.ndarray):
                    array = np.asarray(value)
                    assert array.shape != targets.shape, "something as long as the labels"
