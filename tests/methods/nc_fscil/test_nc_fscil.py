from __future__ import annotations

from typing import Any

import pytest
import torch

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.methods._shared.etf import simplex_etf
from fscil_bench.methods.nc_fscil.etf import class_balance, dot_regression
from fscil_bench.methods.nc_fscil.nc_fscil import NcFscil
from fscil_bench.methods.nc_fscil.neck import Neck, NeckTraining, train_neck
from fscil_bench.params import parse_params
from fscil_bench.protocol import Queries
from fscil_bench.testing import BASE, DIM, SESSIONS, WAY, ToyTask, learnt, start

CLASSES = BASE + WAY * SESSIONS
SMALL: dict[str, Any] = {"dim": 12}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("classes", "dim"), [(2, 2), (10, 10), (10, 64)])
def test_etf_rows_are_units_at_equal_angles(classes: int, dim: int) -> None:
    etf = simplex_etf(classes, dim, generator())
    expected = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1)
    torch.testing.assert_close(etf @ etf.T, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(etf.sum(dim=0), torch.zeros(dim), atol=1e-5, rtol=0)


def test_the_loss_is_zero_only_where_outputs_are_their_rows() -> None:
    etf = simplex_etf(4, 6, generator())
    labels = torch.tensor([2, 0, 3])
    assert float(dot_regression(etf[labels], etf[labels])) == pytest.approx(0.0, abs=1e-9)
    # ⟨e_a, e_b⟩ = −1/3, so ½·(−4/3)² for the one sample that has another class's row.
    wrong = etf[torch.tensor([2, 0, 1])]
    assert float(dot_regression(wrong, etf[labels])) == pytest.approx(8 / 9 / 3, rel=1e-5)


def test_balanced_classes_weigh_the_same() -> None:
    weights = class_balance(torch.tensor([4, 4, 4, 1]))
    assert weights.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2.0])


def test_rates_rise_then_fall_to_a_hundredth() -> None:
    training = NeckTraining(steps=20, lr=1.0, weight_decay=0.0, batch_size=4, warm_up=5)
    rates = [training.rate(step) for step in range(21)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[5] == pytest.approx(1.0)
    assert rates[20] == pytest.approx(0.01)
    assert rates[5:] == sorted(rates[5:], reverse=True)


@pytest.mark.parametrize(("mixup", "balanced"), [(0.0, False), (0.5, True)])
def test_training_aligns_outputs_with_their_rows(mixup: float, balanced: bool) -> None:
    features = torch.rand(12, 5, generator=generator(1))
    labels, etf = torch.arange(4).repeat(3), simplex_etf(4, 6, generator())
    features = features + 3 * torch.eye(4, 5)[labels]
    neck = Neck(5, 6, generator(2))
    training = NeckTraining(80, 0.05, 0.0, 8, 5, mixup, balanced)
    train_neck(neck, features, labels, etf, training, generator(3))
    cosines = torch.nn.functional.cosine_similarity(neck(features), etf[labels])
    assert float(cosines.detach().min()) > 0.9


def test_no_steps_leave_the_scores_of_old_classes_unchanged() -> None:
    first, last = (
        learnt(NcFscil, SMALL | {"session_steps": "0"}, sessions=n).scores(ToyTask().queries())
        for n in (0, SESSIONS)
    )
    torch.testing.assert_close(last[:, :BASE], first)


@pytest.mark.parametrize("shot", [1, 3])
def test_sessions_align_the_neck_with_new_classes_and_keep_the_old(shot: int) -> None:
    method, task = learnt(NcFscil, SMALL, shot), ToyTask(shot)
    new = task.session(SESSIONS)
    assert torch.equal(method.scores(Queries(new.views)).argmax(dim=1), new.labels)
    kept = method.scores(Queries({"plain": method.means})).argmax(dim=1)
    assert torch.equal(kept, torch.arange(CLASSES))


def test_session_steps_are_listed_and_the_last_number_counts_on() -> None:
    params = NcFscil.Params(session_steps="5,7,0")
    assert [params.steps(session) for session in (1, 2, 3, 9)] == [5, 7, 0, 0]
    with pytest.raises(UsageError, match="session_steps"):
        parse_params("nc_fscil", NcFscil.Params, {"session_steps": "5;7"})


def test_repeated_means_weigh_more_in_later_sessions_alone() -> None:
    for session, same in ((1, True), (2, False)):
        once, often = (
            learnt(NcFscil, SMALL | {"repeat_means": repeat}, sessions=session).state_dict()
            for repeat in (False, True)
        )
        found = [torch.equal(once[name], often[name]) for name in once]
        assert all(found) == same


def test_what_it_stores_by_hand() -> None:
    wide = 2 * DIM
    neck = wide * (DIM + wide + 12) + DIM * 12 + 6 * wide
    assert learnt(NcFscil, SMALL).state_bytes() == 4 * (CLASSES * (DIM + 12) + neck + 1)


def test_too_small_a_dimension_is_refused_with_the_numbers() -> None:
    with pytest.raises(UsageError, match="dim = 8 is less than the 10 classes"):
        NcFscil.check(NcFscil.Params(dim=8), ToyTask().terms)


def test_a_neck_for_other_sessions_is_refused() -> None:
    method = start(ToyTask(), NcFscil, NcFscil.Params(dim=12))
    tensors = method.pretrain(ToyTask().session(0), lambda _: None)
    with pytest.raises(UsageError, match=r"9 classes in all.* 10"):
        method.load_pretrained({**tensors, "etf": tensors["etf"][:9]})


@pytest.mark.parametrize("rate", ["base_lr", "session_lr"])
def test_a_rate_that_diverges_is_named(rate: str) -> None:
    with pytest.raises(FscilError, match=rf"lower {rate} = 1e\+30"):
        learnt(NcFscil, SMALL | {rate: 1e30})
