from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import beta
from torch import nn
from torch.nn import functional as F

from fscil_bench.methods.incremental.f2m import (
    F2m,
    F2mRepresentation,
    drawn_noise,
    flat_loss,
    held,
    last_weights,
    prototype_loss,
    rounded,
)
from fscil_bench.testing import SESSIONS, ToyTask, learnt

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def waves(*shape: int, step: float, gain: float = 1.0) -> torch.Tensor:
    """Return gain·sin(step·k), k = 1, 2, ... in the tensor's order."""
    numbers = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64)
    return (gain * torch.sin(step * numbers)).view(shape).float()


def network() -> tuple[nn.Module, nn.Linear]:
    """Return a layer of weights (3, 4) under tanh, and a linear classifier."""
    inner, head = nn.Linear(4, 3, bias=False), nn.Linear(3, 3)
    with torch.no_grad():
        inner.weight.copy_(waves(3, 4, step=0.7))
        head.weight.copy_(waves(3, 3, step=1.1))
        head.bias.copy_(waves(3, step=0.4))
    return nn.Sequential(inner, nn.Tanh()), head


def noises() -> list[dict[str, torch.Tensor]]:
    return [{"0.weight": waves(3, 4, step=step, gain=0.3)} for step in (1.9, 2.3)]


def params(**values: Any) -> F2mRepresentation.Params:
    return F2mRepresentation.Params(**values)


def test_loss_and_gradient_are_the_released_codes() -> None:
    """moukamisama/F2M 7b2ebac: `F2MModel.optimize_parameters` with `ProtoFixLoss`."""
    backbone, head = network()
    loss = flat_loss(backbone, head, waves(6, 4, step=0.3), LABELS, noises(), params())
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(1.2894128561, abs=1e-6)
    inner = backbone.get_parameter("0.weight").grad
    assert inner is not None and head.weight.grad is not None
    expected = [0.1081095338, 0.0147457980, -0.0799351260, -0.1674756706]
    assert inner[0].tolist() == pytest.approx(expected, abs=1e-5)
    expected = [-0.2986375988, 0.3193368614, -0.3252734244]
    assert head.weight.grad[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_the_drift_has_a_gradient_where_it_is_asked_for() -> None:
    gradients = []
    for asked in (False, True):
        backbone, head = network()
        images, values = waves(6, 4, step=0.3), params(drift=10.0, drift_gradient=asked)
        flat_loss(backbone, head, images, LABELS, noises()[:1], values).backward()  # type: ignore[no-untyped-call]
        gradients.append(backbone.get_parameter("0.weight").grad)
    backbone, head = network()
    weight = backbone.get_parameter("0.weight")
    moved = torch.tanh(images @ (weight + noises()[0]["0.weight"]).T) - backbone(images)
    drift = 10 * moved.view(3, 2, 3).mean(dim=1).square().sum(dim=1).mean()
    (expected,) = torch.autograd.grad(drift, [weight])
    assert gradients[0] is not None and gradients[1] is not None
    torch.testing.assert_close(gradients[1] - gradients[0], expected)


@pytest.mark.parametrize("draws", [1, 2])
def test_without_noise_it_is_cross_entropy(draws: int) -> None:
    backbone, head = network()
    images, none = waves(6, 4, step=0.3), {"0.weight": torch.zeros(3, 4)}
    loss = flat_loss(backbone, head, images, LABELS, draws * [none], params())
    loss.backward()  # type: ignore[no-untyped-call]
    expected = F.cross_entropy(head(backbone(images)), LABELS)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    (slope,) = torch.autograd.grad(expected, [head.weight])
    assert head.weight.grad is not None
    torch.testing.assert_close(head.weight.grad, slope)


def test_noise_takes_five_levels_as_often_as_a_beta_variable_falls_in_each_fifth() -> None:
    weights = {str(number): torch.zeros(40000) for number in range(10)}
    noise = drawn_noise(weights, 0.4, torch.Generator().manual_seed(0))
    levels = torch.tensor([-0.2, -0.1, 0.0, 0.1, 0.2])
    shares = torch.stack(
        [(x[:, None] - levels).abs().lt(1e-6).float().mean(0) for x in noise.values()]
    )
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(10))
    fifths, shapes = [0.2, 0.4, 0.6, 0.8, 1.0], (0.3, 0.5, 1, 2, 3, 4, 5)
    known = torch.tensor([[beta.cdf(fifths, a, b).tolist() for a in shapes] for b in shapes])
    for own in shares:
        assert (own.cumsum(0) - known).abs().amax(dim=2).min() < 0.01


