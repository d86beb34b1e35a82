"""Claims about what LDC costs beside Free-Lunch: accuracy at equal memory, bytes, seconds."""

from __future__ import annotations

from collections.abc import Mapping

from fscil_bench.metrics import mean_interval
from fscil_bench.store.runs import StoredRun
from fscil_bench.training.backbones import build_backbone, count_parameters

from ._ablation import RECURRENT, SAMPLER
from ._claims import NO_RUNS, Claim, Part, both_sides, contrasted, untested
from ._claims_setup import Setup
from ._costs import (
    FLOAT,
    busy_remarks,
    class_bytes,
    drop_slope,
    fixed_bytes,
    learning_seconds,
    machine,
    unit_seconds,
)
from ._paired import FAILS, HOLDS, at_most
from ._shelf import Shelf

TIME_RATIO = 1.5
UNIT_SHARE = 0.01


def scalability_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (f)."""
    parts = [_slopes(setup, shelf, mode) for mode in setup.budget_modes]
    return Claim(
        "f",
        "The accuracy drop stays flat as classes grow, at fixed memory",
        "Slope of A_0 − A_t against the number of classes seen (least squares over all sessions): "
        f"Free-Lunch's, with {FLOAT * setup.dim**2:,} bytes for its covariances as LDC has for its "
        "one, minus LDC's; holds if it is above 0 however Free-Lunch spends them: on whole "
        "covariances of a few classes, or (where that many have room) on low-rank ones of all.",
        tuple(parts),
    )


def _slopes(setup: Setup, shelf: Shelf, mode: str) -> Part:
    ours, theirs = shelf.runs(setup.ldc()), shelf.runs(setup.budgeted(mode))
    if setup.protocol.sessions == 0:
        return untested("the protocol has no sessions", mode)
    flat, steep = ({s: drop_slope(run) for s, run in runs.items()} for runs in (ours, theirs))
    return contrasted(steep, flat, mode, "points a class")


def memory_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (g)."""
    complete, without = (
        list(shelf.runs(setup.ablation[name]).values())[:1] for name in (RECURRENT, SAMPLER)
    )
    parts = [untested(NO_RUNS, name) for name in ("covariance", "PCU")]
    if setup.protocol.sessions == 0:
        parts = [untested("the protocol has no sessions", part.name) for part in parts]
    elif complete:
        parts[0] = _growth(complete[0], setup.dim)
        parts[1:] = [_unit_share(complete[0], each) for each in without] or parts[1:]
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


def _growth(run: StoredRun, dim: int) -> Part:
    growths = set(class_bytes(run))
    constant = len(growths) == 1 and growths <= {FLOAT * dim, 2 * FLOAT * dim}
    detail = f"{' or '.join(f'{g:,g}' for g in sorted(growths))} bytes a new class (D = {dim})"
    detail += f", {fixed_bytes(run):,} bytes beside them after every session" * constant
    return Part(HOLDS if constant else FAILS, "covariance", detail=detail)


def _unit_share(complete: StoredRun, without: StoredRun) -> Part:
    name = complete.spec.representation.backbone
    whole = count_parameters(build_backbone(name, seed=0))
    unit = (fixed_bytes(complete) - fixed_bytes(without)) // FLOAT
    detail = f"{unit:,} numbers beside {whole:,} parameters of {name} ({unit / whole:.3%})"
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


def _time_ratio(ours: Mapping[int, StoredRun], theirs: Mapping[int, StoredRun]) -> Part:
    shared = [s for s in ours if s in theirs and machine(ours[s]) == machine(theirs[s])]
    if not shared:
        return untested("no runs of both on one machine are stored" if ours and theirs else NO_RUNS)
    seconds = [{s: learning_seconds(runs[s]) for s in shared} for runs in (ours, theirs)]
    ratios = [seconds[0][s] / seconds[1][s] for s in shared if seconds[1][s] > 0]
    if not ratios:
        return untested("Free-Lunch's sessions took no time")
    interval = mean_interval(ratios)
    detail = f"{both_sides(*seconds)} seconds; unit {unit_seconds(ours):.0f}"
    detail += "; timed on a busy machine" if busy_remarks({"": ours, " ": theirs}) else ""
    return Part(at_most(interval, TIME_RATIO), "", interval, "times", detail, difference=False)
