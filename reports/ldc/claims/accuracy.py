"""Claims about accuracy: LDC's parts against each other, and against other methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fscil_bench.metrics import mean_interval
from fscil_bench.store.runs import StoredRun

from ._ablation import BASELINE, MAPPING, RECURRENT
from ._claims import NO_RUNS, Claim, Part, compared, contrasted, untested
from ._claims_setup import FEW_SHOTS, Setup
from ._run_values import average, drop, last_accuracy, last_harmonic, retention
from ._shelf import Shelf
from ._terms import LOSSES

Runs = Mapping[int, StoredRun]

FIGURES: Mapping[str, Callable[[StoredRun], float]] = {
    "last session": last_accuracy,
    "average over sessions": average,
    "harmonic mean": last_harmonic,
}
"""What methods are compared by, in %."""


def sampler_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (a)."""
    return Claim(
        "a",
        "The Gaussian sampler with the mapping improves on the baseline",
        "Last-session accuracy of covariance=mapped, recurrent_steps=0 minus that of "
        "sampler=none; holds above 0.",
        (_step(setup, shelf, MAPPING, BASELINE, last_accuracy),),
    )


def recurrent_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (b)."""
    return Claim(
        "b",
        "Recurrent calibration improves on the sampler",
        f"Last-session accuracy of recurrent_steps={setup.recurrent_steps} minus that of "
        "recurrent_steps=0; holds above 0.",
        (_step(setup, shelf, RECURRENT, MAPPING, last_accuracy),),
    )


def loss_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (c)."""
    kl, *rivals = ((loss, shelf.runs(setup.complete(loss=loss))) for loss in LOSSES)
    parts = [compared(kl[1], runs, last_accuracy, f"over {loss}") for loss, runs in rivals]
    return Claim(
        "c",
        "KL is the best matching loss",
        "Last-session accuracy of loss=kl minus that of each other loss; holds if all three are "
        "above 0.",
        tuple(parts),
    )


def outlier_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (e)."""
    sides = {
        (method, split): shelf.runs(make(split=split))
        for method, make in (("ldc", setup.ldc), ("free_lunch", setup.free_lunch))
        for split in (setup.outlier_split, "seeded")
    }

    def gain(split: str, value: Callable[[StoredRun], float]) -> dict[int, float]:
        ours, theirs = sides["ldc", split], sides["free_lunch", split]
        return {seed: value(ours[seed]) - value(theirs[seed]) for seed in ours if seed in theirs}

    parts = [
        contrasted(gain(setup.outlier_split, value), gain("seeded", value), name)
        for name, value in (
            ("gain in PD", lambda run: -drop(run)),
            ("gain in PR", retention),
        )
    ]
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
    ours, theirs = (dict(enumerate((100 * each[0].accuracies).tolist())) for each in found)
    return contrasted(ours, theirs, name)


def first_session_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (k)."""
    return Claim(
        "k",
        "Session-0 accuracy is higher, benefited by the PCU",
        "Accuracy in session 0 of the whole of LDC minus that of sampler=none; holds above 0.",
        (_step(setup, shelf, RECURRENT, BASELINE, lambda run: 100 * run.accuracies[0]),),
    )


def _step(
    setup: Setup, shelf: Shelf, after: str, before: str, value: Callable[[StoredRun], float]
) -> Part:
    """Return what one row of the ablation adds to another."""
    ours, theirs = (shelf.runs(setup.ablation[name]) for name in (after, before))
    return compared(ours, theirs, value)


def fact_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (l)."""
    reason = "needs a method or representation called fact, which is not registered"
    part = untested(reason)
    if setup.fact is not None:
        part = compared(shelf.runs(setup.ldc()), shelf.runs(setup.fact), last_accuracy)
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
    return [
        *(
            Claim("better of ncm", name, _AIM, (_over_better(value, ldc, means),))
            for name, value in FIGURES.items()
        ),
        *(
            Claim("free_lunch", name, _AIM, (compared(ldc, free_lunch, value),))
            for name, value in FIGURES.items()
        ),
    ]


_AIM = "The figure of LDC minus that of the rival; holds above 0."


def _over_better(value: Callable[[StoredRun], float], ldc: Runs, means: Mapping[str, Runs]) -> Part:
    """Return LDC against class means in the space in which their own mean is higher."""
    if not all(means.values()):
        return untested(NO_RUNS)
    reached = {
        space: mean_interval([value(run) for run in runs.values()]).mean
        for space, runs in means.items()
    }
    best = max(reached, key=lambda space: reached[space])
    return compared(ldc, means[best], value, f"over ncm in {best} space")
