from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.errors import UsageError
from fscil_bench.methods.incremental.finetune import Finetune
from fscil_bench.methods.incremental.icarl import (
    Exemplars,
    Icarl,
    IcarlSoftmax,
    choose,
    distillation,
    exemplar_means,
    herd,
)
from fscil_bench.testing import BASE, BASE_SHOTS, SESSIONS, ToyTask


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


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        (Icarl, {"budget": 9}, r"icarl: budget = 9 exemplars do not go round 10 classes"),
        (IcarlSoftmax, {"budget": 4}, r"icarl_softmax: budget = 4 .* 6 classes"),
        (Icarl, {"exemplars": 0}, "use classifier=softmax"),
        (Icarl, {"keep_new": False}, "use classifier=softmax"),
    ],
)
def test_too_few_exemplars_are_refused(
    method: type[Icarl], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        method.check(method.Params(**params), ToyTask().terms)


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


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values)[:, None]


def test_herding_by_hand() -> None:
    # The mean is 3: the sample 3 comes first; then (0 + 3) / 2 is nearer 3 than (-1 + 3) / 2 and
    # (10 + 3) / 2 are; then (10 + 3) / 3 is nearer than (-1 + 3) / 3.
    features = column(0, 3, 10, -1)
    assert herd(features, 4).tolist() == [1, 0, 2, 3]
    assert herd(features, 2).tolist() == [1, 0]


def test_herding_is_not_nearest_first() -> None:
    # The mean is 0. After 0 and 1, the sample -3 makes the mean of three -2/3, and 2 makes it 1.
    assert herd(column(1, 2, -3, 0), 4).tolist() == [3, 0, 2, 1]


def test_exemplars_are_herded_class_by_class_on_unit_features() -> None:
    # Class 4: lengths count for nothing, the directions 0°, 45° and 90° do; 45° is the mean's.
    angles = torch.tensor([0.0, 45.0, 90.0, 200.0]).deg2rad()
    features = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor(
        [[9.0], [1], [2], [1]]
    )
    labels = torch.tensor([4, 4, 4, 2])
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 2, 2, 3)
    found = choose(images, labels, features, 1)
    assert found.labels.tolist() == [2, 4]
    assert found.images[:, 0, 0, 0].tolist() == [3, 1]
    assert found.images.dtype == torch.uint8


def test_the_last_of_a_class_are_dropped_and_others_added() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1], dtype=torch.int32)
    stored = Exemplars(torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1), labels)
    fewer = stored.first(2)
    assert fewer.images.flatten().tolist() == [0, 1, 3, 4]
    assert stored.first(9).labels.tolist() == labels.tolist()
    more = fewer.with_more(
        Exemplars(torch.full((1, 1, 1, 1), 7, dtype=torch.uint8), labels[:1] + 2)
    )
    assert more.labels.tolist() == [0, 0, 1, 1, 2]
    assert more.images.flatten().tolist() == [0, 1, 3, 4, 7]


def test_means_are_of_unit_features_and_of_unit_length() -> None:
    features = torch.tensor([[5.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    means = exemplar_means(features, torch.tensor([0, 0, 1], dtype=torch.int32))
    expected = F.normalize(torch.tensor([[0.5, 0.5], [0.0, 1.0]]), dim=1)
    assert torch.allclose(means, expected)


def test_gradient_and_value_are_zero_where_student_is_teacher() -> None:
    old = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    logits = torch.cat([old, torch.ones(5, 2)], dim=1).requires_grad_()
    value = distillation(logits, old, 2.0)
    value.backward()  # type: ignore[no-untyped-call]
    assert float(value.detach()) == pytest.approx(0, abs=1e-6)
    assert logits.grad is not None
    assert float(logits.grad.abs().max()) < 1e-6


def test_the_gradient_is_that_of_pycils_cross_entropy() -> None:
    """PyCIL's iCaRL: minus the mean of softmax(old/T) · log softmax(new/T), whose factor is 1."""
    generator = torch.Generator().manual_seed(0)
    old, new = (torch.randn(6, 4, generator=generator) for _ in range(2))
    new.requires_grad_()
    theirs = -((old / 2).softmax(dim=1) * (new / 2).log_softmax(dim=1)).sum() / 6
    mine = distillation(new, old, 2.0)
    torch.testing.assert_close(*(torch.autograd.grad(each, new)[0] for each in (mine, theirs)))


def test_value_by_hand() -> None:
    # At T = 2 the old probabilities are (3/4, 1/4), the new ones (1/2, 1/2); the third class of
    # the new logits is none of the old ones and does not count.
    old = torch.tensor([[2 * math.log(3), 0.0]])
    new = torch.tensor([[1.0, 1.0, 50.0]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert float(distillation(new, old, 2.0)) == pytest.approx(expected, rel=1e-5)
    twice = distillation(new.repeat(2, 1), old.repeat(2, 1), 2.0)
    assert float(twice) == pytest.approx(expected, rel=1e-5), "a mean over samples"
