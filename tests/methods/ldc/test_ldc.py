from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.methods.ldc import classifier, matching
from fscil_bench.methods.ldc.covariance import symmetric_root
from fscil_bench.methods.ldc.ldc import Ldc
from fscil_bench.methods.ldc.params import LdcParams
from fscil_bench.methods.ncm import NCM
from fscil_bench.params import parse_params
from fscil_bench.protocol import Queries, Session
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, check_method, learnt, start

SMALL = {
    "unit_steps": 8,
    "unit_samples": 16,
    "unit_classes": 4,
    "hidden": 4,
    "epochs": 3,
    "samples_per_class": 8,
    "base_rows": "means",
}
"""Parameters under which a run takes milliseconds, and untrained rows are class means."""


def _session(index: int, shot: int = 3) -> Session:
    return ToyTask(shot).session(index)


def _queries() -> Queries:
    return ToyTask().queries()


def _method(overrides: Mapping[str, Any] | None = None) -> Ldc:
    values = parse_params("ldc", LdcParams, SMALL | dict(overrides or {}))
    return Ldc(values, ToyTask().context(Ldc))


def _learnt(overrides: Mapping[str, Any] | None = None, sessions: int = SESSIONS) -> Ldc:
    return learnt(Ldc, SMALL | dict(overrides or {}), sessions=sessions)


def _few(session: Session, count: int) -> Session:
    """Return a session of the first `count` samples of each class."""
    kept = torch.cat([(session.labels == c).nonzero()[:count, 0] for c in session.class_ids])
    views = {"plain": session.features[kept]}
    return replace(session, labels=session.labels[kept], views=views)


def _sigma(method: Ldc) -> torch.Tensor:
    return method.state_dict()["covariance"]


AT_MEANS: dict[str, Any] = {"sampler": "none", "base_rows": "means"}
CLOSED: dict[str, Any] = {"classifier": "bayes", "recurrent_steps": 0}

VARIANTS: list[dict[str, Any]] = [
    {},
    {"space": "raw"},
    {"covariance": "shared"},
    {"recurrent_steps": 0},
    {"recurrent_steps": 3},
    {"covariance": "shared", "recurrent_steps": 0},
    AT_MEANS,
    {"sampler": "released"},
    {"covariance": "empirical"},
    {"covariance": "empirical", "sampler": "released"},
    {"new_means": "posterior"},
    {"new_means": "posterior", "prior_weight": 0.3},
    {"new_means": "posterior", "covariance": "empirical", "recurrent_steps": 0},
    AT_MEANS | {"new_means": "posterior"},
    {"new_means": "borrowed"},
    AT_MEANS | {"new_means": "borrowed"},
    {"base_rows": "trained"},
    CLOSED,
    CLOSED | {"covariance": "shared"},
    CLOSED | {"covariance": "empirical", "new_means": "posterior"},
    CLOSED | {"covariance": "shared", "new_means": "borrowed"},
    {"virtual_classes": 0.5},
    {"recurrent_inputs": "shots"},
    {"recurrent_inputs": "shots", "covariance": "empirical", "kernel": 3, "recurrent_steps": 2},
    {"kernel": 3},
    {"mapping": "columns", "slices": 4},
    {"mapping": "columns", "sampler": "released"},
    CLOSED | {"mapping": "columns", "new_means": "posterior"},
    {"loss": "js"},
    {"loss": "hellinger"},
    {"loss": "emd"},
    {"loss": "emd", "directions": "full", "unit_steps": 3},
    {"directions": "full", "unit_samples": 8 * DIM},
    {"update": "pooled"},
    {"statistics": "heldout"},
    {"train_rows": "new"},
    {"means": "snapshot"},
    {"few_shot_weight": 0.5},
    {"base_rows": "means", "sampled_weight": 0.0, "few_shot_weight": 1.0},
]


@pytest.mark.parametrize("overrides", VARIANTS, ids=str)
def test_every_choice_keeps_the_contract(overrides: dict[str, Any]) -> None:
    check_method(Ldc, SMALL | overrides)


@pytest.mark.parametrize("overrides", VARIANTS[1:], ids=str)
def test_every_choice_changes_the_result(overrides: dict[str, Any]) -> None:
    assert not torch.equal(_learnt(overrides).classifier, _learnt().classifier)


