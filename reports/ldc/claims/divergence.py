"""Claim (j): how far generated features lie from real ones, from one recurrent step to the next."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fscil_bench.report import Column, Table
from fscil_bench.reporting.statistics import at_most
from fscil_bench.reporting.tables import ROW_COLUMNS

from ..divergence import FEWEST, GROUPS, KL, by_group, run_divergences
from ..shelf import Shelf
from ..values import difference, means
from .claim import Claim, Part, both_sides, untested
from .setup import Setup

RECURRENT = "recurrent"
LABELS = {"shared": "shared covariance", "mapped": "mapped", RECURRENT: RECURRENT}


def divergences(setup: Setup, shelf: Shelf) -> dict[str, pd.DataFrame]:
    """Return the divergences of each variant by class, as far as features are at hand."""
    found = {}
    for name, variant in setup.generated.items():
        for run in shelf.stored(variant).values():
            found[name] = run_divergences(shelf, run)
    return {name: own for name, own in found.items() if len(own)}


def divergence_claim(setup: Setup, shelf: Shelf, found: Mapping[str, pd.DataFrame]) -> Claim:
    """Return claim (j)."""
    steps = setup.params.steps
    reason = "its runs with --artifacts are not stored"
    if len(shelf.runs(setup.generated[RECURRENT])):
        reason = "its generated or its images' features are not at hand; a warning says why"
    own = found.get(RECURRENT)
    parts = [
        untested(reason, f"{group}, step {step}") if own is None else _step(own, group, step, setup)
        for group in GROUPS
        for step in range(1, steps + 1)
    ]
    return Claim(
        "j",
        "Recurrent calibration brings generated features closer to real ones, step by step",
        "KL(generated‖real) of a class after a step minus before it, over the classes of one "
        f"run with recurrent_steps={steps}, for base and for new classes; a rise is ruled out "
        "if the upper bound is at or below 0, and shown if the lower one is above it. Features "
        "are generated after the last session; real are the test images', in the same space.",
        tuple(parts),
        "classes",
    )


def divergence_table(setup: Setup, found: Mapping[str, pd.DataFrame]) -> Table:
    """Return the KL of each variant and step, and the floor, over base and new classes."""
    rows = {}
    for name, own in found.items():
        for step in range(own.shape[1] - 1):
            after = f", step {step}" * (name == RECURRENT)
            rows[LABELS[name] + after] = own[f"step_{step}"]
    if rows:
        rows["floor: real to real"] = next(iter(found.values()))["floor"]
    base = setup.protocol.base_classes
    frame = means({label: by_group(values, base) for label, values in rows.items()}, GROUPS)
    # The floor would always be the best.
    columns = [Column(group, f"{group} classes", "KL (nats)") for group in GROUPS]
    return Table(
        "kl",
        frame.assign(runs=1),
        [*ROW_COLUMNS, *columns],
        notes=[f"{KL} ± is over classes, of one run each."],
    )


def _step(own: pd.DataFrame, group: str, step: int, setup: Setup) -> Part:
    name = f"{group}, step {step}"
    after, before = (
        by_group(own[f"step_{r}"], setup.protocol.base_classes) for r in (step, step - 1)
    )
    interval = difference(after, before, group)
    if interval.count == 0:
        return untested(f"no {group} class has {FEWEST} test images or more", name)
    return Part(at_most(interval, 0.0), name, interval, "nats", both_sides(after, before, group))
