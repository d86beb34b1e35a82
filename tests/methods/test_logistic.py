from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from fscil_bench.errors import DataError
from fscil_bench.methods._shared import softmax_losses as _softmax_losses
from fscil_bench.methods._shared.softmax import Fit, fit_cosine, fit_logistic
from fscil_bench.methods.logistic import Logistic
from fscil_bench.params import parse_params
from fscil_bench.protocol import Queries, Session
from fscil_bench.testing import BASE, SESSIONS, WAY, ToyTask, check_method

CLASSES, DIM = 4, 6


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Compute on one thread: tensors this small only lose by being shared out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _problem(count: int = 120, spread: float = 1.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples of overlapping classes (the larger the spread, the more), and labels."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(count) % CLASSES
    centres = torch.randn(CLASSES, DIM, generator=generator).double()
    noise = torch.randn(count, DIM, generator=generator).double()
    return centres[labels] + spread * noise, labels


def _gradient(
    fit: Fit, x: torch.Tensor, y: torch.Tensor, penalty: float, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the gradient (C, D+1) of scikit-learn's objective, written out in NumPy."""
    inputs = np.hstack([x.numpy(), np.ones((len(x), 1))])
    rows = np.hstack([fit.weights.numpy(), fit.intercept.numpy()[:, None]])
    logits = inputs @ rows.T
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(x)), y.numpy()] -= 1
    if weights is not None:
        shares *= weights[:, None]
    rows[:, -1] = 0
    return shares.T @ inputs + penalty * rows


@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("spread", [0.1, 1.5])
def test_it_finds_scikit_learns_optimum(penalty: float, spread: float) -> None:
    x, y = _problem(spread=spread)
    fit = fit_logistic(x, y, CLASSES, penalty, tolerance=1e-10)
    theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(x, y)
    assert fit.converged
    assert np.allclose(fit.weights, theirs.coef_, atol=1e-5)
    assert np.allclose(fit.intercept, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-5)


def test_the_gradient_written_out_is_zero_at_the_optimum() -> None:
    x, y = _problem()
    weights = np.random.default_rng(0).uniform(0.2, 3, len(x))
    fit = fit_logistic(x, y, CLASSES, 0.7, torch.from_numpy(weights), tolerance=1e-9)
    assert np.abs(_gradient(fit, x, y, 0.7, weights)).max() / weights.sum() <= 1e-9
    other = _gradient(fit, x, y, 0.7)
    assert np.abs(other).max() / len(x) > 1e-3  # the weights do matter


def test_scipy_reaches_the_same_objective() -> None:
    x, y = _problem()

    def objective(flat: np.ndarray) -> float:
        rows = torch.from_numpy(flat).view(CLASSES, DIM + 1)
        logits = x @ rows[:, :-1].T + rows[:, -1]
        cross_entropy = F.cross_entropy(logits, y, reduction="sum")
        return float(cross_entropy + 0.5 * rows[:, :-1].square().sum())

    theirs = minimize(objective, np.zeros(CLASSES * (DIM + 1)), options={"gtol": 1e-4})
    fit = fit_logistic(x, y, CLASSES, 1.0, tolerance=1e-9)
    ours = np.hstack([fit.weights.numpy(), fit.intercept.numpy()[:, None]])
    assert objective(ours.ravel()) == pytest.approx(theirs.fun, rel=1e-9)
    assert objective(ours.ravel()) <= theirs.fun + 1e-9


def test_the_optimum_does_not_depend_on_the_start() -> None:
    x, y = _problem()
    cold = fit_logistic(x, y, CLASSES, 0.1, tolerance=1e-9)
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(3, DIM, generator=generator), torch.randn(3, generator=generator)
    warm = fit_logistic(x, y, CLASSES, 0.1, start=random, tolerance=1e-9)
    assert torch.allclose(warm.weights, cold.weights, atol=1e-6)
    assert torch.allclose(warm.intercept, cold.intercept, atol=1e-6)
    again = fit_logistic(x, y, CLASSES, 0.1, start=(cold.weights, cold.intercept), tolerance=1e-9)
    assert again.steps == 0


