from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fscil_bench.methods.ridge import ranpac
from fscil_bench.methods.ridge.ranpac import (
    RIDGES,
    CalibratedParams,
    RanPAC,
    RanPACCalibrated,
    RanPACParams,
    calibrated,
    root,
)
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt, start

CLASSES = BASE + WAY * SESSIONS


def _expanded(method: RanPAC, features: torch.Tensor) -> np.ndarray:
    return np.maximum(features.double().numpy() @ method.projection.double().numpy(), 0)


def _all_sessions(last: int = SESSIONS) -> tuple[torch.Tensor, torch.Tensor]:
    sessions = [ToyTask().session(t) for t in range(last + 1)]
    return torch.cat([s.features for s in sessions]), torch.cat([s.labels for s in sessions])


def test_sessions_give_what_all_samples_at_once_would_give() -> None:
    method, queries = learnt(RanPAC, {"projections": 40}), ToyTask().queries()
    features, labels = _all_sessions()
    h, y = _expanded(method, features), np.eye(CLASSES)[labels]
    weights = np.linalg.solve(h.T @ h + method.ridge * np.eye(40), h.T @ y)
    assert np.allclose(
        method.scores(queries), _expanded(method, queries.features) @ weights, atol=1e-5
    )


def test_without_a_projection_it_is_ridge_regression_on_the_features() -> None:
    method, queries = learnt(RanPAC, {"projections": 0, "ridge": 3.0}), ToyTask().queries()
    features, labels = _all_sessions()
    x, y = features.double().numpy(), np.eye(CLASSES)[labels]
    weights = np.linalg.solve(x.T @ x + 3 * np.eye(DIM), x.T @ y)
    assert np.allclose(method.scores(queries), queries.features.double().numpy() @ weights)
    assert method.state_bytes() == 8 * (DIM**2 + DIM * CLASSES + 1)


@pytest.mark.parametrize(
    ("projections", "expected"),
    [
        (0, [[0.93876, -0.01906, -0.10848, 0.10781], [-0.04969, 1.17529, 0.04361, -0.04336]]),
        (40, [[0.94368, 0.01572, -0.03824, 0.10922], [0.07873, 1.16824, 0.00703, -0.03450]]),
    ],
)
def test_base_scores_are_those_of_the_released_code(
    projections: int, expected: list[list[float]]
) -> None:
    # `Learner.replace_fc` of RanPAC, commit 012927f, on the same samples in the same order and with
    # the same projection; it chose λ = 10.
    method = learnt(RanPAC, {"projections": projections}, sessions=0)
    assert method.notes() == {"ridge": 10.0, "ridge_raised": 0}
    found = method.scores(ToyTask().queries())[:2, :4].float()
    torch.testing.assert_close(found, torch.tensor(expected), atol=2e-4, rtol=0)


def test_projections_are_sixteen_a_dimension_up_to_the_published_number() -> None:
    sizes = [RanPACParams().expansion(dim) for dim in (64, 625, 768)]
    assert sizes == [1_024, 10_000, 10_000]
    assert RanPACParams(projections=0).expansion(64) == 0


@pytest.mark.parametrize("projections", [7, 40, 500])
def test_ridge_has_the_least_error_on_the_judged_fifth(projections: int) -> None:
    # With 500 projections of 96 fitted samples the weights come from the matrix of samples.
    method = learnt(RanPAC, {"projections": projections}, sessions=0)
    base = ToyTask().session(0)
    order = torch.randperm(120, generator=ToyTask().context(RanPAC).random.torch("validation"))
    h, y = _expanded(method, base.features)[order], np.eye(BASE)[base.labels[order]]
    errors = []
    for ridge in RIDGES[:12]:
        gram = h[:96].T @ h[:96] + ridge * np.eye(projections)
        weights = np.linalg.solve(gram, h[:96].T @ y[:96])
        errors.append(np.square(h[96:] @ weights - y[96:]).mean())
    assert method.ridge == RIDGES[int(np.argmin(errors))]


def test_a_ridge_too_small_to_solve_with_is_raised_and_noted() -> None:
    method = learnt(RanPAC, {"projections": 300, "ridge": 1e-30}, sessions=0)
    notes = method.notes()
    assert notes["ridge_raised"] == round(np.log10(notes["ridge"] / 1e-30)) > 0  # type: ignore[operator]
    assert torch.isfinite(method.weights).all()


def test_the_projection_differs_between_seeds_of_a_run() -> None:
    task, drawn = ToyTask(), []
    for method in (RanPAC, RanPACCalibrated):  # contexts of other axes
        made = start(task, method, method.Params(projections=5))
        made.learn_base(task.session(0))
        drawn.append(made.projection)
    assert drawn[0].shape == (DIM, 5)
    assert not torch.equal(*drawn)


