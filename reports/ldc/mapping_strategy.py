"""The paper's comparison of covariances: mapped from the mean, or borrowed from base classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.report import Column, Figure, Notes, Section, Table
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import difference_sentence, number

from .convergence import classifier_loss, epochs_to_common, loss_curves
from .divergence import group_kl
from .shelf import Shelf
from .study import Findings, Study, interval_table, panel_figure
from .terms import COVARIANCES, StudyParams, Terms
from .values import apart, curves, difference, interval
from .variants import Variant

Losses = Mapping[str, Mapping[int, np.ndarray]]
"""Loss curves by covariance and seed."""

ACCURACIES = {"last": "all", "last_base": "base", "last_new": "new", "last_harmonic": "HM"}
_KL = "KL (millinats)"
COLUMNS = (
    *(Column(key, name, "Accuracy (%)", best="highest") for key, name in ACCURACIES.items()),
    Column("epochs", "Epochs", best="lowest"),
    Column("final_loss", "Final loss"),
    Column("kl_base", "base", _KL, best="lowest"),
    Column("kl_new", "new", _KL, best="lowest"),
)
HEADING = "One session of unseen classes"
PAIRED = "Mean of the differences, paired by seed, ± the half-width of its 95 % Student-t interval."
NOTE = (
    "One session of {way} classes that neither the network nor the unit has seen; accuracy after "
    "it. Epochs: until the classifier's training loss is at a threshold common to both, the higher "
    "of the two final losses plus 5 % of that curve's fall, seed by seed. Each loss is taken on "
    "its own samples: tighter ones are easier to fit, whether or not they are right. KL: of "
    "generated features to test images', sliced, averaged over classes (too large by about the "
    "same for both); – where features are not at hand. ± is the half-width of the 95 % Student-t "
    "interval over n seeds."
)


@dataclass(frozen=True)
class MappingParams(StudyParams):
    """Parameters of the report.

    Attributes:
        unseen: new classes of the one session, at most as many as the protocol has.
    """

    unseen: Annotated[int, Field(ge=1)] = 20


class MappingStrategy(Study):
    """LDC's mapped covariance against that of the nearest base classes, on unseen classes."""

    name = "mapping-strategy"
    title = "Mapped against empirical covariance"
    Params = MappingParams

    def variants(self, terms: Terms, params: MappingParams) -> list[Variant]:
        """Return one session of unseen classes with each covariance."""
        return [terms.one_session(each, params.unseen) for each in COVARIANCES]

    def findings(self, terms: Terms, shelf: Shelf, params: MappingParams) -> Findings:
        """Return convergence, accuracy and divergence of both covariances."""
        variants = dict(zip(COVARIANCES, self.variants(terms, params), strict=True))
        losses = {n: loss_curves(shelf, each, classifier_loss(1)) for n, each in variants.items()}
        epochs = epochs_to_common(*losses.values()).set_axis(list(COVARIANCES), axis="columns")
        runs = {}
        for name, variant in variants.items():
            finals = {seed: float(curve[-1]) for seed, curve in losses[name].items()}
            kl = 1000 * group_kl(shelf, variant).add_prefix("kl_")
            own = shelf.runs(variant).join(kl)
            runs[name] = own.assign(epochs=epochs[name], final_loss=pd.Series(finals, dtype=float))
        note = NOTE.format(way=variants["mapped"].overrides["way"])
        return Findings(
            [
                Notes(_sentences(runs)),
                Section(HEADING, [interval_table("mapping-strategy", runs, COLUMNS, note)]),
                Section("Difference", [_apart(runs)]),
                _figure(runs, losses),
            ],
            runs,
        )


def _apart(runs: Mapping[str, pd.DataFrame]) -> Table:
    """Return mapped − empirical."""
    columns = [replace(column, best="none") for column in COLUMNS]
    pair = runs[COVARIANCES[0]], runs[COVARIANCES[1]]
    both = {" − ".join(COVARIANCES): apart(*pair, [column.key for column in columns])}
    return interval_table("mapping-differences", both, columns, PAIRED)


def _sentences(runs: Mapping[str, pd.DataFrame]) -> list[str]:
    named = "covariance=mapped", "covariance=empirical"
    pair = runs[COVARIANCES[0]], runs[COVARIANCES[1]]
    figures = [
        ("epochs", "number of epochs to the common threshold", "epochs"),
        ("last_new", "accuracy on unseen classes", "points"),
        ("last", "accuracy on all classes", "points"),
    ]
    if all(own["kl_new"].notna().any() for own in pair):
        what = "KL of generated to real features of unseen classes"
        figures.append(("kl_new", what, "millinats"))
    sentences = [
        difference_sentence(*named, figure, difference(*pair, key), unit)
        for key, figure, unit in figures
    ]
    finals = [interval(own, "final_loss") for own in pair]
    if all(final.count for final in finals):
        texts = " and ".join(number(final.mean) for final in finals)
        sentences.append(f"Their final training losses are {texts}, each on its own samples.")
    return sentences


def _figure(runs: Mapping[str, pd.DataFrame], losses: Losses) -> Figure:
    ticks: dict[float, str] = dict(enumerate(ACCURACIES.values()))
    reached = {
        name: {place: interval(own, key) for place, key in enumerate(ACCURACIES)}
        for name, own in runs.items()
    }
    pair = runs[COVARIANCES[0]], runs[COVARIANCES[1]]
    gained = {place: difference(*pair, key) for place, key in enumerate(ACCURACIES)}
    between = {" − ".join(COVARIANCES): gained}
    tested = "Test classes"
    bars: dict[str, Any] = {"names": ticks, "bars": True, "joined": False}
    panels = [
        Panel("Epoch", "Classifier's training loss", curves(_by_epoch(losses))),
        Panel(tested, "Accuracy (%)", curves(reached), **bars),
        Panel(tested, "Difference (points)", curves(between), **bars, zero=True),
    ]
    caption = (
        "The classifier's training loss on its own samples, epoch by epoch; accuracy after the "
        "session; its difference, paired by seed. Bands and bars are 95 % intervals over seeds."
    )
    return panel_figure("mapping-curves", panels, caption, 3)


def _by_epoch(losses: Losses) -> dict[str, dict[int, Interval]]:
    return {
        name: {
            step + 1: mean_interval([float(curve[step]) for curve in own.values()])
            for step in range(min(map(len, own.values()), default=0))
        }
        for name, own in losses.items()
    }
