from __future__ import annotations

from typing import Any

import torch

from fscil_bench.methods.cec.cec import CecTrained, turned
from fscil_bench.testing import BASE, ToyTask

QUICK = {"epochs": 1, "episodes": 2, "ways": 3, "queries": 4}


def cec_trained(**params: Any) -> CecTrained:
    values = CecTrained.Params(**{**QUICK, **params})
    return CecTrained(values, ToyTask().context(CecTrained))


def pretrained(method: CecTrained) -> dict[str, torch.Tensor]:
    return method.pretrain(ToyTask().session(0), lambda _: None)


def test_graph_and_network_are_trained_and_batch_statistics_kept() -> None:
    method = cec_trained()
    before = {k: v.clone() for k, v in method.state_dict().items() if k != "prototypes"}
    tensors = pretrained(method)
    assert set(tensors) == set(before)
    for name in ("graph.value", "graph.output", "encoder.conv.weight", "encoder.bn.weight"):
        assert not torch.equal(tensors[name], before[name]), name
    for name in ("encoder.bn.running_mean", "encoder.bn.running_var"):
        assert torch.equal(tensors[name], before[name]), name


def test_pretraining_leaves_the_network_as_it_is_until_it_is_loaded() -> None:
    method = cec_trained(encoder_lr=0.1)
    before = method.network.backbone.state_dict()["conv.weight"].clone()
    tensors = pretrained(method)
    assert torch.equal(method.network.backbone.state_dict()["conv.weight"], before)
    method.load_pretrained(tensors)
    now = method.network.backbone.state_dict()["conv.weight"]
    assert torch.equal(now, tensors["encoder.conv.weight"])


def test_prototypes_are_means_of_the_network_as_trained() -> None:
    method, task = cec_trained(encoder_lr=0.1), ToyTask()
    method.load_pretrained(pretrained(method))
    base = task.session(0)
    method.learn_base(base)
    assert base.images is not None
    own = method.network.test_pixels(base.images[base.labels == 2])
    with torch.no_grad():
        expected = method.network.backbone(own).mean(dim=0)
    torch.testing.assert_close(method.prototypes[2], expected)
    assert len(method.prototypes) == BASE


def test_rate_zero_keeps_the_network() -> None:
    method = cec_trained(encoder_lr=0.0)
    tensors = pretrained(method)
    for name, value in method.network.backbone.state_dict().items():
        assert torch.equal(tensors[f"encoder.{name}"], value), name


def test_images_are_turned_counter_clockwise_one_by_one() -> None:
    corner = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).expand(4, 3, 2, 2)
    found = turned(corner, torch.tensor([0, 1, 2, 3]))[:, 0].flatten(1)
    assert found.argmax(dim=1).tolist() == [0, 2, 3, 1]  # down, across, up


def test_published_rates_are_parameters() -> None:
    for values in CecTrained.published.values():
        CecTrained.Params(**values)
    assert CecTrained.published["cub200"]["queries"] == 10