# Calibration.


def test_calibration_by_hand() -> None:
    means = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    covariances = torch.stack([torch.eye(2), torch.diag(torch.tensor([3.0, 5.0]))])
    shots = torch.tensor([[2.0, 1.0], [4.0, 3.0]])  # mean (3, 2), covariance 2·11ᵀ
    cosines = np.array([3, 2]) / np.sqrt(13)
    s = np.exp(4 * cosines) / np.exp(4 * cosines).sum()
    params = CalibratedParams(alpha=0.6, beta=0.3, kappa=4.0)
    mean, spread = calibrated(shots, means, covariances, params)
    assert np.allclose(mean, 0.6 * np.array([3, 2]) + 0.4 * np.array([2 * s[0], s[1]]))
    borrowed = np.diag([s[0] + 3 * s[1], s[0] + 5 * s[1]])
    assert np.allclose(spread, 0.3 * (borrowed + 2 * np.ones((2, 2))))
    _, alone = calibrated(shots[:1], means, covariances, params)
    s = np.exp(4 * np.array([2, 1]) / np.sqrt(5))
    s /= s.sum()
    assert np.allclose(alone, 0.6 * np.diag([s[0] + 3 * s[1], s[0] + 5 * s[1]]))


def test_calibration_is_that_of_the_released_code() -> None:
    # `Learner.replace_fc` of FSCIL-Calibration, commit fc4c232, with calibration, α 0.9 and β 0.5.
    # Means have length 1 here, so that its dot products are cosines.
    random = np.random.default_rng(0)
    centres = random.random((4, 6)) + 0.1

    def drawn(count: int) -> list[torch.Tensor]:
        rows = [c * (1 + 0.3 * random.standard_normal((count, 6))) for c in centres]
        return [torch.from_numpy(x / np.linalg.norm(x.mean(axis=0))).float() for x in rows]

    base, shots = drawn(8)[:3], drawn(5)[3]
    means = torch.stack([x.mean(dim=0) for x in base])
    covariances = torch.stack([x.T.cov() for x in base])
    mean, spread = calibrated(shots, means, covariances, CalibratedParams())
    expected = [0.374902, 0.353761, 0.127558, 0.172725, 0.574519, 0.590215]
    assert mean.tolist() == pytest.approx(expected, abs=1e-6)
    variances = [0.0171023, 0.0079477, 0.0026595, 0.0011974, 0.0162031, 0.0119980]
    assert spread.diagonal().tolist() == pytest.approx(variances, abs=1e-7)
    row = [0.0171023, -0.0004873, -0.0005021, -0.0013457, 0.0066390, 0.0028559]
    assert spread[0].tolist() == pytest.approx(row, abs=1e-7)


def test_a_root_of_a_singular_covariance() -> None:
    rows = torch.tensor([[1.0, 0, 2], [0, 1, -1]]).double()
    found = root(rows.T @ rows)
    torch.testing.assert_close(found @ found.T, rows.T @ rows)


def test_new_classes_enter_as_samples_of_their_calibrated_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params: dict[str, Any] = {"projections": 0, "ridge": 1.0, "samples_per_class": 40_000}
    before = learnt(RanPACCalibrated, params, sessions=0)
    after = learnt(RanPACCalibrated, params, sessions=1)
    assert torch.equal(before.means, after.means)
    shots = ToyTask().session(1)
    expected = before.gram.clone()
    for column, c in enumerate(shots.class_ids, start=BASE):
        own = shots.features[shots.labels == c]
        mean, spread = calibrated(own, before.means, before.covariances, before.params)
        expected += 40_000 * (spread + mean.outer(mean))
        torch.testing.assert_close(after.moments[:, column] / 40_000, mean, atol=0.05, rtol=0)
    torch.testing.assert_close(after.gram / 40_000, expected / 40_000, atol=0.2, rtol=0)
    # Without noise, a new class is its mean, as often as it is drawn.
    monkeypatch.setattr(ranpac, "root", torch.zeros_like)
    exact = learnt(RanPACCalibrated, params, sessions=1)
    mean, _ = calibrated(
        shots.features[shots.labels == BASE], before.means, before.covariances, before.params
    )
    torch.testing.assert_close(exact.moments[:, BASE], 40_000 * mean, rtol=1e-5, atol=0)


def test_it_stores_what_the_docstrings_say() -> None:
    sums = 8 * (40**2 + 40 * CLASSES + 1) + 4 * DIM * 40
    assert learnt(RanPAC, {"projections": 40}).state_bytes() == sums
    calibration = 4 * (BASE * DIM + BASE * DIM**2)
    assert learnt(RanPACCalibrated, {"projections": 40}).state_bytes() == sums + calibration
