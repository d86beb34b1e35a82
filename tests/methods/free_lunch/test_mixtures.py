from __future__ import annotations

import pytest
import torch

from fscil_bench.methods.free_lunch import mixtures as module
from fscil_bench.methods.free_lunch.covariances import FullCovariances
from fscil_bench.methods.free_lunch.mixtures import Addition, Mixtures, calibrated, shares

MEANS = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 6.0], [10.0, 10.0]])
STORED = FullCovariances(
    torch.stack([torch.tensor([[c + 1.0, 0.5], [0.5, 2.0]]) for c in range(4)]), MEANS
)
NONE = Addition(0.0, "eye")


def _mixture(supports: list[list[float]], owners: list[int], k: int) -> Mixtures:
    return calibrated(torch.tensor(supports), torch.tensor(owners), MEANS, k)


def test_mean_and_covariance_by_hand() -> None:
    mixture = _mixture([[1.5, 0.3]], [7], k=2)
    assert sorted(mixture.neighbours[0].tolist()) == [0, 1]
    assert mixture.means[0].tolist() == pytest.approx([3.5 / 3, 0.1])
    eye = mixture.covariance(0, STORED, Addition(0.25, "eye"))
    assert torch.allclose(eye, torch.tensor([[1.75, 0.5], [0.5, 2.25]]).double())
    ones = mixture.covariance(0, STORED, Addition(0.25, "ones"))
    assert torch.allclose(ones, torch.tensor([[1.75, 0.75], [0.75, 2.25]]).double())
    assert mixture.owners.tolist() == [7]


def test_no_neighbours_leave_the_shot_and_alpha() -> None:
    mixture = _mixture([[1.5, 0.3], [3.0, 3.0]], [4, 5], k=0)
    assert torch.equal(mixture.means, torch.tensor([[1.5, 0.3], [3.0, 3.0]]))
    assert mixture.neighbours.shape == (2, 0)
    for mode, unit in (("eye", torch.eye(2)), ("ones", torch.ones(2, 2))):
        addition = Addition(0.3, mode)  # type: ignore[arg-type]
        assert torch.allclose(mixture.covariance(1, STORED, addition), 0.3 * unit.double())


def test_all_neighbours_give_every_shot_the_same_covariance() -> None:
    mixture = _mixture([[1.5, 0.3], [30.0, -3.0]], [4, 5], k=4)
    first, second = (mixture.covariance(i, STORED, NONE) for i in range(2))
    assert torch.allclose(first, second)
    assert torch.allclose(first, torch.tensor([[2.5, 0.5], [0.5, 2.0]]).double())


@pytest.mark.parametrize("k", [0, 1, 2, 4])
@pytest.mark.parametrize("mode", ["eye", "ones"])
@pytest.mark.parametrize("chunk", [1, module.CHUNK_BYTES])
def test_samples_have_the_calibrated_moments(
    k: int, mode: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    mixture, addition = _mixture([[1.5, 0.3]], [0], k), Addition(0.4, mode)  # type: ignore[arg-type]
    samples, _ = mixture.sample(60_000, STORED, addition, torch.Generator().manual_seed(5))
    assert torch.allclose(samples.mean(dim=0), mixture.means[0], atol=0.04)
    expected = mixture.covariance(0, STORED, addition)
    assert torch.allclose(torch.cov(samples.double().T), expected, atol=0.06)


def test_without_neighbours_and_alpha_samples_are_copies() -> None:
    supports = [[1.5, 0.3], [3.0, 3.0], [4.0, 1.0]]
    samples, labels = _mixture(supports, [0, 0, 1], k=0).sample(4, STORED, NONE, torch.Generator())
    assert (
        samples.tolist()
        == torch.tensor(supports).repeat_interleave(torch.tensor([2, 2, 4]), dim=0).tolist()
    )
    assert labels.tolist() == [0] * 4 + [1] * 4


def test_samples_are_shared_out_evenly_over_a_classs_shots() -> None:
    owners = torch.tensor([3, 3, 3, 8, 8])
    assert shares(owners, 8).tolist() == [3, 3, 2, 4, 4]
    assert shares(owners, 2).tolist() == [1, 1, 0, 1, 1]
