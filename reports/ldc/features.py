"""Real features of a run's test images beside those that the run generated, class by class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fscil_bench.errors import FscilError
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.store.runs import StoredRun

FEWEST = 4
"""Real or generated features of a class that can be halved into two sets with a variance each."""


@dataclass(frozen=True)
class ClassFeatures:
    """Real and generated features of one class, in one space.

    Attributes:
        class_id: its global id.
        real: float64 (n, D), of test images.
        generated: float64 (m, D) of each recurrent step, step 0 before the first.
        skipped: how many samples were left out because a value was NaN or infinite.
    """

    class_id: int
    real: np.ndarray
    generated: tuple[np.ndarray, ...]
    skipped: int = 0

    @property
    def usable(self) -> bool:
        """Whether every set is large enough to be compared."""
        return min(map(len, (self.real, *self.generated))) >= FEWEST


def finite_class(class_id: int, real: np.ndarray, generated: Iterable[np.ndarray]) -> ClassFeatures:
    """Return a class's features without the samples that are not finite."""
    sets = [np.asarray(each, dtype=np.float64) for each in (real, *generated)]
    kept = [each[np.isfinite(each).all(axis=1)] for each in sets]
    skipped = sum(map(len, sets)) - sum(map(len, kept))
    return ClassFeatures(class_id, kept[0], tuple(kept[1:]), skipped)


def class_features(
    run: StoredRun, session: int, evaluation: Evaluation | None
) -> tuple[list[ClassFeatures], float]:
    """Return all classes seen after a session, by id, in the space in which the run generated.

    Beside them the power that takes real features there.

    Raises:
        FscilError: its arrays or its images' features are not there.
    """
    prefix = f"session{session}"
    count = run.spec.params["recurrent_steps"] + 1
    names = [f"{prefix}/generated_step{step}" for step in range(count)]
    arrays = run.artifacts(f"{prefix}/feature_power", *names)
    if len(arrays) < count + 1:
        raise FscilError(
            f"run {run.key} generated no features in session {session} (with sampler=none there "
            "are none to show): choose other parameters or another session"
        )
    if evaluation is None:
        raise FscilError("there are no caches to read the images' features from: name --cache")
    features, power = evaluation.features(run), float(arrays[f"{prefix}/feature_power"])
    classes = []
    for class_id, generated in enumerate(zip(*(arrays[name] for name in names), strict=True)):
        real = features.test[features.test_labels == class_id].astype(np.float64) ** power
        classes.append(finite_class(class_id, real, generated))
    return classes, power
