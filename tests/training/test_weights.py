from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fscil_bench.backbones.resnet18 import ResNet18Backbone
from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.errors import DataError, UsageError
from fscil_bench.training.weights import (
    Pretraining,
    fit,
    install_weights,
    load_pretrained,
    resolve_pretraining,
)

Tensors = dict[str, torch.Tensor]


def small() -> nn.Module:
    """Return a network in small, with the kinds of entries that a backbone's state has."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))
    nn.init.normal_(network[0].weight, generator=torch.Generator().manual_seed(0))
    return network


def tensors(seed: int = 1) -> Tensors:
    """Return weights that fit, each of its own values."""
    random = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(value.shape, generator=random).to(value.dtype)
        for name, value in small().state_dict().items()
    }


def loaded(path: Path) -> nn.Module:
    network = small()
    load_pretrained(network, ResNet20Backbone(), Pretraining("title", path))
    return network


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        loaded(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def saved(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def same(network: nn.Module, expected: Tensors) -> bool:
    return all(torch.equal(value, expected[key]) for key, value in network.state_dict().items())


def under(prefix: str, content: Tensors) -> Tensors:
    return {f"{prefix}{name}": value for name, value in content.items()}


def test_files_of_all_forms_are_loaded(tmp_path: Path) -> None:
    for form, prefix in (("plain", ""), ("plain", "net."), ("legacy", "module.encoder.")):
        path = tmp_path / f"weights.{form}"
        content = under(prefix, tensors())
        torch.save(content, path, _use_new_zipfile_serialization=form == "plain")
        assert same(loaded(path), tensors())
    save_file(under("backbone.module.", tensors()), tmp_path / "w.safetensors")
    assert same(loaded(tmp_path / "w.safetensors"), tensors())


def test_tensors_are_found_in_what_they_are_wrapped_in(tmp_path: Path) -> None:
    content = under("module.encoder.", tensors())
    for wrapped in (
        {"params": content},
        {"state_dict": content, "epoch": 3, "best_acc": 0.7},
        {"model": content, "optimizer": {"state": {0: torch.ones(1)}}},
        {"model": {"state_dict": content}, "params": {"lr": torch.tensor(0.1)}},
    ):
        assert same(loaded(saved(tmp_path / "w.pth", wrapped)), tensors())


class OddArray:
    """Pickled, it asks NumPy for an array of a negative length."""

    def __reduce__(self) -> tuple[object, ...]:
        made, arguments = np.zeros(1).__reduce__()[:2]
        return made, (arguments[0], (-1,), arguments[2])


def test_numpy_values_and_arguments_beside_the_tensors_are_not_even_made(tmp_path: Path) -> None:
    beside = {
        "acc": np.float64(0.5),
        "count": np.int64(3),
        "curve": np.arange(4.0),
        "names": np.array(["a", None], dtype=object),
        "args": argparse.Namespace(lr=0.1, gpus=[0, 1], best=np.float32(1)),
        "odd": OddArray(),
    }
    path = saved(tmp_path / "w.pth", {**beside, "params": tensors()})
    assert same(loaded(path), tensors())


def test_numpy_is_known_by_both_of_its_names(tmp_path: Path) -> None:
    stream = pickle.dumps({"accuracy": np.float64(0.5)}, protocol=2)
    for core in (b"numpy.core", b"numpy._core"):
        path = zipped_stream(tmp_path / "w.pth", re.sub(rb"numpy\._?core", core, stream))
        assert refusal(path) == "is no file of named tensors"


def test_a_classifier_is_left_out_and_old_files_lack_batch_counters(tmp_path: Path) -> None:
    old = {name: value for name, value in tensors().items() if "num_batches" not in name}
    extra = {
        "fc.weight": torch.ones(9, 4),
        "fc.bias": torch.ones(9),
        "classifier.weight": torch.ones(1),
    }
    network = loaded(saved(tmp_path / "w.pth", {**old, **extra}))
    assert int(network.state_dict()["1.num_batches_tracked"]) == 0
    assert same(network, {**old, "1.num_batches_tracked": torch.tensor(0)})


def zipped_stream(path: Path, stream: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", stream)
        archive.writestr("w/version", "3\n")
        archive.writestr("w/byteorder", "little")
    return path


def released(prefix: str = "module.encoder.") -> Tensors:
    """Return tensors under the names of CEC's ResNet-20, as DataParallel saves them."""
    network = ResNet20Backbone().fresh(5)
    return {
        prefix + name.replace(".shortcut.", ".downsample."): value
        for name, value in network.state_dict().items()
    }


