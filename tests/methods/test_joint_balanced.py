from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fscil_bench.methods.joint import JointBalanced, JointNaive, balanced, log_prior
from fscil_bench.testing import BASE, BASE_SHOTS, SESSIONS, ToyTask, check_method


def made(task: ToyTask, **params: Any) -> JointBalanced:
    # The draws of naive joint training, which it is compared with.
    method = JointBalanced(JointBalanced.Params(**params), task.context(JointNaive))
    method.learn_base(task.session(0))
    return method


def test_logit_balance_keeps_its_contract() -> None:
    check_method(JointBalanced, {"balance": "logit", "epochs": 1})


def test_with_classes_of_equal_size_logit_adjustment_is_naive() -> None:
    task = ToyTask(shot=BASE_SHOTS)
    method = made(task, balance="logit", epochs=2)
    naive = JointNaive(JointNaive.Params(epochs=2), task.context(JointNaive))
    naive.learn_base(task.session(0))
    for other in (method, naive):
        other.learn_session(task.session(1))
    assert torch.equal(method.scores(task.queries()), naive.scores(task.queries()))


def test_with_few_shots_it_is_not() -> None:
    task = ToyTask(shot=3)
    method = made(task, balance="logit", epochs=2)
    naive = JointNaive(JointNaive.Params(epochs=2), task.context(JointNaive))
    naive.learn_base(task.session(0))
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
    trained = made(task, balance=balance, epochs=2, lr=0.1)
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
