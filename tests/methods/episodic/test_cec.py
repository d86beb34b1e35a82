from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fscil_bench.errors import DataError
from fscil_bench.methods.episodic.cec import Cec, CecTrained
from fscil_bench.methods.ncm import NCM
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt

QUICK = {"epochs": 2, "episodes": 2}


def task(shot: int = 3) -> ToyTask:
    return ToyTask(shot, needs=Cec.needs)


def cec(**params: Any) -> Cec:
    return Cec(Cec.Params(**{**QUICK, **params}), task().context(Cec))


@pytest.mark.parametrize("shot", [1, 3])
def test_a_zero_output_map_without_layer_norm_equals_ncm(shot: int) -> None:
    method = cec(layer_norm=False, temperature=1.0)
    torch.nn.init.zeros_(method.attention.output)
    torch.nn.init.zeros_(method.attention.bias)
    made = task(shot)
    method.learn_base(made.session(0))
    for number in range(1, SESSIONS + 1):
        method.learn_session(made.session(number))
    ncm = learnt(NCM, shot=shot)
    torch.testing.assert_close(method.scores(made.queries()), ncm.scores(made.queries()))


def test_pretraining_reads_all_four_views_and_changes_nothing_of_the_method() -> None:
    method, base = cec(), task().session(0)
    before = {k: v.clone() for k, v in method.attention.state_dict().items()}
    first = method.pretrain(base, lambda _: None)
    for name, value in method.attention.state_dict().items():
        assert torch.equal(before[name], value)
    for view in ("plain", "rot90", "rot180", "rot270"):
        other = replace(base, views={**base.views, view: base.views[view].flip(1)})
        assert not torch.equal(
            method.pretrain(other, lambda _: None)["graph.value"], first["graph.value"]
        ), view


def test_loading_what_was_pretrained_is_what_the_queries_are_scored_by() -> None:
    method, queries = cec(), task().queries()
    method.learn_base(task().session(0))
    untrained = method.scores(queries)
    method.load_pretrained(cec(lr=0.1).pretrain(task().session(0), lambda _: None))
    assert not torch.allclose(method.scores(queries), untrained)


def test_an_episode_is_a_graph_of_its_own_classes_alone() -> None:
    method, made = cec(), task()
    shots, queries = made.episode(0)
    method.learn_base(made.session(0))
    found = method.episode_scores(shots, queries)
    method.learn_base(made.session(1))
    assert torch.equal(method.episode_scores(shots, queries), found)
    assert found.shape == (len(queries), shots.way)


def test_it_stores_prototypes_and_graph() -> None:
    floats = (BASE + WAY * SESSIONS) * DIM + 4 * DIM**2 + 3 * DIM
    assert learnt(Cec, QUICK).state_bytes() == 4 * floats


def test_a_feature_that_is_not_a_number_is_refused() -> None:
    base = task().session(0)
    base.views["rot180"][25, 0] = torch.nan
    with pytest.raises(DataError, match="row 25"):
        cec().pretrain(base, lambda _: None)


SHORT = {"epochs": 1, "episodes": 2, "ways": 3, "queries": 4}


def cec_trained(**params: Any) -> CecTrained:
    values = CecTrained.Params(**{**SHORT, **params})
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
