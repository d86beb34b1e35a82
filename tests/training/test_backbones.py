from __future__ import annotations

import pytest
import torch

from fscil_bench.errors import UsageError
from fscil_bench.training.backbones import BACKBONES, build_backbone, count_parameters, feature_dim

PARAMETERS = {"resnet20": 271_824, "resnet18": 11_176_512}


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_parameters_and_features(name: str) -> None:
    network = build_backbone(name, seed=0).eval()
    assert count_parameters(network) == PARAMETERS[name]
    with torch.no_grad():
        features = network(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, feature_dim(name))
    assert float(features.min()) >= 0, "features follow a ReLU"


def test_a_seed_decides_the_weights_and_the_global_state_is_kept() -> None:
    before = torch.get_rng_state()
    one, two, other = (build_backbone("resnet20", seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


def test_an_unknown_backbone_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'resnet20'"):
        build_backbone("resnet21", 0)
