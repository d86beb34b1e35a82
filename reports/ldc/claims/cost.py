"""Claims about what LDC costs beside Free-Lunch: accuracy at equal memory, bytes, seconds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fscil_bench.metrics import mean_interval
from fscil_bench.reporting.statistics import FAILS, HOLDS, at_most

from ..ablation import RECURRENT, SAMPLER
from ..shelf import Shelf
from ..values import FLOAT, busy_remarks
from .claim import NO_RUNS, Claim, Part, both_sides, compared, untested
from .setup import Setup

TIME_RATIO = 1.5
UNIT_SHARE = 0.01


def scalability_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (f)."""
    ours = shelf.runs(setup.ldc())
    parts = {mode: untested("the protocol has no sessions", mode) for mode in setup.budget_modes}
    if setup.protocol.sessions:
        rivals = {mode: shelf.runs(setup.budgeted(mode)) for mode in parts}
        figure = "points a class"
        parts = {m: compared(own, ours, "drop_slope", m, figure) for m, own in rivals.items()}
    return Claim(
        "f",
        "The accuracy drop stays flat as classes grow, at fixed memory",
        "Slope of A_0 − A_t against the number of classes seen (least squares over all sessions): "
        f"Free-Lunch's, with {FLOAT * setup.dim**2:,} bytes for its covariances as LDC has for its "
        "one, minus LDC's; holds if it is above 0 however Free-Lunch spends them: on whole "
        "covariances of a few classes, or (where that many have room) on low-rank ones of all.",
        tuple(parts.values()),
    )


def memory_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (g)."""
    complete, without = (shelf.runs(setup.ablation[name]) for name in (RECURRENT, SAMPLER))
    reason = NO_RUNS if setup.protocol.sessions else "the protocol has no sessions"
    parts = [untested(reason, name) for name in ("covariance", "PCU")]
    if setup.protocol.sessions and len(complete):
        parts[0] = _growth(complete.iloc[0], setup)
        parts[1] = _unit_share(complete, without, setup) if len(without) else parts[1]
    return Claim(
        "g",
        "The covariance takes the same memory however many classes there are, and the PCU's "
        "parameters are negligible beside the backbone's",
        f"Stored bytes grow in every session by exactly {FLOAT}·D for each new class, or twice "
        "that where class means are kept beside the classifier, and nothing else changes; and the "
        f"unit (the bytes by which the whole of LDC exceeds LDC without one) has at most "
        f"{UNIT_SHARE:.0%} of the backbone's parameters.",
        tuple(parts),
    )


def _growth(run: pd.Series, setup: Setup) -> Part:
    dim, protocol = setup.dim, setup.protocol
    states = [run[f"state_{t}"] for t in range(protocol.sessions + 1)]
    growths = sorted(
        {grown / way for grown, way in zip(np.diff(states), protocol.ways, strict=True)}
    )
    constant = len(growths) == 1 and growths[0] in (FLOAT * dim, 2 * FLOAT * dim)
    detail = f"{' or '.join(f'{g:,g}' for g in growths)} bytes a new class (D = {dim})"
    beside = f", {int(run['fixed_bytes']):,} bytes beside them after every session"
    return Part(HOLDS if constant else FAILS, "covariance", detail=detail + beside * constant)


def _unit_share(complete: pd.DataFrame, without: pd.DataFrame, setup: Setup) -> Part:
    backbone = str(complete["backbone"].iloc[0])
    whole = setup.registry.backbone(backbone)[0].parameters()
    unit = int(complete["fixed_bytes"].iloc[0] - without["fixed_bytes"].iloc[0]) // FLOAT
    detail = f"{unit:,} numbers beside {whole:,} parameters of {backbone} ({unit / whole:.3%})"
    return Part(HOLDS if unit <= UNIT_SHARE * whole else FAILS, "PCU", detail=detail)


def time_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (h)."""
    return Claim(
        "h",
        "LDC takes about as long as Free-Lunch",
        "Seconds that LDC learns in all sessions after the base session, over those of "
        "Free-Lunch, seed by seed and on the same machine (the training of the unit, once for all "
        f"runs, is not among them); holds if the upper bound is at most {TIME_RATIO}, and does not "
        "if the lower one is above it.",
        (_time_ratio(shelf.runs(setup.ldc()), shelf.runs(setup.free_lunch())),),
    )


def _time_ratio(ours: pd.DataFrame, theirs: pd.DataFrame) -> Part:
    if not len(ours) or not len(theirs):
        return untested(NO_RUNS)
    unit = ours["pretrain_seconds"].min()
    busy = busy_remarks({"ldc": ours, "free_lunch": theirs})
    shared = ours.index.intersection(theirs.index, sort=False)
    ours, theirs = ours.loc[shared], theirs.loc[shared]
    alike = ours["machine"] == theirs["machine"]
    if not alike.any():
        return untested("no runs of both on one machine are stored")
    ours, theirs = ours[alike], theirs[alike]
    ratios = (ours["learning"] / theirs["learning"])[theirs["learning"] > 0]
    if ratios.empty:
        return untested("Free-Lunch's sessions took no time")
    interval = mean_interval(ratios.tolist())
    detail = f"{both_sides(ours, theirs, 'learning')} seconds; unit {unit:.0f}"
    detail += "; timed on a busy machine" * bool(busy)
    return Part(at_most(interval, TIME_RATIO), "", interval, "times", detail, difference=False)
