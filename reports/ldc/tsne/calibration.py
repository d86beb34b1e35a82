"""What a run generated for each class against what is real, after one session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.report import ReportInput
from fscil_bench.store.runs import StoredRun

from ._chosen_classes import named_classes, spread_classes
from ._embedding import FEWEST, ClassFeatures, class_divergences, finite_class

GROUPS = ("base", "new")


class Choice(Protocol):
    """Which classes are shown, and after which session."""

    @property
    def base(self) -> int:
        """How many base classes."""

    @property
    def new(self) -> int:
        """How many later classes."""

    @property
    def classes(self) -> str:
        """These classes instead."""

    @property
    def session(self) -> int:
        """The session, counted from the last where negative."""


@dataclass(frozen=True)
class Calibration:
    """Features of all classes seen after a session, and how far generated lie from real ones.

    Attributes:
        run: what generated them.
        session: after which they were generated.
        shown: the classes that are drawn.
        divergences: by class id, KL(generated‖real) in nats after each step, then the floor.
        power: what took real features to the space of the generated ones.
        notes: what was left out, and why.
    """

    run: StoredRun
    session: int
    shown: tuple[ClassFeatures, ...]
    divergences: Mapping[int, tuple[float, ...]]
    power: float
    notes: tuple[str, ...]

    @property
    def steps(self) -> int:
        """How many recurrent steps there are."""
        return len(self.shown[0].generated) - 1

    def is_new(self, class_id: int) -> bool:
        """Whether a class came after the base session."""
        return class_id >= self.run.spec.protocol.base_classes

    def group(self, name: str, shown: bool) -> list[int]:
        """Return the base or new classes that are shown, or all that have divergences."""
        ids = [each.class_id for each in self.shown] if shown else list(self.divergences)
        return [each for each in ids if self.is_new(each) == (name == "new")]

    def over(self, classes: Sequence[int]) -> list[Interval]:
        """Return the KL after each step, then the floor, over classes, with intervals."""
        columns = zip(*(self.divergences[each] for each in classes), strict=True)
        return [mean_interval(column) for column in columns]


def measured(run: StoredRun, choice: Choice, given: ReportInput) -> Calibration:
    """Return what a run generated, compared with the features of the test images.

    Raises:
        UsageError: a session or class that is not there.
        FscilError: its arrays or its images' features are not there, or no class can be compared.
    """
    count = len(run.record.sessions)
    if not -count <= choice.session < count:
        raise UsageError(
            f"session={choice.session}: the run has sessions 0 to {count - 1} (or −1, the last, "
            f"to −{count})"
        )
    session = choice.session % count
    generated, power = _generated(run, session)
    if given.evaluation is None:
        raise FscilError("there are no caches to read the images' features from: name --cache")
    features = given.evaluation.features(run)
    classes = {}
    for class_id in range(generated.shape[1]):
        real = features.test[features.test_labels == class_id].astype(np.float64) ** power
        classes[class_id] = finite_class(class_id, real, generated[:, class_id])
    usable = {each: own for each, own in classes.items() if own.usable}
    divergences = {
        each: (*kl, floor)
        for each, own in usable.items()
        for kl, floor in (class_divergences(own),)
    }
    chosen = _chosen(run, session, choice)
    shown = tuple(usable[each] for each in chosen if each in usable)
    if not shown:
        raise FscilError(
            f"none of the classes {', '.join(map(str, chosen)) or 'asked for (none)'} has "
            f"{FEWEST} finite real and generated features: choose others (--set classes=...)"
        )
    return Calibration(run, session, shown, divergences, power, _left_out(run, chosen, classes))


def panel_titles(found: Calibration) -> list[str]:
    """Return a title for each step: the KL of the base and the new classes that are shown."""
    titles = []
    for step in range(found.steps + 1):
        kls = [
            f"{name} {found.over(ids)[step].mean:.3f}"
            for name in GROUPS
            if (ids := found.group(name, shown=True))
        ]
        head = f"After step {step}" if step else "Before (step 0)"
        titles.append(f"{head}: KL {', '.join(kls)} nats")
    return titles


def _generated(run: StoredRun, session: int) -> tuple[np.ndarray, float]:
    """Return what was generated, (steps + 1, classes, n, D), and the power of its space."""
    prefix = f"session{session}"
    count = run.spec.params["recurrent_steps"] + 1
    names = [f"{prefix}/generated_step{step}" for step in range(count)]
    arrays = run.artifacts(f"{prefix}/feature_power", *names)
    if len(arrays) < count + 1:
        raise FscilError(
            f"run {run.key} generated no features in session {session} (with sampler=none there "
            "are none to show): choose other parameters or another session"
        )
    return np.stack([arrays[name] for name in names]), float(arrays[f"{prefix}/feature_power"])


def _chosen(run: StoredRun, session: int, choice: Choice) -> list[int]:
    seen = [each.classes_seen for each in run.record.sessions[: session + 1]]
    if choice.classes:
        return named_classes(choice.classes, run.record.class_names, seen[-1])
    return spread_classes(seen, choice.base, choice.new)


def _left_out(
    run: StoredRun, chosen: Sequence[int], classes: Mapping[int, ClassFeatures]
) -> tuple[str, ...]:
    names = run.record.class_names
    notes = [
        f"Class {names[each]} is not shown: fewer than {FEWEST} finite real or generated features."
        for each in chosen
        if not classes[each].usable
    ]
    skipped = sum(own.skipped for own in classes.values())
    if skipped:
        notes.append(f"{skipped} features with values that are not finite were skipped.")
    few = sum(not own.usable for own in classes.values())
    if few:
        notes.append(f"{few} classes have too few features for a KL.")
    return tuple(notes)
