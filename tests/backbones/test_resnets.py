from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fscil_bench.backbone import Backbone
from fscil_bench.backbones.resnet18 import ResNet18Backbone
from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.plugins.registry import load_registry
from fscil_bench.testing import check_backbone, check_plugins

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"

PARAMETERS: dict[type[Backbone], int] = {
    ResNet20Backbone: 271_824,
    ResNet18Backbone: 11_176_512,
}


@pytest.mark.parametrize("kind", PARAMETERS)
def test_parameters_and_features(kind: type[Backbone]) -> None:
    backbone = kind()
    network = backbone.fresh(seed=0).eval()
    assert backbone.parameters() == PARAMETERS[kind]
    with torch.no_grad():
        features = network(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, backbone.dim)
    assert float(features.min()) >= 0, "features follow a ReLU"
    check_backbone(kind)


def test_the_backbone_that_contributing_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    (text,) = (block for block in blocks if "(Backbone)" in block)
    file = tmp_path / "my_net.py"
    file.write_text(text)
    (verdict,) = check_plugins([file])
    assert str(verdict) == "backbone my_net: keeps its contract"
    backbone, _ = load_registry((file,)).backbone("my_net")
    assert backbone.parameters() == sum(9 * i * o + 3 * o for i, o in ((3, 16), (16, 32), (32, 64)))


def test_parameters_by_hand() -> None:
    # 3·16 + 6·16² + (16·32 + 5·32²) + (32·64 + 5·64²), each times 3²; two numbers a channel of the
    # norms: 7 of 16, 6 of 32 and of 64, and those of the shortcuts.
    convolutions = 9 * (3 * 16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
    norms = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    shortcuts = 16 * 32 + 32 * 64 + 192
    assert ResNet20Backbone().parameters() == convolutions + norms + shortcuts