@pytest.mark.parametrize("space", ["raw", "tukey"])
@pytest.mark.parametrize(
    "off",
    [
        AT_MEANS | {"few_shot_weight": 5.0},
        {"epochs": 0},
        {"sampled_weight": 0, "few_shot_weight": 0},
    ],
    ids=str,
)
def test_without_training_it_is_class_means(space: str, off: dict[str, Any]) -> None:
    method, means = _learnt({"space": space} | off), learnt(NCM, {"space": space})
    torch.testing.assert_close(method.scores(_queries()), 16 * means.scores(_queries()))
    shots, queries = ToyTask().episode(0)
    expected = 16 * means.episode_scores(shots, queries)
    torch.testing.assert_close(method.episode_scores(shots, queries), expected)


def test_covariance_is_the_mean_over_all_classes_seen() -> None:
    method = _learnt({"space": "raw"})
    each = []
    for index in range(3):
        session = _session(index)
        rows = [session.features[session.labels == c].double() for c in session.class_ids]
        each += [np.cov(x.numpy().T) for x in rows]
    assert np.allclose(_sigma(method), np.mean(each, axis=0), atol=1e-5)


def test_pooled_update_includes_the_spread_between_classes() -> None:
    method = _learnt({"space": "raw", "update": "pooled"}, sessions=0)
    before = _sigma(method).double()
    method.learn_session(_session(1))
    pooled = torch.cov(_session(1).features.double().T)
    expected = before * BASE / (BASE + WAY) + pooled * WAY / (BASE + WAY)
    assert np.allclose(_sigma(method), expected, atol=1e-5)


def test_heldout_statistics_come_from_the_held_out_samples() -> None:
    method = _learnt({"space": "raw", "statistics": "heldout"}, sessions=0)
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
    # Class means beside rows that are others, where anything needs them.
    others = sampled or (p.base_rows == "trained" and p.new_means != "sample")
    kept = others and p.classifier == "trained" and p.means == "prototype"
    values = rows * DIM * (2 if kept else 1) + (p.new_means == "borrowed")
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


def test_pretrain_params_are_all_that_shape_what_base_data_teach() -> None:
    trained = {"base_rows": "trained"}
    reference = _method(trained).pretrain(_session(0), lambda _: None)
    others = {
        "update": "pooled",
        "nearest": 3,
        "borrowed_share": 0.7,
        "borrowed_neighbours": 1,
        "classifier": "bayes",
        "shrinkage": 0.1,
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
    }
    known = set(LdcParams.__dataclass_fields__)
    assert set(others) | set(Ldc.pretrain_params) == known
    found = _method(others | trained).pretrain(_session(0), lambda _: None)
    assert "base_rows" in reference
    assert all(torch.equal(reference[name], found[name]) for name in reference)


@pytest.mark.parametrize(
    "overrides", [{"covariance": "shared", "recurrent_steps": 0}, {"sampler": "none"}], ids=str
)
def test_unit_is_not_trained_where_there_is_none(overrides: dict[str, Any]) -> None:
    done: list[float] = []
    assert _method(overrides).pretrain(_session(0), done.append) == {}
    assert done == []


def test_one_shot_contributes_no_covariance_and_is_noted() -> None:
    method = _learnt(sessions=0)
    before = _sigma(method).clone()
    method.learn_session(_session(1, shot=1))
    assert torch.equal(_sigma(method), before)
    assert method.notes()["classes_without_covariance"] == WAY


