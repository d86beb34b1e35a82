from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fscil_bench.methods import _matching as matching
from fscil_bench.methods import _pcu as pcu
from fscil_bench.methods import _statistics as statistics

DIM = 8
IDENTITY = pcu.UnitShape(mapped=True, steps=0, hidden=4, kernel=1)
FULL = pcu.UnitShape(mapped=True, steps=2, hidden=4, kernel=1)
TRAINING = pcu.UnitTraining(
    loss="kl", directions="sliced", steps=150, lr=0.02, classes=8, samples=64, shots=5, biased=0.5
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute on one thread: tensors this small only lose by being shared out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _unit(shape: pcu.UnitShape = FULL) -> pcu.CalibrationUnit:
    return pcu.CalibrationUnit(shape, _generator(5))


def _root(dim: int = DIM) -> torch.Tensor:
    mixing = torch.randn(dim, dim, generator=_generator(2)) / dim**0.5
    return statistics.symmetric_root(mixing @ mixing.T + 0.1 * torch.eye(dim)).matrix.float()


def _classes(count: int, samples: int = 200, dim: int = DIM) -> torch.Tensor:
    """Return features (count, samples, dim) whose standard deviation is half their mean."""
    means = 0.2 + 2 * torch.rand(count, 1, dim, generator=_generator(3))
    noise = torch.randn(count, samples, dim, generator=_generator(4))
    return means + 0.5 * means * noise


def _base_statistics(real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means and the root of the mean within-class covariance."""
    sigma = torch.stack([statistics.covariance(rows) for rows in real]).mean(dim=0)
    return real.mean(dim=1), statistics.symmetric_root(sigma).matrix.float()


def _train(
    unit: pcu.CalibrationUnit, real: torch.Tensor, training: pcu.UnitTraining = TRAINING
) -> torch.Tensor:
    means, root = _base_statistics(real)
    return pcu.train_unit(unit, training, means, root, list(real), _generator(7), lambda _: None)


def _kl(unit: pcu.CalibrationUnit, means: torch.Tensor, root: torch.Tensor, real: torch.Tensor):
    """Return the sliced KL(generated‖real) after each recurrent step."""
    steps = pcu.GaussianSampler(unit, means, root).draw_steps(400, _generator(8))
    directions = matching.random_directions(real.shape[2], real.shape[2], _generator(9))
    return [float(matching.matching_loss(x, real, "kl", directions)) for x in steps]


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("mapped", [True, False])
def test_unit_starts_as_the_shared_gaussian(kernel: int, mapped: bool) -> None:
    shape = pcu.UnitShape(mapped=mapped, steps=2, hidden=4, kernel=kernel)
    means, root = torch.rand(3, DIM, generator=_generator()), _root()
    steps = pcu.GaussianSampler(_unit(shape), means, root).draw_steps(20_000, _generator(1))
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
    before, after = unit.factors(means, root)[0], unit.factors(moved, root)[0]
    changed = (before != after).any(dim=0)
    assert changed.tolist() == [j == 3 for j in range(DIM)]


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


def test_no_mapping_and_no_steps_leave_nothing_to_store() -> None:
    shape = pcu.UnitShape(mapped=False, steps=0, hidden=4, kernel=1)
    assert not shape.learnable
    assert not _unit(shape).state_dict()


def test_recurrent_steps_share_their_weights() -> None:
    once, often = (
        _unit(pcu.UnitShape(mapped=True, steps=r, hidden=4, kernel=1)).state_dict() for r in (1, 5)
    )
    assert {k: v.shape for k, v in once.items()} == {k: v.shape for k, v in often.items()}


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


@pytest.mark.parametrize("loss", ["kl", "js", "hellinger", "emd"])
def test_training_lowers_the_loss_on_base_classes(loss: matching.Loss) -> None:
    training = pcu.UnitTraining(**{**TRAINING.__dict__, "loss": loss, "biased": 0.0})
    losses = _train(_unit(), _classes(12), training)
    assert torch.isfinite(losses).all()
    assert losses[-20:].mean() < 0.8 * losses[:20].mean()


@pytest.mark.parametrize("loss", ["kl", "js", "hellinger"])
def test_training_on_full_covariances_lowers_the_loss(loss: matching.Loss) -> None:
    changes = {"loss": loss, "directions": "full", "biased": 0.0, "steps": 60}
    losses = _train(_unit(), _classes(12), pcu.UnitTraining(**{**TRAINING.__dict__, **changes}))
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


def test_recurrent_calibration_lowers_the_kl_of_few_shot_means() -> None:
    everything = _classes(40)
    base, new = everything[:30], everything[30:]
    unit = _unit()
    _train(unit, base)
    _, root = _base_statistics(base)
    mapped, *calibrated = _kl(unit, new[:, :5].mean(dim=1), root, new)
    assert all(kl < mapped for kl in calibrated)


def test_training_is_deterministic_and_reports_its_progress() -> None:
    real = _classes(5, 20)
    means, root = _base_statistics(real)
    training = pcu.UnitTraining(**{**TRAINING.__dict__, "steps": 4})
    states, seen = [], []
    for _ in range(2):
        unit = _unit()
        pcu.train_unit(unit, training, means, root, list(real), _generator(7), seen.append)
        states.append(unit.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert seen == [0.25, 0.5, 0.75, 1.0] * 2


def test_training_takes_classes_of_unequal_and_tiny_size() -> None:
    real = [rows[:n] for rows, n in zip(_classes(4), (2, 30, 200, 7), strict=True)]
    means = torch.stack([rows.mean(dim=0) for rows in real])
    training = pcu.UnitTraining(**{**TRAINING.__dict__, "steps": 5})
    losses = pcu.train_unit(_unit(), training, means, _root(), real, _generator(), lambda _: None)
    assert torch.isfinite(losses).all()


def test_sampler_gives_the_same_in_any_chunking(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = _unit()
    torch.nn.init.normal_(unit.mapping.last, std=0.1, generator=_generator(1))
    means, root = torch.rand(9, DIM, generator=_generator()), _root()
    whole = pcu.GaussianSampler(unit, means, root).draw(4, _generator(1))
    monkeypatch.setattr(pcu, "CHUNK_BYTES", 1)
    monkeypatch.setattr(pcu, "CACHE_BYTES", 0)
    chunked = pcu.GaussianSampler(unit, means, root).draw(4, _generator(1))
    assert whole.shape == (9, 4, DIM)
    assert torch.allclose(chunked, whole, atol=1e-5)


def test_sampler_evaluates_the_mapping_once(monkeypatch: pytest.MonkeyPatch) -> None:
    unit, calls = _unit(), []
    original = unit.factors
    monkeypatch.setattr(unit, "factors", lambda *a: calls.append(1) or original(*a))
    sampler = pcu.GaussianSampler(unit, torch.rand(9, DIM), _root())
    for _ in range(3):
        sampler.draw(5, _generator())
    assert len(calls) == 1


def test_extreme_means_give_finite_samples() -> None:
    unit = _unit()
    for part in (unit.mapping, unit.calibration):
        torch.nn.init.normal_(part.last, generator=_generator(1))
    means = 1e4 * torch.rand(2, DIM, generator=_generator())
    samples = pcu.GaussianSampler(unit, means, _root()).draw(10, _generator())
    assert torch.isfinite(samples).all()
