"""Hand-made runs of the variants that claims compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fscil_bench.params import NoParams, parse_params
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Figure, Report, ReportOutput
from fscil_bench.reporting.document import write_document
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


@dataclass(frozen=True)
class BudgetParams:
    byte_budget: int = 0
    budget_mode: str = "full"


@dataclass(frozen=True)
class SpaceParams:
    space: str = "raw"


CLAIMS_METHODS = {"ldc": CalibrationParams, "free_lunch": BudgetParams, "ncm": SpaceParams}


@dataclass
class ClaimsRuns:
    """Writes runs of variants by hand, and judges claims by them; six seeds."""

    factory: Any
    registry: Registry
    setup: Setup
    given: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def write(
        self, variant: Variant, last: Sequence[tuple[int, int]], first: int = 36, **fields: Any
    ) -> list[StoredRun]:
        """Write a run for each seed.

        Of 40 base images `first` are right in session 0; (base, new) images in the last session.
        """
        schema = self.registry.get("method", variant.method).value.Params
        params = {**vars(schema()), **variant.params}
        protocol = self.setup.protocol.override(**variant.overrides)
        between = [(34, 6)] * (protocol.sessions - 1)
        runs = []
        for seed, right in zip(variant.seeds, last, strict=False):
            spec = self.factory.spec(
                variant.method, seed, protocol, params=params, split=variant.split
            )
            runs.append(self.factory.write(spec, [(first, 0), *between, right], **fields))
        return runs

    @staticmethod
    def sessions(state: Sequence[int], learn: float = 1.0) -> tuple[SessionRecord, ...]:
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
        if isinstance(found, Claim):
            return found
        return next(claim for claim in found if claim.letter == letter)

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
    for name, schema in CLAIMS_METHODS.items():
        plugin = type(name, (), {"Params": schema})
        registry.add(Plugin("method", name, plugin, Path(__file__), "test"))
    cosine = type("Cosine", (), {"Params": NoParams})
    registry.add(Plugin("representation", "cosine", cosine, Path(__file__), "test"))
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
    return lambda name: pd.read_csv(tmp_path / f"out/{name}.csv", index_col="label")


def _undrawn(part: Any) -> Any:
    return replace(part, draw=lambda: new_figure(1, 1)) if isinstance(part, Figure) else part
