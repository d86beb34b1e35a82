from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from fscil_bench.methods._shared.statistics import covariance
from fscil_bench.methods.ldc import matching
from fscil_bench.methods.ldc import training as pcu_training
from fscil_bench.methods.ldc import unit as pcu
from fscil_bench.methods.ldc.covariance import symmetric_root
from fscil_bench.methods.ldc.params import LdcParams
from fscil_bench.methods.ldc.sampler import GaussianSampler

DIM = 8
FULL = pcu.UnitShape(mapped=True, steps=2, hidden=4, kernel=1)
TRAINING = LdcParams(
    unit_steps=150, unit_lr=0.02, unit_classes=8, unit_samples=64, simulated_shots=5
)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _unit(shape: pcu.UnitShape = FULL) -> pcu.CalibrationUnit:
    return pcu.CalibrationUnit(shape, _generator(5))


def _classes(count: int, samples: int = 200, dim: int = DIM) -> torch.Tensor:
    """Return features (count, samples, dim) whose standard deviation is half their mean."""
    means = 0.2 + 2 * torch.rand(count, 1, dim, generator=_generator(3))
    noise = torch.randn(count, samples, dim, generator=_generator(4))
    return means + 0.5 * means * noise


def _base_statistics(real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means and the root of the mean within-class covariance."""
    sigma = torch.stack([covariance(rows) for rows in real]).mean(dim=0)
    return real.mean(dim=1), symmetric_root(sigma).matrix.float()


def _base(
    unit: pcu.CalibrationUnit, real: list[torch.Tensor], root: torch.Tensor
) -> pcu_training.BaseClasses:
    means = torch.stack([rows.mean(dim=0) for rows in real])
    unit.set_scales(means, root)
    counts = torch.tensor([float(len(rows)) for rows in real])
    return pcu_training.BaseClasses(means, counts, real, lambda w, _: unit.factors(w, root))


def _train(
    unit: pcu.CalibrationUnit,
    real: torch.Tensor,
    how: LdcParams = TRAINING,
    convergence: matching.Convergence | None = None,
) -> torch.Tensor:
    _, root = _base_statistics(real)
    base = _base(unit, list(real), root)
    return pcu_training.train_unit(
        unit, how, base, _generator(7), lambda _: None, convergence or matching.Convergence()
    )


def _kl(
    unit: pcu.CalibrationUnit,
    means: torch.Tensor,
    root: torch.Tensor,
    real: torch.Tensor,
    shots: int = 1,
) -> list[float]:
    """Return the sliced KL(generated‖real) after each recurrent step."""
    counts = torch.full((len(means),), float(shots))
    sampler = GaussianSampler(unit, means, lambda w, _: unit.factors(w, root), counts=counts)
    steps = sampler.draw_steps(400, _generator(8))
    directions = matching.random_directions(real.shape[2], real.shape[2], _generator(9))
    return [float(matching.matching_loss(x, real, "kl", directions)) for x in steps]


@pytest.mark.parametrize("loss", ["kl", "js", "hellinger", "emd"])
def test_matching_loss_reaches_mapping_and_calibration(loss: matching.Loss) -> None:
    real, unit = _classes(4, 32), _unit()
    means, root = _base_statistics(real)
    for part in (unit.mapping, unit.calibration):
        torch.nn.init.normal_(part.last, std=0.1, generator=_generator(1))
    noise = torch.randn(4, 16, DIM, generator=_generator(2))
    samples = unit.steps(means, unit.factors(means, root), noise)
    directions = matching.random_directions(DIM, DIM, _generator(3))
    total = sum(matching.matching_loss(x, real, loss, directions) for x in samples)
    total.backward()
    for name, parameter in unit.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("loss", "directions"),
    [*itertools.product(("kl", "js", "hellinger"), ("sliced", "full")), ("emd", "sliced")],
)
def test_training_lowers_the_loss_on_base_classes(
    loss: matching.Loss, directions: matching.Directions
) -> None:
    how = replace(TRAINING, loss=loss, directions=directions, biased_steps=0.0, unit_steps=100)
    losses = _train(_unit(), _classes(12), how)
    assert losses[-10:].mean() < 0.9 * losses[:10].mean()


def test_trained_unit_transfers_to_classes_it_has_not_seen() -> None:
    everything = _classes(40)
    base, new = everything[:30], everything[30:]
    unit = _unit()
    _train(unit, base)
    _, root = _base_statistics(base)
    shared = _kl(_unit(), new.mean(dim=1), root, new)[0]
    mapped, *calibrated = _kl(unit, new.mean(dim=1), root, new)
    assert mapped < 0.5 * shared
    assert calibrated[-1] < 0.5 * shared


def test_columns_and_few_slices_train_about_as_good_a_unit() -> None:
    everything = _classes(40)
    base, new = everything[:30], everything[30:]
    _, root = _base_statistics(base)
    found = []
    for mapping, slices in (("entries", DIM), ("columns", 3)):
        unit = _unit(replace(FULL, mapping=mapping))
        _train(unit, base, replace(TRAINING, slices=slices))
        found.append(_kl(unit, new.mean(dim=1), root, new))
    shared = _kl(_unit(), new.mean(dim=1), root, new)[0]
    assert found[1][0] < 0.5 * shared
    assert found[1] == pytest.approx(found[0], abs=0.05 * shared)


def test_recurrent_calibration_lowers_the_kl_of_few_shot_means() -> None:
    everything = _classes(40)
    base, new = everything[:30], everything[30:]
    unit = _unit()
    _train(unit, base)
    _, root = _base_statistics(base)
    mapped, *calibrated = _kl(unit, new[:, :5].mean(dim=1), root, new)
    assert all(kl < mapped for kl in calibrated)


def test_a_unit_that_sees_shots_tells_few_from_many() -> None:
    """What moves a mean of few shots must leave a mean of many samples where it is."""
    everything = _classes(40)
    base, new = everything[:30], everything[30:]
    blind, seeing = _unit(), _unit(replace(FULL, sees_shots=True))
    for unit in (blind, seeing):
        _train(unit, base)
    _, root = _base_statistics(base)
    few, true = new[:, :5].mean(dim=1), new.mean(dim=1)
    assert _kl(seeing, few, root, new, shots=5)[-1] < _kl(blind, few, root, new)[-1]
    assert _kl(seeing, true, root, new, shots=200)[-1] < _kl(seeing, true, root, new, shots=5)[-1]


@pytest.mark.parametrize("virtual", [0.0, 0.5])
def test_training_takes_classes_of_unequal_and_tiny_size(virtual: float) -> None:
    real = [rows[:n] for rows, n in zip(_classes(4), (2, 30, 200, 7), strict=True)]
    _, root = _base_statistics(_classes(4))
    unit, how = _unit(), replace(TRAINING, unit_steps=5, virtual_classes=virtual)
    losses = pcu_training.train_unit(
        unit, how, _base(unit, real, root), _generator(), lambda _: None
    )
    assert torch.isfinite(losses).all()


def test_mixtures_have_mixed_means_and_covariances() -> None:
    real = list(_classes(2, 4000))
    base = _base(_unit(), real, torch.eye(DIM))
    centres, mixed = pcu_training.with_mixtures(
        base.means[1:], real[1:], base, fraction=1.0, generator=_generator(1)
    )
    _, other, share = torch.rand(1, 3, generator=_generator(1))[0].tolist()
    assert int(2 * other) == 0, "the seed must mix class 0 into class 1"
    mean = share * base.means[1] + (1 - share) * base.means[0]
    expected = share * torch.cov(real[1].T) + (1 - share) * torch.cov(real[0].T)
    assert torch.allclose(centres[0], mean, atol=1e-5)
    assert torch.allclose(mixed[0].mean(dim=0), mean, atol=1e-3)
    assert torch.allclose(torch.cov(mixed[0].T), expected, atol=0.03)
    assert torch.equal(base.means[1], real[1].mean(dim=0)), "the classes themselves are untouched"
