"""The paper's comparison of covariances: mapped from the mean, or borrowed from base classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from fscil_bench.report import Column, Figure, Notes, Section
from fscil_bench.reporting.panels import Panel
from fscil_bench.reporting.sentences import number

from .convergence import by_step, classifier_loss, epochs_to_common, loss_curves
from .divergence import group_kl
from .shelf import Shelf
from .study import PAIRED, Findings, Study, interval_table, panel_figure, told
from .terms import COVARIANCES, StudyParams, Terms
from .values import gaps, interval, points
from .variants import Variant

ACCURACIES = {"last": "all", "last_base": "base", "last_new": "new", "last_harmonic": "HM"}
_KL = "KL (millinats)"
COLUMNS = (
    *(Column(key, name, "Accuracy (%)", best="highest") for key, name in ACCURACIES.items()),
    Column("epochs", "Epochs", best="lowest"),
    Column("final_loss", "Final loss"),
    Column("kl_base", "base", _KL, best="lowest"),
    Column("kl_new", "new", _KL, best="lowest"),
)
NOTE = (
    "One session of {way} classes that neither the network nor the unit has seen; accuracy after "
    "it. Epochs: until the classifier's training loss is at a threshold common to both, the higher "
    "of the two final losses plus 5 % of that curve's fall, seed by seed. Each loss is taken on "
    "its own samples: tighter ones are easier to fit, whether or not they are right. KL: of "
    "generated features to test images', sliced, averaged over classes (too large by about the "
    "same for both); – where features, or training curves, are not at hand."
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

    def variants(self, terms: Terms[MappingParams]) -> dict[str, Variant]:
        """Return one session of unseen classes with each covariance."""
        return {each: terms.one_session(each, terms.params.unseen) for each in COVARIANCES}

    def findings(self, terms: Terms[MappingParams], shelf: Shelf) -> Findings:
        """Return convergence, accuracy and divergence of both covariances."""
        del terms
        variants = shelf.variants.items()
        losses = {name: loss_curves(shelf, each, classifier_loss(1)) for name, each in variants}
        epochs = epochs_to_common(*losses.values()).set_axis(list(COVARIANCES), axis="columns")
        runs = {}
        for name, variant in variants:
            finals = {seed: float(curve[-1]) for seed, curve in losses[name].items()}
            kl = 1000 * group_kl(shelf, variant).add_prefix("kl_")
            own = shelf.runs(variant).join(kl)
            runs[name] = own.assign(epochs=epochs[name], final_loss=pd.Series(finals, dtype=float))
        apart = gaps(runs, [COVARIANCES], [column.key for column in COLUMNS])
        plain = [replace(column, best="none") for column in COLUMNS]
        note = NOTE.format(way=shelf.variants["mapped"].overrides["way"])
        table = interval_table(self.name, runs, COLUMNS, note)
        differences = interval_table("mapping-differences", apart, plain, PAIRED, ())
        return Findings(
            [
                Notes(_sentences(runs)),
                Section("One session of unseen classes", [table]),
                Section("Difference", [differences]),
                _figure(runs, apart, losses),
            ],
            runs,
        )


def _sentences(runs: Mapping[str, pd.DataFrame]) -> list[str]:
    named = {f"covariance={name}": own for name, own in runs.items()}
    figures = [
        ("epochs", "number of epochs to the common threshold", "epochs"),
        ("last_new", "accuracy on unseen classes", "points"),
        ("last", "accuracy on all classes", "points"),
        ("kl_new", "KL of generated to real features of unseen classes", "millinats"),
    ]
    # Neither curves nor features are there for every run.
    known = {key for key in ("epochs", "kl_new") if all(runs[n][key].count() for n in runs)}
    figures = [figure for figure in figures if figure[0] in {*known, *ACCURACIES}]
    mapped, empirical = named
    pairs = [(mapped, empirical)]
    sentences = [line for figure in figures for line in told(named, pairs, *figure)]
    finals = [interval(own, "final_loss") for own in runs.values()]
    if all(final.count for final in finals):
        texts = " and ".join(number(final.mean) for final in finals)
        sentences.append(f"Their final training losses are {texts}, each on its own samples.")
    return sentences


def _figure(
    runs: Mapping[str, pd.DataFrame],
    apart: Mapping[str, pd.DataFrame],
    losses: Mapping[str, Mapping[int, np.ndarray]],
) -> Figure:
    keys = dict(enumerate(ACCURACIES))
    ticks = {float(place): ACCURACIES[key] for place, key in keys.items()}
    bars: dict[str, Any] = {"names": ticks, "bars": True, "joined": False}
    x, y = "Test classes", "Accuracy (%)"
    drawn = {
        "the classifier's training loss on its own samples, epoch by epoch": Panel(
            "Epoch",
            "Classifier's training loss",
            points({n: by_step(c) for n, c in losses.items()}),
        ),
        "accuracy after the session": Panel(x, y, points(runs, keys), **bars),
        "its difference, paired by seed": Panel(
            x, "Difference (points)", points(apart, keys), **bars, zero=True
        ),
    }
    return panel_figure("mapping-curves", drawn, "bands and bars are 95 % intervals over seeds.")
