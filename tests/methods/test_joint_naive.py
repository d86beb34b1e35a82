from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from fscil_bench.methods.joint import JointNaive
from fscil_bench.testing import BASE, BASE_SHOTS, SCALE, SESSIONS, SIZE, WAY, ToyTask


def made(task: ToyTask, **params: Any) -> JointNaive:
    method = JointNaive(JointNaive.Params(**params), task.context(JointNaive))
    method.learn_base(task.session(0))
    return method


def test_session_zero_is_the_base_model() -> None:
    task = ToyTask()
    method, queries = made(task), task.queries()
    network = task.context(JointNaive).network
    assert network is not None and queries.images is not None
    with torch.no_grad():
        features = network.backbone.eval()(network.test_pixels(queries.images))
    expected = SCALE * F.normalize(features, dim=1) @ F.normalize(network.classifier, dim=1).T
    assert torch.allclose(method.scores(queries), expected, atol=1e-4)


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


def test_old_images_are_trained_on() -> None:
    """Joint training keeps what fine-tuning loses: base classes are still told apart."""
    task = ToyTask()
    method, queries = made(task, epochs=15, lr=0.1), task.session(0)
    for number in range(1, SESSIONS + 1):
        method.learn_session(task.session(number))
    assert queries.images is not None
    predicted = method.head_logits(method.embed(queries.images)).argmax(1)
    assert float((predicted == queries.labels).float().mean()) > 0.8


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
