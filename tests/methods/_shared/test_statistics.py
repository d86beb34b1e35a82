from __future__ import annotations

import numpy as np
import pytest
import torch

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
