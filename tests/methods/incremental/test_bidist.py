from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.methods.incremental.bidist import (
    Bidist,
    Branches,
    base_shares,
    drawn_exemplars,
    last_stage,
    merged,
    session_loss,
)
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask, learnt

CLASSES, NEW, HIDDEN = 3, 2, 4


def waves(*shape: int, step: float, gain: float = 1.0) -> torch.Tensor:
    """Return gain·sin(step·k), k = 1, 2, ... in the tensor's order."""
    numbers = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64)
    return (gain * torch.sin(step * numbers)).view(shape).float()


def small(inputs: int) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
    values = {
        "0.weight": waves(HIDDEN, inputs, step=0.7),
        "0.bias": waves(HIDDEN, step=0.9),
        "2.weight": waves(2, HIDDEN, step=1.1),
        "2.bias": waves(2, step=1.3),
    }
    layers.load_state_dict(values)
    return layers


def case(session: int) -> tuple[Branches, torch.Tensor, torch.Tensor]:
    """Return the logits of six shots and of exemplars, their labels, and the classes' likeness."""
    classes = CLASSES + NEW * session
    exemplars = [0, 2, 1] + ([3, 4, 3] if session > 1 else [])
    labels = torch.tensor([classes - 2, classes - 1] * 3 + exemplars)
    shape = (len(labels), classes)
    current, fixed, previous = (waves(*shape, step=step, gain=4) for step in (0.37, 0.53, 0.61))
    units = F.normalize(waves(classes, 3, step=1.7), dim=1)
    branches = Branches(current.requires_grad_(), fixed, previous if session > 1 else None)
    return branches, labels, units @ units[:CLASSES].T


@pytest.mark.parametrize(
    ("session", "loss", "first", "last", "merger"),
    [
        (
            1,
            266.1121521,
            [0.00455227, 0.01589997, 0.03855015, -0.10911468, 0.05011229],
            [-0.69941092, -0.04281640, 2.53936863, 1.06818116, -2.86533666],
            [13.38396072, 7.18161488, 5.39448786, 4.55014563],
        ),
        (
            2,
            707.9755249,
            [0.00376878, 0.01316343, 0.0319153, 0.04764673, 0.04148748, -0.14519891, 0.00721721],
            [2.13591237, 2.73359084, 2.50509191, 0.52388579, -0.59175795, -2.88587308, -4.42084694],
            [15.05774498, 5.77873755, 6.46454287, 6.04223347],
        ),
    ],
)
def test_loss_and_gradients_are_the_released_codes(
    session: int, loss: float, first: list[float], last: list[float], merger: list[float]
) -> None:
    """LinglanZhao/BiDistFSCIL fe6e5ae: `update_model_ft` as its README runs it."""
    branches, labels, likeness = case(session)
    weighing, mixing = small(2 * len(likeness)), small(CLASSES)
    found = session_loss(branches, labels, 6, weighing, mixing, likeness, Bidist.Params(current=2))
    assert found.item() == pytest.approx(loss, rel=1e-5)
    found.backward()  # type: ignore[no-untyped-call]
    assert branches.current.grad is not None
    assert branches.current.grad[0].tolist() == pytest.approx(first, abs=1e-5)
    assert branches.current.grad[-1].tolist() == pytest.approx(last, rel=1e-3)
    slope = weighing.get_parameter("0.weight").grad
    assert slope is not None
    assert slope[0, :4].tolist() == pytest.approx(merger, rel=1e-3)
    if session > 1:
        slope = mixing.get_parameter("2.weight").grad
        assert slope is not None
        expected = [6.39437246, 0.24910635, -29.08462906, 0.77899927]
        assert slope[0].tolist() == pytest.approx(expected, rel=1e-3)
        assert not slope[1].any()


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (1, [1.98056245, 3.43220997, 3.96918821, 3.45305037, 2.02944064]),
        (2, [1.97920132, 3.43033671, 3.96820378, 3.45440269, 2.03406858, 0.09548569, -1.83625782]),
    ],
)
def test_merged_scores_are_the_released_codes(session: int, expected: list[float]) -> None:
    branches, _, likeness = case(session)
    scores, _ = merged(branches.fixed, branches.current.detach(), small(2 * len(likeness)))
    assert scores[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_base_classes_are_distilled_from_the_base_branch_alone() -> None:
    _, labels, likeness = case(2)
    shares = base_shares(labels, likeness, small(CLASSES))
    assert (shares[labels < CLASSES] == 1).all()
    own = torch.sigmoid(small(CLASSES)(likeness[4])[0])
    torch.testing.assert_close(shares[labels == 4], own.expand(int((labels == 4).sum()), 1))


def test_from_the_second_session_on_half_of_what_is_replayed_is_of_base_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    assert set(drawn_exemplars(4, 4, 60, generator).tolist()) == {0, 1, 2, 3}
    drawn = drawn_exemplars(4, 7, 60, generator)
    assert set(drawn[:30].tolist()) == {0, 1, 2, 3} and set(drawn[30:].tolist()) == {4, 5, 6}
    assert [int((drawn_exemplars(4, 7, 7, generator) < 4).sum()) for _ in range(2)] == [3, 3]
    assert len(drawn_exemplars(4, 7, 7, generator)) == 7


def test_the_last_stage_is_the_last_row_of_blocks_and_what_follows() -> None:
    blocks = [nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(2)]
    inner = nn.ModuleDict({"stem": nn.Linear(2, 2), "one": blocks[0], "two": blocks[1]})
    two = ["two.0.weight", "two.0.bias", "two.1.weight", "two.1.bias"]
    assert last_stage(inner) == two
    inner["norm"] = nn.BatchNorm1d(2, track_running_stats=False)
    assert last_stage(inner) == [*two, "norm.weight", "norm.bias"]
    assert last_stage(nn.ModuleDict({"net": inner}))[0] == "net.two.0.weight"


def test_a_session_trains_the_last_stage_alone_and_keeps_batch_statistics() -> None:
    short: dict[str, Any] = {"steps": 3, "lr": 0.1, "small_lr": 0.1}
    method = learnt(Bidist, short)
    trained = [k for k in last_stage(method.network.backbone) if "running" not in k]
    before, after = method.base.backbone.state_dict(), method.network.backbone.state_dict()
    for name, weight in after.items():
        if name not in trained:
            assert torch.equal(weight, before[name]), name
    assert not all(torch.equal(after[name], before[name]) for name in trained)


def test_without_steps_both_branches_are_class_means() -> None:
    method, queries = learnt(Bidist, {"steps": 0}), ToyTask().queries()
    assert torch.equal(method.rows, method.fixed)
    assert queries.images is not None
    with torch.no_grad():
        features = method.network.backbone(method.network.test_pixels(queries.images))
    cosines = F.normalize(features, dim=1) @ F.normalize(method.fixed, dim=1).T
    torch.testing.assert_close(method.scores(queries), method.network.scale * cosines)


def test_one_image_of_every_class_is_kept_the_nearest_to_its_row() -> None:
    method, base = learnt(Bidist, {"steps": 0}), ToyTask().session(0)
    assert len(method.kept) == BASE + WAY * SESSIONS
    assert base.images is not None
    own = base.images[base.labels == 2]
    with torch.no_grad():
        features = method.network.backbone(method.network.test_pixels(own))
    best = F.cosine_similarity(features, method.fixed[2:3]).argmax()
    assert torch.equal(method.kept[2], own[best])


def test_a_rate_too_high_is_told() -> None:
    with pytest.raises(FscilError, match=r"'bidist' diverges in session 1: .*lower lr"):
        learnt(Bidist, {"steps": 3, "lr": 1e30})
