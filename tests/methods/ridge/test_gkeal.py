from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from fscil_bench.methods.ridge.gkeal import GKEAL, squared_distances
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt

CLASSES = BASE + WAY * SESSIONS


def _kernels(method: GKEAL, features: torch.Tensor) -> np.ndarray:
    found = cdist(features.double(), method.centres.double(), "sqeuclidean")
    return np.exp(-found / (2 * method.sigma**2))


def test_squared_distances_are_scipys() -> None:
    x, c = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (5, 3))
    assert np.allclose(squared_distances(x, c), cdist(x.double(), c.double(), "sqeuclidean"))
    assert squared_distances(x, x).diagonal().abs().max() < 1e-12


def test_scores_are_those_of_the_released_code() -> None:
    # `GaussianKernel` and `RecursiveLinear` of Analytic-continual-learning, commit 0afd6bf, on the
    # same sessions, with the same 30 centres and σ = 5.748643.
    method = learnt(GKEAL, {"centres": 30, "width": 1, "balance": 0})
    expected = [
        [0.963088, -0.014809, -0.079071, 0.074945, -0.000697, 0.041969, 0.004671, -0.049597],
        [-0.055665, 1.086990, -0.012925, -0.062621, -0.039534, -0.039258, 0.021422, -0.029502],
    ]
    assert method.sigma == pytest.approx(5.748643, abs=1e-6)
    found = method.scores(ToyTask().queries())[:2, :8].float()
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)


def test_the_papers_recursion_gives_the_same_scores() -> None:
    # 20 samples of a base class and 3 shots: a share of 0.45 is three copies of each shot.
    params = {"centres": 25, "ridge": 0.3, "balance": 0.45}
    method, task, repeats = learnt(GKEAL, params), ToyTask(), 3
    inverse, weights = np.eye(25) / 0.3, np.zeros((25, CLASSES))
    for number in range(SESSIONS + 1):
        session = task.session(number)
        h, y = _kernels(method, session.features), np.eye(CLASSES)[session.labels]
        for _ in range(repeats if number else 1):
            gain = np.linalg.inv(np.eye(len(h)) + h @ inverse @ h.T)
            inverse = inverse - inverse @ h.T @ gain @ h @ inverse
            weights = weights + inverse @ h.T @ (y - h @ weights)
    queries = task.queries()
    assert np.allclose(method.scores(queries), _kernels(method, queries.features) @ weights)


def test_with_all_base_samples_as_centres_it_is_a_kernel_expansion_of_the_base_session() -> None:
    method, base = learnt(GKEAL, {"width": 1}, sessions=0), ToyTask().session(0)
    assert len(method.centres) == len(base)
    kernel, targets = _kernels(method, base.features), np.eye(BASE)[base.labels]
    weights = np.linalg.lstsq(
        np.concatenate([kernel, np.sqrt(0.1) * np.eye(len(base))]),
        np.concatenate([targets, np.zeros((len(base), BASE))]),
        rcond=None,
    )[0]
    queries = ToyTask().queries()
    expected = _kernels(method, queries.features) @ weights
    assert np.allclose(method.scores(queries), expected, atol=1e-6)


def test_the_width_is_in_medians_of_distances_and_does_not_know_the_unit_of_features() -> None:
    base = ToyTask().session(0).features.double()
    wide, narrow = (learnt(GKEAL, {"width": w}, sessions=0) for w in (1.0, 0.5))
    distances = cdist(base, base)
    assert wide.sigma == pytest.approx(np.median(distances), rel=1e-3)
    assert narrow.sigma == wide.sigma / 2
    assert wide.notes()["sigma"] == wide.sigma


def test_centres_are_base_samples_and_drawn_without_repetition() -> None:
    method = learnt(GKEAL, {"centres": 50})
    base = {tuple(row) for row in ToyTask().session(0).features.tolist()}
    drawn = {tuple(row) for row in method.centres.tolist()}
    assert len(drawn) == 50
    assert drawn <= base
    assert method.state_bytes() == 8 * (50**2 + 50 * CLASSES + 3) + 4 * 50 * DIM
