"""What a run generated for each class against what is real, after one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from fscil_bench.errors import FscilError, UsageError, nearest
from fscil_bench.params import words
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.store.runs import StoredRun

from ..divergence import FEWEST, GROUPS, ClassFeatures, class_divergences, class_features


@dataclass(frozen=True)
class TsneParams:
    """Parameters of the report.

    Attributes:
        steps: recurrent steps of the run.
        ldc_set: `name=value,name=value`: other parameters of LDC.
        base: how many base classes, spread evenly over all.
        new: how many later classes, likewise.
        classes: these classes instead, by id or name, with `,` between.
        session: after which session; negative numbers count from the last, −1.
        images: real features of a class, and generated ones of a step, at most.
        perplexity: of t-SNE; lowered where there are too few samples for it.
        tsne_seed: of t-SNE.
    """

    steps: Annotated[int, Field(ge=0)] = 3
    ldc_set: str = ""
    base: Annotated[int, Field(ge=0)] = 3
    new: Annotated[int, Field(ge=0)] = 3
    classes: str = ""
    session: int = -1
    images: Annotated[int, Field(ge=4)] = 25
    perplexity: Annotated[float, Field(ge=1)] = 30.0
    tsne_seed: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class Calibration:
    """Features of all classes seen after a session, and how far generated lie from real ones.

    Attributes:
        run: what generated them.
        session: after which they were generated.
        shown: the classes that are drawn.
        divergences: by class id, KL(generated‖real) in nats: `step_{r}` after each step, `floor`.
        power: what took real features to the space of the generated ones.
        notes: what was left out, and why.
    """

    run: StoredRun
    session: int
    shown: tuple[ClassFeatures, ...]
    divergences: pd.DataFrame
    power: float
    notes: tuple[str, ...]

    @property
    def steps(self) -> int:
        """How many recurrent steps there are."""
        return len(self.shown[0].generated) - 1

    @property
    def names(self) -> dict[int, str]:
        """The names of the classes that are shown, by id, with what they are."""
        names, base = self.run.record.class_names, self.run.spec.protocol.base_classes
        ids = [each.class_id for each in self.shown]
        return {each: f"{names[each]} ({GROUPS[each >= base]})" for each in ids}

    def groups(self) -> dict[str, pd.DataFrame]:
        """Return the divergences of base and of new classes: those shown, then all there are."""
        shown, base = self.divergences.loc[list(self.names)], self.run.spec.protocol.base_classes
        return {
            f"{word} {group} classes": found[(found.index >= base) == bool(new)]
            for word, found in (("shown", shown), ("all", self.divergences))
            for new, group in enumerate(GROUPS)
        }


def measured(run: StoredRun, params: TsneParams, evaluation: Evaluation | None) -> Calibration:
    """Return what a run generated, compared with the features of the test images.

    Raises:
        UsageError: a session or class that is not there.
        FscilError: its arrays or its images' features are not there, or no class can be compared.
    """
    seen, names = [each.classes_seen for each in run.record.sessions], run.record.class_names
    if not -len(seen) <= params.session < len(seen):
        raise UsageError(
            f"session={params.session}: the run has sessions 0 to {len(seen) - 1} (or −1, the "
            f"last, to −{len(seen)})"
        )
    session = params.session % len(seen)
    classes, power = class_features(run, session, evaluation)
    chosen = spread_classes(seen[: session + 1], params.base, params.new)
    if params.classes:
        chosen = named_classes(params.classes, names, seen[session])
    shown = tuple(classes[each] for each in chosen if classes[each].usable)
    if not shown:
        raise FscilError(
            f"none of the classes {', '.join(map(str, chosen)) or 'asked for (none)'} has "
            f"{FEWEST} finite real and generated features: choose others (--set classes=...)"
        )
    notes = [
        f"Class {names[each]} is not shown: fewer than {FEWEST} finite real or generated features."
        for each in chosen
        if not classes[each].usable
    ]
    if skipped := sum(own.skipped for own in classes):
        notes.append(f"{skipped} features with values that are not finite were skipped.")
    if few := sum(not own.usable for own in classes):
        notes.append(f"{few} classes have too few features for a KL.")
    return Calibration(run, session, shown, class_divergences(classes), power, tuple(notes))


def spread_classes(seen: Sequence[int], base: int, new: int) -> list[int]:
    """Return ids of so many base and later classes (or all), spread evenly over those there are.

    `seen`: how many classes are seen after each session, base session first.
    """
    parts = (0, seen[0], base), (seen[0], seen[-1], new)
    return [
        round(float(each))
        for start, stop, count in parts
        for each in np.linspace(start, stop - 1, min(count, stop - start))
    ]


def named_classes(text: str, names: Sequence[str], seen: int) -> list[int]:
    """Return the ids of classes given by id or name, with `,` between, of the `seen` first.

    Raises:
        UsageError: there is no such class, or it has not been seen yet.
    """
    found: dict[int, None] = {}
    known = {name: class_id for class_id, name in enumerate(names)}
    for word in words(text):
        class_id = known.get(word, int(word) if word.isdecimal() else -1)
        if not 0 <= class_id < len(names):
            raise UsageError(f"no class {word!r}: give ids or names; {nearest(word, names)}")
        if class_id >= seen:
            raise UsageError(
                f"class {word!r} has not been seen after the session that is shown, which knows "
                f"classes 0 to {seen - 1}; choose a later session or another class"
            )
        found[class_id] = None
    return list(found)
