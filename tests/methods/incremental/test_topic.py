"""TOPIC: the losses by hand, what is held, what learns, and what the gas becomes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.methods.incremental.topic import Topic, anchor_loss, pull, push
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask, learnt

SMALL = {"nodes": 12, "epochs": 8, "lr": 0.05, "milestone": 0}


def made(sessions: int = SESSIONS, **params: Any) -> Topic:
    return learnt(Topic, SMALL | params, sessions=sessions)


def test_the_anchor_loss_is_a_mean_of_squares_by_variance() -> None:
    features, wanted = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0, 3.0]])
    variances = torch.tensor([[1.0, 2.0], [5.0, 3.0]])
    assert float(anchor_loss(features, wanted, variances)) == pytest.approx((1 + 2 + 0 + 3) / 4)


def test_shots_are_drawn_to_their_own_node() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]])
    centroids = torch.zeros(2, 2, requires_grad=True)
    loss = pull(features, centroids, torch.tensor([0, 1, 1]))
    assert float(loss.detach()) == pytest.approx((1 + 4 + 25) / 6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert centroids.grad is not None
    torch.testing.assert_close(centroids.grad, torch.tensor([[-1.0, 0.0], [-3.0, -6.0]]) / 3)


def test_nodes_are_pushed_from_those_that_they_have_edges_with() -> None:
    new = torch.tensor([[0.0, 0.0], [0.0, 0.3]], requires_grad=True)
    old = torch.tensor([[0.4, 0.0], [0.1, 0.0]])
    edges = torch.zeros(4, 4, dtype=torch.bool)
    for one, two in ((2, 0), (2, 3), (3, 0)):
        edges[one, two] = edges[two, one] = True
    loss = push(new, old, edges, 0.5 - 1e-6)
    # 0.4 and 0.3 apart; the third pair, 0.5, is far enough; the near node 1 has no edge.
    assert float(loss.detach()) == pytest.approx(0.1 + 0.2, abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None
    torch.testing.assert_close(new.grad, torch.tensor([[1.0, 1.0], [0.0, -1.0]]))


def test_nothing_is_pushed_at_distance_zero() -> None:
    new = torch.zeros(1, 2, requires_grad=True)
    push(new, torch.zeros(1, 2), torch.ones(2, 2, dtype=torch.bool), 1.0).backward()  # type: ignore[no-untyped-call]
    assert new.grad is not None and bool(torch.isfinite(new.grad).all())


def test_what_lies_below_the_last_block_and_old_rows_stay() -> None:
    before, after = made(0), made()
    assert torch.equal(before.rows.data, after.rows.data[:BASE])
    for name, tensor in before.network.backbone.state_dict().items():
        # Of the toy network the last block is its normalisation; statistics stay.
        learns = name in ("bn.weight", "bn.bias")
        assert torch.equal(tensor, after.network.backbone.state_dict()[name]) != learns, name


def test_cross_entropy_moves_features_by_the_new_rows_alone() -> None:
    # These begin within thousandths of zero, so that a first step moves the rows and nothing else.
    alone = {"anchor_weight": 0.0, "min_weight": 0.0, "max_weight": 0.0, "weight_decay": 0.0}
    before, after = made(0), made(1, epochs=1, **alone)
    moved = after.network.backbone.bn.weight - before.network.backbone.bn.weight
    assert 0 < float(moved.detach().norm()) < 1e-3
    assert float(after.rows[BASE:].detach().norm()) > 1e-2


def test_a_session_adds_a_node_for_each_class() -> None:
    found = made()
    nodes, task = found.nodes, ToyTask(needs=Topic.needs)
    assert nodes.classes[12:].tolist() == list(range(BASE, BASE + WAY * SESSIONS))
    assert nodes.ages.shape == (12 + WAY * SESSIONS,) * 2
    session = task.session(1)
    assert session.images is not None
    for number, c in enumerate(session.class_ids):
        own = session.images[session.labels == c]
        assert (own == nodes.images[12 + number]).flatten(1).all(dim=1).any()
    assert bool((nodes.ages[12:] > 0).any(dim=1).all()), "every new node has an edge"


def test_without_rates_nodes_are_class_means_of_unit_features() -> None:
    found, task = made(1, lr=0.0, node_lr=0.0), ToyTask(needs=Topic.needs)
    session = task.session(1)
    assert session.images is not None
    unit = F.normalize(found.embed(session.images), dim=1)
    means = torch.stack([unit[session.labels == c].mean(dim=0) for c in session.class_ids])
    torch.testing.assert_close(found.nodes.centroids[12:], means)


def test_centroids_are_drawn_along() -> None:
    fixed, moved = made(1, node_lr=0.0), made(1, node_lr=30.0)
    own = fixed.nodes.centroids[12:] - moved.nodes.centroids[12:]
    assert torch.equal(fixed.nodes.centroids[:12], moved.nodes.centroids[:12])
    assert bool((own.norm(dim=1) > 1e-4).all())


@pytest.mark.parametrize(("anchor", "weight"), [("released", 350.0), ("paper", 0.5)])
def test_the_anchor_holds_the_features_of_the_nodes_images(anchor: str, weight: float) -> None:
    start = made(0)
    images = start.nodes.images
    unit = F.normalize(start.embed(images), dim=1)
    wanted = {"released": unit, "paper": start.nodes.centroids}[anchor]

    def drift(weight: float) -> float:
        found = made(1, anchor=anchor, lr=2e-3, epochs=20, anchor_weight=weight)
        return float((F.normalize(found.embed(images), dim=1) - wanted).norm())

    assert drift(weight) < 0.75 * drift(0.0)


def test_base_nodes_do_not_depend_on_the_seed_of_shots() -> None:
    task = ToyTask(needs=Topic.needs)
    first = Topic(Topic.Params(nodes=12), task.context(Topic)).pretrain(
        task.session(0), lambda _: None
    )
    assert torch.equal(first["centroids"], made(0).nodes.centroids)
    assert float(first["centroids"].norm(dim=1).max()) <= 1 + 1e-5, "they are of unit features"