def test_the_names_of_released_resnet20_fit(tmp_path: Path) -> None:
    rows = torch.rand(100, 64)
    beside = {
        "module.fc.weight": rows,
        "module.slf_attn.fc.weight": torch.ones(64, 64),
        "module.slf_attn.w_qs.weight": torch.ones(64, 64),
    }
    path = saved(tmp_path / "session0_max_acc.pth", {"params": {**released(), **beside}})
    network = ResNet20Backbone().fresh(0)
    assert len(released()) == len(network.state_dict())
    found = fit(network, path)
    assert (found.prefix, found.classifier) == ("module.encoder.", "module.fc.weight")
    assert found.rows is not None
    assert torch.equal(found.rows, rows)
    assert found.left_out == ("module.slf_attn.fc.weight", "module.slf_attn.w_qs.weight")
    load_pretrained(network, ResNet20Backbone(), Pretraining("title", path))
    assert same(network, dict(ResNet20Backbone().fresh(5).state_dict()))


def itself() -> dict[str, object]:
    content: dict[str, object] = {}
    content["model"] = content
    return content


def misfit() -> Tensors:
    content = tensors()
    content["z.late"] = content["a.early"] = content.pop("1.running_var")
    del content["1.bias"]
    content["0.weight"] = torch.ones(4, 3, 7, 7)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (content, "is no file of named tensors")
            for content in ([torch.ones(1)], {}, {"epoch": 3}, {"state_dict": {"a": 1}}, itself())
        ),
        (
            {**under("encoder_q.", tensors()), **under("encoder_k.", tensors(2))},
            "holds several networks, under 'encoder_q.', 'encoder_k.'; save the tensors of one of "
            "them alone",
        ),
        (
            {**tensors(), "1.bias": torch.empty(4, device="meta")},
            "'1.bias' is no plain tensor of values",
        ),
        (
            {**tensors(), "1.running_mean": torch.full((4,), torch.nan)},
            "the values of '1.running_mean' are not finite",
        ),
        *(
            (
                {**tensors(), "1.bias": bias},
                f"'1.bias' is of {bias.dtype}, its values must be torch.float32",
            )
            for bias in (
                torch.ones(4, dtype=torch.int8),
                torch.ones(4, dtype=torch.complex64),
            )
        ),
        (
            {**tensors(), "1.running_var": torch.tensor([1.0, 1, 1, -1])},
            "damaged weights: a variance in '1.running_var' is negative",
        ),
        (
            misfit(),
            "its network is not the backbone Sequential (3 of 6 tensors fit): 2 missing: '1.bias' "
            "(4), '1.running_var' (4); 2 unexpected: 'a.early' (4), 'z.late' (4); 1 of another "
            "shape: '0.weight' (4×3×7×7), expected (4×3×3×3)",
        ),
    ],
)
def test_what_does_not_fit_changes_nothing(tmp_path: Path, content: object, message: str) -> None:
    network, path = small(), saved(tmp_path / "w.pth", content)
    with pytest.raises(DataError) as caught:
        load_pretrained(network, ResNet20Backbone(), Pretraining("title", path))
    assert str(caught.value) == f"{path}: {message}"
    assert same(network, small().state_dict())


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.float8_e4m3fn])
def test_floats_of_any_width_are_weights(tmp_path: Path, kind: torch.dtype) -> None:
    halves = {**tensors(), "1.bias": torch.tensor([0.5, 1, -2, 4], dtype=kind)}
    network = loaded(saved(tmp_path / "w.pth", halves))
    assert network.state_dict()["1.bias"].tolist() == [0.5, 1, -2, 4]


def deeper() -> Tensors:
    """Return tensors of a ResNet-32 in place of a ResNet-20's, as far as the first layer."""
    content = released()
    for name in [name for name in content if ".layer1.2." in name]:
        for block in (3, 4):
            content[name.replace("layer1.2", f"layer1.{block}")] = content[name]
    return content


