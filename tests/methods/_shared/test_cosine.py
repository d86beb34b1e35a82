"""Running class means, which stand in for rows that live elsewhere."""

from __future__ import annotations

import pytest
import torch

from fscil_bench.methods._shared.cosine import RunningMeans


def test_running_means_are_those_of_unit_features() -> None:
    means = RunningMeans(3, 2)
    first = torch.tensor([[3.0, 0, 0], [0, 4.0, 0]])
    means.follow(first, torch.tensor([0, 0]))
    assert means.rows[0].tolist() == pytest.approx([0.5, 0.5, 0])
    assert means.rows[1].tolist() == [0, 0, 0], "a class that was not seen is left alone"
    means.follow(torch.tensor([[0, 0, 5.0]]), torch.tensor([0]))
    assert means.rows[0].tolist() == pytest.approx([0.45, 0.45, 0.1])
