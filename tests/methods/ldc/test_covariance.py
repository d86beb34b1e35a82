from __future__ import annotations

import numpy as np
import pytest
import torch

from fscil_bench.methods.ldc.covariance import (
    BorrowedCovariances,
    Repairs,
    SharedCovariance,
    symmetric_root,
    update_covariance,
)
from fscil_bench.methods.ldc.unit import CalibrationUnit, UnitShape

DIM, BASE = 4, 5
PLAIN = UnitShape(mapped=False, steps=0, hidden=4, kernel=1)


def _unit() -> CalibrationUnit:
    return CalibrationUnit(PLAIN, torch.Generator())


def _base(count: int = 30) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    """Return features, labels and ids of classes whose means and spreads grow with their id."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(BASE).repeat_interleave(count)
    noise = torch.randn(len(labels), DIM, generator=generator)
    return labels[:, None] * (1 + 0.1 * noise) + noise, labels, tuple(range(BASE))


def _borrowed(nearest: int = 2) -> tuple[BorrowedCovariances, torch.Tensor]:
    covariances = BorrowedCovariances(nearest, Repairs())
    features, labels, ids = _base()
    covariances.learn_base(features, labels, ids)
    return covariances, torch.stack([features[labels == c].mean(dim=0) for c in ids])


def _made(factors: torch.Tensor) -> torch.Tensor:
    return factors.mT @ factors


def test_shared_factor_is_the_root_of_the_mean_covariance() -> None:
    covariances = SharedCovariance("within", Repairs())
    features, labels, ids = _base()
    covariances.learn_base(features, labels, ids)
    each = torch.stack([torch.cov(features[labels == c].T) for c in ids])
    found = covariances.factors(_unit(), torch.empty(0))(torch.rand(2, DIM), torch.arange(2))
    assert torch.allclose(_made(found), each.mean(dim=0).expand(2, -1, -1), atol=1e-4)


def test_base_classes_have_their_own_covariance() -> None:
    covariances, means = _borrowed()
    features, labels, ids = _base()
    found = _made(covariances.factors(_unit(), means)(means, torch.arange(BASE)))
    each = torch.stack([torch.cov(features[labels == c].T) for c in ids])
    assert torch.allclose(found, each, atol=1e-4)
    assert torch.allclose(covariances.state_dict()["base_covariances"], each, atol=1e-4)


@pytest.mark.parametrize(("nearest", "lenders"), [(1, [3]), (2, [3, 2]), (5, [0, 1, 2, 3, 4])])
def test_new_classes_borrow_the_mean_of_the_nearest(nearest: int, lenders: list[int]) -> None:
    covariances, means = _borrowed(nearest)
    near_three = (0.6 * means[3] + 0.4 * means[2])[None]
    found = _made(covariances.factors(_unit(), means)(near_three, torch.tensor([BASE])))
    stored = covariances.state_dict()["base_covariances"]
    assert torch.allclose(found[0], stored[lenders].mean(dim=0), atol=1e-4)


def test_a_base_class_of_one_sample_has_the_others_mean() -> None:
    features, labels, ids = _base()
    keep = (labels != 1) | (torch.arange(len(labels)) == 30)
    covariances = BorrowedCovariances(2, Repairs())
    covariances.learn_base(features[keep], labels[keep], ids)
    stored = covariances.state_dict()["base_covariances"]
    assert torch.allclose(stored[1], stored[[0, 2, 3, 4]].mean(dim=0), atol=1e-5)
    assert covariances.repairs.classes_without_covariance == 1


@pytest.mark.parametrize("ways", [(3,), (1, 1, 1), (5, 2, 7, 1), (2, 10)])
def test_recursion_is_the_class_weighted_mean_for_any_sequence(ways: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(ways))
    each = [torch.from_numpy(np.cov(rng.normal(size=(3, 8)))) for _ in range(sum(ways))]
    sigma, seen = torch.stack(each[: ways[0]]).mean(dim=0), ways[0]
    for way in ways[1:]:
        session = torch.stack(each[seen : seen + way]).mean(dim=0)
        sigma = update_covariance(sigma, seen, session, way)
        seen += way
    assert torch.allclose(sigma, torch.stack(each).mean(dim=0))


def test_the_largest_raise_is_a_fraction_of_the_mean_eigenvalue() -> None:
    root = symmetric_root(torch.diag(torch.tensor([5.0, 1.0, -0.6])))
    assert root.raised == 1
    assert root.largest_raise == pytest.approx(0.6 / 1.8, rel=1e-4)
    assert symmetric_root(torch.eye(3)).largest_raise == 0
