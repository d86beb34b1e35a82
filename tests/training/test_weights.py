from __future__ import annotations

import argparse
import hashlib
import io
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fscil_bench.errors import DataError, UsageError
from fscil_bench.training import weights
from fscil_bench.training.backbones import build_backbone
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
    load_pretrained(network, Pretraining("title", path))
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


@pytest.mark.parametrize("prefix", ["", "module.", "module.encoder.", "backbone.module.", "net."])
@pytest.mark.parametrize("form", ["plain", "safetensors", "legacy"])
def test_files_of_all_forms_are_loaded(tmp_path: Path, form: str, prefix: str) -> None:
    path, content = tmp_path / f"weights.{form}", under(prefix, tensors())
    if form == "safetensors":
        save_file(content, path)
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "plain")
    assert same(loaded(path), tensors())


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda content: {"params": content},
        lambda content: {"state_dict": content, "epoch": 3, "best_acc": 0.7},
        lambda content: {"model": content, "optimizer": {"state": {0: torch.ones(1)}}},
        lambda content: {"model": {"state_dict": content}, "params": {"lr": torch.tensor(0.1)}},
    ],
    ids=["params", "state_dict", "model", "nested"],
)
def test_tensors_are_found_in_what_they_are_wrapped_in(
    tmp_path: Path, wrapped: Callable[[Tensors], object]
) -> None:
    path = saved(tmp_path / "w.pth", wrapped(under("module.encoder.", tensors())))
    assert same(loaded(path), tensors())


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


@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_numpy_is_known_by_both_of_its_names(tmp_path: Path, core: str) -> None:
    stream = pickle.dumps({"accuracy": np.float64(0.5)}, protocol=2)
    named = re.sub(rb"numpy\._?core", core.encode(), stream)
    assert refusal(zipped_stream(tmp_path / "w.pth", named)) == "is no file of named tensors"


