"""How far a run's generated features lie from its test images', averaged over classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fscil_bench.errors import StoreError
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.store.runs import StoredRun

from ._claims_distribution import GROUPS, measured_divergences
from ._shelf import Shelf


def group_kl(
    runs: Mapping[int, StoredRun], shelf: Shelf, evaluation: Evaluation | None
) -> dict[str, dict[int, float]]:
    """Return, for base and for new classes, KL(generated‖real) in nats by seed.

    Features are those generated after the last session and recurrent step. A run without them, or
    whose images' features are gone, has no value; the shelf's problems say why.
    """
    found: dict[str, dict[int, float]] = {group: {} for group in GROUPS}
    for seed, run in runs.items():
        for group, value in _of_run(run, shelf, evaluation).items():
            found[group][seed] = value
    return found


def _of_run(run: StoredRun, shelf: Shelf, evaluation: Evaluation | None) -> dict[str, float]:
    protocol = run.spec.protocol
    prefix = f"session{protocol.sessions}"
    name = f"{prefix}/generated_step{run.spec.params.get('recurrent_steps', 0)}"
    arrays = shelf.artifacts(run, f"{prefix}/feature_power", name)
    if evaluation is None or len(arrays) < 2:
        return {}
    try:
        features = evaluation.features(run)
    except StoreError as error:
        if str(error) not in shelf.problems:
            shelf.problems.append(str(error))
        return {}
    power = float(arrays[f"{prefix}/feature_power"])
    own = measured_divergences([arrays[name]], features, power, protocol.base_classes)
    means = {group: list(own.group(own.steps[0], group).values()) for group in GROUPS}
    return {group: float(np.mean(values)) for group, values in means.items() if values}
