"""Pre-trained weights: where they come from, what they are called in tables, whether they fit."""

from __future__ import annotations

import pickle
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import torch
from safetensors.torch import load_file
from torch import nn

from fscil_bench.data.reader import file_digest
from fscil_bench.errors import DataError, UsageError
from fscil_bench.store.files import replaced_file

NONE = "none"


@dataclass(frozen=True)
class Pretraining:
    """What a backbone starts from: `title` names it in keys and tables, `file` holds it."""

    title: str
    file: Path | None = None


def resolve_pretraining(backbone: str, wanted: str, choice: str | None) -> Pretraining:
    """Return the weights a backbone starts from.

    Args:
        backbone: its name.
        wanted: the protocol's pre-training, `none` or `imagenet`.
        choice: a file, `none`, or None for what the protocol wants, as torchvision gives it.

    Raises:
        DataError: the weights are not on this machine and cannot be fetched.
        UsageError: a file is given that is not there.
    """
    if choice == NONE or (choice is None and wanted == NONE):
        return Pretraining(NONE)
    if choice is not None:
        path = Path(choice)
        if not path.is_file():
            raise UsageError(f"--weights {choice}: no such file")
        digest = file_digest(path)
        official = _official(backbone)
        if official is not None and digest.startswith(official[2]):
            return Pretraining(official[0], path)
        return Pretraining(f"{path.name} (sha256 {digest[:12]})", path)
    return _fetched(backbone)


def install_weights(backbone: str, source: Path | None) -> Path:
    """Fetch torchvision's ImageNet weights to where it looks for them, or take a local file.

    Raises:
        DataError: they cannot be fetched, or the file is not the published one.
    """
    if source is None:
        fetched = _fetched(backbone).file
        assert fetched is not None
        return fetched
    official = _official(backbone)
    if official is None:
        raise UsageError(f"there are no ImageNet weights for {backbone!r}")
    if not source.is_file():
        raise DataError(f"{source}: no such file")
    title, address, beginning = official
    if not file_digest(source).startswith(beginning):
        raise DataError(f"{source}: is not {title}, its sha256 does not begin with {beginning}")
    target = _checkpoints() / Path(urlparse(address).path).name
    with replaced_file(target) as copied:
        shutil.copyfile(source, copied)
    return target


def load_pretrained(network: nn.Module, pretraining: Pretraining) -> None:
    """Load weights into a backbone; a classifier's (`fc.*`) are left out.

    Raises:
        DataError: the file is damaged, or does not fit; the first missing and unexpected keys and
            the first tensor of another shape are named.
    """
    if pretraining.file is None:
        return
    tensors = _read(pretraining.file)
    found = {k: v for k, v in tensors.items() if not k.startswith(("fc.", "classifier."))}
    expected = network.state_dict()
    # Files older than batch normalisation's step counter lack it, and nothing needs it.
    missing = sorted(k for k in set(expected) - set(found) if not k.endswith("batches_tracked"))
    unexpected = sorted(set(found) - set(expected))
    shapes = [k for k in expected if k in found and expected[k].shape != found[k].shape]
    problems = [
        f"{len(keys)} {what}, first {keys[0]!r}"
        for what, keys in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", shapes),
        )
        if keys
    ]
    if problems:
        raise DataError(f"{pretraining.file}: does not fit the backbone: {'; '.join(problems)}")
    network.load_state_dict(found, strict=False)


def _official(backbone: str) -> tuple[str, str, str] | None:
    """Return title, address and the digest's beginning of torchvision's ImageNet weights."""
    if backbone != "resnet18":
        return None
    from torchvision.models import ResNet18_Weights

    weights = ResNet18_Weights.IMAGENET1K_V1
    address = str(weights.url)
    beginning = Path(urlparse(address).path).stem.rpartition("-")[2]
    return "ImageNet-1k (torchvision IMAGENET1K_V1)", address, beginning


def _fetched(backbone: str) -> Pretraining:
    official = _official(backbone)
    if official is None:
        raise UsageError(f"there are no ImageNet weights for {backbone!r}; use --weights none")
    title, address, beginning = official
    folder = _checkpoints()
    path = folder / Path(urlparse(address).path).name
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(address, str(path), hash_prefix=beginning)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"the ImageNet weights {path.name} are not in {folder} and cannot be fetched from "
                f"{address} ({error}); fetch them elsewhere and give --weights FILE, or start "
                "from random weights with --weights none"
            ) from error
    if not file_digest(path).startswith(beginning):
        raise DataError(f"{path}: damaged, its digest is not {beginning}…; remove it")
    return Pretraining(title, path)


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch goes on to advise how to load the file without care; the reason alone is wanted.
        found = re.search(r"GLOBAL ([\w.]+)|(?:class|type) ([\w.]+)", str(error))
        reason = f"it names {found[1] or found[2]}" if found else "it is no plain pickle of tensors"
        raise DataError(f"{path}: holds more than tensors and is refused: {reason}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"{path}: cannot be read as weights: {error}") from error
    content = content.get("state_dict", content) if isinstance(content, dict) else {}
    if not content or not all(isinstance(v, torch.Tensor) for v in content.values()):
        raise DataError(f"{path}: is no file of named tensors")
    return dict(content)


def _checkpoints() -> Path:
    """Return where torchvision keeps weights."""
    return Path(torch.hub.get_dir()) / "checkpoints"