def test_whole_sample_weights_are_copies() -> None:
    x, y = _problem(40)
    weights = torch.tensor([1, 2, 3]).repeat(14)[:40]
    weighted = fit_logistic(x, y, CLASSES, 1.0, weights.double(), tolerance=1e-9)
    copied = fit_logistic(
        x.repeat_interleave(weights, 0), y.repeat_interleave(weights), CLASSES, 1.0, tolerance=1e-9
    )
    assert torch.allclose(weighted.weights, copied.weights, atol=1e-6)


def test_single_precision_comes_close_and_says_that_it_converged() -> None:
    x, y = _problem()
    exact = fit_logistic(x, y, CLASSES, 1.0, tolerance=1e-10)
    single = fit_logistic(x.float(), y, CLASSES, 1.0, tolerance=1e-5)
    assert single.converged
    assert torch.allclose(single.weights, exact.weights, atol=2e-3)


def test_stopping_early_is_reported() -> None:
    x, y = _problem()
    fit = fit_logistic(x, y, CLASSES, 1e-3, tolerance=1e-8, max_steps=2)
    assert not fit.converged
    assert fit.steps == 2
    assert fit.gradient > 1e-8


@pytest.mark.parametrize("samples", [torch.ones(12, 3), torch.zeros(12, 3)])
def test_constant_features_leave_the_intercept(samples: torch.Tensor) -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [2] * 3)
    fit = fit_logistic(samples.double(), labels, 3, 1.0, tolerance=1e-8)
    shares = (samples[:1].double() @ fit.weights.T + fit.intercept).softmax(dim=1)
    assert fit.converged
    assert shares[0].tolist() == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


def test_more_dimensions_than_samples() -> None:
    x = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)).double()
    fit = fit_logistic(x, torch.arange(6), 6, 0.01)
    assert fit.converged
    assert (x @ fit.weights.T + fit.intercept).argmax(dim=1).tolist() == list(range(6))


