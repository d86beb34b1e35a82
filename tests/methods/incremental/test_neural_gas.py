"""Neural gas: the competitive update, the edges and their ages, and what nodes stand for."""

from __future__ import annotations

import math

import pytest
import torch

from fscil_bench.methods.incremental.neural_gas import (
    adapted,
    aged,
    described,
    grown,
    two_nearest,
    variances,
)


def test_a_feature_moves_nodes_by_their_rank() -> None:
    centroids = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 1.0]])
    feature = torch.tensor([[1.0, 0.0]])  # distances 1, 3, 1: of equal ones the first
    found = adapted(centroids, feature, rate=0.5, decay=2.0)
    one, two, three = (0.5 * math.exp(-rank / 2) for rank in (1, 2, 3))
    expected = torch.tensor([[one, 0.0], [4 - 3 * three, 0.0], [1.0, 1 - two]])
    torch.testing.assert_close(found, expected)


def test_a_batch_is_its_features_one_after_the_other_with_ranks_of_its_beginning() -> None:
    generator = torch.Generator().manual_seed(0)
    # Far apart and near their nodes, so that no rank changes on the way.
    centroids = torch.tensor([[0.0, 0], [10.0, 0], [0, 30.0], [70.0, 70]])
    features = centroids[[0, 1, 1, 2]] + 0.1 * torch.rand(4, 2, generator=generator)
    found, step_by_step = adapted(centroids, features, 0.05, 1.0), centroids
    for feature in features:
        step_by_step = adapted(step_by_step, feature[None], 0.05, 1.0)
    torch.testing.assert_close(found, step_by_step)


def ages_of(edges: dict[tuple[int, int], int], nodes: int = 4) -> torch.Tensor:
    ages = torch.zeros(nodes, nodes, dtype=torch.int64)
    for (one, two), age in edges.items():
        ages[one, two] = ages[two, one] = age
    return ages


def test_edges_age_when_one_of_their_nodes_answers_without_the_other() -> None:
    ages = ages_of({(0, 1): 3, (0, 2): 5, (1, 3): 2})
    found = aged(ages, torch.tensor([0]), torch.tensor([1]), 10)
    # The edge of both is new; that of 0 with 2 ages, that of 1 does not: 1 was but second.
    assert torch.equal(found, ages_of({(0, 1): 1, (0, 2): 6, (1, 3): 2}))


def test_edges_go_when_they_are_too_old_and_come_back_young() -> None:
    ages = ages_of({(0, 2): 9, (1, 2): 10})
    found = aged(ages, torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0]), 10)
    # 0 wins twice: its edge with 2 would be 11; 1 wins once: 11 as well.
    assert torch.equal(found, ages_of({(0, 1): 1}))
    found = aged(ages, torch.tensor([0, 0, 2, 2]), torch.tensor([1, 1, 0, 3]), 10)
    assert torch.equal(found, ages_of({(0, 1): 1, (0, 2): 2, (2, 3): 1}))


def test_a_batch_ages_edges_as_its_features_one_after_the_other() -> None:
    generator = torch.Generator().manual_seed(1)
    pairs = torch.stack([torch.randperm(6, generator=generator)[:2] for _ in range(40)])
    found = step_by_step = torch.zeros(6, 6, dtype=torch.int64)
    for part in pairs.split(20):
        found = aged(found, part[:, 0], part[:, 1], 7)
    for one, two in pairs:
        step_by_step = aged(step_by_step, one[None], two[None], 7)
    assert torch.equal(found, step_by_step) and int((found > 0).sum()) > 6
    assert torch.equal(found, found.T)


def test_a_grown_gas_lies_among_its_features_and_joins_neighbours_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    blobs = torch.tensor([[0.0, 0.0], [50.0, 0.0]]).repeat_interleave(200, dim=0)
    features = blobs + torch.randn(400, 2, generator=generator)
    # The rank decays so fast that a far blob does not draw a node out of its own.
    centroids, ages = grown(features, 12, 3, 16, 0.05, 1.0, 20, generator)
    sides = centroids[:, 0] > 25
    assert 0 < int(sides.sum()) < 12
    assert not (ages > 0)[sides][:, ~sides].any() and (ages > 0).any()
    assert int(ages.max()) <= 20
    start = torch.cdist(features, features[:12]).amin(dim=1).mean()
    assert float(torch.cdist(features, centroids).amin(dim=1).mean()) < float(start)


def test_fewer_features_than_nodes_make_a_node_each() -> None:
    features = torch.rand(5, 3)
    centroids, ages = grown(features, 400, 0, 8, 0.05, 10.0, 200, torch.Generator())
    assert torch.equal(centroids.sort(dim=0).values, features.sort(dim=0).values)
    assert ages.shape == (5, 5)


def test_nodes_stand_for_most_of_what_is_nearest_to_them() -> None:
    centroids = torch.tensor([[0.0, 0.0], [10.0, 0.0], [4.0, 90.0]])
    features = torch.tensor([[0.0, 1], [0, -1], [2, 0], [10, 3], [9, 0]])
    classes, spread, examples = described(centroids, features, torch.tensor([1, 1, 0, 0, 2]))
    # One vote each at node 1: the smaller label; nothing is nearest to node 2, it is to feature 3.
    assert classes.tolist() == [1, 0, 0]
    assert examples.tolist()[1:] == [4, 3]
    squares = [4 + 0 + 0 + 0 + 1, 0 + 1 + 1 + 9 + 0]
    mean = sum(squares) / 10
    expected = [[(4 + mean) / 4, (2 + mean) / 4], [(1 + mean) / 3, (9 + mean) / 3], [mean, mean]]
    torch.testing.assert_close(spread, torch.tensor(expected))


def test_a_node_of_one_feature_has_a_variance() -> None:
    features = torch.tensor([[1.0, 1.0], [3.0, 0.0]])
    found = variances(features.clone(), features, torch.tensor([0, 1]))
    assert bool((found > 0).all())


def test_the_two_nearest() -> None:
    first, second = two_nearest(torch.tensor([[0.0], [5.0], [7.0]]), torch.tensor([[5.5], [2.0]]))
    assert first.tolist() == [1, 0] and second.tolist() == [2, 1]
    with pytest.raises(RuntimeError):
        two_nearest(torch.zeros(1, 1), torch.zeros(1, 1))
