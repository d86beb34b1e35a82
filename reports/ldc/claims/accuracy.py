"""Claims about accuracy: LDC's parts against each other, and against other methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from fscil_bench.reporting.sentences import number

from ..ablation import BASELINE, MAPPING, RECURRENT
from ..convergence import classifier_loss, epochs_to_common, loss_curves
from ..shelf import Shelf
from ..terms import COVARIANCES, LOSSES
from ..values import apart
from .claim import NO_RUNS, Claim, Part, compared, untested
from .setup import BASE_ROWS, FEW_SHOTS, Setup

FIGURES = {
    "last": "last session",
    "average": "average over sessions",
    "last_harmonic": "harmonic mean",
}
"""What methods are compared by, in %."""


def part_claims(setup: Setup, shelf: Shelf) -> list[Claim]:
    """Return claims (a), (b), (c) and (k): what LDC's parts, loss and base rows add."""
    rows = {name: shelf.runs(variant) for name, variant in setup.ablation.items()}
    trained, means = (shelf.runs(setup.base_rows(rows)) for rows in BASE_ROWS)
    kl, *rivals = ((loss, shelf.runs(setup.complete(loss=loss))) for loss in LOSSES)
    return [
        Claim(
            "a",
            "The Gaussian sampler with the mapping improves on the baseline",
            "Last-session accuracy of covariance=mapped, recurrent_steps=0 minus that of "
            "class means (sampler=none); holds above 0.",
            (compared(rows[MAPPING], rows[BASELINE], "last"),),
        ),
        Claim(
            "b",
            "Recurrent calibration improves on the sampler",
            f"Last-session accuracy of recurrent_steps={setup.recurrent_steps} minus that of "
            "recurrent_steps=0; holds above 0.",
            (compared(rows[RECURRENT], rows[MAPPING], "last"),),
        ),
        Claim(
            "c",
            "KL is the best matching loss",
            "Last-session accuracy of loss=kl minus that of each other loss; holds if all three "
            "are above 0.",
            tuple(compared(kl[1], runs, "last", f"over {loss}") for loss, runs in rivals),
        ),
        Claim(
            "k",
            "Session-0 accuracy is higher, benefited by the PCU",
            "Accuracy in session 0 of base_rows=trained, as the paper trains its base classifier, "
            "minus that of base_rows=means; holds above 0. The unit has no part in session 0 "
            "here, nor in the paper's ablation, whose rows all have one figure.",
            (compared(trained, means, "first"),),
        ),
    ]


def mapping_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (d): the learnt mapping against covariances of the nearest base classes."""
    variants = [setup.unseen(covariance) for covariance in COVARIANCES]
    mapped, empirical = (shelf.runs(variant) for variant in variants)
    curves = (loss_curves(shelf, variant, classifier_loss(1)) for variant in variants)
    return Claim(
        "d",
        "The learnt mapping converges faster than the empirical covariance, and generalises better "
        "to unseen classes",
        f"One session of {variants[0].overrides['way']} unseen classes. Epochs: those that the "
        "training loss under covariance=empirical takes to a common threshold minus those under "
        "covariance=mapped; the threshold is the higher of the two final losses plus 5 % of that "
        "curve's fall since its first epoch, seed by seed. New classes: the accuracy on them under "
        "mapped minus empirical. Holds if both are above 0. Each loss is taken on its own samples: "
        "tighter ones are easier to fit, whether or not they are right.",
        (_convergence(*curves), compared(mapped, empirical, "last_new", "new classes")),
    )


def _convergence(mapped: Mapping[int, np.ndarray], empirical: Mapping[int, np.ndarray]) -> Part:
    epochs = epochs_to_common(mapped, empirical)
    if epochs.empty:
        return untested("its training curves are not stored", "epochs")
    fast, slow = (epochs[[side]].set_axis(["epochs"], axis=1) for side in ("first", "second"))
    part = compared(slow, fast, "epochs", "epochs", "epochs fewer")
    finals = [np.mean([own[seed][-1] for seed in epochs.index]) for own in (empirical, mapped)]
    losses = " against ".join(number(float(final)) for final in finals)
    return replace(part, detail=f"{part.detail}; final losses {losses}")


def outlier_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (e)."""

    def gain(split: str) -> pd.DataFrame:
        sides = shelf.runs(setup.ldc(split=split)), shelf.runs(setup.free_lunch(split=split))
        found = apart(*sides, ["performance_drop", "performance_retention"])
        # A smaller drop is the better one.
        return found.assign(performance_drop=-found["performance_drop"])

    outlying, usual = gain(setup.outlier_split), gain("seeded")
    named = {"performance_drop": "gain in PD", "performance_retention": "gain in PR"}
    return Claim(
        "e",
        "The gain over Free-Lunch is larger for outlier shots",
        f"Free-Lunch's PD minus LDC's (and LDC's PR minus Free-Lunch's) with shots drawn from the "
        f"{100 * setup.params.outlier:g} % of a class farthest from its mean, minus the same with "
        "shots drawn from all of it; holds if both are above 0.",
        tuple(compared(outlying, usual, key, name) for key, name in named.items()),
    )


def few_shot_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (i)."""
    parts = []
    for shot in FEW_SHOTS:
        found = [list(shelf.episodes(variant).values()) for variant in setup.few_shot(shot)]
        part = untested("its episodes are not stored", f"{shot}-shot")
        if all(found):
            ours, theirs = (pd.DataFrame({"all": 100 * each[0].accuracies}) for each in found)
            part = compared(ours, theirs, "all", f"{shot}-shot")
        parts.append(part)
    return Claim(
        "i",
        "The unit helps ordinary few-shot classification, more than Free-Lunch",
        f"Accuracy of LDC minus that of Free-Lunch in each of the same {setup.params.episodes} "
        "episodes of 5 ways, of one draw; holds if it is above 0 for 1 and for 5 shots.",
        tuple(parts),
        "episodes",
    )


def fact_claim(setup: Setup, shelf: Shelf) -> Claim:
    """Return claim (l)."""
    part = untested("needs a method or representation called fact, which is not registered")
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
    parts = {("better of ncm", key): _over_better(key, ldc, means) for key in FIGURES}
    parts |= {("free_lunch", key): compared(ldc, free_lunch, key) for key in FIGURES}
    rule = "The figure of LDC minus that of the rival; holds above 0."
    return [Claim(name, FIGURES[key], rule, (part,)) for (name, key), part in parts.items()]


def _over_better(key: str, ldc: pd.DataFrame, means: Mapping[str, pd.DataFrame]) -> Part:
    """Return LDC against class means in the space in which their own mean is higher."""
    if not all(map(len, means.values())):
        return untested(NO_RUNS)
    best = max(means, key=lambda space: means[space][key].mean())
    return compared(ldc, means[best], key, f"over ncm in {best} space")