def test_the_curvature_of_a_class_is_inverted_exactly_where_all_samples_enter() -> None:
    x, y = _problem()
    loss = _softmax_losses.LogisticLoss(x, y, CLASSES, torch.ones(len(x)), 2.0)
    point = torch.randn(CLASSES, DIM + 1, generator=torch.Generator().manual_seed(1)).double()
    inputs = torch.cat([x, torch.ones(len(x), 1).double()], dim=1)

    def value(row: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([point[:1], row[None], point[2:]])
        penalty = rows[:, :-1].square().sum() / len(x)
        return F.cross_entropy(inputs @ rows.T, y) + penalty

    block = torch.autograd.functional.hessian(value, point[1])
    vector = torch.linspace(-1, 1, DIM + 1).double()
    product = torch.zeros_like(point)
    product[1] = block @ vector
    assert torch.allclose(loss.curvature(point)(product)[1], vector, atol=1e-3)


def test_classes_too_many_for_blocks_of_their_own_reach_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = _problem()
    with_blocks = fit_logistic(x, y, CLASSES, 0.1, tolerance=1e-8)
    monkeypatch.setattr(_softmax_losses, "BLOCK_BYTES", 0)
    monkeypatch.setattr(_softmax_losses, "_own_inverse", None)
    without = fit_logistic(x, y, CLASSES, 0.1, tolerance=1e-8)
    assert without.converged
    assert torch.allclose(without.weights, with_blocks.weights, atol=1e-5)


def test_cosine_rows_are_of_length_one_and_stationary() -> None:
    x, y = _problem(spread=0.8)
    fit = fit_cosine(x, y, torch.eye(CLASSES, DIM), temperature=8.0, tolerance=1e-8)
    assert fit.converged
    assert fit.weights.norm(dim=1).tolist() == pytest.approx([1.0] * CLASSES)
    assert not fit.intercept.any()
    rows = fit.weights.clone().requires_grad_()
    loss = F.cross_entropy(8 * F.normalize(x, dim=1) @ F.normalize(rows, dim=1).T, y)
    (gradient,) = torch.autograd.grad(loss, rows)
    assert float(gradient.abs().max()) <= 1e-7
    start = F.cross_entropy(8 * F.normalize(x, dim=1) @ torch.eye(CLASSES, DIM).double().T, y)
    assert float(loss.detach()) < 0.8 * float(start)


def test_the_length_of_a_cosine_rows_start_does_not_matter_and_zero_is_a_start() -> None:
    x, y = _problem(spread=0.8)
    start = torch.eye(CLASSES, DIM)
    fit = fit_cosine(x, y, start, 8.0)
    assert torch.allclose(fit.weights, fit_cosine(x, y, 7 * start, 8.0).weights)
    assert torch.isfinite(fit_cosine(x, y, 0 * start, 8.0).weights).all()


def _method(**params: Any) -> Logistic:
    values = parse_params("logistic", Logistic.Params, params)
    return Logistic(values, ToyTask().context(Logistic))


def _learnt(shot: int = 3, **params: Any) -> Logistic:
    method, task = _method(**params), ToyTask(shot)
    method.learn_base(task.session(0))
    for number in range(1, SESSIONS + 1):
        method.learn_session(task.session(number))
    return method


@pytest.mark.parametrize("params", [{}, {"space": "tukey"}, {"penalty": 0.01}], ids=str)
def test_the_method_conforms(params: dict[str, Any]) -> None:
    check_method(Logistic, params)


def test_a_base_classs_mean_counts_as_often_as_a_new_class_has_shots() -> None:
    method, task = _learnt(), ToyTask()
    samples, labels = [], []
    for number in range(SESSIONS + 1):
        session = task.session(number)
        for c in session.class_ids:
            own = session.features[session.labels == c].double()
            samples.append(own if number else own.mean(dim=0).expand(3, -1))
            labels += [c] * 3
    copied = fit_logistic(torch.cat(samples), torch.tensor(labels), BASE + WAY * SESSIONS, 1.0)
    assert torch.allclose(method.weights.double(), copied.weights, atol=1e-3)
    assert torch.allclose(method.intercept.double(), copied.intercept, atol=1e-3)


def test_it_stores_means_shots_and_the_classifier() -> None:
    classes, samples, dim = BASE + WAY * SESSIONS, BASE + 3 * WAY * SESSIONS, 16
    assert _learnt().state_bytes() == 4 * (samples * (dim + 1) + classes * (dim + 1))


def test_an_episode_is_scikit_learns_regression_on_the_shots() -> None:
    method, task = _method(), ToyTask()
    method.learn_base(task.session(0))
    shots, queries = task.episode(0)
    scores = method.episode_scores(shots, queries)
    theirs = LogisticRegression(tol=1e-8, max_iter=5000).fit(shots.features, shots.labels)
    expected = theirs.decision_function(queries.features)
    ours = scores - scores.mean(dim=1, keepdim=True)
    assert np.allclose(ours, expected - expected.mean(axis=1, keepdims=True), atol=1e-2)


def test_features_that_cannot_be_used_are_refused() -> None:
    features = torch.rand(4, 16)
    session = Session(torch.tensor([0, 0, 7, 7]), {"plain": features}, class_ids=(0, 7))
    features[2, 1] = float("nan")
    with pytest.raises(DataError, match="class 7: row 2 holds NaN"):
        _method().learn_base(session)
    features[2, 1] = -1.0
    with pytest.raises(DataError, match=r"class 7: row 2 holds a negative entry.*space=raw"):
        _method(space="tukey").learn_base(session)
    method = _learnt()
    features[2, 1] = float("inf")
    with pytest.raises(DataError, match="query features: row 2"):
        method.scores(Queries({"plain": features}))


def test_a_fit_that_stops_early_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    from fscil_bench.methods import logistic as logistic

    assert _learnt().notes() == {"fits_not_converged": 0}

    def hasty(*args: Any) -> Fit:
        return fit_logistic(*args, max_steps=1)

    monkeypatch.setattr(logistic, "fit_logistic", hasty)
    assert _learnt().notes() == {"fits_not_converged": 3}
