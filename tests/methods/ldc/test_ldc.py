from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fscil_bench.errors import UsageError
from fscil_bench.method import MethodContext
from fscil_bench.methods._shared.cosine import cosine_logits
from fscil_bench.methods.ldc import matching
from fscil_bench.methods.ldc.covariance import symmetric_root
from fscil_bench.methods.ldc.ldc import Ldc
from fscil_bench.methods.ldc.params import LdcParams
from fscil_bench.params import parse_params
from fscil_bench.protocol import Queries, Session
from fscil_bench.seeding import Randomness
from fscil_bench.testing import ToyTask, learn, start

DIM, BASE, WAY, SHOT = 12, 6, 2, 5
SMALL = {
    "unit_steps": 8,
    "unit_samples": 16,
    "unit_classes": 4,
    "hidden": 4,
    "epochs": 3,
    "samples_per_class": 8,
}
"""Parameters under which a run takes milliseconds."""


def _features(class_ids: range | tuple[int, ...], count: int, seed: int) -> Session:
    """Return clustered non-negative features whose spread grows with their mean."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(50, DIM, generator=torch.Generator().manual_seed(99)).square() * 4
    labels = torch.tensor([c for c in class_ids for _ in range(count)])
    noise = torch.randn(len(labels), DIM, generator=generator)
    features = (centres[labels] * (1 + 0.4 * noise)).abs()
    return Session(labels, {"plain": features}, class_ids=tuple(class_ids))


def _session(index: int, shot: int = SHOT, dim: int | None = None, seed: int = 0) -> Session:
    start = 0 if index == 0 else BASE + WAY * (index - 1)
    stop = BASE if index == 0 else start + WAY
    made = _features(range(start, stop), 40 if index == 0 else shot, 10 * seed + index)
    heldout = _features(range(BASE), 20, 77) if index == 0 else None
    views = {"plain": made.features[:, :dim]}
    return replace(made, views=views, index=index, classes_seen=stop, heldout=heldout)


def _queries() -> Queries:
    return Queries({"plain": _features(range(BASE + 2 * WAY), 10, 500).features})


def _method(overrides: dict[str, Any] | None = None, dim: int = DIM, seed: int = 0) -> Ldc:
    params = parse_params("ldc", LdcParams, SMALL | (overrides or {}))
    randomness = Randomness(("seed", seed))
    context = MethodContext(dim, randomness, Randomness(("base",)), torch.device("cpu"))
    return Ldc(params, context)


def _started(overrides: dict[str, Any] | None = None, seed: int = 0) -> Ldc:
    method = _method(overrides, seed=seed)
    method.load_pretrained(method.pretrain(_session(0), lambda _: None))
    method.learn_base(_session(0))
    return method


def _learnt(overrides: dict[str, Any] | None = None, seed: int = 0, shot: int = SHOT) -> Ldc:
    method = _started(overrides, seed)
    for index in (1, 2):
        method.learn_session(_session(index, shot))
    return method


def _means_only(power: float, sessions: int = 2) -> torch.Tensor:
    """Return cosines of the queries and plain class means, the baseline."""
    means = []
    for index in range(sessions + 1):
        session = _session(index)
        x = session.features.pow(power)
        means += [x[session.labels == c].mean(dim=0) for c in session.class_ids]
    return cosine_logits(_queries().features.pow(power), torch.stack(means), 16)


def _sigma(method: Ldc) -> torch.Tensor:
    return method.state_dict()["covariance"]


VARIANTS: list[dict[str, Any]] = [
    {},
    {"space": "raw"},
    {"covariance": "shared"},
    {"recurrent_steps": 0},
    {"recurrent_steps": 3},
    {"covariance": "shared", "recurrent_steps": 0},
    {"sampler": "none"},
    {"sampler": "released"},
    {"covariance": "empirical"},
    {"covariance": "empirical", "sampler": "released"},
    {"new_means": "posterior"},
    {"new_means": "posterior", "prior_weight": 0.3},
    {"new_means": "posterior", "covariance": "empirical", "recurrent_steps": 0},
    {"new_means": "posterior", "sampler": "none"},
    {"virtual_classes": 0.5},
    {"recurrent_inputs": "shots"},
    {"recurrent_inputs": "shots", "covariance": "empirical", "kernel": 3, "recurrent_steps": 2},
    {"kernel": 3},
    {"loss": "js"},
    {"loss": "hellinger"},
    {"loss": "emd"},
    {"loss": "emd", "directions": "full", "unit_steps": 3},
    {"directions": "full", "unit_samples": 96},
    {"update": "pooled"},
    {"statistics": "heldout"},
    {"train_rows": "new"},
    {"means": "snapshot"},
    {"few_shot_weight": 0.5},
    {"sampled_weight": 0.0, "few_shot_weight": 1.0},
]


@pytest.mark.parametrize("overrides", VARIANTS, ids=str)
def test_every_choice_learns_and_survives_a_round_trip(overrides: dict[str, Any]) -> None:
    method = _learnt(overrides)
    scores = method.scores(_queries())
    assert scores.shape == (100, 10)
    assert torch.isfinite(scores).all()
    copy = _method(overrides)
    copy.load_state_dict(method.state_dict())
    assert torch.equal(copy.scores(_queries()), scores)
    for each in (copy, method):
        each.learn_session(_session(3))
    assert torch.equal(copy.scores(_queries()), method.scores(_queries()))


@pytest.mark.parametrize("overrides", VARIANTS[1:], ids=str)
def test_every_choice_changes_the_result(overrides: dict[str, Any]) -> None:
    assert not torch.equal(_learnt(overrides).classifier, _learnt().classifier)


@pytest.mark.parametrize(("space", "power"), [("raw", 1.0), ("tukey", 0.5)])
@pytest.mark.parametrize(
    "off",
    [{"sampler": "none"}, {"epochs": 0}, {"sampled_weight": 0, "few_shot_weight": 0}],
    ids=str,
)
def test_without_training_it_is_class_means(space: str, power: float, off: dict[str, Any]) -> None:
    scores = _learnt({"space": space} | off).scores(_queries())
    expected = _means_only(power)
    assert torch.allclose(scores, expected, atol=1e-4)
    assert torch.equal(scores.argmax(dim=1), expected.argmax(dim=1))


def test_covariance_is_the_mean_over_all_classes_seen() -> None:
    method = _learnt({"space": "raw"})
    each = []
    for index in range(3):
        session = _session(index)
        rows = [session.features[session.labels == c].double() for c in session.class_ids]
        each += [np.cov(x.numpy().T) for x in rows]
    assert np.allclose(_sigma(method), np.mean(each, axis=0), atol=1e-5)


def test_pooled_update_includes_the_spread_between_classes() -> None:
    method = _started({"space": "raw", "update": "pooled"})
    before = _sigma(method).double()
    method.learn_session(_session(1))
    pooled = torch.cov(_session(1).features.double().T)
    expected = before * BASE / (BASE + WAY) + pooled * WAY / (BASE + WAY)
    assert np.allclose(_sigma(method), expected, atol=1e-5)


def test_heldout_statistics_come_from_the_held_out_samples() -> None:
    method = _started({"space": "raw", "statistics": "heldout"})
    held = _session(0).heldout
    assert held is not None
    each = [np.cov(held.features[held.labels == c].double().numpy().T) for c in range(BASE)]
    assert np.allclose(_sigma(method), np.mean(each, axis=0), atol=1e-5)


@pytest.mark.parametrize("overrides", VARIANTS, ids=str)
@pytest.mark.parametrize("means", ["snapshot", "prototype"])
def test_stored_bytes(overrides: dict[str, Any], means: str) -> None:
    method = _learnt({"means": means} | overrides)
    p, rows = method.params, BASE + 2 * WAY
    sampled = p.sampler != "none"
    values = rows * DIM * (2 if sampled and p.means == "prototype" else 1)
    if sampled or p.new_means == "posterior":
        values += DIM**2 * (BASE if p.covariance == "empirical" else 1)
    if p.new_means == "posterior":
        values += DIM + DIM**2
    if sampled and p.covariance == "mapped":
        values += (2 * p.kernel**2 + 1 + p.kernel**2) * p.hidden + 1
    if sampled and p.recurrent_steps:
        channels = 3 if p.recurrent_inputs == "shots" else 1
        values += (channels * p.kernel + 1 + p.kernel) * p.hidden + 1
        values += rows if p.recurrent_inputs == "shots" else 0
    if sampled and (p.recurrent_steps or p.covariance == "mapped"):
        values += 2
    assert method.state_bytes() == 4 * values


def test_only_new_rows_move_where_old_ones_are_frozen() -> None:
    method = _started({"train_rows": "new", "lr": 1.0})
    before = method.classifier.clone()
    method.learn_session(_session(1))
    assert torch.allclose(method.classifier[:BASE], before, atol=1e-6)
    new = _session(1).features.sqrt()
    assert not torch.allclose(method.classifier[BASE], new[:SHOT].mean(dim=0), atol=1e-3)


def test_rows_keep_the_norm_of_their_means() -> None:
    method = _started({"lr": 1.0})
    before = method.classifier.norm(dim=1)
    method.learn_session(_session(1))
    assert torch.allclose(method.classifier[:BASE].norm(dim=1), before)


def test_prototypes_stay_class_means_while_rows_train() -> None:
    method = _learnt({"means": "prototype", "lr": 1.0})
    base = _session(0)
    first = base.features[base.labels == 0].sqrt().mean(dim=0)
    assert torch.allclose(method.state_dict()["prototypes"][0], first, atol=1e-5)
    assert not torch.allclose(method.classifier[0], first, atol=1e-2)


def test_unit_depends_on_base_randomness_alone() -> None:
    first, second = (_method(seed=seed).pretrain(_session(0), lambda _: None) for seed in (0, 1))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_pretrain_params_are_all_that_shape_the_unit() -> None:
    reference = _method().pretrain(_session(0), lambda _: None)
    others = {
        "update": "pooled",
        "nearest": 3,
        "new_means": "posterior",
        "prior_weight": 2.0,
        "means": "snapshot",
        "train_rows": "new",
        "epochs": 7,
        "lr": 0.5,
        "batch_size": 3,
        "samples_per_class": 5,
        "sampled_weight": 0.3,
        "few_shot_weight": 0.3,
        "temperature": 2.0,
    }
    known = set(LdcParams.__dataclass_fields__)
    assert set(others) | set(Ldc.pretrain_params) == known
    unit = _method(others).pretrain(_session(0), lambda _: None)
    assert all(torch.equal(reference[name], unit[name]) for name in reference)


@pytest.mark.parametrize(
    "overrides", [{"covariance": "shared", "recurrent_steps": 0}, {"sampler": "none"}], ids=str
)
def test_unit_is_not_trained_where_there_is_none(overrides: dict[str, Any]) -> None:
    done: list[float] = []
    assert _method(overrides).pretrain(_session(0), done.append) == {}
    assert done == []


def test_same_seed_same_result_and_another_seed_another() -> None:
    first, again, other = (_learnt(seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.classifier, again.classifier)
    assert not torch.equal(first.classifier, other.classifier)


def test_one_shot_contributes_no_covariance_and_is_noted() -> None:
    method = _started()
    before = _sigma(method).clone()
    method.learn_session(_session(1, shot=1))
    assert torch.equal(_sigma(method), before)
    assert method.notes()["classes_without_covariance"] == WAY
    assert torch.isfinite(method.scores(_queries())).all()


FORMS: list[dict[str, Any]] = [
    {},
    {"recurrent_inputs": "shots"},
    {"covariance": "shared"},
    {"covariance": "empirical"},
    {"sampler": "released"},
    {"new_means": "posterior"},
]


def _survives(method: Ldc, *sessions: Session) -> None:
    method.load_pretrained(method.pretrain(sessions[0], lambda _: None))
    method.learn_base(sessions[0])
    for session in sessions[1:]:
        method.learn_session(session)
    assert torch.isfinite(method.scores(_queries())).all()
    assert torch.isfinite(method.episode_scores(sessions[1], _queries())).all()
    assert all(np.isfinite(array).all() for array in method.artifacts().values())


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("space", ["raw", "tukey"])
def test_constant_features_are_repaired_and_noted(
    value: float, space: str, form: dict[str, Any]
) -> None:
    def constant(index: int) -> Session:
        session = _session(index)
        return replace(session, views={"plain": torch.full_like(session.features, value)})

    method = _method({"space": space} | form)
    _survives(method, constant(0), constant(1))
    assert method.notes()["eigenvalues_raised"] == DIM
    assert method.notes()["largest_raise"] == 1e-6


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_more_dimensions_than_samples_are_repaired_and_noted(form: dict[str, Any]) -> None:
    def few(index: int) -> Session:
        session = _session(index, shot=2)
        keep = torch.cat([(session.labels == c).nonzero()[:2, 0] for c in session.class_ids])
        views = {"plain": session.features[keep]}
        return replace(session, labels=session.labels[keep], views=views)

    method = _method({"space": "raw"} | form)
    _survives(method, few(0), few(1))
    own = method.params.covariance == "empirical"
    assert method.notes()["eigenvalues_raised"] == DIM - (1 if own else BASE)
    assert 0.9e-6 < method.notes()["largest_raise"] < 2e-6


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_base_classes_of_one_sample_have_no_covariance_and_are_noted(form: dict[str, Any]) -> None:
    session = _session(0)
    keep = torch.cat([(session.labels == c).nonzero()[:1, 0] for c in session.class_ids])
    views = {"plain": session.features[keep]}
    single = replace(session, labels=session.labels[keep], views=views)
    method = _method(form)
    _survives(method, single, _session(1))
    assert method.notes()["classes_without_covariance"] == BASE


def test_heldout_statistics_without_held_out_samples_are_refused() -> None:
    terms = ToyTask().terms
    params = Ldc.Params(statistics="heldout")
    Ldc.check(params, terms)
    with pytest.raises(UsageError, match="holdout"):
        Ldc.check(params, replace(terms, heldout=False))


def test_fewer_base_classes_than_lenders_are_refused() -> None:
    params = Ldc.Params(covariance="empirical", nearest=7)
    with pytest.raises(UsageError, match=r"nearest=7.* 6 base classes"):
        Ldc.check(params, ToyTask().terms)


def test_full_covariances_of_too_few_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="unit_samples >= 128"):
        Ldc.check(Ldc.Params(directions="full"), ToyTask().terms)


def test_virtual_classes_without_a_covariance_to_mix_are_refused() -> None:
    with pytest.raises(UsageError, match="virtual_classes=0"):
        Ldc.check(Ldc.Params(virtual_classes=0.5, covariance="empirical"), ToyTask().terms)


def test_baseline_is_class_means_whatever_the_weights_and_generates_nothing() -> None:
    method = _learnt({"sampler": "none", "few_shot_weight": 5.0, "epochs": 50})
    assert torch.allclose(method.scores(_queries()), _means_only(0.5), atol=1e-4)
    assert set(method.artifacts()) == {"feature_power"}
    assert method.notes() == {}


def test_released_noise_puts_the_samples_of_a_class_on_a_line() -> None:
    drawn = _learnt({"sampler": "released"}).artifacts()["generated_step0"]
    for rows in drawn:
        spread = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
        assert spread[1] < 1e-4 * spread[0]


def test_posterior_means_shrink_the_shots_by_the_mapped_covariance() -> None:
    method = _started({"new_means": "posterior", "space": "raw", "epochs": 0})
    base, session = _session(0), _session(1)
    method.learn_session(session)
    state = method.state_dict()
    root = symmetric_root(state["covariance"]).matrix.float()
    x, y = base.features, base.labels
    assert torch.allclose(
        state["prior_mean"], torch.stack([x[y == c].mean(0) for c in range(BASE)]).mean(0)
    )
    for row, c in enumerate(session.class_ids):
        mean = session.features[session.labels == c].mean(dim=0)
        factor = method.unit.factors(mean[None], root)[0].detach()
        between, error = state["prior_covariance"], factor.T @ factor / SHOT
        gain = between @ torch.linalg.inv(between + error)
        expected = state["prior_mean"] + gain @ (mean - state["prior_mean"])
        assert torch.allclose(state["classifier"][BASE + row], expected, atol=1e-4)
        assert not torch.allclose(expected, mean, atol=1e-2)
    assert 0 < method.notes()["prior_shrinkage"] < 1


def test_counts_of_the_shots_are_kept_where_the_recurrent_step_sees_them() -> None:
    method = _started({"recurrent_inputs": "shots"})
    method.learn_session(_session(1, shot=3))
    assert method.state_dict()["counts"].tolist() == [40.0] * BASE + [3.0] * WAY
    assert "counts" not in _learnt({"recurrent_inputs": "shots", "recurrent_steps": 0}).state_dict()


def test_posterior_leaves_base_classes_and_the_sample_mean_of_the_baseline_alone() -> None:
    shrunk, plain = (_learnt({"new_means": m, "sampler": "none"}) for m in ("posterior", "sample"))
    assert torch.equal(shrunk.classifier[:BASE], plain.classifier[:BASE])
    assert not torch.allclose(shrunk.classifier[BASE:], plain.classifier[BASE:], atol=1e-2)


def test_plans_short_of_the_optimum_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {"loss": "emd", "directions": "full", "unit_steps": 2}
    assert _started(exact).notes()["emd_plans_not_optimal"] == 0
    monkeypatch.setattr(matching, "EMD_ITERATIONS", 1)
    with pytest.warns(UserWarning, match="numItermax"):
        method = _started(exact)
    # Two steps of four classes, after zero and after one recurrent step.
    assert method.notes()["emd_plans_not_optimal"] == 2 * 4 * 2
    assert "emd_plans_not_optimal" not in _learnt().notes()


def test_artifacts_are_generated_features_per_step_and_the_loss_curve() -> None:
    method = _started({"recurrent_steps": 2})
    assert "classifier_loss" not in method.artifacts()
    method.learn_session(_session(1))
    arrays = method.artifacts()
    assert arrays["classifier_loss"].shape == (3,)
    assert float(arrays["feature_power"]) == 0.5
    for step in range(3):
        assert arrays[f"generated_step{step}"].shape == (BASE + WAY, 100, DIM)
    again = method.artifacts()
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    restored = _method({"recurrent_steps": 2})
    restored.load_state_dict(method.state_dict())
    assert "generated_step0" not in restored.artifacts()


QUICK = {"unit_steps": 8, "unit_samples": 16, "hidden": 4, "epochs": 10, "lr": 0.1}
EPISODES: list[dict[str, Any]] = [
    {},
    {"covariance": "shared"},
    {"covariance": "empirical"},
    {"sampler": "released"},
    {"new_means": "posterior"},
    {"means": "snapshot"},
    {"recurrent_inputs": "shots"},
]


def _on_toy_task(overrides: dict[str, Any] | None = None) -> tuple[Ldc, ToyTask]:
    task = ToyTask()
    method = start(task, Ldc, parse_params("ldc", Ldc.Params, QUICK | (overrides or {})))
    assert isinstance(method, Ldc)
    learn(method, task.session(0))
    return method, task


def _means(task: ToyTask) -> torch.Tensor:
    shots, _ = task.episode(0)
    x = shots.features.sqrt()
    return torch.stack([x[shots.labels == c].mean(dim=0) for c in shots.class_ids])


@pytest.mark.parametrize("overrides", EPISODES, ids=str)
def test_an_episode_trains_rows_of_its_classes_alone(overrides: dict[str, Any]) -> None:
    method, task = _on_toy_task(overrides)
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
    method, task = _on_toy_task(off)
    scores = method.episode_scores(*task.episode(0))
    expected = cosine_logits(task.episode(0)[1].features.sqrt(), _means(task), 16.0)
    assert torch.allclose(scores, expected, atol=1e-4)


def test_columns_follow_the_class_ids() -> None:
    method, task = _on_toy_task({"sampler": "none"})
    shots, queries = task.episode(0)
    turned = replace(shots, class_ids=shots.class_ids[::-1])
    scores = method.episode_scores(shots, queries)
    assert torch.equal(method.episode_scores(turned, queries), scores.flip(1))


def test_episodes_of_one_number_have_the_same_noise_and_others_have_other() -> None:
    method, task = _on_toy_task()
    shots, queries = task.episode(0)
    first, again = (method.episode_scores(shots, queries) for _ in range(2))
    other = method.episode_scores(replace(shots, index=99), queries)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