def zipped_stream(path: Path, stream: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", stream)
        archive.writestr("w/version", "3\n")
        archive.writestr("w/byteorder", "little")
    return path


def test_a_mapping_that_holds_itself_ends(tmp_path: Path) -> None:
    content: dict[str, object] = {}
    content["model"] = content
    assert refusal(saved(tmp_path / "w.pth", content)) == "is no file of named tensors"


def released(prefix: str = "module.encoder.") -> Tensors:
    """Return tensors under the names of CEC's ResNet-20, as DataParallel saves them."""
    network = build_backbone("resnet20", 5)
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
    network = build_backbone("resnet20", 0)
    assert len(released()) == len(network.state_dict())
    found = fit(network, path)
    assert (found.prefix, found.classifier) == ("module.encoder.", "module.fc.weight")
    assert found.rows is not None
    assert torch.equal(found.rows, rows)
    assert found.left_out == ("module.slf_attn.fc.weight", "module.slf_attn.w_qs.weight")
    load_pretrained(network, Pretraining("title", path))
    assert same(network, dict(build_backbone("resnet20", 5).state_dict()))


def test_two_networks_in_a_file_are_not_chosen_between(tmp_path: Path) -> None:
    content = {**under("encoder_q.", tensors()), **under("encoder_k.", tensors(2))}
    assert refusal(saved(tmp_path / "w.pth", content)) == (
        "holds several networks, under 'encoder_q.', 'encoder_k.'; save the tensors of one of them "
        "alone"
    )


def test_values_that_are_not_finite_are_named(tmp_path: Path) -> None:
    content = tensors()
    content["1.running_mean"][2] = torch.nan
    assert "the values of '1.running_mean' are not" in refusal(saved(tmp_path / "w.pth", content))


def test_a_tensor_without_values_is_refused(tmp_path: Path) -> None:
    content = {**tensors(), "1.bias": torch.empty(4, device="meta")}
    assert refusal(saved(tmp_path / "w.pth", content)) == "'1.bias' is no plain tensor of values"


def test_a_classifier_is_left_out(tmp_path: Path) -> None:
    extra = {
        "fc.weight": torch.ones(9, 4),
        "fc.bias": torch.ones(9),
        "classifier.weight": torch.ones(1),
    }
    assert same(loaded(saved(tmp_path / "w.pth", {**tensors(), **extra})), tensors())


def test_old_files_without_batch_counters_fit(tmp_path: Path) -> None:
    old = {name: value for name, value in tensors().items() if "num_batches" not in name}
    network = loaded(saved(tmp_path / "w.pth", old))
    assert torch.equal(network.state_dict()["0.weight"], old["0.weight"])
    assert int(network.state_dict()["1.num_batches_tracked"]) == 0


def test_without_a_file_the_network_stays_as_it_is() -> None:
    network = small()
    load_pretrained(network, Pretraining("none"))
    assert same(network, {name: value for name, value in small().state_dict().items()})


def test_the_first_missing_unexpected_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    content = tensors()
    content["z.late"] = content["a.early"] = content.pop("1.running_var")
    del content["1.bias"]
    content["0.weight"] = torch.ones(4, 3, 7, 7)
    assert refusal(saved(tmp_path / "w.pth", content)) == (
        "its network is not the backbone Sequential (3 of 6 tensors fit): 2 missing: '1.bias' (4), "
        "'1.running_var' (4); 2 unexpected: 'a.early' (4), 'z.late' (4); 1 of another shape: "
        "'0.weight' (4×3×7×7), expected (4×3×3×3)"
    )


def test_a_deeper_network_is_refused(tmp_path: Path) -> None:
    content = released()
    for block in range(3, 5):  # a ResNet-32's
        for name in list(content):
            if ".layer1.2." in name:
                content[name.replace("layer1.2", f"layer1.{block}")] = content[name]
    path = saved(tmp_path / "w.pth", {"params": content})
    with pytest.raises(DataError) as caught:
        fit(build_backbone("resnet20", 0), path)
    assert str(caught.value) == (
        f"{path}: its network under 'module.encoder.' is not the backbone ResNet20 (126 of 126 "
        "tensors fit): 24 unexpected: 'module.encoder.layer1.3.bn1.bias' (16), "
        "'module.encoder.layer1.3.bn1.num_batches_tracked' (), "
        "'module.encoder.layer1.3.bn1.running_mean' (16) and 21 more"
    )


def test_a_network_of_other_names_is_refused_with_names_of_both_sides(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pth", {"convnet.conv_1_3x3.weight": torch.ones(16, 3, 3, 3)})
    text = refusal(path)
    assert "(0 of 6 tensors fit)" in text
    assert "missing: '0.weight' (4×3×3×3)" in text
    assert "1 unexpected: 'convnet.conv_1_3x3.weight' (16×3×3×3)" in text


def test_blocks_that_look_alike_are_not_taken_for_networks(tmp_path: Path) -> None:
    names = ("conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var")
    content = {f"blocks.{number}.{name}": torch.ones(16) for number in (0, 1) for name in names}
    path = saved(tmp_path / "w.pth", content)
    with pytest.raises(DataError, match=r"\(0 of 126 tensors fit\).*10 unexpected: 'blocks\.0"):
        fit(build_backbone("resnet20", 0), path)


def test_a_file_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    network = small()
    content = {**tensors(), "unexpected": torch.ones(1)}
    with pytest.raises(DataError, match="1 unexpected: 'unexpected'"):
        load_pretrained(network, Pretraining("title", saved(tmp_path / "w.pth", content)))
    assert same(network, small().state_dict())


def test_weights_of_another_backbone_do_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path / "w.pth", build_backbone("resnet20", 0).state_dict())
    network = build_backbone("resnet18", 0)
    with pytest.raises(DataError, match=r"of another shape: 'bn1.bias' \(16\), expected \(64\)"):
        load_pretrained(network, Pretraining("title", path))


class Harmful:
    """Leaves a file behind when it is unpickled without care."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.mark),)


def zipped(path: Path, content: object) -> Path:
    """Write a file of torch's form by hand, as an attacker would."""
    return zipped_stream(path, pickle.dumps(content, protocol=2))


@pytest.mark.parametrize("form", ["zip", "torch", "legacy", "pickle", "arguments", "array"])
def test_a_file_that_would_execute_something_is_refused(tmp_path: Path, form: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "w.pth"
    content = {**tensors(), "harm": Harmful(mark)}
    if form == "zip":
        zipped(path, {"harm": Harmful(mark)})
    elif form == "arguments":
        torch.save({"params": tensors(), "args": argparse.Namespace(harm=Harmful(mark))}, path)
    elif form == "array":
        torch.save({"params": tensors(), "acc": np.array([Harmful(mark)])}, path)
    elif form == "pickle":
        path.write_bytes(pickle.dumps({"harm": Harmful(mark)}, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "torch")
    assert refusal(path).startswith("holds more than tensors and is refused: ")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cannot be read as weights"),
        (b"<!DOCTYPE html><html>", "refused|cannot be read"),
        (b"PK\x03\x04 cut short", "cannot be read as weights"),
    ],
    ids=["empty", "web page", "truncated"],
)
@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=reason) as caught:
        loaded(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "stream",
    [b"\x80\x02h\x01.", b"\x80\x02t.", b"\x80\x02cno\nsuch\n."],
    ids=["memory", "stack", "name"],
)
def test_a_file_whose_instructions_make_no_sense_is_named(tmp_path: Path, stream: bytes) -> None:
    path = tmp_path / "w.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w/data.pkl", stream)
        archive.writestr("w/version", "3\n")
    assert "refused" in refusal(path) or "cannot be read as weights" in refusal(path)


def test_a_refusal_does_not_advise_to_load_the_file_without_care(tmp_path: Path) -> None:
    text = refusal(zipped(tmp_path / "w.pth", {"harm": Harmful(tmp_path / "mark")}))
    assert re.search(r"it names (posix|nt)\.mkdir; save the network's state_dict\(\) alone", text)
    assert "Re-running" not in text


