"""Claim (j): how far generated features lie from real ones, from one recurrent step to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fscil_bench.errors import StoreError
from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.report import ReportInput
from fscil_bench.reporting.evaluation import EvaluationFeatures
from fscil_bench.store.runs import StoredRun

from ._claims import Claim, Part, both_sides, untested
from ._claims_setup import Setup
from ._divergence import halves_kl, unit_directions
from ._paired import at_most, paired_interval
from ._shelf import Shelf
from ._tables import Column, TableRow

GROUPS = ("base", "new")
FEWEST = 4
"""Images of a class that can be halved into two sets with a variance each."""


@dataclass(frozen=True)
class Divergences:
    """KL(generated‖real) of one run by step and class, and the floor by class, in nats."""

    steps: tuple[Mapping[int, float], ...]
    floor: Mapping[int, float]
    base_classes: int

    def group(self, values: Mapping[int, float], group: str) -> dict[int, float]:
        """Return the values of base classes, or of all later ones."""
        new = group == "new"
        return {c: v for c, v in values.items() if (c >= self.base_classes) == new}


class KlStudy:
    """The divergences of the three variants, as far as features and artifacts are at hand."""

    def __init__(self, setup: Setup, shelf: Shelf, given: ReportInput) -> None:
        self.setup, self.reason = setup, "its runs with --artifacts are not stored"
        self.found: dict[str, Divergences] = {}
        for name, variant in setup.generated.items():
            for run in shelf.runs(variant).values():
                measured = self._measure(run, shelf, given)
                if measured is not None:
                    self.found[name] = measured

    def claim(self) -> Claim:
        """Return claim (j)."""
        steps = self.setup.params.steps
        return Claim(
            "j",
            "Recurrent calibration brings generated features closer to real ones, step by step",
            "KL(generated‖real) of a class after a step minus before it, over the classes of one "
            f"run with recurrent_steps={steps}, for base and for new classes; a rise is ruled out "
            "if the upper bound is at or below 0, and shown if the lower one is above it. Features "
            "are generated after the last session; real are the test images', in the same space.",
            tuple(self._step(group, step) for group in GROUPS for step in range(1, steps + 1)),
            "classes",
        )

    def table(self) -> tuple[list[Column], list[TableRow]]:
        """Return the KL of each variant and step, and the floor, over base and new classes."""
        # The floor would always be the best.
        columns = [Column(group, f"{group} classes", "KL (nats)", "none") for group in GROUPS]
        named: list[tuple[str, Divergences, Mapping[int, float]]] = []
        labels = {"shared": "shared covariance", "mapped": "mapped", "recurrent": "recurrent"}
        for name, own in self.found.items():
            for step, values in enumerate(own.steps):
                after = f", step {step}" if name == "recurrent" else ""
                named.append((labels[name] + after, own, values))
        if self.found:
            any_run = next(iter(self.found.values()))
            named.append(("floor: real to real", any_run, any_run.floor))
        rows = [TableRow(label, 1, _cells(own, values)) for label, own, values in named]
        return columns, rows

    def _step(self, group: str, step: int) -> Part:
        name = f"{group}, step {step}"
        own = self.found.get("recurrent")
        if own is None or len(own.steps) <= step:
            return untested(self.reason, name)
        after, before = (own.group(own.steps[r], group) for r in (step, step - 1))
        interval = paired_interval(after, before)
        if interval.count == 0:
            return untested(f"no {group} class has {FEWEST} test images or more", name)
        return Part(at_most(interval, 0.0), name, interval, "nats", both_sides(after, before))

    def _measure(self, run: StoredRun, shelf: Shelf, given: ReportInput) -> Divergences | None:
        prefix = f"session{run.spec.protocol.sessions}"
        count = run.spec.params["recurrent_steps"] + 1
        names = [f"{prefix}/generated_step{step}" for step in range(count)]
        arrays = shelf.artifacts(run, f"{prefix}/feature_power", *names)
        if given.evaluation is None or len(arrays) < count + 1:
            return None
        try:
            features = given.evaluation.features(run)
        except StoreError as error:
            self.reason = "its images' features are not at hand; a warning says how to make them"
            shelf.problems.append(str(error))
            return None
        power = float(arrays[f"{prefix}/feature_power"])
        generated = [arrays[name] for name in names]
        return measured_divergences(generated, features, power, run.spec.protocol.base_classes)


def measured_divergences(
    generated: list[np.ndarray], features: EvaluationFeatures, power: float, base_classes: int
) -> Divergences:
    """Return the KL of generated to real test features, class by class.

    Args:
        generated: of each step, (classes, n, D), by global class id.
        features: of the images; a class with fewer than 4 test images is left out.
        power: takes real features to the space of the generated ones.
        base_classes: how many classes came with the base session.
    """
    directions = unit_directions(generated[0].shape[2])
    steps: list[dict[int, float]] = [{} for _ in generated]
    floor: dict[int, float] = {}
    for c in range(len(generated[0])):
        real = features.test[features.test_labels == c].astype(np.float64) ** power
        if len(real) < FEWEST:
            continue
        for values, drawn in zip(steps, generated, strict=True):
            values[c], floor[c] = halves_kl(drawn[c], real, directions)
    return Divergences(tuple(steps), floor, base_classes)


def _cells(own: Divergences, values: Mapping[int, float]) -> dict[str, Interval]:
    return {group: mean_interval(list(own.group(values, group).values())) for group in GROUPS}
