"""OrCo: targets and their matching, the three losses, sessions, and the released code's numbers.

Numbers of the released code are those of commit 85114e1 on sines.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.methods._shared.contrast import contrast
from fscil_bench.methods.orco import (
    SHARPNESS,
    Orco,
    OrcoHead,
    OrcoRepresentation,
    Pool,
    drawn_targets,
    matched,
    rate,
    share_of_positives,
    uniformity,
)
from fscil_bench.representation import TrainingBatch
from fscil_bench.testing import ToyTask, learn, learnt, start

BATCH, DIM, TARGETS, CLASSES = 6, 5, 8, 3
SHORT = {"epochs": 2, "base_epochs": 2}


def wave(*shape: int, phase: float) -> torch.Tensor:
    return torch.sin(0.37 * torch.arange(math.prod(shape)) + phase).view(shape)


def test_losses_and_gradient_are_the_released_ones() -> None:
    targets, labels = F.normalize(wave(TARGETS, DIM, phase=0.2)), torch.tensor([0, 2, 2, 0, 0, 2])
    inputs = wave(2 * BATCH, DIM, phase=0.7).requires_grad_()
    units = F.normalize(inputs, dim=1).view(2, BATCH, DIM)
    spread = uniformity(units[0], labels, targets, CLASSES)
    assert float(spread.detach()) == pytest.approx(2.3630376, rel=1e-5)
    drawn = torch.tensor([3, 4, 5, 6, 7, 3])
    points = torch.cat([units, targets[drawn].expand(2, -1, -1)], dim=1).flatten(0, 1)
    pulled = contrast(points @ points.T, torch.cat([labels, drawn]).repeat(2), SHARPNESS)
    assert float(pulled.detach()) == pytest.approx(6.8923721, rel=1e-5)
    logits = units.flatten(0, 1) @ targets[:CLASSES].T
    (spread + pulled + F.cross_entropy(logits, labels.repeat(2))).backward()  # type: ignore[no-untyped-call]
    assert inputs.grad is not None
    assert float(inputs.grad.norm()) == pytest.approx(1.2816147, rel=1e-4)


def test_the_pretraining_has_the_released_loss() -> None:
    inputs = wave(4 * BATCH, DIM, phase=0.9).requires_grad_()
    units, labels = F.normalize(inputs, dim=1), torch.tensor([0, 2, 2, 0, 0, 2])
    of_class = share_of_positives(units @ units.T / 0.2, labels.repeat(4))
    of_image = share_of_positives(units @ units.T / 0.2, torch.arange(BATCH).repeat(4))
    assert float(of_class.detach()) == pytest.approx(0.9303017, rel=1e-5)
    assert float(of_image.detach()) == pytest.approx(4.3862519, rel=1e-5)
    (0.9 * of_class + 0.1 * of_image).backward()  # type: ignore[no-untyped-call]
    assert inputs.grad is not None
    assert float(inputs.grad.norm()) == pytest.approx(0.2242664, rel=1e-4)


class Flat(nn.Module):
    """Images that are features already."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def test_views_of_an_image_and_of_its_class_are_mixed_by_weight() -> None:
    shown = [wave(BATCH, 1, 1, DIM, phase=p) for p in (0.1, 0.8)]
    head, labels = (
        OrcoHead(DIM, CLASSES, 7, 4, torch.Generator().manual_seed(0)),
        torch.tensor([0, 2, 2, 0, 0, 2]),
    )

    def loss(weight: float) -> float:
        batch = TrainingBatch(shown[0], labels, 0, lambda: shown[1], torch.Generator())
        made = OrcoRepresentation(OrcoRepresentation.Params(self_weight=weight))
        return float(made.loss(Flat(), head, batch).detach())

    units = F.normalize(head.projector(torch.cat(shown).flatten(1)), dim=1).detach()
    expected = [
        float(share_of_positives(units @ units.T / 0.2, groups.repeat(2)))
        for groups in (labels, torch.arange(BATCH))
    ]
    assert loss(0) == pytest.approx(expected[0], rel=1e-5)
    assert loss(1) == pytest.approx(expected[1], rel=1e-5)
    assert loss(0.3) == pytest.approx(0.7 * expected[0] + 0.3 * expected[1], rel=1e-5)


def test_matching_takes_the_best_sum_and_keeps_the_rest_in_order() -> None:
    targets = torch.eye(4)
    # Both means are nearest to target 2; the second has more to lose elsewhere.
    means = torch.tensor([[0.0, 0.5, 0.6, 0.0], [0.0, 0.0, 1.0, 0.1]])
    found = matched(means, targets, 0)
    assert found.argmax(dim=1).tolist() == [1, 2, 0, 3]
    later = matched(torch.tensor([[0.0, 0, 0, 5.0]]), found, 2)
    assert later.argmax(dim=1).tolist() == [1, 2, 3, 0], "targets that are taken stay"


