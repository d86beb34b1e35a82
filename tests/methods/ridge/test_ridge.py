from __future__ import annotations

import numpy as np
import pytest
import torch

from fscil_bench.errors import UsageError
from fscil_bench.methods.ridge import ridge as _ridge
from fscil_bench.methods.ridge.ridge import add_gram, one_hot, require_memory, ridge_solution


def _samples(count: int, size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("block", [3, 4, 100])
def test_a_gram_matrix_is_built_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ridge, "BLOCK", block)
    first, second = _samples(6, 10), _samples(4, 10, seed=1)
    gram = torch.zeros(10, 10, dtype=torch.float64)
    add_gram(gram, first)
    add_gram(gram, second, weight=2.5)
    torch.testing.assert_close(gram, first.T @ first + 2.5 * second.T @ second)
    assert torch.equal(gram, gram.T)


def test_a_solution_is_that_of_least_squares_with_ridge_rows() -> None:
    rows, targets = _samples(9, 5), _samples(9, 2, seed=1)
    found = ridge_solution(rows.T @ rows, rows.T @ targets, 0.7)
    # The penalty is five more samples, √λ times the unit vectors, of target 0.
    longer = np.concatenate([rows, np.sqrt(0.7) * np.eye(5)])
    expected = np.linalg.lstsq(longer, np.concatenate([targets, np.zeros((5, 2))]), rcond=None)[0]
    assert found is not None
    assert np.allclose(found, expected)


def test_a_ridge_that_is_lost_in_rounding_has_no_solution() -> None:
    rows = 1e6 * _samples(1, 5)
    assert ridge_solution(rows.T @ rows, rows.T, 1e-30) is None


def test_one_hot_rows() -> None:
    assert one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_matrices_larger_than_the_machines_memory_are_refused() -> None:
    require_memory("ranpac: projections", 10)
    with pytest.raises(UsageError, match=r"projections = 1000000 takes 223\d\d\.\d GiB .* at most"):
        require_memory("ranpac: projections", 1_000_000)
    with pytest.raises(UsageError, match="set it to at most 0"):
        require_memory("ranpac: projections", 10, more=2**60)
