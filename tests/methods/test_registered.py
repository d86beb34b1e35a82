"""What every registered method states about itself, and what each refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fscil_bench.errors import DataError
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import Queries
from fscil_bench.testing import SESSIONS, ToyTask, learnt, start

REGISTRY = load_registry()
METHODS = [REGISTRY.get("method", name).value for name in REGISTRY.names("method")]
FROZEN = [m for m in METHODS if m.needs.features and m.name != "fact"]
SHORT: dict[str, dict[str, Any]] = {
    "ldc": {"unit_steps": 2, "epochs": 1},
    "ranpac": {"projections": 40},
    "ranpac_calibrated": {"projections": 40},
}
"""Parameters that make learning short."""
BRINGING = [REGISTRY.get("representation", n).value for n in REGISTRY.names("representation")]


@pytest.mark.parametrize("plugin", [*METHODS, *BRINGING], ids=lambda p: f"{p.__name__}")
def test_published_values_and_grids_are_parameters_of_known_protocols(plugin: type) -> None:
    for protocol, values in getattr(plugin, "published", {}).items():
        assert REGISTRY.get("protocol", protocol)
        parse_params(plugin.name, plugin.Params, values)
    for name, values in getattr(plugin, "tuning_grid", {}).items():
        for value in values:
            parse_params(plugin.name, plugin.Params, {name: value})


@pytest.mark.parametrize(
    ("method", "protocol", "name", "value"),
    [
        ("teen", "cub200", "alpha", 0.5),
        ("teen", "cifar100", "alpha", 0.1),
        ("adbs", "cub200", "steps", 1),
        ("adbs", "mini_imagenet", "lr", 0.1),
        ("ranpac_calibrated", "cifar100", "alpha", 0.75),
        ("cec", "cub200", "queries", 10),
        ("cec_trained", "cub200", "queries", 10),
        ("finetune", "mini_imagenet", "epochs", 50),
        ("joint_naive", "mini_imagenet", "milestone", 45),
        ("icarl_softmax", "cub200", "lr", 0.01),
        ("nc_fscil", "cifar100", "session_lr", 0.25),
        ("topic", "cub200", "min_weight", 5e-5),
        ("topic", "mini_imagenet", "max_weight", 1e-5),
    ],
)
def test_published_values_are_those_of_the_released_code(
    method: str, protocol: str, name: str, value: float
) -> None:
    assert REGISTRY.get("method", method).value.published[protocol][name] == value


@pytest.mark.parametrize(("name", "off"), [("ft_cos", {"steps": 0}), ("teen", {"alpha": 0})])
@pytest.mark.parametrize("space", ["raw", "tukey"])
@pytest.mark.parametrize("mean", ["raw", "unit"])
def test_without_what_it_adds_a_method_is_nearest_class_mean(
    name: str, off: dict[str, Any], space: str, mean: str
) -> None:
    options, task = {"space": space, "mean": mean}, ToyTask(queries=200)
    found, means = (
        learnt(REGISTRY.get("method", each).value, options | more)
        for each, more in ((name, off), ("ncm", {}))
    )
    shots, queries = task.episode(0)
    torch.testing.assert_close(found.scores(task.queries()), means.scores(task.queries()))
    torch.testing.assert_close(
        found.episode_scores(shots, queries), means.episode_scores(shots, queries)
    )


@pytest.mark.parametrize("name", ["ncm", "ft_cos", "teen", "adbs"])
def test_old_rows_are_bit_identical_when_classes_are_added(name: str) -> None:
    before, after = (
        learnt(REGISTRY.get("method", name).value, {"mean": "unit"}, sessions=n).prototypes
        for n in (0, SESSIONS)
    )
    assert torch.equal(after[: len(before)], before)


@pytest.mark.parametrize("method", FROZEN, ids=lambda m: m.name)
def test_features_that_are_no_numbers_are_refused_by_class_and_row(method: type) -> None:
    params = parse_params(method.name, method.Params, SHORT.get(method.name, {}))
    task = ToyTask(needs=method.needs)
    made = start(task, method, params)
    base = task.session(0)
    base.features[25, 3] = torch.nan
    with pytest.raises(DataError, match="class 1: row 25 holds NaN"):
        made.learn_base(base)
    made.learn_base(task.session(0))
    shots = task.session(1)
    shots.features[4, 1] = torch.inf
    with pytest.raises(DataError, match="class 7: row 4 holds NaN or infinity"):
        made.learn_session(shots)
    queries = Queries({"plain": torch.full((3, 16), torch.nan)})
    with pytest.raises(DataError, match=r"query features: row 0 \(and 2 more rows\)"):
        made.scores(queries)
