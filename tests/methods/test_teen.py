from __future__ import annotations

import torch
from torch.nn import functional as F

from fscil_bench.methods.teen import TEEN, TEENParams, calibrated
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt

NEW = torch.tensor([[0.0, 0.0, 5.0], [2.0, 1.0, 1.0]])
DONORS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 4.0, 3.0]])


def test_a_prototype_by_hand() -> None:
    # c = (0, 0, 1); cosines with the unit donors (1,0,0), (0,1,0), (0,.8,.6) are 0, 0, .6.
    weights = torch.tensor([0.0, 0.0, 0.6 * 5]).softmax(0)
    mixed = weights[0] * torch.tensor([1.0, 0, 0]) + weights[1] * torch.tensor([0, 1.0, 0])
    mixed += weights[2] * torch.tensor([0, 0.8, 0.6])
    expected = 0.7 * torch.tensor([0.0, 0, 1]) + 0.3 * mixed / mixed.norm()
    torch.testing.assert_close(calibrated(NEW, DONORS, 0.3, 5.0)[0], expected)


def test_kappa_0_borrows_the_mean_of_the_unit_base_prototypes() -> None:
    mean = F.normalize(DONORS, dim=1).mean(dim=0)
    found = calibrated(NEW, DONORS, 1.0, 0.0)
    torch.testing.assert_close(found, F.normalize(mean, dim=0).expand(2, 3))


def test_a_large_kappa_borrows_the_nearest_base_prototype() -> None:
    found = calibrated(NEW, DONORS, 1.0, 1e4)
    nearest = (F.normalize(NEW, dim=1) @ F.normalize(DONORS, dim=1).T).argmax(dim=1)
    assert nearest.tolist() == [2, 0]
    torch.testing.assert_close(found, F.normalize(DONORS, dim=1)[nearest])


def test_only_base_classes_lend() -> None:
    task, method, other = ToyTask(), TEEN(TEENParams(), ToyTask().context(TEEN)), learnt(TEEN)
    method.learn_base(task.session(0))
    method.learn_session(task.session(2))  # the second session's classes, without the first's
    assert torch.equal(method.prototypes[BASE:], other.prototypes[BASE + WAY :])


def test_a_restored_state_knows_which_classes_lend() -> None:
    task, method = ToyTask(), learnt(TEEN)
    state = method.state_dict()
    assert [len(state[n]) for n in ("base_prototypes", "new_prototypes")] == [BASE, WAY * SESSIONS]
    other = TEEN(TEENParams(), task.context(TEEN))
    other.load_state_dict(state)
    shots, queries = task.episode(1)
    found, expected = (each.episode_scores(shots, queries) for each in (other, method))
    assert torch.equal(found, expected)
    assert method.state_bytes() == 4 * (BASE + WAY * SESSIONS) * DIM


def test_an_episode_borrows_from_the_base_classes() -> None:
    task = ToyTask()
    shots, queries = task.episode(0)
    means = torch.stack([shots.features[shots.labels == c].mean(dim=0) for c in shots.class_ids])
    method = learnt(TEEN, {"alpha": 0.4})
    rows = calibrated(means, method.prototypes[:BASE], 0.4, 16.0)
    expected = F.normalize(queries.features, dim=1) @ F.normalize(rows, dim=1).T
    torch.testing.assert_close(method.episode_scores(shots, queries), expected)
