from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fscil_bench.methods._shared.cosine import cosine_logits
from fscil_bench.methods.ldc import classifier
from fscil_bench.methods.ldc.params import LdcParams
from fscil_bench.methods.ldc.sampler import GaussianSampler
from fscil_bench.methods.ldc.unit import CalibrationUnit, UnitShape

DIM, CLASSES, FIRST_NEW = 16, 7, 5
PARAMS = LdcParams(epochs=5, samples_per_class=6, batch_size=10, lr=0.05, few_shot_weight=0.4)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _sampler(means: torch.Tensor) -> GaussianSampler:
    unit = CalibrationUnit(UnitShape(False, 0, 4, 1), _generator())
    return GaussianSampler(unit, means, lambda w, _: 0.5 * torch.eye(DIM).expand(len(w), -1, -1))


def _task() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return class means, and shots with their rows for the classes from FIRST_NEW on."""
    means = torch.rand(CLASSES, DIM, generator=_generator(1))
    targets = torch.arange(FIRST_NEW, CLASSES).repeat_interleave(3)
    shots = means[targets] + 0.3 * torch.randn(len(targets), DIM, generator=_generator(2))
    return means, shots, targets


def _trained(params: LdcParams) -> tuple[torch.Tensor, list[float]]:
    means, shots, targets = _task()
    return classifier.train_classifier(
        means, FIRST_NEW, _sampler(means), shots, targets, params, _generator(3)
    )


def _by_autograd(params: LdcParams) -> torch.Tensor:
    """Return the rows that plain gradient descent on the written-out objective gives."""
    means, shots, targets = _task()
    sampler, generator = _sampler(means), _generator(3)
    rows = F.normalize(means, dim=1)
    for _ in range(params.epochs):
        pool = sampler.draw(params.samples_per_class, generator)
        draws = torch.rand(params.samples_per_class, CLASSES, generator=generator)
        order = draws.argsort(dim=1)
        for x, y in classifier.balanced_batches(pool, order, params.batch_size):
            rows.requires_grad_()
            sampled = F.cross_entropy(cosine_logits(x, rows, params.temperature), y)
            few = F.cross_entropy(cosine_logits(shots, rows, params.temperature), targets)
            loss = params.sampled_weight * sampled + params.few_shot_weight * few
            (gradient,) = torch.autograd.grad(loss, rows)
            rows = rows.detach() - params.lr * gradient
    return F.normalize(rows, dim=1) * means.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("few_shot_weight", [0.0, 0.4])
@pytest.mark.parametrize("sampled_weight", [0.5, 1.0])
def test_training_is_gradient_descent_on_both_terms(
    sampled_weight: float, few_shot_weight: float
) -> None:
    params = replace(PARAMS, sampled_weight=sampled_weight, few_shot_weight=few_shot_weight)
    rows, losses = _trained(params)
    assert torch.allclose(rows, _by_autograd(params), atol=1e-5)
    assert not torch.allclose(rows, _task()[0], atol=0.01)
    assert len(losses) == params.epochs


def test_epochs_computed_together_are_those_computed_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together, losses = _trained(replace(PARAMS, samples_per_class=4))
    monkeypatch.setattr(classifier, "BLOCK_BYTES", 1)
    one_by_one, same = _trained(replace(PARAMS, samples_per_class=4))
    assert torch.allclose(together, one_by_one, atol=1e-5)
    assert losses == pytest.approx(same, rel=1e-4)


@pytest.mark.parametrize("train_rows", ["new", "all"])
def test_old_rows_move_only_where_all_are_trained(train_rows: str) -> None:
    means = _task()[0]
    rows, _ = _trained(replace(PARAMS, train_rows=train_rows))
    moved = (rows - means).abs().amax(dim=1) > 1e-3
    assert moved[FIRST_NEW:].all()
    assert bool(moved[:FIRST_NEW].any()) == (train_rows == "all")


def test_batches_are_balanced_and_use_each_sample_once() -> None:
    pool = torch.arange(5 * 4, dtype=torch.float32).view(5, 4, 1)
    order = torch.rand(4, 5, generator=_generator()).argsort(dim=1)
    features, labels = zip(*classifier.balanced_batches(pool, order, 5), strict=True)
    assert len(features) == 4
    assert all(sorted(part.tolist()) == [0, 1, 2, 3, 4] for part in labels)
    assert torch.equal(torch.cat(features).flatten().sort().values, pool.flatten())
    assert torch.equal(torch.cat(features).flatten() // 4, torch.cat(labels).float())
