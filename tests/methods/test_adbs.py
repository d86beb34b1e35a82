from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize

from fscil_bench.methods.adbs import ADBS, ADBSParams, base_scales, scaled_loss, trained
from fscil_bench.methods.ncm import NCM
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt

ROWS = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
SCALES = torch.tensor([1.0, 0.9, 1.3])


def test_the_constraint_is_that_of_the_released_code() -> None:
    # `diff_loss_w` of ADBS, commit a09f41e, gives these differences for the rows and scales.
    short = [[0.0, 0.1, -0.3], [-0.06, 0.0, -0.38], [0.0, 0.34, 0.0]]
    cosines, labels = torch.zeros(1, 3), torch.tensor([1])
    found = scaled_loss(SCALES, cosines, labels, ROWS @ ROWS.T, ADBSParams(constraint=2.0))
    expected = np.log(3) + 2 * np.maximum(short, 0).mean()
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_equal_scales_of_at_least_1_keep_prototypes_as_far_apart_as_they_were() -> None:
    between = ROWS @ ROWS.T
    for scale, far in ((1.0, 0.0), (1.5, 0.0), (0.8, 0.2 * (1 - between).mean())):
        loss = [
            scaled_loss(
                torch.full((3,), scale), torch.zeros(1, 3), torch.tensor([0]), between, params
            )
            for params in (ADBSParams(constraint=1.0), ADBSParams(constraint=0.0))
        ]
        assert float(loss[0] - loss[1]) == pytest.approx(float(far), abs=1e-6)


def test_scales_of_sessions_are_those_of_the_released_code() -> None:
    # `new_train` of ADBS, commit a09f41e, from the same base scales on the same features.
    expected = [2.4509552, 2.4446580, 2.4460719, 2.4466944]
    found = learnt(ADBS, {"steps": 10, "lr": 0.01}).scales[BASE:]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_a_step_is_that_of_pytorchs_sgd() -> None:
    generator = torch.Generator().manual_seed(0)
    cosines, labels = torch.rand(4, 3, generator=generator), torch.tensor([1, 2, 2, 1])
    new = torch.nn.Parameter(SCALES[1:].clone())
    optimiser = torch.optim.SGD([new], lr=0.3, momentum=0.9, dampening=0.9)
    params = ADBSParams(steps=5, lr=0.3)
    for _ in range(5):
        optimiser.zero_grad()
        scaled_loss(torch.cat([SCALES[:1], new]), cosines, labels, ROWS @ ROWS.T, params).backward()
        optimiser.step()
    found = trained(SCALES[1:], SCALES[:1], cosines, labels, ROWS, params)
    torch.testing.assert_close(found, torch.cat([SCALES[:1], new.detach()]))


@pytest.mark.parametrize("constraint", [0.0, 0.5])
def test_base_scales_are_the_optimum(constraint: float) -> None:
    method, base = learnt(ADBS, sessions=0), ToyTask().session(0)
    units = F.normalize(method.prototypes.double(), dim=1)
    cosines = F.normalize(base.features.double(), dim=1) @ units.T
    params = ADBSParams(constraint=constraint)

    def loss(scales: np.ndarray) -> float:
        at = torch.from_numpy(scales)
        value = scaled_loss(at, cosines, base.labels, units @ units.T, params)
        return float(value) + 5e-4 / 2 * float(at.square().sum())

    found, converged = base_scales(cosines.float(), base.labels, method.prototypes, params)
    best = minimize(loss, np.ones(BASE), method="Powell", options={"xtol": 1e-6, "ftol": 1e-12})
    assert converged
    assert loss(found.double().numpy()) == pytest.approx(best.fun, abs=1e-6)
    assert np.allclose(found, best.x, atol=5e-3)


def test_with_equal_scales_it_is_nearest_class_mean() -> None:
    method, means = learnt(ADBS, {"steps": 0}), learnt(NCM)
    queries, classes = ToyTask(queries=200).queries(), BASE + WAY * SESSIONS
    torch.testing.assert_close(
        method.scores(queries), means.scores(queries) * method.scales, rtol=1e-6, atol=1e-6
    )
    # Without steps a new class has the mean of the base scales.
    torch.testing.assert_close(
        method.scales[BASE:], method.scales[:BASE].mean().expand(classes - BASE)
    )
    shots, queries = ToyTask().episode(0)
    found, expected = method.episode_scores(shots, queries), means.episode_scores(shots, queries)
    torch.testing.assert_close(found, method.scales[:BASE].mean() * expected)


def test_scores_of_old_classes_stay_and_the_state_is_prototypes_and_scales() -> None:
    queries = ToyTask().queries()
    before, after = (learnt(ADBS, sessions=n) for n in (0, SESSIONS))
    assert torch.equal(after.scales[:BASE], before.scales)
    torch.testing.assert_close(after.scores(queries)[:, :BASE], before.scores(queries))
    assert after.state_bytes() == 4 * (BASE + WAY * SESSIONS) * (DIM + 1)


def test_an_episodes_scales_are_trained_on_its_shots_alone() -> None:
    shots, queries = ToyTask().episode(0)
    method = learnt(ADBS, {"steps": 20, "lr": 0.1}, sessions=0)
    rows = torch.stack([shots.features[shots.labels == c].mean(dim=0) for c in shots.class_ids])
    cosines = F.normalize(shots.features, dim=1) @ F.normalize(rows, dim=1).T
    start = method.scales.mean().expand(len(rows))
    labels = torch.arange(len(rows)).repeat_interleave(3)
    scales = trained(start, start[:0], cosines, labels, rows, method.params)
    expected = scales * (F.normalize(queries.features, dim=1) @ F.normalize(rows, dim=1).T)
    torch.testing.assert_close(method.episode_scores(shots, queries), expected)
    assert len(method.scales) == BASE