def test_files_cut_anywhere_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(tensors(), buffer)
    save_file(tensors(), tmp_path / "whole.safetensors")
    for name, whole in (
        ("w.pth", buffer.getvalue()),
        ("w.safetensors", (tmp_path / "whole.safetensors").read_bytes()),
    ):
        for end in range(0, len(whole), max(1, len(whole) // 40)):
            (tmp_path / name).write_bytes(whole[:end])
            with pytest.raises(DataError):
                loaded(tmp_path / name)


@pytest.mark.parametrize(
    "content", [[torch.ones(1)], {}, {"epoch": 3}, {"state_dict": {"a": 1}}, torch.ones(2)]
)
def test_a_file_without_named_tensors_is_refused(tmp_path: Path, content: object) -> None:
    assert refusal(saved(tmp_path / "w.pth", content)) == "is no file of named tensors"


def test_nothing_is_looked_for_where_no_weights_are_wanted() -> None:
    assert resolve_pretraining("resnet20", "none", None) == Pretraining("none")
    assert resolve_pretraining("resnet18", "imagenet", "none") == Pretraining("none")


def test_a_file_of_ones_own_is_called_by_name_and_digest(tmp_path: Path) -> None:
    path = saved(tmp_path / "mine.pth", tensors())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for backbone, wanted in (("resnet20", "none"), ("resnet18", "imagenet")):
        found = resolve_pretraining(backbone, wanted, str(path))
        assert found == Pretraining(f"mine.pth (sha256 {digest[:12]})", path)
    with pytest.raises(UsageError, match=r"--weights .*nowhere\.pth: no such file"):
        resolve_pretraining("resnet18", "imagenet", str(tmp_path / "nowhere.pth"))


ADDRESS = "https://weights.example/models/network-{}.pth"


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Let a small file be the published weights, and no network be there to fetch them."""
    buffer = io.BytesIO()
    torch.save(tensors(), buffer)
    content = buffer.getvalue()
    beginning = hashlib.sha256(content).hexdigest()[:8]
    official = ("Published", ADDRESS.format(beginning), beginning)
    monkeypatch.setattr(
        weights, "_official", lambda backbone: official if backbone == "resnet18" else None
    )
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def no_network(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    return content


def test_published_weights_given_as_a_file_are_called_so(tmp_path: Path, published: bytes) -> None:
    path = tmp_path / "renamed.pth"
    path.write_bytes(published)
    assert resolve_pretraining("resnet18", "imagenet", str(path)) == Pretraining("Published", path)


@pytest.mark.usefixtures("published")
def test_without_a_network_it_is_said_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        resolve_pretraining("resnet18", "imagenet", None)
    text = str(caught.value)
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    assert f".pth are not in {folder} and cannot be fetched from https://weights.example" in text
    assert "no route to host" in text
    assert text.endswith("give --weights FILE, or start from random weights with --weights none")
    assert not list(folder.glob("*")), "nothing half-written"


def test_weights_that_are_there_need_no_network(tmp_path: Path, published: bytes) -> None:
    given = tmp_path / "given.pth"
    given.write_bytes(published)
    path = install_weights("resnet18", given)
    assert path.parent == tmp_path / "torch" / "hub" / "checkpoints"
    found = resolve_pretraining("resnet18", "imagenet", None)
    assert found == Pretraining("Published", path)
    assert same(loaded(path), tensors())


def test_damaged_weights_are_not_used(tmp_path: Path, published: bytes) -> None:
    given = tmp_path / "given.pth"
    given.write_bytes(published)
    path = install_weights("resnet18", given)
    path.write_bytes(published[:-1])
    with pytest.raises(DataError, match=r"damaged, its digest is not .*; remove it"):
        resolve_pretraining("resnet18", "imagenet", None)
    with pytest.raises(DataError, match="is not Published, its sha256 does not begin with"):
        install_weights("resnet18", path)


@pytest.mark.usefixtures("published")
def test_a_backbone_without_published_weights_is_refused() -> None:
    with pytest.raises(UsageError, match="no ImageNet weights for 'resnet20'; use --weights none"):
        resolve_pretraining("resnet20", "imagenet", None)


def test_torchvisions_weights_are_named_by_their_digest() -> None:
    official = weights._official("resnet18")
    assert official is not None
    title, address, beginning = official
    assert title == "ImageNet-1k (torchvision IMAGENET1K_V1)"
    assert address.endswith(f"resnet18-{beginning}.pth")
    assert beginning == "f37072fd"


def test_torchvisions_keys_are_the_backbones() -> None:
    from torchvision.models import resnet18

    theirs = {name for name in resnet18().state_dict() if not name.startswith("fc.")}
    assert theirs == set(build_backbone("resnet18", 0).state_dict())
