from __future__ import annotations

import torch
from torch.nn import functional as F

from fscil_bench.methods.icarl import Exemplars, choose, exemplar_means, herd


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


def test_no_sample_is_chosen_twice_and_a_small_class_gives_all() -> None:
    features = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    assert sorted(herd(features, 20).tolist()) == list(range(7))
    assert herd(features[:1], 5).tolist() == [0]


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
