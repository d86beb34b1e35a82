from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.backbones.resnet18 import ResNet18Backbone
from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.errors import FscilError
from fscil_bench.methods._shared.network import NetworkMethod, TrainingParams, last_block
from fscil_bench.methods.incremental.finetune import Finetune
from fscil_bench.methods.incremental.icarl import Icarl, IcarlSoftmax
from fscil_bench.methods.incremental.joint import JointNaive
from fscil_bench.testing import BASE, DIM, SCALE, ToyTask, learnt


def made(**params: Any) -> Finetune:
    return Finetune(Finetune.Params(**params), ToyTask().context(Finetune))


def test_rates_of_the_schedules() -> None:
    step = TrainingParams(epochs=4, lr=0.1, schedule="step", milestone=2)
    assert [step.rate(e) for e in range(4)] == pytest.approx([0.1, 0.1, 0.01, 0.01])
    never = TrainingParams(epochs=4, lr=0.1, schedule="step", milestone=0)
    assert [never.rate(e) for e in range(4)] == [0.1] * 4
    cosine = TrainingParams(epochs=4, lr=0.1, schedule="cosine")
    expected = [0.05 * (1 + math.cos(math.pi * e / 4)) for e in range(4)]
    assert [cosine.rate(e) for e in range(4)] == pytest.approx(expected)
    assert expected[0] == pytest.approx(0.1)


def test_both_heads_score_base_classes_as_the_representation_does() -> None:
    task = ToyTask()
    queries = task.queries()
    method = made(head="cosine")
    assert queries.images is not None
    unit = F.normalize(method.embed(queries.images), dim=1)
    network = task.context(Finetune).network
    assert network is not None
    expected = SCALE * unit @ F.normalize(network.classifier, dim=1).T
    for head in ("cosine", "linear"):
        assert torch.allclose(made(head=head).scores(queries), expected, atol=1e-4)


def test_new_rows_are_near_zero_or_as_long_as_the_others() -> None:
    linear, cosine = made(head="linear"), made(head="cosine")
    for method in (linear, cosine):
        method.append_rows(50, torch.Generator().manual_seed(0))
        assert method.rows.shape == (BASE + 50, DIM)
    assert float(linear.rows.detach()[BASE:].std()) == pytest.approx(0.001, rel=0.1)
    lengths = cosine.rows.norm(dim=1)
    assert torch.allclose(lengths[BASE:], lengths[:BASE].mean().expand(50))


def test_one_step_is_that_of_nesterov_momentum_with_weight_decay() -> None:
    method = made(epochs=1, lr=0.5, weight_decay=0.1, schedule="constant")
    before = method.rows.detach().clone()
    direction = torch.randn(before.shape, generator=torch.Generator().manual_seed(1))
    method.train(
        ToyTask().session(1),
        lambda: [torch.arange(1)],
        lambda _: (method.rows * direction).sum(),
    )
    # The first step with momentum m moves by lr · (1 + m) · gradient.
    expected = before - 0.5 * 1.9 * (direction + 0.1 * before)
    assert torch.allclose(method.rows, expected, atol=1e-5)


@pytest.mark.parametrize("method", [Finetune, Icarl, IcarlSoftmax, JointNaive])
@pytest.mark.parametrize(("epochs", "what"), [(3, "the loss is nan"), (1, "the length of")])
def test_what_diverges_is_refused_with_the_rate(
    method: type[NetworkMethod], epochs: int, what: str
) -> None:
    params = {"epochs": epochs, "lr": 1e30, "schedule": "constant", "batch_size": 999}
    with pytest.raises(FscilError, match=rf"'{method.name}' .* 1: .*{what}.*; lower lr = 1e\+30"):
        learnt(method, params, sessions=1)


def test_the_last_block_of_the_backbones() -> None:
    resnet20, resnet18 = ResNet20Backbone().fresh(0), ResNet18Backbone().fresh(0)
    modules = dict(resnet20.named_modules())
    assert last_block(resnet20) is modules["layer3.2"]
    assert last_block(resnet18) is dict(resnet18.named_modules())["layer4.1"]
    nested = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.ReLU())
    assert last_block(nested) is nested[1][0]
