from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

from fscil_bench.errors import UsageError
from fscil_bench.methods._shared.softmax import Fit, fit_logistic
from fscil_bench.methods.free_lunch import free_lunch
from fscil_bench.methods.free_lunch.free_lunch import FreeLunch
from fscil_bench.methods.logistic import Logistic
from fscil_bench.protocol import Queries, Session
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt, start

CLASSES = BASE + WAY * SESSIONS
SMALL = {"samples_per_class": 30, "episode_samples": 60}


def _learnt(sessions: int = SESSIONS, **params: Any) -> FreeLunch:
    return learnt(FreeLunch, SMALL | params, sessions=sessions)


VARIANTS: list[dict[str, Any]] = [
    {"space": "raw", "alpha_mode": "ones"},
    {"head": "cosine"},
    {"k": 0},
    {"k": BASE},
    {"byte_budget": 4 * DIM * DIM},
    {"byte_budget": 3 * 4 * BASE * DIM, "budget_mode": "low_rank"},
]


def test_it_stores_statistics_mixtures_and_the_classifier() -> None:
    shots = 3 * WAY * SESSIONS
    base, classifier = 4 * BASE * (DIM + DIM**2), 4 * CLASSES * (DIM + 1)
    assert _learnt(0).state_bytes() == base + 4 * BASE * (DIM + 1)
    for k in (0, 2):
        mixtures = 4 * shots * (DIM + k + 1)
        assert _learnt(k=k).state_bytes() == base + mixtures + classifier
    cosine = _learnt(head="cosine").state_bytes()
    assert cosine == _learnt().state_bytes() - 4 * CLASSES


def test_more_neighbours_than_base_classes_are_refused() -> None:
    with pytest.raises(UsageError, match=f"k = 7 neighbours, but there are {BASE} base classes"):
        FreeLunch.check(FreeLunch.Params(k=7), ToyTask().terms)


def test_without_neighbours_and_alpha_an_episode_is_regression_on_copies_of_its_shots() -> None:
    task = ToyTask()
    shots, queries = task.episode(0)
    copies = 1 + 60 // 3  # twenty samples of every shot, and the shot
    plain = {"k": 0, "alpha": 0.0, "space": "raw", "penalty": float(copies)}
    method, regression = _learnt(0, **plain), learnt(Logistic, sessions=0)
    found = method.episode_scores(shots, queries)
    expected = regression.episode_scores(shots, queries)
    centred = [scores - scores.mean(dim=1, keepdim=True) for scores in (found, expected)]
    assert torch.allclose(*centred, atol=0.02)


def test_neighbours_of_a_new_class_are_the_base_classes_nearest_to_each_shot() -> None:
    method, session = _learnt(1), ToyTask().session(1)
    shots = session.features.sqrt()
    base = ToyTask().session(0)
    means = torch.stack(
        [base.features[base.labels == c].sqrt().mean(dim=0) for c in base.class_ids]
    )
    for row, shot in enumerate(shots):
        nearest = (means - shot).norm(dim=1).argsort()[:2]
        assert set(method.mixtures.neighbours[row].tolist()) == set(nearest.tolist())
        expected = (means[nearest].sum(dim=0) + shot) / 3
        assert torch.allclose(method.mixtures.means[row], expected, atol=1e-5)


def test_every_class_seen_is_trained_on_its_number_of_samples_and_on_its_own_shots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []

    def spy(samples: torch.Tensor, labels: torch.Tensor, *args: Any, **more: Any) -> Fit:
        assert len(samples) == len(labels)
        seen.append(labels.bincount())
        return fit_logistic(samples, labels, *args, **more)

    monkeypatch.setattr(free_lunch, "fit_logistic", spy)
    _learnt()
    assert seen[0].tolist() == [30] * BASE
    assert seen[1].tolist() == [30] * BASE + [33] * WAY
    assert seen[2].tolist() == [30] * (BASE + WAY) + [33] * WAY


def test_noise_differs_between_episodes() -> None:
    first = _learnt()
    shots, queries = ToyTask().episode(0)
    scores = first.episode_scores(shots, queries)
    assert torch.equal(scores, first.episode_scores(shots, queries))
    assert not torch.equal(scores, first.episode_scores(replace(shots, index=9), queries))


def test_base_classes_of_one_sample_have_no_covariance_and_are_counted() -> None:
    session = Session(
        torch.tensor([0, 0, 0, 1, 2]),
        {"plain": torch.rand(5, DIM, generator=torch.Generator().manual_seed(0))},
        class_ids=(0, 1, 2),
        classes_seen=3,
    )
    method = start(ToyTask(), FreeLunch, FreeLunch.Params())
    method.learn_base(session)
    assert method.notes()["classes_without_covariance"] == 2
    assert not method.covariances.covariance(1).any()  # type: ignore[union-attr]
    assert torch.isfinite(method.weights).all()


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("head", ["logistic", "cosine"])
def test_constant_features_give_finite_scores(
    value: float, head: Literal["logistic", "cosine"]
) -> None:
    session = ToyTask().session(0)
    constant = torch.full_like(session.features, value)
    method = start(ToyTask(), FreeLunch, FreeLunch.Params(head=head))
    method.learn_base(replace(session, views={"plain": constant}))
    new = ToyTask().session(1)
    method.learn_session(replace(new, views={"plain": torch.full_like(new.features, value)}))
    assert torch.isfinite(method.scores(Queries({"plain": constant[:4]}))).all()
    assert method.notes()["eigenvalues_raised"] == 0


def test_a_fit_short_of_its_optimum_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "largest_gradient" not in _learnt().notes()

    def hasty(*args: Any, **more: Any) -> Fit:
        return fit_logistic(*args, **more, max_steps=1)

    monkeypatch.setattr(free_lunch, "fit_logistic", hasty)
    notes = _learnt().notes()
    assert notes["fits_not_converged"] == 3
    assert notes["largest_gradient"] > 1e-5  # type: ignore[operator]


def test_artifacts_are_samples_of_every_class_in_order() -> None:
    method = _learnt(alpha=0.0)
    arrays = method.artifacts()
    generated = torch.from_numpy(arrays["generated_step0"])
    assert generated.shape == (CLASSES, 100, DIM)
    assert float(arrays["feature_power"]) == 0.5
    assert torch.allclose(generated[2].mean(dim=0), method.base_means[2], atol=0.3)
    last = method.mixtures.means[-3:].mean(dim=0)
    assert torch.allclose(generated[-1].mean(dim=0), last, atol=0.3)
    assert float(_learnt(0, space="raw").artifacts()["feature_power"]) == 1.0
