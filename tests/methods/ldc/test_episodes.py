from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fscil_bench.errors import DataError
from fscil_bench.methods.ldc.classifier import cosine_logits
from fscil_bench.methods.ldc.ldc import Ldc
from fscil_bench.params import parse_params
from fscil_bench.testing import ToyTask, check_method, learn, start

SMALL = {"unit_steps": 8, "unit_samples": 16, "hidden": 4, "epochs": 10, "lr": 0.1}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"covariance": "shared"},
    {"covariance": "empirical"},
    {"sampler": "released"},
    {"new_means": "posterior"},
    {"means": "snapshot"},
    {"recurrent_inputs": "shots"},
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute on one thread: tensors this small only lose by being shared out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _started(overrides: dict[str, Any] | None = None) -> tuple[Ldc, ToyTask]:
    task = ToyTask()
    method = start(task, Ldc, parse_params("ldc", Ldc.Params, SMALL | (overrides or {})))
    assert isinstance(method, Ldc)
    learn(method, task.session(0))
    return method, task


def _means(task: ToyTask) -> torch.Tensor:
    shots, _ = task.episode(0)
    x = shots.features.sqrt()
    return torch.stack([x[shots.labels == c].mean(dim=0) for c in shots.class_ids])


@pytest.mark.parametrize(
    "overrides", [*VARIANTS, {"sampler": "none"}, {"recurrent_steps": 3}], ids=str
)
def test_every_choice_keeps_the_contract(overrides: dict[str, Any]) -> None:
    check_method(Ldc, SMALL | overrides)


@pytest.mark.parametrize("overrides", VARIANTS, ids=str)
def test_an_episode_trains_rows_of_its_classes_alone(overrides: dict[str, Any]) -> None:
    method, task = _started(overrides)
    shots, queries = task.episode(0)
    scores = method.episode_scores(shots, queries)
    plain = cosine_logits(queries.features.sqrt(), _means(task), 16.0)
    assert scores.shape == plain.shape == (len(queries), shots.way)
    assert not torch.allclose(scores, plain, atol=0.01)
    assert (scores.argmax(dim=1) == plain.argmax(dim=1)).float().mean() > 0.8


@pytest.mark.parametrize(
    "off",
    [{"sampler": "none"}, {"epochs": 0}, {"sampled_weight": 0.0, "few_shot_weight": 0.0}],
    ids=str,
)
def test_an_episode_without_training_is_class_means(off: dict[str, Any]) -> None:
    method, task = _started(off)
    scores = method.episode_scores(*task.episode(0))
    expected = cosine_logits(task.episode(0)[1].features.sqrt(), _means(task), 16.0)
    assert torch.allclose(scores, expected, atol=1e-4)


def test_columns_follow_the_class_ids() -> None:
    method, task = _started({"sampler": "none"})
    shots, queries = task.episode(0)
    turned = replace(shots, class_ids=shots.class_ids[::-1])
    scores = method.episode_scores(shots, queries)
    assert torch.equal(method.episode_scores(turned, queries), scores.flip(1))


def test_episodes_of_one_number_have_the_same_noise_and_others_have_other() -> None:
    method, task = _started()
    shots, queries = task.episode(0)
    first, again = (method.episode_scores(shots, queries) for _ in range(2))
    other = method.episode_scores(replace(shots, index=99), queries)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_episode_leaves_the_sessions_and_the_notes_alone() -> None:
    method, task = _started()
    twin, _ = _started()
    method.episode_scores(*task.episode(0))
    assert method.notes() == twin.notes()
    for each in (method, twin):
        each.learn_session(task.session(1))
    assert torch.equal(method.classifier, twin.classifier)


def test_shots_that_are_no_numbers_are_refused() -> None:
    method, task = _started()
    shots, queries = task.episode(0)
    shots.features[4, 1] = float("nan")
    with pytest.raises(DataError, match="row 4 "):
        method.episode_scores(shots, queries)
