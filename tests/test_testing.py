"""The conformance suite finds out what breaks the contract of few-shot episodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fscil_bench.plugins.registry import load_registry
from fscil_bench.testing import check_method

TOY = Path(__file__).parent / "toy"
TOY_MEANS: Any = load_registry((TOY / "toy_methods.py",)).get("method", "toy_means").value


def grows(method: Any, scores: torch.Tensor, **_: Any) -> torch.Tensor:
    method.means = torch.cat([method.means, method.means[:1]])
    return scores


def remembers(method: Any, scores: torch.Tensor, **_: Any) -> torch.Tensor:
    method.asked = getattr(method, "asked", 0) + 1
    return scores * float(method.asked)


def spoils(shots: Any, scores: torch.Tensor, **_: Any) -> torch.Tensor:
    shots.features.mul_(2)
    return scores


def test_a_method_that_keeps_the_contract_passes() -> None:
    check_method(TOY_MEANS)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (grows, "broken: an episode changed 'means' of its state"),
        (
            lambda method, queries, **_: method.scores(queries),
            r"have shape \(24, 6\), not \(24, 3\)",
        ),
        (lambda scores, **_: scores * math.inf, "scores of an episode are not finite"),
        (remembers, "depend on the episodes before it"),
        (spoils, "changed the shots of an episode"),
        (lambda scores, **_: scores + 0 * torch.rand(1), "draws from the global random state"),
    ],
)
def test_what_breaks_it_is_said(broken: Callable[..., torch.Tensor], message: str) -> None:
    class Broken(TOY_MEANS):  # type: ignore[misc]
        name = "broken"

        def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
            scores = super().episode_scores(shots, queries)
            return broken(method=self, shots=shots, queries=queries, scores=scores)

    with pytest.raises(AssertionError, match=message):
        check_method(Broken)
