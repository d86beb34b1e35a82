"""What tests share: synthetic finished runs with their registry, and the toy data set's runs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fscil_bench as fb
from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.options import Options
from fscil_bench.params import NoParams
from fscil_bench.plugins.registry import Plugin, Registry, load_registry
from fscil_bench.progress import Silent
from fscil_bench.protocol import ImageSpec, Protocol, Recipe
from fscil_bench.running.workbench import Workbench
from fscil_bench.spec import RepresentationSpec, RunSpec
from fscil_bench.store.runs import RunRecord, SessionRecord, Store, StoredRun

# Tensors are tiny here: more threads gain nothing, and stall one another on a busy machine.
torch.set_num_threads(1)

TEST_IMAGES = 10
PROTOCOL = Protocol(
    name="toy",
    title="Toy",
    dataset="toy",
    classes=6,
    base_classes=4,
    way=1,
    shot=5,
    sessions=2,
    train_images=500,
    backbone="resnet20",
    images=ImageSpec(size=32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
    recipe=Recipe(epochs=100),
)
"""Four base classes, then one class in each of two sessions; ten test images a class."""


@dataclass(frozen=True)
class RunFactory:
    """Makes specifications and finished runs of the toy protocol."""

    store: Store

    def spec(
        self,
        method: str = "ncm",
        seed: int = 0,
        protocol: Protocol = PROTOCOL,
        representation: dict[str, Any] | None = None,
        **changes: Any,
    ) -> RunSpec:
        """Return a specification; `representation` and `changes` replace fields."""
        fields: dict[str, Any] = {
            "name": "cosine",
            "params": {},
            "seed": 0,
            "data_fingerprint": "f" * 16,
            "precision": "fp32",
            "code": "r1",
            "engine": "e1",
        }
        copied = ("dataset", "base_classes", "backbone", "pretraining", "images", "recipe")
        fields |= {name: getattr(protocol, name) for name in copied} | (representation or {})
        run: dict[str, Any] = {
            "method": method,
            "params": {},
            "protocol": protocol,
            "representation": RepresentationSpec(**fields),
            "split": protocol.split,
            "shots": None,
            "seed": seed,
            "code": "m1",
            "engine": "e1",
        }
        return RunSpec(**(run | changes))

    def write(
        self,
        spec: RunSpec,
        correct: Sequence[tuple[int, int]] = ((36, 0), (34, 6), (30, 10)),
        **fields: Any,
    ) -> StoredRun:
        """Write a finished run; `correct` counts right base and new predictions a session."""
        targets = np.repeat(np.arange(spec.protocol.classes_used), TEST_IMAGES)
        predictions = np.stack(
            [self._predict(spec.protocol, targets, t, *c) for t, c in enumerate(correct)]
        )
        record: dict[str, Any] = {
            "key": spec.key,
            "spec": spec,
            "class_names": tuple(f"class {c}" for c in range(spec.protocol.classes_used)),
            "train_images": (500, 500),
            "test_images": (TEST_IMAGES, TEST_IMAGES),
            "sessions": tuple(self._session(spec.protocol, t) for t in range(len(correct))),
            "created": "2024-01-01T00:00:00+00:00",
        }
        return self.store.write(RunRecord(**(record | fields)), predictions, targets, {})

    @staticmethod
    def _predict(
        protocol: Protocol, targets: np.ndarray, session: int, base: int, new: int
    ) -> np.ndarray:
        seen = protocol.classes_seen(session)
        first_new = protocol.base_classes * TEST_IMAGES
        predicted = np.where(targets < seen, (targets + 1) % seen, -1)
        for start, count in ((0, base), (first_new, new)):
            predicted[start : start + count] = targets[start : start + count]
        return predicted

    @staticmethod
    def _session(protocol: Protocol, session: int) -> SessionRecord:
        return SessionRecord(
            index=session,
            classes_seen=protocol.classes_seen(session),
            learn_seconds=0.1,
            score_seconds=0.1,
            state_bytes=2048 * (session + 1),
        )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(tmp_path / "results", tmp_path / "cache")


@pytest.fixture
def factory(store: Store) -> RunFactory:
    """Return a maker of runs in the `store` fixture."""
    return RunFactory(store)


@pytest.fixture
def toy_protocol() -> Protocol:
    """Return the protocol of the factory's runs."""
    return PROTOCOL


@dataclass(frozen=True)
class LdcParams:
    steps: int = 8
    widths: tuple[int, ...] = (64, 32)


@dataclass(frozen=True)
class FactParams:
    virtual: int = 20


class Ldc:
    Params = LdcParams


class Ncm:
    Params = NoParams


class Fact:
    Params = FactParams


@pytest.fixture
def registry(toy_protocol: Protocol) -> Registry:
    """Return a registry of two methods, a representation and the toy protocol."""
    registry = Registry()
    registry.add(Plugin("method", "ldc", Ldc, Path(__file__), "test"))
    registry.add(Plugin("method", "ncm", Ncm, Path(__file__), "test"))
    registry.add(Plugin("representation", "fact", Fact, Path(__file__), "test"))
    registry.add_class(ResNet20Backbone, "test")
    registry.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    return registry


@dataclass(frozen=True)
class Toy:
    """Runs the toy data set of tests/toy for real; what it makes is stored in `folder`."""

    folder: Path
    home: ClassVar[Path] = Path(__file__).parent / "toy"
    toml: ClassVar[str] = str(home / "toy.toml")
    plugins: ClassVar[tuple[Path, ...]] = (home / "toy_reader.py", home / "toy_methods.py")

    def settings(self, **options: Any) -> dict[str, Any]:
        """Return arguments of `fscil_bench.run`; `options` replace some."""
        places = {name: self.folder / name for name in ("results", "cache")}
        fixed = {"protocol": self.toml, "plugins": self.plugins, "precision": "fp32"}
        return {**fixed, **places, **options}

    def words(self) -> list[str]:
        """Return the same for the command line."""
        names = ("protocol", "results", "cache", "precision")
        told = [("plugin", each) for each in self.plugins]
        told += [(name, self.settings()[name]) for name in names]
        return [word for name, value in told for word in (f"--{name}", str(value))]

    def run(self, method: str | list[str] = "ncm", **options: Any) -> Any:
        """Run a method, or take what is stored."""
        return fb.run(method, **self.settings(**options))

    def bench(self, *methods: Any) -> Workbench:
        """Return a workbench that knows further methods."""
        registry = load_registry(self.plugins)
        for method in methods:
            file = Path(inspect.getfile(method))
            registry.add(Plugin("method", method.name, method, file, "test"))
        store = Store(self.folder / "results", self.folder / "cache")
        return Workbench(store, registry, Silent(), Options(precision="fp32"))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """Return the toy data set with a folder that the tests of a module share."""
    return Toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def new_toy(tmp_path: Path) -> Toy:
    """Return the toy data set with nothing stored."""
    return Toy(tmp_path)
