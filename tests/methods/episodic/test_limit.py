from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.errors import FscilError
from fscil_bench.methods.episodic.attention import GraphAttention
from fscil_bench.methods.episodic.limit import Limit, drawn_tasks, task_loss
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask

SHORT = {"epochs": 2, "tasks": 2, "ways": 3, "batch": 16}
CLASSES, WIDTH = 5, 4
LABELS = torch.tensor([0, 1, 2, 3, 4, 3])


def limit(**params: Any) -> Limit:
    return Limit(Limit.Params(**{**SHORT, **params}), ToyTask().context(Limit))


def pretrained(method: Limit) -> dict[str, torch.Tensor]:
    return method.pretrain(ToyTask().session(0), lambda _: None)


def waves(*shape: int, step: float, gain: float = 1.0) -> torch.Tensor:
    """Return gain·sin(step·k), k = 1, 2, ... in the tensor's order."""
    numbers = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64)
    return (gain * torch.sin(step * numbers)).view(shape).float()


def graph() -> GraphAttention:
    made = GraphAttention(WIDTH, layer_norm=True, generator=torch.Generator().manual_seed(0))
    values = {
        "query": waves(WIDTH, WIDTH, step=0.7),
        "key": waves(WIDTH, WIDTH, step=1.3),
        "value": waves(WIDTH, WIDTH, step=2.1),
        "output": waves(WIDTH, WIDTH, step=0.9),
        "bias": waves(WIDTH, step=1.7, gain=0.5),
        "norm.weight": 1 + waves(WIDTH, step=0.4, gain=0.3),
        "norm.bias": waves(WIDTH, step=0.6, gain=0.2),
    }
    made.load_state_dict(values)
    return made


@pytest.mark.parametrize(
    ("score", "temperature", "tasks", "loss", "gradient"),
    [
        ("cosine", 16.0, 3, 7.745267391, [-1.18568552, -1.81109607, 1.68001080, 0.97703463]),
        ("dot", 1 / 16, 3, 1.626320839, [-0.00854771, -0.00813215, 0.00893163, 0.00647378]),
        ("cosine", 16.0, 1, 10.05315113, None),
        ("dot", 1 / 16, 1, 1.632473946, None),
    ],
)
def test_chained_tasks_have_the_released_codes_loss_and_gradient(
    score: str, temperature: float, tasks: int, loss: float, gradient: list[float] | None
) -> None:
    """zhoudw-zdw/TPAMI-Limit f62a799, models/limit/Network.py: `_forward`, no class to come."""
    attention = graph()
    rows = waves(CLASSES, WIDTH, step=1.1)
    means = waves(4, WIDTH, step=0.5).view(2, 2, WIDTH).mean(dim=0)
    classifier = rows.index_copy(0, torch.tensor([3, 1]), means)
    queries = waves(6, WIDTH, step=0.3).requires_grad_()
    params = Limit.Params(score=score, temperature=temperature, tasks=tasks)  # type: ignore[arg-type]
    found = task_loss(attention, classifier[None], queries, LABELS, params)
    assert found.item() == pytest.approx(loss, rel=1e-5)
    if gradient is not None:
        found.backward()  # type: ignore[no-untyped-call]
        assert queries.grad is not None
        assert queries.grad[0].tolist() == pytest.approx(gradient, rel=1e-3)


def test_scores_are_the_released_codes() -> None:
    rows, queries = waves(CLASSES, WIDTH, step=1.1), waves(6, WIDTH, step=0.3)
    expected = [-1.39621639, 11.41950321, 11.18504810, 0.34096193, 8.55656624]
    assert (16 * graph()(rows, queries))[0].tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_tasks_of_their_own_are_the_mean_of_each_alone(score: Any) -> None:
    attention, queries = graph(), waves(6, WIDTH, step=0.3)
    classifiers = waves(3, CLASSES, WIDTH, step=1.1)
    params = Limit.Params(chained=False, score=score)
    alone = Limit.Params(tasks=1, score=score)
    each = [task_loss(attention, rows[None], queries, LABELS, alone) for rows in classifiers]
    found = task_loss(attention, classifiers, queries, LABELS, params)
    torch.testing.assert_close(found, torch.stack(each).mean())


def test_a_graph_that_adds_nothing_leaves_the_cross_entropy_of_cosines() -> None:
    attention = GraphAttention(WIDTH, False, torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(attention.output)
    torch.nn.init.zeros_(attention.bias)
    rows, queries = waves(CLASSES, WIDTH, step=1.1), waves(6, WIDTH, step=0.3)
    cosines = F.normalize(queries, dim=1) @ F.normalize(rows, dim=1).T
    found = task_loss(attention, rows[None], queries, LABELS, Limit.Params())
    torch.testing.assert_close(found, F.cross_entropy(16 * cosines, LABELS))


def test_a_task_replaces_so_many_classes_and_each_class_at_times() -> None:
    tasks = drawn_tasks(200, 7, 3, torch.Generator().manual_seed(0))
    assert tasks.sum(dim=1).tolist() == [3] * 200
    assert tasks.sum(dim=0).min() > 50


@pytest.mark.parametrize("chained", [True, False])
def test_graph_and_network_are_trained_and_batch_statistics_kept(chained: bool) -> None:
    method = limit(chained=chained)
    before = {k: v.clone() for k, v in method.state_dict().items() if k != "prototypes"}
    tensors = pretrained(method)
    assert set(tensors) == set(before)
    for name in ("graph.value", "graph.output", "encoder.conv.weight", "encoder.bn.weight"):
        assert not torch.equal(tensors[name], before[name]), name
    for name in ("encoder.bn.running_mean", "encoder.bn.running_var"):
        assert torch.equal(tensors[name], before[name]), name
    for name, value in method.state_dict().items():
        if name != "prototypes":
            assert torch.equal(value, before[name]), name


def test_the_loss_falls() -> None:
    """The released one, on base images and class means, before and after."""
    task, losses = ToyTask(), []
    method = limit(epochs=20, lr=2e-3, encoder_lr=2e-3, milestones="")
    for tensors in ({}, pretrained(method)):
        if tensors:
            method.load_pretrained(tensors)
        base = task.session(0)
        method.learn_base(base)
        rows = torch.tensor([base.class_ids.index(int(c)) for c in base.labels])
        features = method.embed(base)
        with torch.no_grad():
            losses.append(
                task_loss(method.attention, method.prototypes[None], features, rows, method.params)
            )
    assert losses[1] < 0.3 * losses[0]


def test_without_epochs_and_graph_it_is_ncm() -> None:
    method, made = limit(epochs=0, layer_norm=False, temperature=1.0), ToyTask()
    method.load_pretrained(pretrained(method))
    torch.nn.init.zeros_(method.attention.output)
    torch.nn.init.zeros_(method.attention.bias)
    method.learn_base(made.session(0))
    for number in range(1, SESSIONS + 1):
        method.learn_session(made.session(number))
    units = F.normalize(method.embed(made.queries()), dim=1)
    expected = units @ F.normalize(method.prototypes, dim=1).T
    torch.testing.assert_close(method.scores(made.queries()), expected)
    assert method.prototypes.shape == (BASE + WAY * SESSIONS, DIM)


def test_a_rate_too_high_is_told() -> None:
    with pytest.raises(FscilError, match=r"lower lr = 1e\+30"):
        pretrained(limit(lr=1e30, encoder_lr=1e30))
