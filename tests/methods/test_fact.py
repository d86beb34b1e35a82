from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fscil_bench.methods.fact import (
    Fact,
    FactHead,
    FactRepresentation,
    draw_links,
    mixing_pairs,
    second_choice_loss,
    strongest,
    virtual_instance_loss,
)
from fscil_bench.methods.incremental.finetune import Finetune
from fscil_bench.methods.ncm import NCM, Cosine
from fscil_bench.representation import TrainingBatch
from fscil_bench.testing import BASE, DIM, ToyTask, learnt


def network() -> nn.Module:
    found = ToyTask().context(Finetune).network
    assert found is not None
    return found.backbone


def batch(epoch: int = 0) -> TrainingBatch:
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(12, 3, 6, 6, generator=generator)
    labels = torch.arange(12) % BASE
    return TrainingBatch(images, labels, epoch, lambda: images, generator)


def made(**params: Any) -> FactRepresentation:
    return FactRepresentation(FactRepresentation.Params(**{"virtual": 5, **params}))


def fact_head() -> FactHead:
    return FactHead(DIM, BASE, 5, torch.Generator().manual_seed(0))


def test_without_gamma_the_loss_is_that_of_cosine() -> None:
    head, rows = fact_head(), nn.Linear(DIM, BASE, bias=False)
    rows.weight = head.rows
    expected = Cosine(Cosine.Params()).loss(network(), rows, batch())
    assert torch.equal(made(gamma=0.0).loss(network(), head, batch()), expected)
    assert torch.equal(made(start_epoch=1).loss(network(), head, batch()), expected)
    assert float(made(start_epoch=1).loss(network(), head, batch(epoch=1))) > float(expected)


def test_the_second_choice_is_among_virtual_rows_as_drawn_or_as_trained() -> None:
    head, moved, samples = fact_head(), fact_head(), replace(batch(), labels=torch.zeros(12).long())
    with torch.no_grad():
        moved.virtual.neg_()
    for choice, same in (("frozen", True), ("trained", False)):
        # Of one class alone there are no pairs to mix, so that L2 is all that is reserved.
        losses = [made(second_choice=choice).loss(network(), h, samples) for h in (head, moved)]
        assert torch.equal(*losses) == same
    made().loss(network(), head, batch()).backward()
    assert head.virtual.grad is not None and bool(head.virtual.grad.any()), "L3 and L4 train them"


def test_rows_begin_orthogonal_where_there_is_room() -> None:
    rows = fact_head().all_rows().detach()
    assert torch.allclose(rows @ rows.T, torch.eye(BASE + 5), atol=1e-5)


def test_a_backbone_without_stages_is_refused() -> None:
    with pytest.raises(TypeError, match="no stages"):
        made().loss(nn.Linear(1, 1), fact_head(), batch())


def test_with_eta_0_it_predicts_as_class_means_do() -> None:
    queries = ToyTask(queries=100).queries()
    fact, means = (m.scores(queries) for m in (learnt(Fact, {"eta": 0.0}), learnt(NCM)))
    assert torch.equal(fact.argmax(1), means.argmax(1))


@pytest.mark.parametrize(("resemblance", "along"), [("published", 0), ("cosine", 1)])
def test_with_eta_1_only_the_likeness_to_virtual_prototypes_counts(
    resemblance: str, along: int
) -> None:
    method = learnt(Fact, {"eta": 1.0, "resemblance": resemblance})
    queries, means, unit = ToyTask().queries(), method.prototypes, nn.functional.normalize
    likeness = unit(queries.features) @ unit(method.virtual).T
    means = means / means.square().sum(dim=along, keepdim=True).sqrt()
    expected = (likeness @ (unit(method.virtual) @ means.T)).softmax(dim=1)
    assert torch.allclose(method.scores(queries), expected, atol=1e-6)


def test_only_the_strongest_similarities_are_kept() -> None:
    given = torch.tensor([[0.3, -0.2, 0.9], [0.1, 0.5, 0.4]])
    assert strongest(given, 3) is given
    assert strongest(given, 1).tolist() == [[0.0, 0.0, pytest.approx(0.9)], [0.0, 0.5, 0.0]]


INF = float("inf")


def softmax_loss(values: list[float], target: int) -> float:
    """Return the cross-entropy of one row, worked out."""
    return math.log(sum(math.exp(v) for v in values)) - values[target]


def test_every_virtual_prototype_is_linked_to_so_many_classes() -> None:
    links = draw_links(10, 7, 3, torch.Generator().manual_seed(0))
    assert links.shape == (10, 7) and links.sum(dim=0).tolist() == [3] * 7
    assert draw_links(2, 4, 3, torch.Generator()).sum(dim=0).tolist() == [2] * 4


@pytest.mark.parametrize(
    ("virtual", "linked", "chosen"),
    [
        ([3.0, 2.0], [False, True], 1),  # though 0 has the larger logit
        ([-1.0, -2.0], [False, True], 1),  # though all are negative
        ([3.0, 2.0], [False, False], 0),  # a class without links may choose any
    ],
)
def test_the_second_choice_is_the_best_linked_virtual_prototype(
    virtual: list[float], linked: list[bool], chosen: int
) -> None:
    links = torch.tensor([linked, [True, True]])
    loss = second_choice_loss(torch.tensor([[5.0, 1.0, *virtual]]), torch.tensor([0]), links)
    # Class 0, which is the sample's own, is out.
    assert float(loss) == pytest.approx(softmax_loss([1.0, *virtual], 1 + chosen))


def test_a_mixed_sample_is_virtual_first_and_known_second() -> None:
    logits = torch.tensor([[4.0, 1.0, 0.0, 2.0]])
    expected = softmax_loss([4.0, 1.0, 0.0, 2.0], 3) + softmax_loss([4.0, 1.0, 0.0], 0)
    assert float(virtual_instance_loss(logits, classes=2)) == pytest.approx(expected)


def test_pairs_are_of_different_classes() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    first, second = mixing_pairs(labels, torch.Generator().manual_seed(1))
    assert 0 < len(first) == len(second)
    assert bool((labels[first] != labels[second]).all())
    assert len(mixing_pairs(torch.zeros(5, dtype=torch.int64), torch.Generator())[0]) == 0
