"""Real and generated features before and after each recurrent step, in one embedding."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.protocol import Protocol
from fscil_bench.report import Column, Document, Figure, Notes, Report, Table
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.tables import ROW_COLUMNS
from fscil_bench.request import Wanted

from ..divergence import GROUPS, KL
from ..shelf import Shelf
from ..values import means
from ..variants import Variant, settings, wanted_runs
from .calibration import Calibration, TsneParams, measured
from .embedding import Embedding, embedded, embedding_figure

METHOD = "ldc"
COUNTED = "n counts classes; ± is the half-width of the 95 % Student-t interval over them."
CONSTANT = "feature dimensions are the same for all points and were left out of the embedding."
DISTANCES = (
    "t-SNE keeps neighbours together; distances between far points, sizes and densities of clouds "
    "mean nothing in it, and the means are points embedded with the samples."
)


class CalibrationTsne(Report):
    """t-SNE of real and generated features, step by step, with the KL of each step.

    Draws one run of LDC that was made with its generated features (`--run-missing` makes it).
    """

    name = "calibration-tsne"
    title = "Real and generated features before and after each recurrent step (t-SNE), with KL"
    Params = TsneParams

    def requests(self, params: TsneParams) -> Sequence[Wanted]:
        """Return the one run that is drawn, with its generated features.

        Raises:
            UsageError: no protocol was named, or something that the report leaves no choice of.
        """
        protocol, variant = self._asked(params)
        return list(wanted_runs([variant], protocol, self.results.registry).values())

    def build(self, frame: pd.DataFrame, params: TsneParams) -> Document:
        """Return the KL of each step and the figure.

        Raises:
            UsageError: no protocol was named, or a session or class that is not there.
            FscilError: the run, its generated features or its images' features are not there.
        """
        del frame
        protocol, variant = self._asked(params)
        shelf = Shelf(self.results, protocol, {METHOD: variant})
        run = next(iter(shelf.stored(variant).values()), None)
        if run is None:
            (lack,) = shelf.lacks()
            message = (
                f"the run that {self.name} draws is not stored with its generated features; "
                f"--run-missing makes it, or: {lack.command}"
            )
            raise FscilError("\n".join([message, *shelf.problems]))
        found = measured(run, params, self.results.evaluation)
        points = embedded(found.shown, params.images, params.perplexity, params.tsne_seed)
        notes = note_lines(shelf.chosen(shelf.named()))
        if points.constant:
            notes.insert(0, f"{points.constant} {CONSTANT}")
        return Document(
            f"Calibrated features on {protocol.title} ({protocol.name})",
            [
                _what(found),
                _table(found),
                _figure(found, points),
                Notes([*found.notes, *notes]),
            ],
            warnings=shelf.problems,
        )

    def _asked(self, params: TsneParams) -> tuple[Protocol, Variant]:
        selection, registry = self.results.selection, self.results.registry
        if selection.protocol is None:
            raise UsageError(f"{self.name} draws one protocol: name it with --protocol")
        if selection.methods not in ((), (METHOD,)):
            raise UsageError(f"{self.name} draws {METHOD}: leave --method away")
        if max(len(selection.representations), len(selection.seeds)) > 1:
            raise UsageError(
                f"{self.name} draws one run: name at most one --representation and one --seed"
            )
        protocol, _ = registry.protocol(selection.protocol)
        brought = next(iter(selection.representations), "cosine")
        registry.get("representation", brought)
        changed = {**settings(params.ldc_set), "recurrent_steps": params.steps}
        split, seeds = selection.split or protocol.split, selection.seeds or (0,)
        variant = Variant(METHOD, changed, seeds, split, representation=brought, artifacts=True)
        return protocol, variant


def _what(found: Calibration) -> str:
    spec = found.run.spec
    space = f"features to the power of {found.power:g}" if found.power != 1 else "features as are"
    return (
        f"Generated features of {spec.method} after session {found.session} (seed {spec.seed}, "
        f"split {spec.split}, recurrent_steps {found.steps}) against the features of the test "
        f"images, all in the method's space ({space})."
    )


def _table(found: Calibration) -> Table:
    """Return the KL after each step: of each class shown, and over base and new classes."""
    kl = found.divergences
    rows = {name: kl.loc[[class_id]] for class_id, name in found.names.items()}
    rows |= found.groups()
    # The floor would always be the best.
    columns = [Column(f"step_{r}", f"step {r}", "KL (nats)") for r in range(found.steps + 1)]
    columns.append(Column("floor", "floor"))
    frame = means(rows, list(kl.columns))
    return Table("calibration-tsne", frame, [*ROW_COLUMNS, *columns], notes=[f"{KL} {COUNTED}"])


def _figure(found: Calibration, embedding: Embedding) -> Figure:
    points, names = embedding.points, found.names
    lowered = f" (lowered from {embedding.asked:g} to fit them)" if embedding.lowered else ""
    caption = (
        "one panel a recurrent step. Filled: real features, the same in every panel; outlined: "
        "generated ones of the step, other samples in each; large: the means of all. All panels "
        f"are of one t-SNE of {len(points)} points at perplexity {embedding.perplexity:g}"
        f"{lowered}, so that they compare. {DISTANCES}"
    )
    numbers = points.assign(**{"class": points["class_id"].map(names)})
    titles = _titles(found)
    return Figure("tsne", lambda: embedding_figure(points, names, titles), numbers, caption)


def _titles(found: Calibration) -> list[str]:
    """Return a title for each step: the KL of the base and the new classes that are shown."""
    groups = found.groups()
    own = {group: groups[f"shown {group} classes"].mean().dropna() for group in GROUPS}
    titles = []
    for step in range(found.steps + 1):
        kls = [f"{group} {kl[f'step_{step}']:.3f}" for group, kl in own.items() if len(kl)]
        head = f"After step {step}" if step else "Before (step 0)"
        titles.append(f"{head}: KL {', '.join(kls)} nats")
    return titles
