"""What is made of a method's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.running.runner import best_columns, notes_of


class Answering:
    """Stands for a method in messages, and gives notes."""

    name = "answering"

    def __init__(self, **notes: Any) -> None:
        self._notes = notes

    def notes(self) -> dict[str, Any]:
        return self._notes


def best(scores: torch.Tensor) -> list[int]:
    method: Any = Answering()
    return best_columns(method, scores, tuple(scores.shape), "classes seen", "").tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_the_highest_score_wins_and_the_lower_class_a_tie(dtype: torch.dtype) -> None:
    assert best(torch.tensor([[1, 3, 2], [2, 1, 2], [0, 0, 0]], dtype=dtype)) == [1, 0, 0]


def test_scores_are_compared_in_their_own_type() -> None:
    close = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    assert best(close) == [1]
    assert best(torch.tensor([[2**53, 2**53 + 1]])) == [1]
    assert best(close.float()) == [0], "rounded to float32 they are equal"


@pytest.mark.parametrize(
    "value", [np.inf, np.nan, 2**63, -(10**5000)], ids=["inf", "nan", "64 bits", "long"]
)
def test_notes_that_could_not_be_read_again_are_refused_by_name(value: float) -> None:
    method: Any = Answering(steps=3, share=value)
    with pytest.raises((UsageError, FscilError), match="'answering': note share"):
        notes_of(method)