def test_the_last_weights_are_those_of_the_last_convolutions_without_shortcuts() -> None:
    block = nn.ModuleDict({"conv": nn.Conv2d(2, 2, 3), "bn": nn.BatchNorm2d(2)})
    short = nn.ModuleDict({"conv": nn.Conv2d(2, 2, 3), "down": nn.Conv2d(2, 2, 1)})
    found = last_weights(nn.Sequential(nn.Conv2d(2, 2, 3), block, short), 2)
    assert list(found) == ["1.conv.weight", "2.conv.weight"]


def test_the_session_loss_is_the_released_codes() -> None:
    """`IncrementalPTFixPNLoss` of the same commit, two images a class."""
    features = waves(6, 3, step=0.5).requires_grad_()
    loss = prototype_loss(features, torch.tensor([9, 9, 4, 4, 7, 7]), waves(4, 3, step=1.3))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(0.8962309957, abs=1e-6)
    assert features.grad is not None
    expected = [-0.0650955588, 0.0091530271, -0.0051438417]
    assert features.grad[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_gradients_are_rounded_as_in_the_released_code() -> None:
    """`incremental_optimize_parameters` of the same commit: width 0.01, rate 0.01."""
    found = rounded(torch.tensor([0.1, 0.3, 0.4, -0.9]), 0.01, 0.0025)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.25, 0.5, -1.0]))
    found = rounded(torch.tensor([0.1, 0.12, -0.13, 0.2]), 0.01, 0.0025)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, -0.25, 0.25]))


def test_weights_are_held_within_reach() -> None:
    found = held(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.5, 2.0, 2.0]), 0.25)
    assert found.tolist() == [1.25, 2.0, 2.25]


def trained(**values: Any) -> tuple[F2m, dict[str, torch.Tensor]]:
    """Return the method after the last session, and the network's tensors before the first."""
    before = learnt(F2m, values, sessions=0).network.backbone.state_dict()
    return learnt(F2m, values), {name: x.clone() for name, x in before.items()}


def test_sessions_move_the_last_weights_alone_and_within_their_range() -> None:
    method, before = trained(layers=1, width=0.02, lr=10.0)
    last = list(last_weights(method.network.backbone, 1))
    for name, weight in method.network.backbone.state_dict().items():
        if name in last:
            distance = (weight - before[name]).abs().max().item()
            assert 0.009 < distance <= 0.01 + 1e-7
        else:
            assert torch.equal(weight, before[name]), name


def test_sessions_in_which_no_weight_moves_are_told() -> None:
    method, before = trained(lr=1e-300)
    for name, weight in method.network.backbone.state_dict().items():
        assert torch.equal(weight, before[name]), name
    assert method.notes() == {"sessions_unmoved": SESSIONS}
    assert trained(layers=1, width=0.02, lr=10.0)[0].notes() == {}
    assert trained(epochs=0)[0].notes() == {}


@pytest.mark.parametrize("off", [{"width": 0.0}, {"epochs": 0}])
def test_without_room_or_steps_it_is_the_nearest_mean_by_cosine(off: dict[str, Any]) -> None:
    method, before = trained(**off)
    for name, weight in method.network.backbone.state_dict().items():
        assert torch.equal(weight, before[name])
    task = ToyTask()
    images = task.queries().images
    assert images is not None
    with torch.no_grad():
        features = method.network.backbone(method.network.test_pixels(images))
    cosines = F.normalize(features, dim=1) @ F.normalize(method.means, dim=1).T
    torch.testing.assert_close(method.scores(task.queries()), 2 * cosines - 2, atol=1e-5, rtol=1e-5)
    assert len(method.means) > SESSIONS


def test_the_classifier_handed_on_is_the_mean_of_unit_features() -> None:
    representation, backbone = F2mRepresentation(params()), network()[0]
    head = representation.build_head(3, 3, torch.Generator().manual_seed(0))
    images = waves(6, 4, step=0.3)
    flat_loss(backbone, head, images, LABELS, noises(), params())
    expected = F.normalize(backbone(images), dim=1).view(3, 2, 3).mean(dim=1)
    torch.testing.assert_close(representation.classifier(head), expected)
