from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from fscil_bench.errors import DataError
from fscil_bench.methods._shared import statistics
from fscil_bench.protocol import LabelledSamples, Queries


def _samples(sizes: dict[int, int], dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((n,), c) for c, n in sizes.items()])
    shift = labels[:, None].float()
    return torch.randn(len(labels), dim, generator=generator) + shift, labels


def test_class_means_come_in_the_order_asked_for() -> None:
    features, labels = _samples({4: 3, 7: 5}, dim=2)
    means = statistics.class_means(features, labels, (7, 4))
    assert means.dtype == torch.float64
    assert torch.allclose(means[0], features[labels == 7].double().mean(dim=0))
    assert torch.allclose(means[1], features[labels == 4].double().mean(dim=0))


def test_a_class_without_samples_is_named() -> None:
    features, labels = _samples({0: 3}, dim=2)
    with pytest.raises(DataError, match="class 5"):
        statistics.class_means(features, labels, (0, 5))


def test_within_class_covariance_is_the_mean_of_the_classes_own() -> None:
    features, labels = _samples({0: 6, 1: 20, 2: 3}, dim=4)
    sigma, count = statistics.within_class_covariance(features, labels, (0, 1, 2))
    own = [np.cov(features[labels == c].double().numpy().T) for c in (0, 1, 2)]
    assert count == 3
    assert np.allclose(sigma, np.mean(own, axis=0))


def test_classes_of_one_sample_contribute_nothing() -> None:
    features, labels = _samples({0: 6, 1: 1}, dim=4)
    sigma, count = statistics.within_class_covariance(features, labels, (0, 1))
    assert count == 1
    assert np.allclose(sigma, np.cov(features[labels == 0].double().numpy().T))
    sigma, count = statistics.within_class_covariance(features, labels, (1,))
    assert count == 0
    assert not sigma.any()


def test_tukey_space_is_a_power_and_refuses_negative_features() -> None:
    features = torch.tensor([[0.0, 4.0], [9.0, -0.1], [-1.0, 0.0]])
    samples = LabelledSamples(torch.tensor([2, 3, 4]), {"plain": features})
    with pytest.raises(DataError, match=r"class 3: row 1 \(and 1 more rows\).*space=raw"):
        statistics.in_space(samples, "tukey", 0.5)
    queries = Queries({"plain": features[:1]})
    assert statistics.in_space(queries, "tukey", 0.5).tolist() == [[0.0, 2.0]]
    assert torch.equal(statistics.in_space(queries, "tukey", 1.0), features[:1])


def test_whitening_a_singular_covariance_raises_its_eigenvalues() -> None:
    rows = torch.tensor([[1.0, 0, 0, 2], [0, 1, 0, -1]]).double()  # rank 2 of 4
    factor, raised = statistics.whitening(rows.T @ rows)
    assert raised == 2
    values = torch.linalg.eigvalsh(factor @ factor.T).flip(0)
    kept = torch.linalg.eigvalsh(rows @ rows.T)
    assert (1 / values)[2:].tolist() == pytest.approx(kept.tolist())
    assert (1 / values)[:2].tolist() == pytest.approx([1e-6 * float(kept.mean())] * 2)


@pytest.mark.parametrize("chunk", [1, 64 * 2**20])
@pytest.mark.parametrize("shared", [True, False])
def test_distances_are_scipys(shared: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "CHUNK_BYTES", chunk)
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(9, 5, generator=generator).double()
    means = torch.randn(4, 5, generator=generator).double()
    rows = torch.randn(4, 5, 40, generator=generator).double()
    matrices = [rows[0 if shared else c].cov() for c in range(4)]
    factors = torch.stack([statistics.whitening(each)[0] for each in matrices])
    found = statistics.squared_distances(queries, means, factors[:1] if shared else factors)
    for column, (mean, matrix) in enumerate(zip(means, matrices, strict=True)):
        expected = cdist(queries, mean[None], "mahalanobis", VI=np.linalg.inv(matrix)) ** 2
        assert np.allclose(found[:, column : column + 1], expected)
