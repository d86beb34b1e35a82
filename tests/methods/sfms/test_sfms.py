"""SFMS: matching by hand, what sessions train by, and where vectors come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fscil_bench.errors import DataError, FscilError, UsageError
from fscil_bench.methods.ncm import NCM
from fscil_bench.methods.sfms.sfms import Sfms, distillation, matched
from fscil_bench.params import params_dict, parse_params
from fscil_bench.testing import DIM, SESSIONS, ToyTask, check_method, learnt, start

SHORT = {"vae_epochs": 5, "base_epochs": 2, "epochs": 5, "hidden": 16, "latent": 4}


def made(sessions: int = SESSIONS, **params: Any) -> Sfms:
    return learnt(Sfms, SHORT | params, sessions=sessions)


def words(path: Path, classes: int = 10) -> dict[str, str]:
    """Write vectors of so many classes; return the parameter that reads them."""
    file = path / "words.npy"
    np.save(file, np.random.default_rng(0).standard_normal((classes, 5)).astype(np.float32))
    return {"vectors": str(file)}


def test_matching_averages_cosines_over_subspaces() -> None:
    projections = torch.stack([torch.eye(2), torch.tensor([[0.0, 1.0], [2.0, 0.0]])])
    found = matched(
        *(torch.tensor([[3.0, 4.0]]), projections, torch.tensor([[2.0, 0.0], [0.0, 1.0]])),
        posterior=torch.tensor([[0.75, 0.25]]),
    )
    # The second projection gives (4, 6).
    root = 52**0.5
    expected = torch.tensor([[0.75 * 0.6 + 0.25 * 4 / root, 0.75 * 0.8 + 0.25 * 6 / root]])
    torch.testing.assert_close(found, expected)


def test_distillation_is_the_divergence_of_softmaxes() -> None:
    logits, old = torch.tensor([[1.0, 2.0], [0.0, 3.0]]), torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    before, now = old.softmax(dim=1), logits.softmax(dim=1)
    expected = (before * (before.log() - now.log())).sum() / 2
    assert float(distillation(logits, old)) == pytest.approx(float(expected))
    assert float(distillation(old, old)) == pytest.approx(0, abs=1e-7)


def test_untrained_projections_on_one_subspace_are_nearest_class_mean() -> None:
    found, means = made(subspaces=1, base_epochs=0, epochs=0), learnt(NCM)
    queries = ToyTask().queries()
    torch.testing.assert_close(found.scores(queries), 16 * means.scores(queries))


def test_a_session_without_made_features_or_distillation_learns_its_shots_alone() -> None:
    """One step of Adam on the cross-entropy of the shots has the sign of its gradient."""
    start = made(0)
    task, before = ToyTask(needs=Sfms.needs), start.projections.clone().requires_grad_()
    session = task.session(1)
    x = session.features
    means = torch.stack([x[session.labels == c].mean(dim=0) for c in session.class_ids])
    vectors = torch.cat([start.vectors, means])
    cosines = matched(x, before, vectors, start.subspaces.posterior(x))
    F.cross_entropy(16 * cosines, session.labels).backward()  # type: ignore[no-untyped-call]
    found = made(1, samples=0, distillation=0.0, epochs=1, lr=1e-3)
    assert before.grad is not None
    large = before.grad.abs() > 1e-4
    step = (found.projections - before.detach())[large]
    torch.testing.assert_close(step, -1e-3 * before.grad[large].sign(), atol=2e-5, rtol=0)


def test_distillation_keeps_old_scores_and_made_features_old_classes() -> None:
    start, task = made(0, vae_epochs=100), ToyTask(needs=Sfms.needs)
    base = task.session(0)
    old = start.scores(base)  # type: ignore[arg-type]

    def after(samples: int, weight: float) -> tuple[float, float]:
        """Return how far old scores moved, and the loss of base samples among all classes."""
        params = {"samples": samples, "distillation": weight, "vae_epochs": 100}
        logits = made(1, epochs=60, lr=3e-3, **params).scores(base)  # type: ignore[arg-type]
        moved = distillation(logits[:, : old.shape[1]], old)
        return float(moved), float(F.cross_entropy(logits, base.labels))

    neither, distilled, replayed = after(0, 0.0), after(0, 20.0), after(20, 0.0)
    assert distilled[0] < 0.7 * neither[0]
    assert replayed[1] < 0.9 * neither[1]


def test_the_decoder_makes_features_like_a_class() -> None:
    found, task = made(0, vae_epochs=150, hidden=64), ToyTask(needs=Sfms.needs)
    base = task.session(0)
    generator = torch.Generator().manual_seed(0)
    for c in base.class_ids:
        drawn = found.synthesised(torch.full((50,), c), generator)
        distances = (found.vectors - drawn.mean(dim=0)).norm(dim=1)
        assert int(distances.argmin()) == c
    assert drawn.shape == (50, DIM)


def test_vectors_of_a_file_are_those_of_the_classes(tmp_path: Path) -> None:
    params = words(tmp_path)
    check_method(Sfms, SHORT | params)
    found = made(1, **params)
    expected = torch.from_numpy(np.load(params["vectors"]))[:8]
    assert torch.equal(found.vectors, expected)
    assert found.notes() == {"class_vectors": "of words.npy"}
    assert made(0).notes() == {"class_vectors": "class means"}


def test_the_content_of_a_file_is_in_keys_and_not_its_place(tmp_path: Path) -> None:
    digests = []
    for name, classes in (("first", 10), ("moved", 10), ("other", 11)):
        (tmp_path / name).mkdir()
        params = parse_params("sfms", Sfms.Params, words(tmp_path / name, classes))
        digests.append(params_dict(params)["vectors"])
    first, second, other = digests
    assert first.startswith("sha256-")
    assert first == second
    assert first != other
    with pytest.raises(UsageError, match=r"sfms: vectors = .*none.npy'?: no such file"):
        parse_params("sfms", Sfms.Params, {"vectors": str(tmp_path / "none.npy")})


def test_vectors_and_dimensions_must_be_enough(tmp_path: Path) -> None:
    terms = ToyTask().terms
    Sfms.check(Sfms.Params(**words(tmp_path)), terms)
    with pytest.raises(UsageError, match="has vectors of 9 classes, the protocol 10"):
        Sfms.check(Sfms.Params(**words(tmp_path, 9)), terms)
    with pytest.raises(UsageError, match="dims = 16, and features have 16"):
        Sfms.check(Sfms.Params(dims=16), terms)
    with pytest.raises(UsageError, match="subspaces = 5000, and there are"):
        Sfms.check(Sfms.Params(subspaces=5000), terms)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot read vectors from"),
        ("npz", "is an archive of arrays"),
        (np.full((10, 5), "a"), "holds <U1 of the shape"),
        (np.ones(10), "give numbers"),
        (np.eye(10)[:, :0], "give numbers"),
        (np.diag([1.0] * 3 + [0] + [1] * 6), "row 3, the vector of class 3, has 0 as"),
        (np.eye(10) * 1e200, "row 0, .* has 1e\\+200 as its largest entry"),
        (np.ones((10, 5)), "rows 0 and 1 have the same direction"),
    ],
)
def test_vectors_without_sense_are_refused(content: Any, told: str, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    if isinstance(content, np.ndarray):
        np.save(file, content)
    elif content == "npz":
        with file.open("wb") as opened:
            np.savez(opened, a=np.eye(10))
    else:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=told):
        Sfms.check(Sfms.Params(vectors=str(file)), ToyTask().terms)


def test_integers_serve_and_rows_beyond_the_protocol_s_classes_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.vstack([np.eye(10), np.eye(10)]).astype(np.int8))
    told = "a.npy has 20 rows and the protocol 10 classes: rows 10 to 19 are not used"
    with pytest.warns(UserWarning, match=told):
        Sfms.check(Sfms.Params(vectors=str(tmp_path / "a.npy")), ToyTask().terms)


def test_mean_features_without_a_direction_are_refused() -> None:
    task = ToyTask(needs=Sfms.needs)
    base = task.session(0)
    found = start(task, Sfms, Sfms.Params(**SHORT))
    base.features[base.labels == 4] = 0
    with pytest.raises(DataError, match=r"the mean feature of class 4, .* is zero"):
        found.pretrain(base, lambda _: None)
    base.features[:] = 1
    with pytest.raises(DataError, match="all base features are equal"):
        found.pretrain(base, lambda _: None)


@pytest.mark.parametrize("name", ["lr", "base_lr", "vae_lr"])
def test_what_diverges_names_its_rate(name: str) -> None:
    with pytest.raises(FscilError, match=f"lower {name} = "):
        made(**{name: 1e25, "vae_epochs": 1})
