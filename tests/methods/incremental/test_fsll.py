"""FSLL: which weights learn, what each term of the loss is, and what stays."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fscil_bench.errors import FscilError
from fscil_bench.methods.incremental.fsll import Fsll, held, session_loss, smallest, triplet_loss
from fscil_bench.testing import ToyTask, learn, learnt, start


def weights(**params: Any) -> list[torch.Tensor]:
    """Return the network's tensors after a base session and two others."""
    return list(learnt(Fsll, params).network.backbone.state_dict().values())


def test_the_smallest_weights_are_chosen_by_magnitude() -> None:
    weight = torch.tensor([[0.5, -0.1, 0.3], [-0.2, 0.1, -0.9]])
    assert smallest(weight, 0.5).tolist() == [[False, True, False], [True, True, False]]
    assert smallest(weight, 0.3).tolist() == [[False, True, False], [False, False, False]]
    assert not smallest(weight, 0).any() and smallest(weight, 1).all()


def test_triplets_are_all_pairs_of_a_class_with_all_others() -> None:
    line = torch.tensor([[0.0], [1.0], [3.0]])
    # Anchors 0 and 1 are 1 apart; the other class is 3 and 2 away; anchor 3 has no partner.
    labels = torch.tensor([5, 5, 7])
    assert float(triplet_loss(line, labels, 0.0)) == 0
    assert float(triplet_loss(line, labels, 1.5)) == pytest.approx((0 + 0.5) / 2)
    near = torch.tensor([[0.0], [2.0], [1.0], [4.0]])
    # Class a at 0, 2 and class b at 1, 4. Excess of anchors 0: 2−1, 2−4; 2: 2−1, 2−2; 1: 3−1, 3−1;
    # 4: 3−4, 3−2.
    expected = (1 + 0 + 1 + 0 + 2 + 2 + 0 + 1) / 8
    assert float(triplet_loss(near, torch.tensor([0, 0, 1, 1]), 0.0)) == pytest.approx(expected)


def test_equal_images_and_single_shots_have_a_gradient() -> None:
    same = torch.ones(4, 2, requires_grad=True)
    triplet_loss(same, torch.tensor([0, 0, 1, 1]), 1.0).backward()  # type: ignore[no-untyped-call]
    assert same.grad is not None and bool(torch.isfinite(same.grad).all())
    assert float(triplet_loss(same.detach(), torch.arange(4), 1.0)) == 0


def test_separation_is_the_mean_cosine_with_earlier_means() -> None:
    features = torch.tensor([[2.0, 0], [4.0, 0], [0, 1.0]])
    earlier = torch.tensor([[1.0, 1.0], [0.0, 3.0]])
    root = 1 / math.sqrt(2)
    expected = (root + 0 + root + 1) / 4
    labels = torch.tensor([8, 8, 9])
    plain = float(triplet_loss(features, labels, 0.0))
    found = float(session_loss(features, labels, earlier, 0.0, 3.0))
    assert found == pytest.approx(plain + 3 * expected)


def test_what_is_held_moves_back_and_rests_where_it_was() -> None:
    before, weight = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.5, 0.4, 1.1])
    assert held(weight, before, 0.2).tolist() == pytest.approx([1.3, 0.6, 1.0])


def test_only_the_chosen_weights_move() -> None:
    fixed, moved = weights(share=0.0), weights(share=0.1, lr=0.1)
    assert learnt(Fsll, {"share": 0.0}, sessions=0).means.shape == (6, 16)
    convolution, found = fixed[0], moved[0]
    changed = convolution != found
    # Each of two sessions chooses a tenth; what one moved may matter in the next.
    assert 0 < int(changed.sum()) <= 2 * int(0.1 * changed.numel())
    assert bool((convolution[changed].abs() <= convolution.abs().quantile(0.21)).all())
    for one, two in zip(fixed[1:], moved[1:], strict=True):
        assert torch.equal(one, two), "biases and normalisation stay"


def test_a_large_penalty_leaves_the_network_alone() -> None:
    for one, two in zip(weights(share=0.0), weights(lr=0.1, penalty=1e3), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("cosine", [False, True])
def test_without_training_it_is_nearest_class_mean(cosine: bool) -> None:
    made, task = learnt(Fsll, {"share": 0.0, "cosine": cosine}), ToyTask(needs=Fsll.needs)
    queries = task.queries()
    assert queries.images is not None
    sessions = [task.session(number) for number in range(3)]
    backbone, pixels = made.network.backbone, made.network.test_pixels

    def unit(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(x, dim=1) if cosine else x

    with torch.no_grad():
        means = [
            backbone(pixels(s.images[s.labels == c])).mean(dim=0)
            for s in sessions
            if s.images is not None
            for c in s.class_ids
        ]
        expected = -torch.cdist(unit(backbone(pixels(queries.images))), unit(torch.stack(means)))
    torch.testing.assert_close(made.scores(queries), -expected.square(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("exemplars", [0, 2, 5])
def test_kept_shots_renew_the_means_of_new_classes(exemplars: int) -> None:
    made = learnt(Fsll, {"share": 1.0, "lr": 0.1, "exemplars": exemplars})
    task = ToyTask(needs=Fsll.needs)
    first, last = task.session(1), task.session(2)
    seen = len(made.means) - last.way
    for session, place, count in ((first, seen - first.way, exemplars), (last, seen, 5)):
        assert session.images is not None
        for row, label in enumerate(session.class_ids, start=place):
            shots = session.images[session.labels == label][:count]
            if len(shots):
                with torch.no_grad():
                    now = made.network.backbone(made.network.test_pixels(shots)).mean(dim=0)
                torch.testing.assert_close(made.means[row], now, atol=1e-5, rtol=1e-4)
    kept = min(exemplars, 3) * (len(made.means) - task.session(0).way)
    assert len(made.kept) == len(made.kept_rows) == kept


def test_divergence_is_reported() -> None:
    task = ToyTask(needs=Fsll.needs)
    made = start(task, Fsll, Fsll.Params(lr=1e30, share=1.0))
    learn(made, task.session(0))
    with pytest.raises(FscilError, match=r"diverges in session 1: .* lower lr = 1e\+30"):
        made.learn_session(task.session(1))
