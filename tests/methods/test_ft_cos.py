from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.methods.ft_cos import FtCos, FtCosParams, fine_tuned
from fscil_bench.testing import ToyTask, learnt

ROOT_HALF = 0.5**0.5


def test_the_first_step_by_hand() -> None:
    # One shot (0, 1); the old row is (1, 0), the new one starts at (1, 1): cosines 0 and √½.
    rows, rivals = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    params = FtCosParams(steps=1, lr=0.5, temperature=2.0)
    found = fine_tuned(rows, rivals, torch.tensor([[0.0, 3.0]]), torch.tensor([1]), params)
    share = float(torch.tensor([0.0, 2 * ROOT_HALF]).softmax(0)[0])  # 1 − p of the right class
    # The gradient of cos at (1, 1) is ((0, 1) − cos·unit row) / ‖row‖ = (−½, ½) / √2.
    move = 0.5 * 2 * share * 0.5 / 2**0.5
    assert found[0].tolist() == pytest.approx([1 - move, 1 + move])
    assert rows.tolist() == [[1.0, 1.0]]


def test_later_steps_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(5)
    rows, rivals, features = (torch.randn(n, 4, generator=generator) for n in (2, 3, 6))
    labels = torch.tensor([3, 4, 3, 4, 3, 4])
    found = fine_tuned(rows, rivals, features, labels, FtCosParams(steps=7, lr=0.3))
    moving = rows.clone().requires_grad_()
    optimiser = torch.optim.SGD([moving], 0.3, momentum=0.9, dampening=0.9, weight_decay=0)
    for _ in range(7):
        optimiser.zero_grad()
        cosines = F.normalize(features, dim=1) @ F.normalize(torch.cat([rivals, moving]), dim=1).T
        F.cross_entropy(16 * cosines, labels).backward()
        optimiser.step()
    assert not torch.allclose(found, rows, atol=0.05)
    torch.testing.assert_close(found, moving.detach(), atol=1e-4, rtol=1e-4)


def test_it_trains_where_gradients_are_switched_off() -> None:
    with torch.no_grad():
        quiet = learnt(FtCos)
    assert torch.equal(quiet.prototypes, learnt(FtCos).prototypes)
    assert not quiet.prototypes.requires_grad


def test_an_episode_is_trained_without_the_base_classes() -> None:
    task, method = ToyTask(), learnt(FtCos, {"lr": 1.0})
    shots, queries = task.episode(0)
    kept = method.prototypes.clone()
    scores = method.episode_scores(shots, queries)
    method.prototypes = torch.rand_like(kept)
    assert torch.equal(method.episode_scores(shots, queries), scores)
    plain = learnt(FtCos, {"steps": 0}).episode_scores(shots, queries)
    assert float((scores - plain).abs().max()) > 1e-3
