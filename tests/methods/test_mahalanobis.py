from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch.nn import functional as F

from fscil_bench.methods.mahalanobis import (
    Mahalanobis,
    MahalanobisParams,
    correlation,
    shrunk,
)
from fscil_bench.methods.ncm import NCM
from fscil_bench.protocol import Session
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt, start

CLASSES = BASE + WAY * SESSIONS


def _units(features: torch.Tensor) -> np.ndarray:
    """Return features in the default space (n, D), float64."""
    return F.normalize(features.double().sqrt(), dim=1).numpy()


def _by_class(session: Session) -> list[np.ndarray]:
    return [_units(session.features[session.labels == c]) for c in session.class_ids]


def _random_covariance(seed: int = 0, size: int = 5) -> torch.Tensor:
    rows = torch.randn(40, size, generator=torch.Generator().manual_seed(seed)).double()
    return (rows @ torch.linspace(0.3, 2, size).double().diag()).T.cov()


# Covariances.


def test_shrinkage_by_hand() -> None:
    matrix = torch.tensor([[4.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 3.0]])
    # V1 = 3, V2 = 2·(1 + 0 + 0.5)/6 = 0.5
    expected = matrix + 2 * 3 * torch.eye(3) + 4 * 0.5 * (1 - torch.eye(3))
    torch.testing.assert_close(shrunk(matrix, 2.0, 4.0), expected)


def test_shrinkage_where_there_is_one_dimension_or_no_variance() -> None:
    assert shrunk(torch.tensor([[3.0]]), 1.0, 1.0).tolist() == [[6.0]]
    assert torch.equal(shrunk(torch.zeros(3, 3), 1.0, 1.0), torch.eye(3))


def test_a_correlation_matrix_does_not_know_units() -> None:
    matrix, units = _random_covariance(), torch.tensor([1.0, 10, 0.1, 3, 7]).double()
    expected = torch.from_numpy(np.corrcoef(np.linalg.cholesky(matrix.numpy())))
    found = correlation(matrix)
    assert found.diagonal().tolist() == pytest.approx([1] * 5)
    torch.testing.assert_close(correlation(units[:, None] * matrix * units), found)
    assert not torch.allclose(found, expected)  # rows' correlations are another thing
    dead = matrix.clone()
    dead[2], dead[:, 2] = 0, 0
    assert correlation(dead)[2].tolist() == [0] * 5


