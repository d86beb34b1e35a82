"""What all studies share: whom they ask for what, what they lack, and that they make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fscil_bench as fb
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import Plugin
from fscil_bench.protocol import Protocol
from fscil_bench.report import Report
from fscil_bench.reports.ldc.ablation import Ablation
from fscil_bench.reports.ldc.claims.report import LdcClaims
from fscil_bench.reports.ldc.cost import Cost
from fscil_bench.reports.ldc.mapping_strategy import MappingStrategy
from fscil_bench.reports.ldc.matching_loss import MatchingLoss
from fscil_bench.reports.ldc.outliers import Outliers
from fscil_bench.reports.ldc.scalability import Scalability

SMALL_LDC = "epochs=2,unit_steps=2,unit_classes=2,simulated_shots=3,temperature=400"
"""Its temperature tells the classes of a hardly trained network apart, so that rows are trained."""
SMALL: dict[str, dict[str, Any]] = {
    "ablation": {"ldc_set": SMALL_LDC},
    "matching-loss": {"ldc_set": SMALL_LDC},
    "cost": {"ldc_set": SMALL_LDC, "free_lunch_set": "samples_per_class=8", "steps": 2},
    "outliers": {
        "ldc_set": SMALL_LDC,
        "free_lunch_set": "samples_per_class=8",
        "fractions": "0.5",
    },
    "scalability": {"ldc_set": SMALL_LDC, "free_lunch_set": "samples_per_class=8", "orders": 2},
    "mapping-strategy": {"ldc_set": SMALL_LDC, "unseen": 2},
}
STUDIES = [Ablation, LdcClaims, MatchingLoss, Cost, Outliers, Scalability, MappingStrategy]


def test_every_study_is_tried() -> None:
    assert {study.name for study in STUDIES} == {*SMALL, LdcClaims.name}


@pytest.mark.parametrize("kind", STUDIES)
def test_without_any_run_the_command_that_makes_them_is_given(
    kind: type[Report], study: Any
) -> None:
    params = {"fractions": "0.5,0.1"} if kind is Outliers else {}
    asked = "".join(f" --set {name}={value}" for name, value in params.items())
    command = (
        f"fscil-bench report {kind.name} --protocol toy --seeds 4 --set ldc_set=loss=js{asked}"
    )

    with pytest.raises(FscilError, match=rf"none of the runs .* {command} --run-missing$"):
        study(kind, {"ldc_set": "loss=js", **params}, seeds=(4,))


@pytest.mark.parametrize("kind", [Cost, Scalability])
def test_a_protocol_without_sessions_is_refused(
    claims: Any, study: Any, toy_protocol: Protocol, kind: type[Report]
) -> None:
    alone = Plugin("protocol", "toy", toy_protocol.override(sessions=0), Path(__file__), "test")
    claims.registry.plugins["protocol"]["toy"] = alone

    with pytest.raises(UsageError, match="protocol 'toy' has none"):
        study(kind)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"protocol": None}, "name it, --protocol"),
        ({"protocol": "tpy"}, "did you mean 'toy'"),
        ({"methods": ("ldc",)}, "leave --method away"),
        ({"representations": ("cosine", "other")}, "at most one --representation"),
        ({"representations": ("csine",)}, "did you mean 'cosine'"),
    ],
)
def test_what_leaves_no_choice_is_refused(study: Any, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        study(Ablation, **asked)


def test_settings_are_in_every_run_and_are_stated(claims: Any, study: Any) -> None:
    for covariance in ("shared", "mapped"):
        steps = {"loss": "js", "covariance": covariance, "recurrent_steps": 0}
        claims.write(claims.setup.ldc(**steps), [(30, 3)] * 6)

    output = study(Ablation, {"ldc_set": "loss=js"})

    assert "| + sampler | 6 |" in output.text
    assert "ldc runs with loss=js." in output.text
    assert all("--set loss=js" in command for command in output.missing)


def test_damaged_runs_are_named_and_left_out(claims: Any, study: Any) -> None:
    claims.write(claims.setup.ablation["baseline"], [(30, 3)] * 6)
    damaged = claims.write(claims.setup.ablation["+ mapping"], [(31, 3)] * 6)[1]
    (damaged.folder / "predictions.npz").write_bytes(b"PK")

    output = study(Ablation)

    assert "| + mapping | 5 |" in output.text
    assert str(damaged.folder) in output.warnings[0]
    assert "fscil-bench run --method ldc --protocol toy --set recurrent_steps=0 --seeds 1" in (
        output.missing
    )


@pytest.mark.parametrize("name", SMALL)
def test_run_missing_makes_all_that_a_study_needs(name: str, trained: dict[str, Any]) -> None:
    settings = {**trained, "params": SMALL[name]}

    made = fb.make_report(name, run_missing=True, **settings)

    assert (made.missing, made.failures, made.warnings) == ((), (), ())
    assert "cannot be compared" not in made.text
    assert fb.make_report(name, **settings).text == made.text
    assert {file.suffix for file in made.files} == {".md", ".csv", ".tex", ".png", ".pdf"}
