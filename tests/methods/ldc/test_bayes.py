from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fscil_bench.methods.ldc import bayes
from fscil_bench.methods.ldc.bayes import GaussianClassifier, shrunk

DIM, CLASSES = 6, 4


def _drawn(count: int, seed: int) -> torch.Tensor:
    """Return draws (CLASSES, count, DIM) around other means, each class spread in its own way."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(CLASSES, DIM, DIM, generator=generator)
    centres = 2 * torch.randn(CLASSES, 1, DIM, generator=generator)
    return centres + torch.randn(CLASSES, count, DIM, generator=generator) @ mixing


def _factors(count: int = CLASSES) -> torch.Tensor:
    return torch.randn(count, DIM + 1, DIM, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("shrinkage", [1e-6, 0.3, 1.0])
def test_one_covariance_gives_linear_discriminant_analysis(shrinkage: float) -> None:
    samples, queries = _drawn(50, seed=0).double(), _drawn(5, seed=1).flatten(0, 1)
    labels = np.repeat(np.arange(CLASSES), 50)
    theirs = LinearDiscriminantAnalysis("lsqr", shrinkage=shrinkage, priors=[1 / CLASSES] * CLASSES)
    theirs.fit(samples.flatten(0, 1).numpy(), labels)
    deviations = samples - samples.mean(dim=1, keepdim=True)
    # scikit-learn's covariances are divided by the number of samples.
    factor = deviations.flatten(0, 1) / math.sqrt(CLASSES * 50)

    ours = GaussianClassifier.shared(samples.mean(dim=1), factor, shrinkage).scores(queries)

    expected = theirs.decision_function(queries.numpy())
    # What depends on the query alone is in one of them: it decides nothing.
    ours = ours - ours.mean(dim=1, keepdim=True)
    assert np.allclose(ours, expected - expected.mean(axis=1, keepdims=True), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("chunk", [1, 2**20])
def test_scores_are_log_densities(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bayes, "CHUNK_BYTES", chunk)
    means, queries, factors = _drawn(1, 0)[:, 0], _drawn(5, 1).flatten(0, 1), _factors()
    numbers = torch.arange(CLASSES)

    separate = GaussianClassifier.separate(means, lambda _, own: factors[own], numbers, 0.1)
    shared = GaussianClassifier.shared(means, factors[0], 0.1)

    for c in range(CLASSES):
        for classifier, factor in ((separate, factors[c]), (shared, factors[0])):
            covariance = 0.9 * (factor.T @ factor).double().numpy()
            covariance += 0.1 * np.trace(covariance) / 0.9 / DIM * np.eye(DIM)
            expected = multivariate_normal(means[c].numpy(), covariance).logpdf(queries.numpy())
            assert np.allclose(classifier.scores(queries)[:, c], expected, rtol=1e-4)


def test_full_shrinkage_leaves_euclidean_distances() -> None:
    means, queries = _drawn(1, 0)[:, 0], _drawn(5, 1).flatten(0, 1)
    factor = _factors(1)[0]
    scores = GaussianClassifier.shared(means, factor, 1.0).scores(queries)
    variance = float(factor.square().sum()) / DIM
    expected = torch.cdist(queries.double(), means.double()).square() / (-2 * variance)
    torch.testing.assert_close(scores - scores[:, :1], expected - expected[:, :1])


def test_shrinkage_keeps_the_trace_and_makes_a_singular_covariance_regular() -> None:
    row = torch.arange(1.0, 4.0, dtype=torch.float64)[None]
    # Variances 1, 4 and 9 of mean 14/3, all along one direction.
    found = shrunk(row.T @ row, 0.25)
    assert float(found.trace()) == pytest.approx(14)
    values = torch.linalg.eigvalsh(found)
    assert values.tolist() == pytest.approx([14 / 12, 14 / 12, 0.75 * 14 + 14 / 12])
