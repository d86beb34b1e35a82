"""Every registered plug-in against its contract."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from fscil_bench.plugins.registry import load_registry
from fscil_bench.running.sessions import read_canonical
from fscil_bench.testing import check_method, check_refusals, check_representation

REGISTRY = load_registry()


SHORT = {"base_epochs": 3, "epochs": 3, "unit_steps": 20, "projections": 40}
"""Parameters, of the methods that have them, that make learning short."""


@pytest.mark.parametrize("name", REGISTRY.names("method"))
def test_method(name: str) -> None:
    method = REGISTRY.get("method", name).value
    known = {field.name for field in fields(method.Params)}
    check_method(method, {key: value for key, value in SHORT.items() if key in known})
    assert len(method.__doc__) > 200, "citation and idea are missing"


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "adbs": [{"space": "tukey", "mean": "unit"}, {"steps": 0, "constraint": 0}],
    "free_lunch": [
        {"space": "raw", "alpha_mode": "ones"},
        {"head": "cosine"},
        {"k": 0},
        {"k": 6},
        {"byte_budget": 1024},
        {"byte_budget": 1152, "budget_mode": "low_rank"},
    ],
    "ft_cos": [{"space": "tukey", "steps": 3}, {"mean": "unit", "steps": 3}],
    "gkeal": [{"centres": 25, "width": 0.3}, {"balance": 3, "ridge": 1e-9}],
    "icarl": [
        {"epochs": 1, "classifier": "softmax", "budget": 12, "trained": "last_block"},
        {"epochs": 1, "replay": "distilled", "batch_norm": "trained", "head": "linear"},
        {"epochs": 1, "exemplars": 0, "classifier": "softmax", "kd_weight": 0.0},
    ],
    "joint_balanced": [{"epochs": 1, "balance": "logit"}],
    "fsll": [{"cosine": True, "penalty": 1e-3}],
    "logistic": [{"space": "tukey"}, {"penalty": 0.01}],
    "mahalanobis": [
        {"covariance": "per_class"},
        {"covariance": "per_class", "borrowed": 1, "correlation": True},
        {"covariance": "per_class", "borrowed": 0, "gamma1": 0, "gamma2": 0},
        {"space": "raw", "correlation": True},
    ],
    "metafscil": [{"epochs": 1, "modulated": False, "order": "first"}],
    "orco": [{"targets": "full", "base_epochs": 1, "epochs": 1, "base_weight": 0.6}],
    "ranpac": [{"projections": 0}, {"projections": 300, "ridge": 1e-3}],
    "ranpac_calibrated": [{"projections": 0, "alpha": 0, "samples_per_class": 1}],
    "sfms": [{"subspaces": 1, "samples": 0, "epochs": 2}, {"distillation": 0, "epochs": 2}],
    "sppr": [{"base_rows": "kept"}],
    "teen": [{"space": "tukey"}, {"mean": "unit", "alpha": 1}, {"kappa": 0}],
    "topic": [{"epochs": 1, "anchor": "paper", "anchor_weight": 0.5}, {"epochs": 0}],
}


@pytest.mark.parametrize(("name", "params"), [(n, p) for n, all_ in OPTIONS.items() for p in all_])
def test_method_with_other_options(name: str, params: dict[str, Any]) -> None:
    small = {"samples_per_class": 30, "episode_samples": 60} if name == "free_lunch" else {}
    check_method(REGISTRY.get("method", name).value, small | params)


HARD: dict[str, list[dict[str, Any]]] = {
    "cec": [{"shots": 30}],
    "cec_trained": [{"shots": 30}],
    "free_lunch": [{"k": 7}, {"byte_budget": 300}, {"byte_budget": 300, "budget_mode": "low_rank"}],
    "icarl": [{"budget": 9}, {"exemplars": 0}],
    "icarl_softmax": [{"budget": 4}],
    "ldc": [
        {"directions": "full"},
        {"statistics": "heldout", "unit_steps": 2, "epochs": 1},
        {"covariance": "empirical", "nearest": 7},
        {"covariance": "empirical", "virtual_classes": 0.5},
    ],
    "nc_fscil": [{"dim": 8}],
    "orco": [{"dim": 8}],
    "ranpac": [{"projections": 10**7}],
    "ranpac_calibrated": [{"projections": 10**7}],
}
"""Parameters that the toy sessions do not fit (six base classes, ten in all), or no machine."""


@pytest.mark.parametrize(("name", "params"), [(n, p) for n, all_ in HARD.items() for p in all_])
def test_parameters_are_refused_before_any_training(name: str, params: dict[str, Any]) -> None:
    check_refusals(REGISTRY.get("method", name).value, params)


@pytest.mark.parametrize("name", REGISTRY.names("representation"))
def test_representation(name: str) -> None:
    check_representation(REGISTRY.get("representation", name).value)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("alice", {"fusion": True, "width": 32}),
        ("rotation", {"turns": "all"}),
        ("savc", {"fantasy": "rotation4_color3", "order": "aligned"}),
        ("savc", {"beta": 0.0, "keys": 100}),
    ],
)
def test_representation_with_other_options(name: str, params: dict[str, Any]) -> None:
    check_representation(REGISTRY.get("representation", name).value, params)


@pytest.mark.parametrize("name", REGISTRY.names("protocol"))
def test_protocol(name: str) -> None:
    protocol, folder = REGISTRY.protocol(name)
    assert protocol.name == name
    assert REGISTRY.get("data set", protocol.dataset).value.name == protocol.dataset
    assert load_registry().backbone(protocol.backbone)[0].dim > 0
    sessions = [protocol.session_classes(t) for t in range(protocol.sessions + 1)]
    together = [c for classes in sessions for c in classes]
    assert together == list(range(protocol.classes_used)), "sessions overlap or leave a gap"
    assert protocol.classes_seen(protocol.sessions) == protocol.classes_used
    if protocol.canonical_shots:
        assert len(read_canonical(protocol, folder).rows) == protocol.way * protocol.sessions


@pytest.mark.parametrize("name", REGISTRY.names("report"))
def test_report_says_what_it_is(name: str) -> None:
    report = REGISTRY.get("report", name).value
    assert report.title
    assert report.__doc__