def test_uniformity_puts_batch_means_in_place_of_targets() -> None:
    targets = torch.eye(3)
    units = torch.tensor([[0.0, 1, 0], [0, 1.0, 0]])
    # Class 0 lies where target 1 does: points e1, e1, e2.
    expected = (2 * math.log(2 * math.e + 1) + math.log(math.e + 2)) / 3
    assert float(uniformity(units, torch.tensor([0, 0]), targets, 2)) == pytest.approx(expected)
    nothing = uniformity(units[:0], torch.empty(0, dtype=torch.long), targets, 2)
    assert float(nothing) == pytest.approx(math.log(math.e + 2))


@pytest.mark.parametrize(("count", "wanted", "most"), [(8, 3, 1), (3, 8, 3), (4, 4, 1)])
def test_targets_are_drawn_as_evenly_as_can_be(count: int, wanted: int, most: int) -> None:
    drawn = drawn_targets(count, wanted, torch.Generator().manual_seed(0))
    times = torch.bincount(drawn, minlength=count)
    assert len(drawn) == wanted and int(times.max()) == most
    assert int(times.min()) >= wanted // count


def test_a_pair_is_two_different_views_of_one_image() -> None:
    features = torch.arange(12.0).view(3, 4, 1)
    pool = Pool(features, torch.tensor([5, 6, 7, 8]))
    views, rows = pool.pair(torch.tensor([3, 1] * 20), torch.Generator().manual_seed(0))
    assert rows.tolist() == [8, 6] * 20
    assert bool((views[0] != views[1]).all())
    assert set((views[:, ::2] % 4).flatten().tolist()) == {3.0}
    assert len(set(views[:, ::2].flatten().tolist())) == 3


def test_the_rate_rises_and_falls() -> None:
    assert rate(0.1, 7, 10, 0) == 0.1
    assert rate(0.1, 0, 100, 10) == pytest.approx(3e-5)
    assert rate(0.1, 9, 100, 10) == pytest.approx(0.1)
    assert rate(0.1, 55, 100, 10) == pytest.approx(0.05)


def test_assigned_and_free_targets_partition_a_simplex() -> None:
    before, after = (learnt(Orco, SHORT, sessions=n).targets for n in (0, 2))
    cosines = after @ after.T
    torch.testing.assert_close(cosines, (10 * torch.eye(10) - 1) / 9, atol=1e-5, rtol=0)
    assert torch.equal(after[:6], before[:6]), "base classes keep their targets"
    assert {tuple(t.tolist()) for t in before} == {tuple(t.tolist()) for t in after}


def test_every_session_begins_with_the_projector_of_the_base_session() -> None:
    task, made = ToyTask(needs=Orco.needs), learnt(Orco, SHORT, sessions=0)
    base = [x.clone() for x in made.projector.parameters()]
    learn(made, task.session(1))
    assert any(
        not torch.equal(a, b) for a, b in zip(base, made.projector.parameters(), strict=True)
    )
    for old, kept in zip(base, made.aligned.parameters(), strict=True):
        assert torch.equal(old, kept)
    untrained = learnt(Orco, SHORT | {"epochs": 0})
    for old, found in zip(base, untrained.projector.parameters(), strict=True):
        assert torch.equal(old, found)


def test_five_images_of_every_base_class_and_all_shots_are_kept() -> None:
    made = learnt(Orco, SHORT | {"exemplars": 5})
    assert torch.bincount(made.kept.rows).tolist() == [5] * 6 + [3] * 4
    assert made.kept.features.shape == (4, 42, 16)


def test_a_session_draws_its_classes_to_their_targets() -> None:
    untrained, trained = (
        learnt(Orco, {"epochs": n, "base_epochs": 2, "weight_decay": 0.0}, sessions=1)
        for n in (0, 60)
    )
    cosines = []
    for made in (untrained, trained):
        views, rows = made.kept.features[0], made.kept.rows
        units = F.normalize(made.projector(views), dim=1).detach()
        cosines.append(float((units * made.targets[rows]).sum(dim=1)[rows >= 6].mean()))
    assert cosines[1] > cosines[0] + 0.1


def test_divergence_is_reported() -> None:
    task = ToyTask(needs=Orco.needs)
    made = start(task, Orco, Orco.Params(base_epochs=0, epochs=200, lr=1e30))
    learn(made, task.session(0))
    with pytest.raises(FscilError, match=r"'orco' diverges: the loss is nan; lower lr = 1e\+30"):
        made.learn_session(task.session(1))


def test_a_projector_that_the_last_step_of_the_alignment_spoils_is_reported() -> None:
    params = Orco.Params(base_epochs=1, base_lr=1e25)
    with pytest.raises(FscilError, match=r"'orco' diverges: the length .*; lower base_lr = 1e\+25"):
        start(ToyTask(needs=Orco.needs), Orco, params)