def alike() -> Tensors:
    names = ("conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var")
    return {f"blocks.{number}.{name}": torch.ones(16) for number in (0, 1) for name in names}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            deeper,
            r"its network under 'module\.encoder\.' is not the backbone ResNet20 \(126 of 126 "
            r"tensors fit\): 24 unexpected: 'module\.encoder\.layer1\.3\.bn1\.bias' \(16\), .* and "
            r"21 more",
        ),
        (
            alike,
            r"\(0 of 126 tensors fit\).*10 unexpected: 'blocks\.0",
        ),
        (
            lambda: ResNet18Backbone().fresh(0).state_dict(),
            r"of another shape: 'bn1\.bias' \(64\), expected \(16\)",
        ),
    ],
    ids=["deeper", "blocks that look alike", "another backbone"],
)
def test_another_network_is_refused_with_names_of_both_sides(
    tmp_path: Path, content: Callable[[], Tensors], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        fit(ResNet20Backbone().fresh(0), saved(tmp_path / "w.pth", content()))


class Harmful:
    """Leaves a file behind when it is unpickled without care."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("form", ["zip", "torch", "legacy", "pickle", "arguments", "array"])
def test_a_file_that_would_execute_something_is_refused(tmp_path: Path, form: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "w.pth"
    content = {**tensors(), "harm": Harmful(mark)}
    if form == "zip":
        zipped_stream(path, pickle.dumps({"harm": Harmful(mark)}, protocol=2))
    elif form == "arguments":
        torch.save({"params": tensors(), "args": argparse.Namespace(harm=Harmful(mark))}, path)
    elif form == "array":
        torch.save({"params": tensors(), "acc": np.array([Harmful(mark)])}, path)
    elif form == "pickle":
        path.write_bytes(pickle.dumps({"harm": Harmful(mark)}, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "torch")
    text = refusal(path)
    assert text.startswith("holds more than tensors and is refused: ")
    assert "Re-running" not in text, "no advice to load it without care"
    assert form != "zip" or re.search(r"it names (posix|nt)\.mkdir; save the network's", text)
    assert not mark.exists()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    files = [saved(tmp_path / "whole.pth", tensors()), tmp_path / "whole.safetensors"]
    save_file(tensors(), files[1])
    for file in files:
        whole, path = file.read_bytes(), tmp_path / f"w{file.suffix}"
        cuts = [whole[:end] for end in range(0, len(whole), max(1, len(whole) // 40))]
        for content in (*cuts, b"<!DOCTYPE html><html>"):
            path.write_bytes(content)
            assert re.search("cannot be read as weights|refused", refusal(path))
    for senseless in (b"\x80\x02h\x01.", b"\x80\x02t.", b"\x80\x02cno\nsuch\n."):
        path = zipped_stream(tmp_path / "w.pth", senseless)
        assert re.search("cannot be read as weights|refused", refusal(path))


def test_nothing_is_looked_for_where_no_weights_are_wanted() -> None:
    network = small()
    load_pretrained(network, ResNet20Backbone(), Pretraining("none"))
    assert same(network, small().state_dict())
    assert resolve_pretraining(ResNet20Backbone(), "none", None) == Pretraining("none")
    assert resolve_pretraining(ResNet18Backbone(), "imagenet", "none") == Pretraining("none")


def test_a_file_of_ones_own_is_called_by_name_and_digest(tmp_path: Path) -> None:
    path = saved(tmp_path / "mine.pth", tensors())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for backbone, wanted in ((ResNet20Backbone(), "none"), (ResNet18Backbone(), "imagenet")):
        found = resolve_pretraining(backbone, wanted, str(path))
        assert found == Pretraining(f"mine.pth (sha256 {digest[:12]})", path)
    with pytest.raises(UsageError, match=r"--weights .*nowhere\.pth: no such file"):
        resolve_pretraining(ResNet18Backbone(), "imagenet", str(tmp_path / "nowhere.pth"))


TITLE = "ImageNet-1k (torchvision IMAGENET1K_V1)"


@pytest.fixture
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fails)


@pytest.fixture
def published(tmp_path: Path, no_network: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small file that takes the place of the published weights."""
    del no_network
    path = saved(tmp_path / "given.pth", tensors())
    beginning = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    address = f"https://weights.example/models/network-{beginning}.pth"
    official = SimpleNamespace(IMAGENET1K_V1=SimpleNamespace(url=address))
    monkeypatch.setattr("torchvision.models.ResNet18_Weights", official)
    return path


@pytest.mark.usefixtures("no_network")
def test_without_a_network_it_is_said_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        resolve_pretraining(ResNet18Backbone(), "imagenet", None)
    text, folder = str(caught.value), tmp_path / "torch" / "hub" / "checkpoints"
    assert f"resnet18-f37072fd.pth are not in {folder} and cannot be fetched from https" in text
    assert "no route to host" in text
    assert text.endswith("give --weights FILE, or start from random weights with --weights none")
    assert not list(folder.glob("*")), "nothing half-written"
    with pytest.raises(UsageError, match="no published weights for 'resnet20'; give a file"):
        resolve_pretraining(ResNet20Backbone(), "imagenet", None)


def test_published_weights_are_known_and_installed_once(tmp_path: Path, published: Path) -> None:
    given = resolve_pretraining(ResNet18Backbone(), "imagenet", str(published))
    assert given == Pretraining(TITLE, published, ("ImageNet-1k",))
    path = install_weights(ResNet18Backbone(), published)
    assert path.parent == tmp_path / "torch" / "hub" / "checkpoints"
    found = resolve_pretraining(ResNet18Backbone(), "imagenet", None)
    assert found == Pretraining(TITLE, path, ("ImageNet-1k",))
    assert same(loaded(path), tensors())
    path.write_bytes(published.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"damaged, its digest is not .*; remove it"):
        resolve_pretraining(ResNet18Backbone(), "imagenet", None)
    with pytest.raises(DataError, match=r"V1., its sha256 does not begin with"):
        install_weights(ResNet18Backbone(), path)


def test_torchvisions_keys_are_the_backbones() -> None:
    from torchvision.models import resnet18

    theirs = {name for name in resnet18().state_dict() if not name.startswith("fc.")}
    assert theirs == set(ResNet18Backbone().fresh(0).state_dict())
