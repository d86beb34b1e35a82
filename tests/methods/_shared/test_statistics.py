from __future__ import annotations

import numpy as np
import pytest
import torch

from fscil_bench.errors import DataError
from fscil_bench.methods._shared import statistics as statistics


def _samples(sizes: dict[int, int], dim: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((n,), c) for c, n in sizes.items()])
    shift = labels[:, None].float()
    return torch.randn(len(labels), dim, generator=generator) + shift, labels


def test_tukey_is_a_power_and_beta_one_is_the_identity() -> None:
    x = torch.tensor([[0.0, 4.0, 9.0]])
    assert torch.allclose(statistics.tukey(x, 0.5), torch.tensor([[0.0, 2.0, 3.0]]))
    assert torch.equal(statistics.tukey(x, 1.0), x)


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


def test_covariance_is_numpys() -> None:
    features, _ = _samples({0: 9}, dim=3)
    assert np.allclose(statistics.covariance(features), np.cov(features.double().numpy().T))


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


@pytest.mark.parametrize("ways", [(3,), (1, 1, 1), (5, 2, 7, 1), (2, 10)])
def test_recursion_is_the_class_weighted_mean_for_any_sequence(ways: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(ways))
    each = [torch.from_numpy(np.cov(rng.normal(size=(3, 8)))) for _ in range(sum(ways))]
    sigma, seen = torch.stack(each[: ways[0]]).mean(dim=0), ways[0]
    for way in ways[1:]:
        session = torch.stack(each[seen : seen + way]).mean(dim=0)
        sigma = statistics.update_covariance(sigma, seen, session, way)
        seen += way
    assert torch.allclose(sigma, torch.stack(each).mean(dim=0))


def test_nothing_new_leaves_the_covariance_as_it_is() -> None:
    old = torch.eye(2, dtype=torch.float64)
    assert torch.equal(statistics.update_covariance(old, 3, torch.zeros(2, 2), 0), old)


def test_symmetric_root_squares_to_the_covariance() -> None:
    features, _ = _samples({0: 50}, dim=6)
    sigma = statistics.covariance(features)
    root = statistics.symmetric_root(sigma)
    assert root.raised == 0
    assert torch.allclose(root.matrix, root.matrix.T)
    assert torch.allclose(root.matrix @ root.matrix, sigma)


def test_root_of_a_rank_deficient_covariance_is_repaired_and_counted() -> None:
    features, _ = _samples({0: 4}, dim=10)
    sigma = statistics.covariance(features).float()
    root = statistics.symmetric_root(sigma)
    assert root.raised == 7
    assert root.largest_raise == pytest.approx(1e-6, rel=0.5)
    assert torch.allclose(root.matrix @ root.matrix, sigma.double(), atol=1e-5)
    assert torch.isfinite(root.matrix).all()


def test_the_largest_raise_is_a_fraction_of_the_mean_eigenvalue() -> None:
    root = statistics.symmetric_root(torch.diag(torch.tensor([5.0, 1.0, -0.6])))
    assert root.raised == 1
    assert root.largest_raise == pytest.approx(0.6 / 1.8, rel=1e-4)
    assert statistics.symmetric_root(torch.eye(3)).largest_raise == 0


def test_repairs_keep_the_most_of_each_and_name_a_size_only_where_there_is_one() -> None:
    repairs = statistics.Repairs()
    repairs.rooted(statistics.symmetric_root(torch.eye(3)))
    assert repairs.notes() == {"eigenvalues_raised": 0, "classes_without_covariance": 0}
    for values in ([1.0, 1.0, -1.0, 1.0], [4.0, 0.0, 0.0, 0.0]):
        repairs.rooted(statistics.symmetric_root(torch.diag(torch.tensor(values))))
    assert repairs.notes()["eigenvalues_raised"] == 3
    assert repairs.notes()["largest_raise"] == 2.0


def test_root_of_nothing_is_finite() -> None:
    root = statistics.symmetric_root(torch.zeros(3, 3))
    assert root.raised == 3
    assert torch.allclose(root.matrix, 1e-6 * torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_features_that_are_no_numbers_are_named_by_class_and_row(value: float) -> None:
    features, labels = _samples({0: 3, 8: 3}, dim=2)
    statistics.require_finite(features, labels)
    features[4, 1] = value
    with pytest.raises(DataError, match=r"class 8: row 4 holds NaN or infinity"):
        statistics.require_finite(features, labels)
    with pytest.raises(DataError, match=r"query features: row 4"):
        statistics.require_finite(features)


def test_negative_features_are_named_and_the_way_out_given() -> None:
    features = torch.tensor([[0.0, 1.0], [0.5, -0.1], [-1.0, 0.0]])
    with pytest.raises(DataError, match=r"class 3: row 1 \(and 1 more rows\).*space=raw"):
        statistics.require_non_negative(features, torch.tensor([2, 3, 4]))
    statistics.require_non_negative(features[:1])
