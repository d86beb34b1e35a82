from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fscil_bench.methods.ncm import NCM, Cosine
from fscil_bench.protocol import Queries, Session
from fscil_bench.representation import TrainingBatch
from fscil_bench.testing import ToyTask


def session(features: list[list[float]], labels: list[int], index: int = 0) -> Session:
    ids = tuple(dict.fromkeys(labels))
    return Session(
        labels=torch.tensor(labels),
        views={"plain": torch.tensor(features)},
        index=index,
        class_ids=ids,
        classes_seen=max(ids) + 1,
    )


def ncm(**params: Any) -> NCM:
    return NCM(NCM.Params(**params), ToyTask().context(NCM))


def test_means_are_of_raw_features_and_compared_by_cosine() -> None:
    method = ncm()
    method.learn_base(session([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0]], [0, 0, 1]))
    assert method.prototypes.tolist() == [[2.0, 2.0], [0.0, 2.0]]
    scores = method.scores(Queries({"plain": torch.tensor([[1.0, 0.0]])}))
    assert scores[0].tolist() == pytest.approx([2**-0.5, 0.0])


def test_tukey_takes_powers_before_the_mean() -> None:
    method = ncm(space="tukey")
    method.learn_base(session([[1.0, 4.0], [9.0, 16.0]], [0, 0]))
    assert method.prototypes.tolist() == [[2.0, 3.0]]


def test_a_unit_mean_does_not_count_long_features_more() -> None:
    features, labels = [[3.0, 4.0], [0.0, 0.5]], [0, 0]
    raw, unit, tukey = ncm(), ncm(mean="unit"), ncm(mean="unit", space="tukey")
    for method in (raw, unit, tukey):
        method.learn_base(session(features, labels))
    assert raw.prototypes[0].tolist() == pytest.approx([1.5, 2.25])
    assert unit.prototypes[0].tolist() == pytest.approx([0.3, 0.9])
    assert tukey.prototypes[0].tolist() == pytest.approx(
        [0.5 * (3 / 7) ** 0.5, 0.5 * ((4 / 7) ** 0.5 + 1)]
    )


def test_a_balanced_mean_is_of_the_images_nearest_the_mean_of_all() -> None:
    method = ncm(balanced=2)
    # The mean is (3, 2): of the cosines with it, (3, 1) and (2, 2) have the largest, .965 and .981.
    base = [[3.0, 1.0], [0.0, 4.0], [2.0, 2.0], [7.0, 1.0], [1.0, 1.0]]
    method.learn_base(session(base, [0, 0, 0, 0, 1]))
    assert method.prototypes.tolist() == [[2.5, 1.5], [1.0, 1.0]]
    method.learn_session(session([[1.0, 0.0], [5.0, 0.0], [0.0, 3.0]], [2, 2, 2], 1))
    assert method.prototypes[2].tolist() == [2.0, 1.0], "new classes have all their shots"


def test_predictions_follow_the_order_of_the_classes() -> None:
    task, method, other = ToyTask(), ncm(), ncm()
    base = task.session(0)
    order = torch.tensor([4, 2, 5, 0, 3, 1])
    method.learn_base(base)
    other.learn_base(replace(base, class_ids=tuple(base.class_ids[i] for i in order)))
    torch.testing.assert_close(
        other.scores(task.queries()), method.scores(task.queries())[:, order]
    )


def test_an_episode_is_classified_by_the_means_of_its_shots_alone() -> None:
    method = ncm(space="tukey")
    method.learn_base(session([[1.0, 1.0], [4.0, 0.0]], [0, 1]))
    shots = session([[0.0, 9.0], [4.0, 0.0], [16.0, 0.0]], [3, 2, 2])
    scores = method.episode_scores(shots, Queries({"plain": torch.tensor([[9.0, 16.0]])}))
    assert scores[0].tolist() == pytest.approx([0.8, 0.6])  # columns as in class_ids: 3, 2
    assert method.prototypes.shape == (2, 2)


def test_the_cosine_loss_by_hand() -> None:
    made = Cosine(Cosine.Params(temperature=2.0))
    head = made.build_head(2, 2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 0.5]]))
    images = torch.tensor([[3.0, 4.0]])
    batch = TrainingBatch(images, torch.tensor([1]), 0, lambda: images, torch.Generator())
    loss = made.loss(torch.nn.Identity(), head, batch)
    expected = F.cross_entropy(torch.tensor([[2 * 0.6, 2 * 0.8]]), torch.tensor([1]))
    assert float(loss) == pytest.approx(float(expected))
