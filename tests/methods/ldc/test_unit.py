from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fscil_bench.methods.ldc import unit as pcu

DIM = 8
IDENTITY = pcu.UnitShape(mapped=True, steps=0, hidden=4, kernel=1)
COLUMNS = replace(IDENTITY, mapping="columns")
FULL = pcu.UnitShape(mapped=True, steps=2, hidden=4, kernel=1)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _unit(shape: pcu.UnitShape = FULL) -> pcu.CalibrationUnit:
    return pcu.CalibrationUnit(shape, _generator(5))


def _root() -> torch.Tensor:
    """Return a symmetric positive definite matrix, the root of some covariance."""
    mixing = torch.randn(DIM, DIM, generator=_generator(2)) / DIM**0.5
    return 0.5 * (mixing @ mixing.T) + 0.1 * torch.eye(DIM)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("mapped", [True, False])
def test_unit_starts_as_the_shared_gaussian(kernel: int, mapped: bool) -> None:
    unit = _unit(pcu.UnitShape(mapped=mapped, steps=2, hidden=4, kernel=kernel))
    means, root = torch.rand(3, DIM, generator=_generator()), _root()
    noise = torch.randn(3, 20_000, DIM, generator=_generator(1))
    steps = unit.steps(means, unit.factors(means, root), noise)
    assert len(steps) == 3
    for samples in steps:
        assert torch.allclose(samples.mean(dim=1), means, atol=0.05)
        for rows in samples:
            assert torch.allclose(torch.cov(rows.T), root @ root, atol=0.06)


def test_mapping_sees_the_mean_of_the_dimension_that_it_scales() -> None:
    unit = _unit(IDENTITY)
    torch.nn.init.normal_(unit.mapping.last, generator=_generator(1))
    means, root = torch.rand(1, DIM, generator=_generator()), _root()
    moved = means.clone()
    moved[0, 3] += 1
    before, after = (pcu.dense(unit.factors(w, root))[0] for w in (means, moved))
    changed = (before != after).any(dim=0)
    assert changed.tolist() == [j == 3 for j in range(DIM)]


def _mapped(shape: pcu.UnitShape, root: torch.Tensor) -> torch.Tensor:
    """Return A_i (3, D, D) of three classes, by one mapping whatever the shape."""
    unit, means = _unit(shape), torch.rand(3, DIM, generator=_generator())
    torch.nn.init.normal_(unit.mapping.last, generator=_generator(1))
    return pcu.dense(unit.factors(means, root))


def test_columns_of_a_diagonal_root_are_its_entries() -> None:
    root = torch.diag(torch.rand(DIM, generator=_generator(3)) + 0.1)
    by_entry, by_column = _mapped(IDENTITY, root), _mapped(COLUMNS, root)
    assert torch.allclose(by_column, by_entry, atol=1e-6)
    assert not torch.allclose(by_column, root, atol=1e-2)


def test_columns_are_scaled_by_what_the_mapping_makes_of_zero_beside_the_diagonal() -> None:
    root, on = _root(), torch.eye(DIM, dtype=torch.bool)
    small = torch.where(on, root, 1e-4)
    expected = _mapped(IDENTITY, small) / small * root
    assert torch.allclose(_mapped(COLUMNS, root), expected, atol=1e-3)
    assert not torch.allclose(_mapped(IDENTITY, root), expected, atol=1e-2)


def test_columns_of_a_unit_as_it_begins_are_the_root() -> None:
    factors = _unit(COLUMNS).factors(torch.rand(3, DIM, generator=_generator()), _root())
    assert torch.equal(pcu.dense(factors), _root().expand(3, DIM, DIM))


def test_column_factors_give_noise_and_variances_without_their_entries() -> None:
    scale, shift = torch.rand(2, 3, DIM, generator=_generator())
    factors = pcu.ColumnFactors(_root(), scale, shift)
    noise = torch.randn(3, 5, DIM, generator=_generator(1))
    assert torch.allclose(factors.times(noise), noise @ factors.dense(), atol=1e-5)
    assert torch.allclose(factors.variances(), pcu.variances(factors.dense()), atol=1e-5)
    kept = factors.shared_where(torch.tensor([False, True, False])).dense()
    assert torch.equal(kept[1], _root())
    assert torch.equal(kept[[0, 2]], factors.dense()[[0, 2]])


@pytest.mark.parametrize(
    ("mapping", "kernel", "dim", "columns"),
    [
        ("auto", 1, 511, False),
        ("auto", 1, 512, True),
        ("auto", 3, 512, False),
        ("entries", 1, 512, False),
        ("columns", 1, 8, True),
    ],
)
def test_mapping_goes_by_columns_where_features_are_many(
    mapping: pcu.Mapping, kernel: int, dim: int, columns: bool
) -> None:
    assert replace(IDENTITY, mapping=mapping, kernel=kernel).by_columns(dim) is columns


def test_pointwise_maps_equal_the_convolutions_that_they_stand_for() -> None:
    maps = torch.randn(2, 3, DIM, DIM, generator=_generator())
    net = pcu.ConvReluConv(2, 4, 1, 2, _generator(1))
    torch.nn.init.normal_(net.last, generator=_generator(2))
    hidden = torch.conv2d(maps.transpose(0, 1), net.first, net.first_bias).relu()
    expected = torch.conv2d(hidden, net.last, net.last_bias)[:, 0]
    assert torch.allclose(net(*maps), expected, atol=1e-5)


def test_pointwise_maps_have_the_right_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcu, "BLOCK_ENTRIES", 12)
    net = pcu.ConvReluConv(2, 4, 1, 1, _generator(1)).double()
    torch.nn.init.normal_(net.last, generator=_generator(2))
    maps = torch.randn(2, 3, DIM, generator=_generator(), dtype=torch.float64).requires_grad_()
    parameters = tuple(net.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: net(*x), (maps, *parameters))


def test_wide_kernels_mix_neighbouring_features() -> None:
    shape = pcu.UnitShape(mapped=True, steps=1, hidden=4, kernel=3)
    unit = _unit(shape)
    torch.nn.init.normal_(unit.calibration.last, generator=_generator(1))
    x = torch.zeros(1, DIM)
    moved = x.clone()
    moved[0, 4] = 1
    changed = (unit.calibrate(x) != unit.calibrate(moved))[0]
    assert changed[[3, 4, 5]].any()
    assert not changed[[0, 1, 7]].any()


def test_a_unit_that_sees_shots_is_told_the_mean_and_its_standard_error() -> None:
    unit = _unit(pcu.UnitShape(mapped=False, steps=1, hidden=4, kernel=1, sees_shots=True))
    torch.nn.init.normal_(unit.calibration.last, generator=_generator(1))
    means, root = torch.rand(2, DIM, generator=_generator()) + 0.5, _root()
    unit.set_scales(means, root)
    noise = torch.randn(2, 3, DIM, generator=_generator())
    counts = torch.tensor([5.0, 500.0])
    first, last = unit.steps(means, unit.factors(means, root), noise, counts)
    errors = (root @ root).diagonal().sqrt() / counts[:, None].sqrt()
    maps = first / unit.scales[0], means / unit.scales[0], errors / unit.scales[1]
    x, w, e = (each if each.ndim == 3 else each[:, None].expand(2, 3, DIM) for each in maps)
    change = unit.calibration(*(each.flatten(0, 1) for each in (x, w, e))).view(2, 3, DIM)
    assert torch.allclose(last, first + unit.scales[0] * change, atol=1e-5)
    more = unit.steps(means, unit.factors(means, root), noise, counts.flip(0))[1]
    assert not torch.allclose(more, last, atol=1e-3)
