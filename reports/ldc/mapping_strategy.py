"""The paper's comparison of covariances: mapped from the mean, or borrowed from base classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.report import ReportInput
from fscil_bench.store.runs import StoredRun

from ._claims import number
from ._convergence import classifier_loss, common_threshold, epochs_to, loss_curves
from ._figures import Curve
from ._generated import group_kl
from ._paired import paired_interval
from ._panels import Panel, panel_figure, panel_lines
from ._rows import Row
from ._run_values import difference, last_accuracy, last_base, last_harmonic, last_new, over_runs
from ._sentences import difference_sentence
from ._shelf import Shelf
from ._study import Drawing, Findings, Study, Table
from ._tables import Column, TableRow
from ._terms import COVARIANCES, StudyParams, Terms
from ._variants import Variant

Runs = Mapping[int, StoredRun]
Values = Mapping[int, float]

ACCURACIES = {
    "all": last_accuracy,
    "base": last_base,
    "new": last_new,
    "HM": last_harmonic,
}
_AFTER, _KL = "Accuracy (%)", "KL (millinats)"
COLUMNS = (
    *(Column(name.lower(), name, _AFTER) for name in ACCURACIES),
    Column("epochs", "Epochs", "", "lowest"),
    Column("final_loss", "Final loss", "", "none"),
    Column("kl_base", "base", _KL, "lowest"),
    Column("kl_new", "new", _KL, "lowest"),
)
APART = tuple(replace(column, best="none") for column in COLUMNS)
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

    params: MappingParams

    def variants(self, terms: Terms) -> list[Variant]:
        """Return one session of unseen classes with each covariance."""
        return [terms.one_session(each, self.params.unseen) for each in COVARIANCES]

    def findings(self, terms: Terms, shelf: Shelf, given: ReportInput) -> Findings:
        """Return convergence, accuracy and divergence of both covariances."""
        variants = dict(zip(COVARIANCES, self.variants(terms), strict=True))
        runs = {name: shelf.runs(variant) for name, variant in variants.items()}
        curves = {n: loss_curves(shelf, own, classifier_loss(1)) for n, own in runs.items()}
        epochs = _epochs(curves)
        kl = {name: group_kl(own, shelf, given.evaluation) for name, own in runs.items()}
        way = variants["mapped"].overrides["way"]
        measured = _measured(curves, epochs, kl)
        note = NOTE.format(way=way)
        tables = [
            Table("mapping-strategy", HEADING, note, COLUMNS, _rows(runs, measured)),
            Table("mapping-differences", "Difference", PAIRED, APART, _apart(runs, measured)),
        ]
        shown = [Row(tuple(own.values()), name) for name, own in runs.items() if own]
        drawing = _drawing(runs, curves)
        return Findings(_sentences(runs, curves, epochs, kl), tables, [drawing], shown)


def _epochs(curves: Mapping[str, Mapping[int, np.ndarray]]) -> dict[str, dict[int, float]]:
    """Return the epochs to the common threshold, for the seeds that both have."""
    mapped, empirical = (curves[name] for name in COVARIANCES)
    shared = [seed for seed in mapped if seed in empirical]
    levels = {seed: common_threshold(mapped[seed], empirical[seed]) for seed in shared}
    return {
        name: {seed: float(epochs_to(curves[name][seed], levels[seed])) for seed in shared}
        for name in COVARIANCES
    }


def _measured(
    curves: Mapping[str, Mapping[int, np.ndarray]],
    epochs: Mapping[str, Values],
    kl: Mapping[str, Mapping[str, Values]],
) -> dict[str, dict[str, Values]]:
    """Return what is not read from predictions: values by seed, by column and covariance."""
    return {
        "epochs": {name: epochs[name] for name in COVARIANCES},
        "final_loss": {n: {s: float(c[-1]) for s, c in curves[n].items()} for n in COVARIANCES},
        "kl_base": {n: _thousandfold(kl[n]["base"]) for n in COVARIANCES},
        "kl_new": {n: _thousandfold(kl[n]["new"]) for n in COVARIANCES},
    }


def _thousandfold(values: Values) -> Values:
    return {seed: 1000 * value for seed, value in values.items()}


def _rows(runs: Mapping[str, Runs], measured: Mapping[str, Mapping[str, Values]]) -> list[TableRow]:
    return [
        TableRow(
            covariance,
            len(own),
            {name.lower(): over_runs(own, v) for name, v in ACCURACIES.items()}
            | {key: mean_interval(list(of[covariance].values())) for key, of in measured.items()},
        )
        for covariance, own in runs.items()
        if own
    ]


def _apart(
    runs: Mapping[str, Runs], measured: Mapping[str, Mapping[str, Values]]
) -> list[TableRow]:
    mapped, empirical = (runs[name] for name in COVARIANCES)
    shared = len(set(mapped) & set(empirical))
    cells = {name.lower(): difference(mapped, empirical, v) for name, v in ACCURACIES.items()}
    cells |= {key: _minus(values) for key, values in measured.items()}
    return [TableRow(" − ".join(COVARIANCES), shared, cells)] if shared else []


def _minus(values: Mapping[str, Values]) -> Interval:
    """Return mapped − empirical, paired by seed."""
    mapped, empirical = (values[name] for name in COVARIANCES)
    return paired_interval(mapped, empirical)


def _sentences(
    runs: Mapping[str, Runs],
    curves: Mapping[str, Mapping[int, np.ndarray]],
    epochs: Mapping[str, Values],
    kl: Mapping[str, Mapping[str, Values]],
) -> list[str]:
    named = "covariance=mapped", "covariance=empirical"
    first, second = (runs[name] for name in COVARIANCES)
    sentences = [
        difference_sentence(
            *named, "number of epochs to the common threshold", _minus(epochs), "epochs"
        ),
        *(
            difference_sentence(*named, figure, difference(first, second, value))
            for figure, value in (
                ("accuracy on unseen classes", last_new),
                ("accuracy on all classes", last_accuracy),
            )
        ),
    ]
    if all(kl[name].get("new") for name in COVARIANCES):
        apart = _minus({name: kl[name]["new"] for name in COVARIANCES})
        figure = "KL of generated to real features of unseen classes"
        sentences.append(difference_sentence(*named, figure, apart, "nats"))
    finals = [mean_interval([float(c[-1]) for c in curves[name].values()]) for name in COVARIANCES]
    if all(final.count for final in finals):
        texts = " and ".join(number(final.mean) for final in finals)
        sentences.append(f"Their final training losses are {texts}, each on its own samples.")
    return sentences


def _drawing(runs: Mapping[str, Runs], curves: Mapping[str, Mapping[int, np.ndarray]]) -> Drawing:
    names: dict[float, str] = dict(enumerate(ACCURACIES))
    losses = tuple(_loss_curve(name, own) for name, own in curves.items() if own)
    reached = tuple(
        Curve(name, list(names), [over_runs(own, value) for value in ACCURACIES.values()])
        for name, own in runs.items()
        if own
    )
    pair = [runs[name] for name in COVARIANCES]
    apart = [difference(pair[0], pair[1], value) for value in ACCURACIES.values()]
    between = (Curve(" − ".join(COVARIANCES), list(names), apart),) if apart[0].count else ()
    tested = "Test classes"
    panels = [
        Panel("Epoch", "Classifier's training loss", losses),
        Panel(tested, "Accuracy (%)", reached, names, bars=True, joined=False),
        Panel(tested, "Difference (points)", between, names, bars=True, joined=False, zero=True),
    ]
    panels = [panel for panel in panels if panel.curves]
    caption = (
        "The classifier's training loss on its own samples, epoch by epoch; accuracy after the "
        "session; its difference, paired by seed. Bands and bars are 95 % intervals over seeds."
    )
    lines = panel_lines(panels)
    return Drawing("mapping-curves", caption, lambda: panel_figure(panels, 3), lines)


def _loss_curve(name: str, curves: Mapping[int, np.ndarray]) -> Curve:
    steps = range(min(map(len, curves.values())))
    means = [mean_interval([float(curve[step]) for curve in curves.values()]) for step in steps]
    return Curve(name, [step + 1 for step in steps], means)
