"""Claims about accuracy: LDC's parts against each other, and against other methods."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..ablation import BASELINE, MAPPING, RECURRENT
from ..shelf import Shelf
from ..terms import LOSSES
from ..values import apart
from .claim import NO_RUNS, Claim, Part, compared, untested
from .setup import FEW_SHOTS, Setup

FIGURES = {
    "last": "last session",
    "average": "average over sessions",
    "last_harmonic": "harmonic mean",
}
"""What methods are compared by, in %."""


def sampler_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (a)."""
    return Claim(
        "a",
        "The Gaussian sampler with the mapping improves on the baseline",
        "Last-session accuracy of covariance=mapped, recurrent_steps=0 minus that of "
        "sampler=none; holds above 0.",
        (_step(setup, shelf, MAPPING, BASELINE, "last"),),
    )


def recurrent_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (b)."""
    return Claim(
        "b",
        "Recurrent calibration improves on the sampler",
        f"Last-session accuracy of recurrent_steps={setup.recurrent_steps} minus that of "
        "recurrent_steps=0; holds above 0.",
        (_step(setup, shelf, RECURRENT, MAPPING, "last"),),
    )


def loss_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (c)."""
    kl, *rivals = ((loss, shelf.runs(setup.complete(loss=loss))) for loss in LOSSES)
    parts = [compared(kl[1], runs, "last", f"over {loss}") for loss, runs in rivals]
    return Claim(
        "c",
        "KL is the best matching loss",
        "Last-session accuracy of loss=kl minus that of each other loss; holds if all three are "
        "above 0.",
        tuple(parts),
    )


def outlier_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (e)."""

    def gain(split: str) -> pd.DataFrame:
        sides = shelf.runs(setup.ldc(split=split)), shelf.runs(setup.free_lunch(split=split))
        found = apart(*sides, ["performance_drop", "performance_retention"])
        # A smaller drop is the better one.
        return found.assign(performance_drop=-found["performance_drop"])

    outlying, usual = gain(setup.outlier_split), gain("seeded")
    named = {"performance_drop": "gain in PD", "performance_retention": "gain in PR"}
    parts = [compared(outlying, usual, key, name) for key, name in named.items()]
    return Claim(
        "e",
        "The gain over Free-Lunch is larger for outlier shots",
        f"Free-Lunch's PD minus LDC's (and LDC's PR minus Free-Lunch's) with shots drawn from the "
        f"{100 * setup.params.outlier:g} % of a class farthest from its mean, minus the same with "
        "shots drawn from all of it; holds if both are above 0.",
        tuple(parts),
    )


def few_shot_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (i)."""
    return Claim(
        "i",
        "The unit helps ordinary few-shot classification, more than Free-Lunch",
        f"Accuracy of LDC minus that of Free-Lunch in each of the same {setup.params.episodes} "
        "episodes of 5 ways, of one draw; holds if it is above 0 for 1 and for 5 shots.",
        tuple(_episodes(setup, shelf, shot) for shot in FEW_SHOTS),
        "episodes",
    )


def _episodes(setup: Setup, shelf: Shelf, shot: int) -> Part:
    name = f"{shot}-shot"
    found = [list(shelf.episodes(variant).values()) for variant in setup.few_shot(shot)]
    if not all(found):
        return untested("its episodes are not stored", name)
    ours, theirs = (pd.DataFrame({"accuracy": 100 * each[0].accuracies}) for each in found)
    return compared(ours, theirs, "accuracy", name)


def first_session_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (k)."""
    return Claim(
        "k",
        "Session-0 accuracy is higher, benefited by the PCU",
        "Accuracy in session 0 of the whole of LDC minus that of sampler=none; holds above 0.",
        (_step(setup, shelf, RECURRENT, BASELINE, "first"),),
    )


def _step(setup: Setup, shelf: Shelf, after: str, before: str, key: str) -> Part:
    """Return what one row of the ablation adds to another."""
    ours, theirs = (shelf.runs(setup.ablation[name]) for name in (after, before))
    return compared(ours, theirs, key)


def fact_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (l)."""
    reason = "needs a method or representation called fact, which is not registered"
    part = untested(reason)
    if setup.fact is not None:
        part = compared(shelf.runs(setup.ldc()), shelf.runs(setup.fact), "last")
    return Claim(
        "l",
        "LDC is better than FACT",
        "Last-session accuracy of LDC minus that of FACT; holds above 0.",
        (part,),
    )


def aims(setup: Setup, shelf: Shelf) -> list[Claim]:
    """Return what the project asks of LDC, a row for each rival and figure, by the same rule."""
    ldc, free_lunch = shelf.runs(setup.ldc()), shelf.runs(setup.free_lunch())
    means = {space: shelf.runs(setup.ncm(space)) for space in ("raw", "tukey")}
    better = [
        Claim("better of ncm", name, _AIM, (_over_better(key, ldc, means),))
        for key, name in FIGURES.items()
    ]
    rival = [
        Claim("free_lunch", name, _AIM, (compared(ldc, free_lunch, key),))
        for key, name in FIGURES.items()
    ]
    return [*better, *rival]


_AIM = "The figure of LDC minus that of the rival; holds above 0."


def _over_better(key: str, ldc: pd.DataFrame, means: Mapping[str, pd.DataFrame]) -> Part:
    """Return LDC against class means in the space in which their own mean is higher."""
    if not all(map(len, means.values())):
        return untested(NO_RUNS)
    best = max(means, key=lambda space: means[space][key].mean())
    return compared(ldc, means[best], key, f"over ncm in {best} space")