FORMS: list[dict[str, Any]] = [
    {},
    {"recurrent_inputs": "shots"},
    {"covariance": "shared"},
    {"covariance": "empirical"},
    {"sampler": "released"},
    {"new_means": "posterior"},
    {"new_means": "borrowed", "base_rows": "trained"},
    CLOSED,
    CLOSED | {"covariance": "shared", "shrinkage": 1e-6},
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
    method = _method({"space": "raw"} | form)
    _survives(method, _few(_session(0), 2), _few(_session(1), 2))
    own = method.params.covariance == "empirical"
    assert method.notes()["eigenvalues_raised"] == DIM - (1 if own else BASE)
    assert 0.9e-6 < method.notes()["largest_raise"] < 2e-6


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_base_classes_of_one_sample_have_no_covariance_and_are_noted(form: dict[str, Any]) -> None:
    method = _method(form)
    _survives(method, _few(_session(0), 1), _session(1))
    assert method.notes()["classes_without_covariance"] == BASE


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"statistics": "heldout"}, "holdout"),
        ({"covariance": "empirical", "nearest": 7}, r"nearest=7.* 6 base classes"),
        ({"mapping": "columns", "kernel": 3}, "use kernel=1, or mapping=entries"),
        ({"directions": "full"}, "unit_samples >= 128"),
        ({"virtual_classes": 0.5, "covariance": "empirical"}, "virtual_classes=0"),
        ({"new_means": "borrowed", "borrowed_neighbours": 7}, r"neighbours=7.* 6 base classes"),
        (CLOSED | {"sampler": "none"}, "sampler=none there are none"),
        ({"sampler": "none"}, "sampler=none trains no base rows"),
        ({"epochs": 0}, "epochs=0 trains no base rows"),
        ({"sampled_weight": 0.0}, "sampled_weight=0 trains no base rows"),
        (CLOSED | {"sampler": "released"}, "sampler=released there are none"),
        ({"classifier": "bayes"}, "set recurrent_steps=0"),
        (CLOSED | {"base_rows": "trained"}, "set base_rows=means"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Ldc.check(LdcParams(**params), replace(ToyTask().terms, heldout=False))


def test_posterior_means_shrink_the_shots_by_the_mapped_covariance() -> None:
    method = _learnt({"new_means": "posterior", "space": "raw", "epochs": 0}, sessions=0)
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
        between, error = state["prior_covariance"], factor.T @ factor / 3
        gain = between @ torch.linalg.inv(between + error)
        expected = state["prior_mean"] + gain @ (mean - state["prior_mean"])
        assert torch.allclose(state["classifier"][BASE + row], expected, atol=1e-4)
        assert not torch.allclose(expected, mean, atol=1e-2)
    assert 0 < method.notes()["prior_shrinkage"] < 1


@pytest.mark.parametrize("means", ["prototype", "snapshot"])
def test_borrowed_means_come_from_base_classes_alone(means: str) -> None:
    params = {"new_means": "borrowed", "borrowed_share": 0.4, "borrowed_neighbours": 2}
    method = _learnt(params | {"space": "raw", "epochs": 0, "means": means}, sessions=1)
    base, session = _session(0), _session(2)
    base_means = torch.stack(
        [base.features[base.labels == c].mean(dim=0) for c in base.class_ids]
    ).numpy()
    restored = _method(params | {"space": "raw", "epochs": 0, "means": means})
    restored.load_state_dict(method.state_dict())
    restored.learn_session(session)
    for row, c in enumerate(session.class_ids):
        mean = session.features[session.labels == c].mean(dim=0).numpy()
        cosines = base_means @ mean / np.linalg.norm(base_means, axis=1)
        expected = 0.6 * mean + 0.4 * base_means[np.argsort(-cosines)[:2]].mean(axis=0)
        assert np.allclose(restored.classifier[BASE + WAY + row], expected, atol=1e-5)


def test_borrowing_nothing_leaves_the_mean_of_the_shots() -> None:
    plain, none = _learnt(), _learnt({"new_means": "borrowed", "borrowed_share": 0.0})
    assert torch.equal(plain.classifier, none.classifier)


def test_trained_base_rows_lower_the_cross_entropy_of_real_features() -> None:
    base, losses = _session(0), []
    for rows in ("means", "trained"):
        method = _learnt({"base_rows": rows}, sessions=0)
        scores = method.scores(Queries({"plain": base.features}))
        losses.append(float(torch.nn.functional.cross_entropy(scores, base.labels)))
    assert losses[1] < 0.8 * losses[0]
    state, means = method.state_dict(), _learnt(sessions=0).state_dict()
    assert torch.equal(state["prototypes"], means["prototypes"]), "samplers keep the class means"
    lengths = state["classifier"].norm(dim=1)
    torch.testing.assert_close(lengths, means["classifier"].norm(dim=1))


def _densities(method: Ldc, covariances: list[np.ndarray], shrinkage: float) -> np.ndarray:
    """Return log densities of the queries under Gaussians of a method's means, shrunk."""
    columns = []
    for mean, covariance in zip(method.classifier.double().numpy(), covariances, strict=True):
        spread = np.trace(covariance) / DIM * np.eye(DIM)
        gaussian = multivariate_normal(mean, (1 - shrinkage) * covariance + shrinkage * spread)
        columns.append(gaussian.logpdf(_queries().features.double().numpy()))
    return np.stack(columns, axis=1)


def test_closed_form_scores_by_class_means_and_the_stored_covariance() -> None:
    for covariance, steps in (("shared", 8), ("mapped", 0)):
        # A unit as it begins maps every class to Σ.
        asked = {"covariance": covariance, "unit_steps": steps, "shrinkage": 0.2, "space": "raw"}
        method = _learnt(CLOSED | asked)
        expected = _densities(method, [_sigma(method).double().numpy()] * (BASE + 2 * WAY), 0.2)
        assert np.allclose(method.scores(_queries()), expected, rtol=1e-4, atol=1e-3)
        rows = torch.stack(
            [
                session.features[session.labels == c].mean(dim=0)
                for session in map(_session, range(3))
                for c in session.class_ids
            ]
        )
        torch.testing.assert_close(method.classifier, rows)


def test_closed_form_takes_each_class_s_own_covariance() -> None:
    asked = {"covariance": "empirical", "nearest": 1, "shrinkage": 0.2, "space": "raw"}
    method = _learnt(CLOSED | asked)
    own = method.state_dict()["base_covariances"].double().numpy()
    means = method.classifier.double()
    lenders = torch.cdist(means[BASE:], means[:BASE]).argmin(dim=1).tolist()
    expected = _densities(method, [*own, *own[lenders]], 0.2)
    assert np.allclose(method.scores(_queries()), expected, rtol=1e-4, atol=1e-3)


def test_counts_of_the_shots_are_kept_where_the_recurrent_step_sees_them() -> None:
    method = _learnt({"recurrent_inputs": "shots"}, sessions=0)
    method.learn_session(_session(1))
    assert method.state_dict()["counts"].tolist() == [20.0] * BASE + [3.0] * WAY
    assert "counts" not in _learnt({"recurrent_inputs": "shots", "recurrent_steps": 0}).state_dict()


def test_plans_short_of_the_optimum_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {"loss": "emd", "directions": "full", "unit_steps": 2}
    assert _learnt(exact, sessions=0).notes()["emd_plans_not_optimal"] == 0
    monkeypatch.setattr(matching, "EMD_ITERATIONS", 1)
    with pytest.warns(UserWarning, match="numItermax"):
        method = _learnt(exact, sessions=0)
    # Two steps of four classes, after zero and after one recurrent step.
    assert method.notes()["emd_plans_not_optimal"] == 2 * 4 * 2
    assert "emd_plans_not_optimal" not in _learnt().notes()


def test_artifacts_are_generated_features_per_step_and_the_loss_curve() -> None:
    method = _learnt({"recurrent_steps": 2}, sessions=0)
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


@pytest.mark.parametrize(("rate", "value"), [("unit_lr", 1e30), ("lr", 1e39)])
def test_a_rate_that_diverges_is_named(rate: str, value: float) -> None:
    with pytest.raises(FscilError, match=rf"'ldc': the .* diverges .*; lower {rate} = 1e\+3"):
        _learnt({rate: value})


def _tiny(index: int, spread: float = 0.03) -> tuple[Session, Queries]:
    """Return a session of four base classes of 8 images or two of 5, D = 64, and its queries.

    Class means share most of their length; what they differ by, √64 · `spread` each, is more than
    three times what the samples of a class do.
    """
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(64, generator=generator) + spread * torch.randn(8, 64, generator=generator)
    ids = range(4) if index == 0 else range(2 + 2 * index, 4 + 2 * index)
    noise = torch.Generator().manual_seed(index)

    def drawn(labels: torch.Tensor) -> torch.Tensor:
        near = centres[labels] + 0.3 * spread * torch.randn(len(labels), 64, generator=noise)
        return near.clamp(min=0)

    labels = torch.tensor(ids).repeat_interleave(8 if index == 0 else 5)
    views = {"plain": drawn(labels)}
    session = Session(labels, views, index=index, class_ids=tuple(ids), classes_seen=ids.stop)
    return session, Queries({"plain": drawn(torch.arange(ids.stop).repeat_interleave(10))})


@pytest.mark.parametrize(("least", "kept"), [(classifier.LEAST_GAIN, True), (-1.0, False)])
def test_rows_stay_where_the_softmax_cannot_tell_class_means_apart(
    least: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier, "LEAST_GAIN", least)
    method = start(ToyTask(), Ldc, LdcParams(unit_steps=0, base_rows="means"))
    for index in range(3):
        session, queries = _tiny(index)
        (method.learn_session if index else method.learn_base)(session)
    truth = torch.arange(8).repeat_interleave(10)
    accuracy = float((method.scores(queries).argmax(dim=1) == truth).float().mean())
    assert method.notes().get("sessions_at_means") == (2 if kept else None)
    assert torch.equal(method.classifier, method.prototypes) == kept
    assert accuracy == 1 if kept else accuracy < 0.7


def test_a_class_mean_as_likely_as_chance_leaves_nothing_to_train_on() -> None:
    # Two unit vectors of cosine c: the own log p is −log(1 + exp(−T(1 − c))), chance −log 2, which
    # is 0.2 nats less at T(1 − c) = 0.4503.
    for gap, trained in ((0.451, True), (0.449, False)):
        cosine = 1 - gap / 16
        rows = torch.tensor([[1.0, 0.0], [cosine, (1 - cosine**2) ** 0.5]])
        assert classifier.separable(rows, 16.0) == trained


@pytest.mark.parametrize(("images", "trained"), [(3, False), (4, True)])
def test_a_unit_is_trained_only_where_samples_span_all_dimensions(
    images: int, trained: bool
) -> None:
    method = _method()
    found = method.pretrain(_few(_session(0), images), lambda _: None)
    method.load_pretrained(found)
    # 6 classes of 3 images have 12 degrees of freedom, of 4 images 18, for 16 dimensions.
    assert bool(found["mapping.last"].any()) == trained
    assert ("degrees of freedom" in str(method.notes().get("unit_trained"))) != trained


def test_a_unit_that_training_makes_worse_is_not_kept() -> None:
    method = _learnt({"unit_lr": 50.0, "unit_steps": 3}, sessions=0)
    assert "no better than the shared covariance" in str(method.notes()["unit_trained"])
    assert not method.unit.mapping.last.any() and not method.unit.calibration.last.any()


@pytest.mark.parametrize("mapping", ["entries", "columns"])
@pytest.mark.parametrize(("bias", "outside"), [(1.5, 0), (2.0, 8), (-2.0, 8), (np.nan, 8)])
def test_a_mapped_covariance_far_from_the_shared_one_is_that_one(
    mapping: str, bias: float, outside: int
) -> None:
    """A bias b of the mapping alone multiplies every covariance by exp 2b; 30 is exp 3.4."""
    asked = {"mapping": mapping, "recurrent_steps": 0, "unit_steps": 0, "epochs": 0}
    method = _learnt(asked, sessions=0)
    with torch.no_grad():
        method.unit.mapping.last_bias.fill_(bias)
    method.learn_session(_session(1))
    drawn = torch.from_numpy(method.artifacts()["generated_step0"])
    within = torch.stack([rows.var(dim=0).sum() for rows in drawn]).mean()
    share = float(within / _sigma(method).trace())
    assert method.notes().get("classes_outside_spread", 0) == outside
    assert share == pytest.approx(1 if outside else np.exp(2 * bias), rel=0.1)


EPISODES: list[dict[str, Any]] = [*FORMS, {"means": "snapshot"}]


@pytest.mark.parametrize("overrides", EPISODES, ids=str)
def test_an_episode_trains_rows_of_its_classes_alone(overrides: dict[str, Any]) -> None:
    method = _learnt(overrides | {"epochs": 10, "lr": 0.1}, sessions=0)
    shots, queries = ToyTask().episode(0)
    scores = method.episode_scores(shots, queries).float()
    plain = 16 * learnt(NCM, {"space": "tukey"}).episode_scores(shots, queries)
    assert not torch.allclose(scores, plain, atol=0.01)
    assert (scores.argmax(dim=1) == plain.argmax(dim=1)).float().mean() > 0.8


def test_episodes_of_one_number_have_the_same_noise_and_others_have_other() -> None:
    method = _learnt(sessions=0)
    shots, queries = ToyTask().episode(0)
    first, again = (method.episode_scores(shots, queries) for _ in range(2))
    other = method.episode_scores(replace(shots, index=99), queries)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("epochs", "kept"), [(1, True), (20, True), (100, False)])
def test_a_session_that_ends_far_behind_class_means_stays_at_these(epochs: int, kept: bool) -> None:
    """Trained base rows have lower cosines than new means: after few steps these win everything."""
    method = learnt(Ldc, {"unit_steps": 0, "epochs": epochs}, sessions=1)
    assert method.notes().get("sessions_at_means") == (1 if kept else None)
    assert torch.equal(method.classifier, method.prototypes) == kept
    task, seen = ToyTask(queries=400), BASE + WAY
    truth = torch.arange(400) % task.classes
    right = method.scores(task.queries()).argmax(dim=1) == truth
    assert float(right[truth < seen].float().mean()) > 0.99
