from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fscil_bench.methods.incremental.joint import JointBalanced, JointNaive, balanced, log_prior
from fscil_bench.testing import BASE, BASE_SHOTS, SESSIONS, SIZE, WAY, ToyTask


def made(task: ToyTask, **params: Any) -> JointNaive:
    method = JointNaive(JointNaive.Params(**params), task.context(JointNaive))
    method.learn_base(task.session(0))
    return method


def made_balanced(task: ToyTask, **params: Any) -> JointBalanced:
    # The draws of naive joint training, which it is compared with.
    method = JointBalanced(JointBalanced.Params(**params), task.context(JointNaive))
    method.learn_base(task.session(0))
    return method


def test_every_image_is_stored_and_counted() -> None:
    task = ToyTask(shot=3)
    method = made(task, epochs=0)
    without = method.state_bytes() - len(method.labels) * (3 * SIZE * SIZE + 4)
    for number in range(1, SESSIONS + 1):
        method.learn_session(task.session(number))
    kept = BASE * BASE_SHOTS + SESSIONS * WAY * 3
    assert method.images.shape == (kept, SIZE, SIZE, 3)
    assert method.images.dtype == torch.uint8
    session = task.session(SESSIONS)
    assert session.images is not None
    assert torch.equal(method.images[-len(session) :], session.images)
    assert torch.equal(method.labels[-len(session) :].long(), session.labels)
    rows = 4 * WAY * SESSIONS * 16
    assert method.state_bytes() == without + rows + kept * (3 * SIZE * SIZE + 4)


def test_a_session_goes_on_from_the_last() -> None:
    task = ToyTask()
    method = made(task, epochs=2, lr=0.1)
    method.learn_session(task.session(1))
    before = method.rows.detach().clone()
    weights = {k: v.clone() for k, v in method.network.backbone.state_dict().items()}
    again = JointNaive(JointNaive.Params(epochs=0), task.context(JointNaive))
    again.load_state_dict(method.state_dict())
    again.learn_session(task.session(2))
    assert torch.equal(again.rows[: len(before)], before)
    for name, tensor in again.network.backbone.state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_with_classes_of_equal_size_logit_adjustment_is_naive() -> None:
    task = ToyTask(shot=BASE_SHOTS)
    method = made_balanced(task, balance="logit", epochs=2)
    naive = made(task, epochs=2)
    for other in (method, naive):
        other.learn_session(task.session(1))
    assert torch.equal(method.scores(task.queries()), naive.scores(task.queries()))


def test_with_few_shots_it_is_not() -> None:
    task = ToyTask(shot=3)
    method = made_balanced(task, balance="logit", epochs=2)
    naive = made(task, epochs=2)
    for other in (method, naive):
        other.learn_session(task.session(1))
    new = [float(m.scores(task.queries())[:, BASE:].mean()) for m in (method, naive)]
    assert new[0] > new[1], "new classes' logits are raised against naive training's"


def test_log_prior_by_hand() -> None:
    assert log_prior(torch.tensor([500, 500, 5])).tolist() == pytest.approx([0, 0, math.log(0.01)])
    assert torch.equal(log_prior(torch.tensor([7, 7, 7])), torch.zeros(3))


def test_every_class_is_drawn_equally_often() -> None:
    labels = torch.tensor([0] * 9900 + [1] * 100)
    generator = torch.Generator().manual_seed(0)
    parts = list(balanced(labels, labels.bincount(), 64, generator))
    assert [len(part) for part in parts] == [64] * 156 + [16]
    # 10,000 draws of a half: the standard deviation of the share is 0.005.
    assert float(labels[torch.cat(parts)].float().mean()) == pytest.approx(0.5, abs=0.025)
    assert set(range(9900, 10000)) <= set(torch.cat(parts).tolist())


@pytest.mark.parametrize("balance", ["sampling", "logit"])
def test_every_session_starts_from_the_base_network(balance: str) -> None:
    task = ToyTask()
    trained = made_balanced(task, balance=balance, epochs=2, lr=0.1)
    start = {name: tensor.clone() for name, tensor in trained.start.items()}
    trained.learn_session(task.session(1))
    assert not torch.equal(trained.rows[:BASE], start["rows"])
    again = JointBalanced(
        JointBalanced.Params(balance=balance, epochs=0),  # type: ignore[arg-type]
        task.context(JointNaive),
    )
    again.load_state_dict(trained.state_dict())
    again.learn_session(task.session(SESSIONS))
    assert torch.equal(again.rows[:BASE], start["rows"])
    for name, tensor in again.network.backbone.state_dict().items():
        assert torch.equal(tensor, start[f"backbone.{name}"])
