"""Hand-made runs of the variants that studies and claims compare: 4 + 2 × 1 classes, six seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.params import NoParams, parse_params
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Figure, Report, ReportOutput
from fscil_bench.reporting.document import write_document
from fscil_bench.reporting.evaluation import EvaluationFeatures
from fscil_bench.reporting.figures import new_figure
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.ldc.claims.claim import Claim
from fscil_bench.reports.ldc.claims.setup import ClaimsParams, Setup
from fscil_bench.reports.ldc.shelf import Shelf
from fscil_bench.reports.ldc.variants import Variant
from fscil_bench.request import Selection
from fscil_bench.store.runs import SessionRecord, StoredRun

SEEDS = tuple(range(6))
"""As many as a verdict takes."""


@dataclass(frozen=True)
class CalibrationParams:
    sampler: str = "gaussian"
    covariance: str = "mapped"
    recurrent_steps: int = 1
    loss: str = "kl"
    base_rows: str = "means"
    new_means: str = "sample"
    classifier: str = "trained"


@dataclass(frozen=True)
class BudgetParams:
    byte_budget: int = 0
    budget_mode: str = "full"


@dataclass(frozen=True)
class SpaceParams:
    space: str = "raw"


@dataclass
class ClaimsRuns:
    """Writes runs of variants by hand, and judges claims by them."""

    factory: Any
    registry: Registry
    setup: Setup
    given: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def write(
        self,
        variant: Variant,
        last: Sequence[tuple[int, int]] = ((30, 3),) * 6,
        first: int = 36,
        **fields: Any,
    ) -> list[StoredRun]:
        """Write a run for each seed.

        Of 40 base images `first` are right in session 0; (base, new) images in the last session.
        """
        schema = self.registry.get("method", variant.method).value.Params
        params = {**vars(schema()), **variant.params}
        protocol = self.setup.protocol.override(**variant.overrides)
        between = [(34, 6)] * (protocol.sessions - 1)
        order = {"class_order": protocol.class_order}
        runs = []
        for seed, right in zip(variant.seeds, last, strict=False):
            spec = self.factory.spec(
                variant.method, seed, protocol, order, params=params, split=variant.split
            )
            runs.append(self.factory.write(spec, [(first, 0), *between, right], **fields))
        return runs

    @staticmethod
    def sessions(state: Sequence[int] = (1, 2, 3), learn: float = 1.0) -> tuple[SessionRecord, ...]:
        """Return records of toy sessions: bytes kept after each, seconds of learning in each."""
        return tuple(
            SessionRecord(
                index=t, classes_seen=4 + t, learn_seconds=learn, score_seconds=9.0, state_bytes=b
            )
            for t, b in enumerate(state)
        )

    @staticmethod
    def add_artifacts(run: StoredRun, session: int, **arrays: np.ndarray) -> None:
        """Store named arrays of one session with a run."""
        named: Any = {f"session{session}/{name}": array for name, array in arrays.items()}
        np.savez(run.folder / "artifacts.npz", **named)

    def claim(
        self, judge: Callable[[Setup, Shelf], Claim | list[Claim]], letter: str = ""
    ) -> Claim:
        """Return a claim judged by what is stored; of several that with the letter."""
        shelf = self.shelf()
        found = judge(self.setup, shelf)
        self.problems = shelf.problems
        claims = [found] if isinstance(found, Claim) else found
        return next(claim for claim in claims if letter in ("", claim.letter))

    def shelf(self) -> Shelf:
        """Return all stored runs that claims need."""
        variants = dict(enumerate(self.setup.variants()))
        return Shelf(self.results(Selection("toy")), self.setup.protocol, variants)

    def results(self, selection: Selection) -> Results:
        """Return everything that is stored."""
        runs = tuple(self.factory.store.runs()[0])
        return Results(self.registry, selection, runs, **self.given)


@pytest.fixture
def claims_registry(toy_protocol: Protocol) -> Registry:
    """Return a registry of the methods that claims compare, as far as they set parameters."""
    registry = Registry()
    methods = {"ldc": CalibrationParams, "free_lunch": BudgetParams, "ncm": SpaceParams}
    for name, schema in methods.items():
        plugin = type(name, (), {"Params": schema})
        registry.add(Plugin("method", name, plugin, Path(__file__), "test"))
    cosine = type("Cosine", (), {"Params": NoParams})
    registry.add(Plugin("representation", "cosine", cosine, Path(__file__), "test"))
    registry.add_class(ResNet20Backbone, "test")
    registry.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    return registry


@pytest.fixture
def claims(factory: Any, claims_registry: Registry, toy_protocol: Protocol) -> ClaimsRuns:
    """Return a maker of runs that claims compare."""
    setup = Setup(toy_protocol, claims_registry, ClaimsParams(unseen=2, steps=1), seeds=SEEDS)
    return ClaimsRuns(factory, claims_registry, setup)


@pytest.fixture
def study(claims: ClaimsRuns, tmp_path: Path) -> Callable[..., ReportOutput]:
    """Return a function that makes a study of all hand-made runs into `out`, of six seeds.

    To draw takes a second: without `draw` a figure is blank beside its numbers.
    """

    def build(
        kind: type[Report], params: dict[str, Any] | None = None, draw: bool = False, **asked: Any
    ) -> ReportOutput:
        selection = Selection(**{"protocol": "toy", "seeds": SEEDS, **asked})
        results = claims.results(selection)
        typed = parse_params("report", kind.Params, params or {})
        document = kind(results).build(results.frame, typed)
        if not draw:
            document = replace(document, parts=[_undrawn(part) for part in document.parts])
        return write_document(document, tmp_path / "out", kind.name)

    return build


@pytest.fixture
def numbers(tmp_path: Path) -> Callable[[str], pd.DataFrame]:
    """Return a function that reads a CSV in `out` by the names of its rows."""

    def read(name: str) -> pd.DataFrame:
        frame = pd.read_csv(tmp_path / f"out/{name}.csv", index_col="label")
        return frame.rename(lambda label: label.removeprefix("'"))  # before a + at the start

    return read


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return options of reports on the toy, with caches that share its trained network."""
    toy, folder = Path(__file__).parents[2] / "toy", tmp_path_factory.mktemp("studies")
    return {
        "protocol": str(toy / "toy.toml"),
        "plugins": [toy / "toy_reader.py"],
        "results": folder / "results",
        "cache": folder / "cache",
        "precision": "fp32",
        "seeds": (0,),
    }


@pytest.fixture
def real_features() -> Callable[..., EvaluationFeatures]:
    """Return a function of test features whose square roots are N(class + 4, 1) on four axes."""

    def draw(images: int = 20, classes: int = 6) -> EvaluationFeatures:
        labels = np.repeat(np.arange(classes), images)
        noise = np.random.default_rng(0).standard_normal((len(labels), 4))
        test = np.square(labels[:, None] + 4.0 + noise)
        return EvaluationFeatures(test[:0], labels[:0], test, labels, tuple("abcdefgh"[:classes]))

    return draw


@pytest.fixture
def generated() -> Callable[..., np.ndarray]:
    """Return a function of features that lie `shift` off the roots of those, (classes, 60, 4)."""

    def draw(shift: float, classes: int = 6) -> np.ndarray:
        noise = np.random.default_rng(1).standard_normal((classes, 60, 4))
        found: np.ndarray = np.arange(classes)[:, None, None] + 4.0 + shift + noise
        return found

    return draw


def _undrawn(part: Any) -> Any:
    return replace(part, draw=lambda: new_figure(1, 1)) if isinstance(part, Figure) else part
