from __future__ import annotations

import pytest
import torch

from fscil_bench.methods._shared.augmentation import drawn_share, turned


def test_images_are_turned_counter_clockwise_one_by_one() -> None:
    corner = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).expand(4, 3, 2, 2)
    found = turned(corner, torch.tensor([0, 1, 2, 3]))[:, 0].flatten(1)
    assert found.argmax(dim=1).tolist() == [0, 2, 3, 1]  # down, across, up


def test_shares_are_draws_of_the_beta_distribution_that_the_generator_decides() -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.tensor([drawn_share(2.0, generator) for _ in range(2000)])
    # Beta(2, 2) has the mean 1/2 and the variance 1/20.
    assert float(shares.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(shares.var()) == pytest.approx(0.05, abs=0.005)
    assert drawn_share(2.0, torch.Generator().manual_seed(0)) == pytest.approx(float(shares[0]))
