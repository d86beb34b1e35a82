from __future__ import annotations

import pytest
import torch

from fscil_bench.errors import UsageError
from fscil_bench.methods.free_lunch import covariances as module
from fscil_bench.methods.free_lunch.covariances import (
    FullCovariances,
    StoredCovariances,
    check_budget,
    spread,
    store,
)

CLASSES, DIM = 6, 5
FULL = 4 * DIM * DIM
"""Bytes of one whole covariance."""


def _statistics(
    classes: int = CLASSES, dim: int = DIM, count: int = 40
) -> tuple[list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(classes, dim, dim, generator=generator).double()
    drawn = torch.randn(classes, count, dim, generator=generator).double() @ mix
    means = torch.randn(classes, dim, generator=generator)
    return [torch.cov(rows.T) for rows in drawn], means


def _bytes(stored: StoredCovariances) -> int:
    return sum(t.numel() * t.element_size() for t in stored.tensors().values())


def _moments(drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn.double().mean(dim=0), torch.cov(drawn.double().T)


@pytest.mark.parametrize("mode", ["full", "low_rank"])
@pytest.mark.parametrize("budget", [130, 199, 200, 399, 450, 599, 600, 601, 720, 10_000])
def test_stored_bytes_are_never_above_the_budget_and_waste_less_than_one_more(
    mode: str, budget: int
) -> None:
    covariances, means = _statistics()
    stored = store(covariances, means, budget, mode)  # type: ignore[arg-type]
    unit = FULL if mode == "full" else 4 * CLASSES * DIM
    most = CLASSES * FULL if mode == "full" else 4 * CLASSES * DIM * (DIM + 1)
    assert _bytes(stored) <= budget
    assert _bytes(stored) == min(budget // unit * unit, most)


def test_a_budget_for_nothing_is_refused_with_numbers() -> None:
    with pytest.raises(UsageError, match=r"byte_budget = 99 .* one covariance .* takes 100 bytes"):
        check_budget(99, "full", CLASSES, DIM)
    with pytest.raises(UsageError, match=r"byte_budget = 119 .* the diagonals .* take 120 bytes"):
        check_budget(119, "low_rank", CLASSES, DIM)
    check_budget(100, "full", CLASSES, DIM)
    check_budget(0, "full", CLASSES, DIM)


def test_farthest_points_start_in_the_middle() -> None:
    line = torch.tensor([[0.0], [1.0], [4.0], [5.0], [9.0], [10.0]])
    assert spread(line, 4).tolist() == [3, 0, 5, 1]
    assert sorted(spread(line, 6).tolist()) == list(range(6))
    assert spread(torch.ones(4, 2), 3).tolist() == [0, 1, 2]


def test_classes_without_a_covariance_borrow_that_of_the_nearest_mean() -> None:
    covariances = [c * torch.eye(1).double() for c in range(1, 7)]
    line = torch.tensor([[0.0], [1.0], [4.0], [5.0], [9.0], [10.0]])
    stored = store(covariances, line, 3 * 4, "full")
    assert stored.spent_on() == {"covariances_kept": 3}  # those at 5, 0 and 10
    assert [float(stored.covariance(c)) for c in range(6)] == [1.0, 1.0, 4.0, 4.0, 6.0, 6.0]
    drawn = stored.noise(torch.tensor([4]), 20_000, torch.Generator().manual_seed(0))
    assert float(drawn.var()) == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("rank", range(DIM + 1))
def test_low_rank_factors_keep_variances_and_leading_directions(rank: int) -> None:
    covariances, means = _statistics()
    stored = store(covariances, means, 4 * CLASSES * DIM * (rank + 1), "low_rank")
    assert stored.spent_on() == {"covariance_rank": rank}
    for c, matrix in enumerate(covariances):
        found = stored.covariance(c)
        assert torch.allclose(found.diagonal(), matrix.diagonal(), rtol=1e-5)
        assert float(torch.linalg.eigvalsh(found).min()) >= -1e-6
        # What is left out off the diagonal is at most the eigenvalues that are left out.
        left_out = float(torch.linalg.eigvalsh(matrix)[: DIM - rank].clamp(min=0).sum())
        assert float((found - matrix).norm()) <= left_out + 1e-4
    if rank == 0:
        assert torch.allclose(stored.covariance(0), covariances[0].diagonal().diag(), atol=1e-5)
    if rank == DIM:
        assert torch.allclose(stored.covariance(0), covariances[0], atol=1e-4)


@pytest.mark.parametrize("budget", [0, 2 * FULL, 4 * CLASSES * DIM * 3])
@pytest.mark.parametrize("mode", ["full", "low_rank"])
@pytest.mark.parametrize("chunk", [2 * FULL, module.CHUNK_BYTES])
def test_noise_has_the_stored_covariance(
    budget: int, mode: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    covariances, means = _statistics()
    stored = store(covariances, means, budget, mode)  # type: ignore[arg-type]
    classes = torch.tensor([3, 0, 3])
    drawn = stored.noise(classes, 40_000, torch.Generator().manual_seed(1))
    assert drawn.shape == (3, 40_000, DIM)
    for row, c in enumerate(classes.tolist()):
        mean, covariance = _moments(drawn[row])
        scale = float(stored.covariance(c).diagonal().max())
        assert float(mean.abs().max()) < 0.03 * scale**0.5
        assert float((covariance - stored.covariance(c)).abs().max()) < 0.04 * scale


def test_negative_eigenvalues_are_set_to_zero_and_counted() -> None:
    good = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    bad = torch.diag(torch.tensor([5.0, -0.5, -1.5]))
    stored = FullCovariances(torch.stack([good, bad]), torch.eye(2, 3))
    assert stored.repair.eigenvalues == 2
    assert stored.repair.classes == 1
    assert stored.repair.largest == pytest.approx(1.5)  # of a mean eigenvalue of 1
    drawn = stored.noise(torch.tensor([1]), 20_000, torch.Generator().manual_seed(0))[0]
    assert drawn.var(dim=0).tolist() == pytest.approx([5.0, 0.0, 0.0], abs=0.2)


def test_fewer_samples_than_dimensions_are_repaired_only_by_rounding() -> None:
    covariances, means = _statistics(classes=3, dim=30, count=8)
    stored = store(covariances, means, 0, "full")
    assert stored.repair.classes == 3
    assert 0 < stored.repair.largest < 1e-5
    drawn = stored.noise(torch.arange(3), 50, torch.Generator().manual_seed(0))
    assert torch.isfinite(drawn).all()
    values = torch.linalg.svdvals(drawn[0])
    assert float(values[7]) < 2e-3 * float(values[6])
