from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.errors import UsageError
from fscil_bench.methods.finetune import Finetune
from fscil_bench.methods.icarl import Icarl, IcarlSoftmax
from fscil_bench.protocol import Session
from fscil_bench.testing import BASE, BASE_SHOTS, SESSIONS, SIZE, WAY, ToyTask, check_method


def made(task: ToyTask, method: type[Icarl] = Icarl, **params: Any) -> Icarl:
    # The draws of fine-tuning, which it is compared with.
    found = method(method.Params(**params), task.context(Finetune))
    found.learn_base(task.session(0))
    return found


def taught(task: ToyTask, **params: Any) -> Icarl:
    method = made(task, **params)
    for number in range(1, SESSIONS + 1):
        method.learn_session(task.session(number))
    return method


@pytest.mark.parametrize(
    "params",
    [
        {"classifier": "softmax", "budget": 12, "trained": "last_block"},
        {"replay": "distilled", "batch_norm": "trained", "head": "linear"},
        {"exemplars": 0, "classifier": "softmax", "kd_weight": 0.0},
    ],
)
def test_its_variants_keep_the_contract(params: dict[str, Any]) -> None:
    check_method(Icarl, {"epochs": 1, **params})


def test_without_exemplars_and_distillation_it_is_fine_tuning() -> None:
    task = ToyTask()
    shared: dict[str, Any] = {"epochs": 4, "lr": 0.05, "schedule": "constant", "head": "linear"}
    shared |= {"batch_norm": "trained"}
    for replay in ("mixed", "distilled"):
        own = {"exemplars": 0, "kd_weight": 0.0, "classifier": "softmax", "replay": replay}
        method = taught(task, **shared, **own)
        other = Finetune(Finetune.Params(**shared), task.context(Finetune))
        for number in range(1, SESSIONS + 1):
            other.learn_session(task.session(number))
        state = method.state_dict()
        for name, tensor in other.state_dict().items():
            assert torch.equal(tensor, state[name]), name


def test_with_all_images_and_a_frozen_network_it_is_the_nearest_unit_mean() -> None:
    task = ToyTask()
    method = taught(task, exemplars=BASE_SHOTS, lr=0.0, epochs=1)
    means = []
    for number in range(SESSIONS + 1):
        session = task.session(number)
        assert session.images is not None
        unit = F.normalize(method.embed(session.images), dim=1)
        means += [unit[session.labels == c].mean(dim=0) for c in session.class_ids]
    queries = task.queries()
    assert queries.images is not None
    unit = F.normalize(method.embed(queries.images), dim=1)
    expected = unit @ F.normalize(torch.stack(means), dim=1).T
    assert torch.allclose(method.scores(queries), expected, atol=1e-5)


def test_a_class_with_few_images_stores_what_it_has() -> None:
    method = taught(ToyTask(shot=1), exemplars=4, epochs=1)
    counts = method.exemplars.labels.bincount().tolist()
    assert counts == [4] * BASE + [1] * (WAY * SESSIONS)
    assert method.exemplars.images.shape == (sum(counts), SIZE, SIZE, 3)
    assert method.means.shape == (len(counts), 16)


def test_a_budget_is_shared_by_the_classes_seen() -> None:
    task = ToyTask()
    method = made(task, budget=17, epochs=0)
    first = method.exemplars.images.clone()
    assert method.exemplars.labels.bincount().tolist() == [2] * 6
    method.learn_session(task.session(1))
    assert method.exemplars.labels.bincount().tolist() == [2] * 8
    method.learn_session(task.session(2))
    assert method.exemplars.labels.bincount().tolist() == [1] * 10
    assert torch.equal(method.exemplars.images[:BASE], first[::2]), "the best of each is kept"


def test_a_budget_below_the_class_count_is_refused_with_the_numbers() -> None:
    task = ToyTask()
    with pytest.raises(UsageError, match=r"budget = 5 exemplars do not go round 6 classes"):
        made(task, budget=5)
    method = made(task, budget=7, epochs=0)
    with pytest.raises(UsageError, match=r"budget = 7 exemplars do not go round 8 classes"):
        method.learn_session(task.session(1))


@pytest.mark.parametrize("params", [{"exemplars": 0}, {"keep_new": False}])
def test_means_without_exemplars_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="use classifier=softmax"):
        made(ToyTask(), **params)


def test_distillation_holds_the_old_classes() -> None:
    task = ToyTask()
    drift = []
    for weight in (0.0, 10.0):
        method = made(task, kd_weight=weight, epochs=10, lr=0.02, classifier="softmax")
        before = F.log_softmax(method.scores(task.queries()), dim=1)
        method.learn_session(task.session(1))
        after = F.log_softmax(method.scores(task.queries())[:, :BASE], dim=1)
        drift.append(float((after - before).abs().mean()))
    assert drift[1] < 0.8 * drift[0]


def test_only_the_last_block_is_trained_if_asked() -> None:
    task = ToyTask()
    for trained, kept in (("all", False), ("last_block", True)):
        method = made(task, trained=trained, epochs=2)
        before = {k: v.clone() for k, v in method.network.backbone.state_dict().items()}
        rows = method.rows.detach().clone()
        method.learn_session(task.session(1))
        after = method.network.backbone.state_dict()
        assert torch.equal(before["conv.weight"], after["conv.weight"]) == kept
        assert not torch.equal(before["bn.weight"], after["bn.weight"])
        assert not torch.equal(rows, method.rows[:BASE]), "old rows are trained, too"


def test_distilled_replay_has_no_labels_of_exemplars() -> None:
    task = ToyTask()
    params: dict[str, Any] = {"replay": "distilled", "epochs": 3, "keep_new": False}
    params |= {"classifier": "softmax", "exemplars": 3}
    found = []
    for shift in (0, 1):
        method = made(task, **params)
        labels = (method.exemplars.labels + shift) % BASE
        method.exemplars = type(method.exemplars)(method.exemplars.images, labels)
        method.learn_session(task.session(1))
        found.append(method.rows.detach())
    assert torch.equal(*found)


def test_the_published_variant_keeps_its_base_exemplars_and_predicts_by_softmax() -> None:
    task = ToyTask()
    method = made(task, IcarlSoftmax, epochs=2)
    first = method.exemplars.images.clone()
    assert len(first) == BASE * BASE_SHOTS, "400 are more than there are"
    conv = method.network.backbone.state_dict()["conv.weight"].clone()
    method.learn_session(task.session(1))
    assert torch.equal(method.exemplars.images, first)
    assert torch.equal(method.network.backbone.state_dict()["conv.weight"], conv)
    queries = task.queries()
    assert queries.images is not None
    with torch.no_grad():
        logits = F.normalize(method.embed(queries.images), dim=1) @ method.rows.T
    assert torch.equal(method.scores(queries), logits)


def test_fewer_base_exemplars_than_base_classes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"icarl_softmax: budget = 4 .* 6 classes"):
        made(ToyTask(), IcarlSoftmax, budget=4)


def test_exemplars_are_copies() -> None:
    task = ToyTask()
    session: Session = task.session(0)
    method = Icarl(Icarl.Params(), task.context(Icarl))
    method.learn_base(session)
    kept = method.exemplars.images.clone()
    assert session.images is not None
    session.images.zero_()
    assert torch.equal(method.exemplars.images, kept)