def test_scores_of_a_shared_covariance_from_first_principles() -> None:
    task, method = ToyTask(), learnt(Mahalanobis, {"gamma1": 0.5, "gamma2": 0.25})
    samples = [rows for t in range(SESSIONS + 1) for rows in _by_class(task.session(t))]
    within = torch.from_numpy(np.mean([np.cov(rows.T) for rows in samples[:BASE]], axis=0))
    inverse = np.linalg.inv(shrunk(within, 0.5, 0.25))
    means = F.normalize(torch.tensor(np.stack([rows.mean(axis=0) for rows in samples])), dim=1)
    expected = cdist(_units(task.queries().features), means, "mahalanobis", VI=inverse) ** 2
    scores = method.scores(task.queries())
    assert np.allclose(scores, -expected / DIM, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("use_correlation", [True, False])
@pytest.mark.parametrize("borrowed", [0.0, 0.3, 1.0])
def test_scores_of_covariances_of_their_own(borrowed: float, use_correlation: bool) -> None:
    settings = {"borrowed": borrowed, "kappa": 7.0, "correlation": use_correlation}
    task, method = ToyTask(), learnt(Mahalanobis, {"covariance": "per_class"} | settings)
    samples = [rows for t in range(SESSIONS + 1) for rows in _by_class(task.session(t))]
    means = np.stack([rows.mean(axis=0) for rows in samples])
    units = means / np.linalg.norm(means, axis=1, keepdims=True)  # as in FeCAM's code
    own = [np.cov(rows.T) for rows in samples]
    scores, queries = method.scores(task.queries()), _units(task.queries().features)
    for c in range(CLASSES):
        matrix = own[c]
        if c >= BASE:
            weights = np.exp(7 * units[:BASE] @ units[c])
            lent = np.tensordot(weights / weights.sum(), own[:BASE], axes=1)
            matrix = borrowed * lent + (1 - borrowed) * own[c]
        matrix = shrunk(torch.from_numpy(matrix), 1.0, 1.0)
        inverse = np.linalg.inv(correlation(matrix) if use_correlation else matrix)
        expected = cdist(queries, units[c : c + 1], "mahalanobis", VI=inverse)[:, 0] ** 2
        assert np.allclose(scores[:, c], -expected / DIM, rtol=1e-3, atol=1e-4)


# The method.


@pytest.mark.parametrize(
    ("params", "floats"),
    [
        ({"covariance": "shared"}, CLASSES * DIM + DIM**2),
        ({"covariance": "per_class", "borrowed": 1}, CLASSES * DIM + BASE * DIM**2),
        (
            {"covariance": "per_class"},
            CLASSES * DIM + BASE * DIM**2 + WAY * SESSIONS * 3 * (DIM + 1),
        ),
    ],
)
def test_it_stores_what_the_docstring_says(params: dict[str, Any], floats: int) -> None:
    assert learnt(Mahalanobis, params).state_bytes() == 4 * floats


def test_a_class_of_one_shot_borrows_its_whole_covariance() -> None:
    task = ToyTask(shot=1)
    half, whole = (
        learnt(Mahalanobis, {"covariance": "per_class", "borrowed": part}, shot=1)
        for part in (0.5, 1)
    )
    assert torch.equal(half.scores(task.queries()), whole.scores(task.queries()))
    assert half.notes() == {
        "eigenvalues_raised": 0,
        "classes_without_covariance": WAY * SESSIONS,
        "space": "tukey",
    }
    assert half.state_bytes() == whole.state_bytes()


def test_a_base_class_of_one_sample_has_the_mean_of_the_others() -> None:
    base = ToyTask().session(0)
    kept = torch.ones(len(base), dtype=torch.bool)
    kept[(base.labels == 2).nonzero()[1:]] = False
    method = start(ToyTask(), Mahalanobis, MahalanobisParams(covariance="per_class"))
    method.learn_base(replace(base, labels=base.labels[kept], views={"plain": base.features[kept]}))
    others = method.covariances[[0, 1, 3, 4, 5]].mean(dim=0)
    torch.testing.assert_close(method.covariances[2], others)
    assert method.notes()["classes_without_covariance"] == 1


@pytest.mark.parametrize("covariance", ["shared", "per_class"])
def test_without_any_covariance_it_is_nearest_class_mean(
    covariance: Literal["shared", "per_class"],
) -> None:
    task, one = ToyTask(queries=60), ToyTask().session(0)
    first = torch.stack([(one.labels == c).nonzero()[0, 0] for c in one.class_ids])
    base = replace(one, labels=one.labels[first], views={"plain": one.features[first]})
    method = start(task, Mahalanobis, MahalanobisParams(covariance=covariance))
    means = start(task, NCM, NCM.Params(space="tukey"))
    for each in (method, means):
        each.learn_base(base)
    found, expected = method.scores(task.queries()), means.scores(task.queries())
    torch.testing.assert_close(-found * DIM, 2 - 2 * expected, atol=1e-5, rtol=1e-4)


def test_repairs_are_noted() -> None:
    method = learnt(
        Mahalanobis, {"covariance": "per_class", "borrowed": 0, "gamma1": 0, "gamma2": 0}
    )
    # The shots of each new class, 3, span 2 of the 16 dimensions.
    assert method.notes()["eigenvalues_raised"] == WAY * SESSIONS * (DIM - 2)


def test_an_episode_is_scored_as_a_first_session_would_be() -> None:
    task = ToyTask()
    shots, queries = task.episode(0)
    for covariance in ("shared", "per_class"):
        method = learnt(Mahalanobis, {"covariance": covariance}, sessions=0)
        found = method.episode_scores(shots, queries)
        method.learn_session(shots)
        torch.testing.assert_close(found, method.scores(queries)[:, BASE:])
