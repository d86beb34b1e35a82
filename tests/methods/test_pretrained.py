"""Networks as they were pre-trained: frozen, tuned, from a file, of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import fscil_bench as fb
from fscil_bench.backbones.resnet18 import ResNet18Backbone
from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.cli.app import app
from fscil_bench.methods._shared.network import last_parts
from fscil_bench.methods.pretrained import Pretrained
from fscil_bench.protocol import ImageSpec
from fscil_bench.store.runs import StoredRun
from fscil_bench.store.tensors import load_tensors
from fscil_bench.testing import check_representation
from fscil_bench.training.weights import seen_before

NET = '''
"""A small network with weights of its own."""

import torch
from torch import nn

from fscil_bench.backbone import Backbone, Published, Transform

BEFORE = {before}


class Signed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2)
        self.blocks = nn.Sequential(nn.Conv2d(8, 12, 3, 2), nn.Conv2d(12, 12, 1))
        self.norm = nn.BatchNorm2d(12)

    def forward(self, x):
        return self.norm(self.blocks(torch.relu(self.conv(x)))){pool}


class MyNet(Backbone):
    """Signed features of 20 pixels."""

    name = "my_net"
    dim = {dim}
    transform = Transform(20, (0.5,) * 3, (0.25,) * 3)

    def build(self):
        return Signed()

    @property
    def published(self):
        return Published(("ImageNet-1k",), "mine", tensors=self.tensors)

    def tensors(self):
        torch.manual_seed(7)
        return Signed().state_dict()
'''


def my_net(folder: Path, pool: str = ".mean((2, 3))", dim: int = 12, before: int = 1) -> Path:
    """Write a plug-in file that brings a backbone."""
    path = folder / "my_net.py"
    text = NET.replace("{pool}", pool).replace("{dim}", str(dim)).replace("{before}", str(before))
    path.write_text(text)
    return path


def run(toy: Any, file: Path, method: str = "ncm", **options: Any) -> StoredRun:
    """Run a method on the network of a file."""
    overrides = {"backbone": "my_net", **options.pop("overrides", {})}
    given = {"representation": "pretrained", "plugins": (*toy.plugins, file), **options}
    stored: StoredRun = toy.run(method, overrides=overrides, **given)
    return stored


def weights(toy: Any, stored: StoredRun) -> dict[str, torch.Tensor]:
    key = stored.spec.representation.key
    (path,) = (toy.folder / "results").glob(f"**/{key}/weights.safetensors")
    return load_tensors(path)[0]


def test_it_keeps_its_contract() -> None:
    check_representation(Pretrained)


def test_a_network_of_ones_own_is_taken_as_it_is(toy: Any, tmp_path: Path) -> None:
    stored = run(toy, my_net(tmp_path))
    spec = stored.spec.representation
    assert (spec.backbone, spec.pretraining) == ("my_net", "ImageNet-1k (mine)")
    assert (spec.recipe.epochs, spec.precision) == (0, "fp32")
    assert spec.transform is not None and spec.transform.size == 20
    assert stored.record.flags == (
        "pre-trained network: ImageNet-1k (mine), no base training here",
    )
    tensors = weights(toy, stored)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        assert torch.equal(tensors["backbone.conv.weight"], torch.nn.Conv2d(3, 8, 3, 2).weight)
    key = spec.key
    (features,) = (toy.folder / "cache" / "features").glob(f"{key}-*-plain-train/features.npy")
    found = np.load(features)
    assert found.shape[1] == 12 and found.min() < 0
    means = torch.stack([torch.from_numpy(found[12 * c : 12 * c + 12]).mean(0) for c in range(4)])
    assert torch.allclose(tensors["classifier"], means, atol=1e-5), "images lie class by class"
    assert stored.accuracies[-1] > 0.5, "the patterns are easy"
    shutil.rmtree(features.parent)
    assert np.array_equal(run(toy, my_net(tmp_path), force=True).predictions, stored.predictions)
    assert np.allclose(np.load(features), found, atol=1e-5), "computed anew, or base images' first"


def test_the_code_of_a_backbone_moves_the_key_and_not_the_row(toy: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = run(toy, my_net(tmp_path))
    other = run(toy, my_net(tmp_path / "other", pool=".mean((2, 3)) + BEFORE"))
    assert one.key != other.key and one.spec.version != other.spec.version
    assert one.spec.row == other.spec.row


@pytest.mark.parametrize("method", ["ldc", "free_lunch", "mahalanobis", "ncm"])
def test_auto_space_is_raw_where_features_are_signed(toy: Any, tmp_path: Path, method: str) -> None:
    few = {"ldc": {"epochs": 2, "unit_steps": 3, "unit_classes": 2}}.get(method, {})
    file = my_net(tmp_path)
    auto = run(toy, file, method, params={"space": "auto", **few})
    raw = run(toy, file, method, params={"space": "raw", **few})
    assert np.array_equal(auto.predictions, raw.predictions)
    assert (auto.record.notes["space"], "space" in raw.record.notes) == ("raw", False)
    with pytest.raises(fb.FscilError, match=r"negative entry; space=tukey needs .*use space=raw"):
        run(toy, file, method, params={"space": "tukey", **few})
    positive = toy.run(method, params={"space": "auto", **few})
    tukey = toy.run(method, params={"space": "tukey", **few})
    assert np.array_equal(positive.predictions, tukey.predictions)
    assert positive.record.notes["space"] == "tukey"


@pytest.mark.parametrize(
    ("tuned", "moved"),
    [
        ("head", set()),
        ("last_block", {"blocks.1.weight", "blocks.1.bias", "norm.weight", "norm.running_mean"}),
        ("all", {"conv.weight", "blocks.0.weight", "blocks.1.weight", "norm.running_mean"}),
    ],
)
def test_what_is_tuned_on_the_base_session(
    toy: Any, tmp_path: Path, tuned: str, moved: set[str]
) -> None:
    file = my_net(tmp_path)
    before = weights(toy, run(toy, file))
    stored = run(toy, file, representation_params={"tuned": tuned}, overrides={"epochs": 1})
    assert stored.spec.representation.recipe.epochs == 1
    assert len(stored.record.representation_log["losses"]) == 1
    after = weights(toy, stored)
    changed = {
        name.removeprefix("backbone.")
        for name, tensor in before.items()
        if name.startswith("backbone.") and not torch.equal(tensor, after[name])
    }
    assert moved <= changed if moved else not changed
    if tuned == "last_block":
        assert not any(name.startswith(("conv", "blocks.0")) for name in changed)


def test_the_last_parts_of_networks() -> None:
    resnet20 = ResNet20Backbone().fresh(0)
    assert last_parts(resnet20) == [resnet20.get_submodule("layer3.2")]
    resnet18 = ResNet18Backbone().fresh(0)
    assert last_parts(resnet18) == [resnet18.get_submodule("layer4.1")]
    wrapped = torch.nn.Sequential(resnet20)
    assert last_parts(wrapped) == [resnet20]
    timm = pytest.importorskip("timm")
    vit = timm.create_model("test_vit", num_classes=0)
    assert last_parts(vit) == [vit.blocks[-1], vit.norm]


def test_weights_of_a_file(toy: Any, tmp_path: Path) -> None:
    file, path = my_net(tmp_path), tmp_path / "net.safetensors"
    tensors = {
        name.removeprefix("backbone."): tensor
        for name, tensor in weights(toy, run(toy, file)).items()
        if name.startswith("backbone.")
    }
    save_file(tensors, path)
    stored = run(toy, file, weights=path)
    assert np.array_equal(stored.predictions, run(toy, file).predictions)
    flags = " ".join(stored.record.flags)
    assert "net.safetensors (sha256 " in flags
    assert "classes seen in pre-training: not known of the file's pre-training" in flags
    save_file({**tensors, "conv.weight": torch.zeros(8, 3, 5, 5)}, path)
    with pytest.raises(fb.FscilError, match=r"is not the backbone Signed .* 1 of another shape"):
        run(toy, file, weights=path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"weights": "none"}, "--weights none: representation 'pretrained' starts from"),
        ({"overrides": {"epochs": 3}}, "'pretrained' trains nothing as it is set, so that epochs"),
        ({"overrides": {"backbone": "resnet20"}}, "no published weights for 'resnet20'; give a"),
        ({"overrides": {"backbone": "my_nit"}}, "unknown backbone 'my_nit'; did you mean 'my_net'"),
        ({"representation_params": {"pool": "max"}}, "cannot be read with pool = max; it offers"),
        ({"representation_params": {"size": 2}}, r"cannot take images of 2×2: RuntimeError"),
    ],
)
def test_what_cannot_be(toy: Any, tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(fb.FscilError, match=expected):
        run(toy, my_net(tmp_path), **options)


@pytest.mark.parametrize(
    ("pool", "dim", "expected"),
    [
        ("", 12, r"gives maps \(1, 12, 4, 4\) for an image instead of a vector \(1, 12\)"),
        (".flatten(2).mT", 12, r"gives tokens \(1, 16, 12\) for an image instead of a vector"),
        (".mean((2, 3))", 9, "gives 12 features, its dim says 9"),
        (".tolist()", 12, "gives an object list"),
    ],
)
@pytest.mark.parametrize("tuned", ["none", "all"])
def test_networks_that_give_no_vectors(
    toy: Any, tmp_path: Path, pool: str, dim: int, expected: str, tuned: str
) -> None:
    file = my_net(tmp_path, pool, dim)
    with pytest.raises(fb.FscilError, match=f"backbone 'my_net' {expected}"):
        run(toy, file, representation_params={"tuned": tuned})


@pytest.mark.parametrize("stated", [True, False])
def test_a_network_that_cannot_be_built_is_named(toy: Any, tmp_path: Path, stated: bool) -> None:
    file = my_net(tmp_path)
    broken = file.read_text().replace("return Signed()", "raise KeyError('zap')")
    file.write_text(broken if stated else broken.replace("    dim = 12\n", ""))
    with pytest.raises(fb.FscilError, match="backbone 'my_net' cannot be built: KeyError: 'zap'"):
        run(toy, file)


@pytest.mark.parametrize(
    ("changed", "weights", "told"),
    [
        ("return Signed()", {}, "backbone 'my_net' cannot be built: KeyError: 'zap'"),
        ("torch.manual_seed(7)", {}, "representation 'pretrained' failed in base training: KeyErr"),
        ("", {"conv.weight": torch.zeros(8, 3, 5, 5)}, "is not the backbone Signed"),
    ],
)
def test_a_dry_run_refuses_what_a_run_cannot_start_from(
    new_toy: Any, tmp_path: Path, changed: str, weights: dict[str, torch.Tensor], told: str
) -> None:
    file = my_net(tmp_path)
    if changed:
        file.write_text(file.read_text().replace(changed, "raise KeyError('zap')"))
    named = ["--representation", "pretrained", "--backbone", "my_net", "--plugin", str(file)]
    if weights:
        save_file(weights, tmp_path / "net.safetensors")
        named += ["--weights", str(tmp_path / "net.safetensors")]
    words = ["run", "--method", "ncm", *named, *new_toy.words()]
    for each in (words, [*words, "--dry-run"]):
        done = CliRunner().invoke(app, each)
        assert done.exit_code and told in " ".join(done.stderr.split()), done.output
    assert not (new_toy.folder / "results").exists()


def test_from_the_command_line(toy: Any, tmp_path: Path) -> None:
    words = [*toy.words(), "--plugin", str(my_net(tmp_path))]
    named = ["--representation", "pretrained", "--backbone", "my_net"]
    sized = ["--set-representation", "size=24"]
    done = CliRunner().invoke(app, ["run", "--method", "ncm", *named, *sized, *words])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["report", "main-table", "--set", "all=true", *words])
    assert "backbone my_net, images resized to 24×24" in shown.output
    assert "pretrained, size=24" in shown.output
    listed = CliRunner().invoke(app, ["list", "backbones", "--plugin", str(my_net(tmp_path))])
    assert "Signed features of 20 pixels." in listed.output
    pseudo = ["run", "--method", "ncm", *named, "--pseudo-incremental", *words]
    assert "on toy" in CliRunner().invoke(app, pseudo).output, "the network saw no class of it"
    checked = CliRunner().invoke(app, ["check", "--plugin", str(my_net(tmp_path))])
    assert "backbone my_net: keeps its contract" in checked.output
    broken = my_net(tmp_path, pool=".mean((2, 3)) * x.mean()")
    failed = CliRunner().invoke(app, ["check", "--plugin", str(broken)])
    assert "features depend on the images beside it" in failed.output


def test_tables_say_which_classes_a_pre_training_has_seen(toy_protocol: Any) -> None:
    birds = toy_protocol.override(classes_in={"imagenet": "59 of 200 species"})
    told = "classes seen in pre-training: 59 of 200 species in ImageNet-1k"
    assert seen_before(birds, ("ImageNet-1k",)) == [told]
    assert seen_before(birds, ("LAION-2B", "ImageNet-1k")) == [told]
    assert seen_before(toy_protocol, ("ImageNet-1k",)) == []
    assert seen_before(toy_protocol, ("LAION-2B",)) == [
        "classes seen in pre-training: not known of LAION-2B"
    ]
    assert birds.model_dump() == toy_protocol.model_dump(), "no key depends on it"


def test_a_size_is_taken_where_a_network_has_none_of_its_own() -> None:
    images = ImageSpec(size=32, mean=(0.5,) * 3, std=(0.2,) * 3)
    assert ResNet20Backbone().input_of(images) is None
    reading = Pretrained(Pretrained.Params(size=64)).reading()
    found = ResNet20Backbone(reading=reading).input_of(images)
    assert found is not None and (found.size, found.mean) == (64, images.mean)
