from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.methods.episodic import episodes as module
from fscil_bench.methods.episodic.attention import GraphAttention
from fscil_bench.methods.episodic.episodes import MetaParams
from fscil_bench.testing import ToyTask

LABELS = torch.tensor([7] * 6 + [3] * 8 + [5] * 7)
IDS = (3, 5, 7)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_an_episode_takes_other_samples_of_one_class_for_each_row() -> None:
    episodes = module.base_episodes(LABELS, IDS, MetaParams(ways=2, shots=2, queries=3))
    source, classes, turned = generator(), set(), set()
    for _ in range(30):
        samples, turns = episodes.draw(source)
        assert samples.shape == (2, 5)
        owners = LABELS[samples]
        assert (owners == owners[:, :1]).all()
        assert owners[0, 0] != owners[1, 0]
        assert all(len(set(row)) == 5 for row in samples.tolist())
        classes |= set(owners[:, 0].tolist())
        turned |= set(turns.tolist())
    assert classes == set(IDS)
    assert turned == {1, 2, 3}


def test_few_classes_and_samples_make_smaller_episodes() -> None:
    episodes = module.base_episodes(LABELS, IDS, MetaParams())
    assert (episodes.ways, episodes.shots, episodes.queries) == (3, 1, 5)


def test_a_class_too_small_for_a_query_is_refused_with_the_numbers() -> None:
    terms = replace(ToyTask().terms, base_images=6)
    with pytest.raises(UsageError, match=r"cec: a base class has 6 training images.* 7 of them"):
        module.check_episodes("cec", MetaParams(shots=6), terms)
    module.check_episodes("cec", MetaParams(shots=5), terms)


def test_an_epoch_is_shorter_where_there_are_few_samples() -> None:
    episodes = module.base_episodes(LABELS, IDS, MetaParams())
    assert module.episodes_per_epoch(episodes, 50) == 3  # 3 · 21 samples of 3 · (1 + 5) shown
    assert module.episodes_per_epoch(episodes, 2) == 2


def test_the_published_protocols_have_the_published_epochs() -> None:
    for classes, each, queries in ((60, 500, 15), (100, 30, 10)):
        labels = torch.arange(classes).repeat_interleave(each)
        params = MetaParams(queries=queries)
        episodes = module.base_episodes(labels, tuple(range(classes)), params)
        assert module.episodes_per_epoch(episodes, params.episodes) == 50


def features(samples: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """One number a sample, and its turn beside it."""
    return torch.stack([samples.float(), turns.float()], dim=1)


def test_prototypes_are_means_of_shots_and_copies_are_turned_class_by_class() -> None:
    samples, turns = torch.tensor([[2, 4, 8], [10, 12, 20]]), torch.tensor([1, 3])
    prototypes, queries = module.episode_features(features, samples, turns, shots=2)
    assert prototypes.tolist() == [[3.0, 0.0], [11.0, 0.0], [3.0, 1.0], [11.0, 3.0]]
    assert queries.tolist() == [[[8.0, 0.0]], [[20.0, 0.0]], [[8.0, 1.0]], [[20.0, 3.0]]]


def test_training_lowers_the_loss_and_moves_what_is_trained_along() -> None:
    labels = torch.arange(4).repeat_interleave(10)
    views = torch.rand(4, 40, 5, generator=generator(1)) + 2 * torch.eye(4, 5)[labels]
    stretch = torch.nn.Parameter(torch.ones(5))
    params = MetaParams(epochs=12, ways=4, queries=5, lr=0.05, temperature=4.0)
    losses = module.train_on_episodes(
        GraphAttention(5, True, generator(2)),
        lambda samples, turns: views[turns, samples] * stretch,
        module.base_episodes(labels, (0, 1, 2, 3), params),
        params,
        generator(3),
        lambda _: None,
        {"params": [stretch], "lr": 0.01},
    )
    assert losses[-4:].mean() < losses[:2].mean()
    assert not torch.equal(stretch.detach(), torch.ones(5))


def test_a_loss_that_is_not_finite_stops_the_training() -> None:
    labels = torch.arange(4).repeat_interleave(10)
    params = MetaParams(epochs=2, ways=4, queries=5)
    with pytest.raises(FscilError, match=r"lower lr = 0\.0002"):
        module.train_on_episodes(
            GraphAttention(5, True, generator()),
            lambda samples, _: torch.full((len(samples), 5), torch.nan),
            module.base_episodes(labels, (0, 1, 2, 3), params),
            params,
            generator(),
            lambda _: None,
        )
