"""The conformance suite finds out what breaks the contract of few-shot episodes."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fscil_bench.testing import check_method

TOY = Path(__file__).parent / "toy"


def _toy_means() -> Any:
    spec = importlib.util.spec_from_file_location("toy_methods", TOY / "toy_methods.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ToyMeans


TOY_MEANS: Any = _toy_means()


class Grown(TOY_MEANS):  # type: ignore[misc]
    name = "grown"

    def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
        self.means = torch.cat([self.means, self.means[:1]])
        return super().episode_scores(shots, queries)  # type: ignore[no-any-return]


class AllClasses(TOY_MEANS):  # type: ignore[misc]
    name = "all_classes"

    def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
        del shots
        return self.scores(queries)  # type: ignore[no-any-return]


class Infinite(TOY_MEANS):  # type: ignore[misc]
    name = "infinite"

    def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
        return torch.full((len(queries), shots.way), math.inf)


class Remembering(TOY_MEANS):  # type: ignore[misc]
    name = "remembering"
    asked = 0

    def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
        self.asked += 1
        return self.asked * super().episode_scores(shots, queries)  # type: ignore[no-any-return]


class Spoiling(TOY_MEANS):  # type: ignore[misc]
    name = "spoiling"

    def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
        scores = super().episode_scores(shots, queries)
        shots.features.mul_(2)
        return scores  # type: ignore[no-any-return]


class Drawing(TOY_MEANS):  # type: ignore[misc]
    name = "drawing"

    def episode_scores(self, shots: Any, queries: Any) -> torch.Tensor:
        torch.rand(1)
        return super().episode_scores(shots, queries)  # type: ignore[no-any-return]


def test_a_method_that_keeps_the_contract_passes() -> None:
    check_method(TOY_MEANS)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Grown, "grown: an episode changed 'means' of its state"),
        (AllClasses, r"have shape \(24, 6\), not \(24, 3\)"),
        (Infinite, "scores of an episode are not finite"),
        (Remembering, "depend on the episodes before it"),
        (Spoiling, "changed the shots of an episode"),
        (Drawing, "draws from the global random state"),
    ],
)
def test_what_breaks_it_is_said(method: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(method)
