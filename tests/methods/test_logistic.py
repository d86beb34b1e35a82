from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fscil_bench.methods._shared.softmax import Fit, fit_logistic
from fscil_bench.methods.logistic import Logistic
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask, learnt


def test_a_base_classs_mean_counts_as_often_as_a_new_class_has_shots() -> None:
    method, task = learnt(Logistic), ToyTask()
    samples, labels = [], []
    for number in range(SESSIONS + 1):
        session = task.session(number)
        for c in session.class_ids:
            own = session.features[session.labels == c].double()
            samples.append(own if number else own.mean(dim=0).expand(3, -1))
            labels += [c] * 3
    copied = fit_logistic(torch.cat(samples), torch.tensor(labels), BASE + WAY * SESSIONS, 1.0)
    assert torch.allclose(method.weights.double(), copied.weights, atol=1e-3)
    assert torch.allclose(method.intercept.double(), copied.intercept, atol=1e-3)


def test_it_stores_means_shots_and_the_classifier() -> None:
    classes, samples, dim = BASE + WAY * SESSIONS, BASE + 3 * WAY * SESSIONS, 16
    assert learnt(Logistic).state_bytes() == 4 * (samples * (dim + 1) + classes * (dim + 1))


def test_an_episode_is_scikit_learns_regression_on_the_shots() -> None:
    method, task = learnt(Logistic, sessions=0), ToyTask()
    shots, queries = task.episode(0)
    scores = method.episode_scores(shots, queries)
    theirs = LogisticRegression(tol=1e-8, max_iter=5000).fit(shots.features, shots.labels)
    expected = theirs.decision_function(queries.features)
    ours = scores - scores.mean(dim=1, keepdim=True)
    assert np.allclose(ours, expected - expected.mean(axis=1, keepdims=True), atol=1e-2)


def test_a_fit_that_stops_early_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    from fscil_bench.methods import logistic

    assert learnt(Logistic).notes() == {"fits_not_converged": 0}

    def hasty(*args: Any) -> Fit:
        return fit_logistic(*args, max_steps=1)

    monkeypatch.setattr(logistic, "fit_logistic", hasty)
    assert learnt(Logistic).notes() == {"fits_not_converged": 3}
