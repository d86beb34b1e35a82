"""Pre-trained weights: where they come from, what they are called in tables, whether they fit."""

from __future__ import annotations

import pickle
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch
from safetensors.torch import load_file
from torch import nn

from fscil_bench.backbone import Backbone, Published
from fscil_bench.data.reader import file_digest
from fscil_bench.errors import DataError, UsageError, no_file
from fscil_bench.protocol import Protocol
from fscil_bench.store.files import replaced_file

NONE = "none"

Tensors = Mapping[str, torch.Tensor]

WRAPPERS = ("params", "state_dict", "model", "model_state_dict", "network", "net")
"""Under what released code saves named tensors: CEC, FACT and TEEN under `params`."""
CLASSIFIERS = ("fc", "classifier", "head", "heads", "_fc")
"""What released code calls the classifier beside a backbone."""
CURATED = ("imagenet", "cifar", "places")
"""How data sets are called whose classes are listed, so that one can tell which are in them."""
NAMED = 3
"""Names of tensors that a message lists of each kind."""


@dataclass(frozen=True)
class Pretraining:
    """What a backbone starts from.

    Attributes:
        title: names it in keys and tables.
        file: holds it; None where a library keeps it, and where there is none.
        data: what it was trained on; empty where that is not known.
    """

    title: str
    file: Path | None = None
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fitted:
    """What a file of weights holds for a backbone.

    Attributes:
        tensors: those of the backbone, by its own names.
        prefix: what stands before these names in the file, such as `module.encoder.`.
        classifier: name in the file of the classifier's rows beside the backbone.
        rows: these rows (N, D), or None where there are none.
        left_out: names in the file of everything else.
    """

    tensors: Tensors
    prefix: str
    classifier: str
    rows: torch.Tensor | None
    left_out: tuple[str, ...]


def resolve_pretraining(backbone: Backbone, wanted: str, choice: str | None) -> Pretraining:
    """Return the weights a backbone starts from.

    Args:
        backbone: what is to start from them.
        wanted: `none`, or anything else for those that are published.
        choice: a file, `none`, or None for what is wanted.

    Raises:
        DataError: the weights are not on this machine and cannot be fetched.
        UsageError: a file is given that is not there, or no weights are published.
    """
    if choice == NONE or (choice is None and wanted == NONE):
        return Pretraining(NONE)
    published = backbone.published
    if choice is not None:
        path = Path(choice)
        if not path.is_file():
            raise UsageError(f"--weights {choice}: {no_file(path)}")
        digest = file_digest(path)
        if published is not None and published.digest and digest.startswith(published.digest):
            return Pretraining(published.title, path, published.data)
        return Pretraining(f"{path.name} (sha256 {digest[:12]})", path)
    if published is None:
        raise UsageError(
            f"there are no published weights for {backbone.called!r}; give a file of some with "
            "--weights FILE, or start from random ones with --weights none"
        )
    file = _fetched(published) if published.address else None
    return Pretraining(published.title, file, published.data)


def seen_before(protocol: Protocol, data: tuple[str, ...]) -> list[str]:
    """Return what a table must say of a protocol's classes in the data of a pre-training.

    Which classes are in images from the web, or in a file's data, is not known.
    """
    seen = [
        f"classes seen in pre-training: {which} in {each}"
        for each in data
        for beginning, which in protocol.classes_in.items()
        if each.lower().startswith(beginning)
    ]
    if seen:
        return seen
    curated = all(each.lower().startswith(CURATED) for each in data)
    if data and curated:
        return []
    of = ", ".join(data) or "the file's pre-training"
    return [f"classes seen in pre-training: not known of {of}"]


def install_weights(backbone: Backbone, source: Path | None) -> Path:
    """Fetch a backbone's published weights to where PyTorch looks for them, or take a local file.

    Raises:
        DataError: they cannot be fetched, or the file is not the published one.
        UsageError: none are published as a file.
    """
    published = backbone.published
    if published is None or not published.address:
        raise UsageError(f"there is no published file of weights for {backbone.called!r}")
    if source is None:
        return _fetched(published)
    if not source.is_file():
        raise DataError(f"{source}: {no_file(source)}")
    if not file_digest(source).startswith(published.digest):
        raise DataError(
            f"{source}: is not {published.title}, its sha256 does not begin with {published.digest}"
        )
    target = _place(published)
    with replaced_file(target) as copied:
        shutil.copyfile(source, copied)
    return target


def pretrained_tensors(network: nn.Module, backbone: Backbone, pretraining: Pretraining) -> Fitted:
    """Return what a backbone's network starts from.

    Raises:
        DataError: the file is damaged, or does not fit; or a library's weights cannot be had.
    """
    if pretraining.file is not None:
        return fit(network, pretraining.file)
    published = backbone.published
    if pretraining.title == NONE or published is None or published.tensors is None:
        return Fitted({}, "", "", None, ())
    return Fitted(published.tensors(), "", "", None, ())


def load_pretrained(network: nn.Module, backbone: Backbone, pretraining: Pretraining) -> None:
    """Load weights into a backbone's network.

    Raises:
        DataError: as `pretrained_tensors` does.
    """
    fitted = pretrained_tensors(network, backbone, pretraining)
    network.load_state_dict(dict(fitted.tensors), strict=False)


def fit(network: nn.Module, path: Path) -> Fitted:
    """Return what a file holds for a backbone, whatever stands before its names.

    Shortcuts may be called `shortcut` or `downsample`. A classifier and, where the backbone's names
    have a prefix, what stands outside of it may be there too.

    Raises:
        DataError: the file is damaged, holds other objects than tensors and plain values, several
            networks or values that are no finite numbers of the backbone's type, or does not fit:
            the first missing, unexpected and misshapen tensors are listed.
    """
    tensors = _read(path)
    expected: dict[str, torch.Tensor] = network.state_dict()
    own_names = {_canonical(name): name for name in expected}
    prefix = _prefix(path, tensors, own_names)
    inside = {
        name: own_names.get(_canonical(name.removeprefix(prefix)))
        for name in tensors
        if name.startswith(prefix)
    }
    found = {own: tensors[name] for name, own in inside.items() if own is not None}
    heads = tuple(f"{prefix}{word}." for word in CLASSIFIERS)
    unexpected = [n for n, own in inside.items() if own is None and not n.startswith(heads)]
    _check_fit(path, network, prefix, found, {name: tensors[name] for name in unexpected})
    classifier = _classifier(tensors, prefix)
    left_out = sorted(n for n in tensors if inside.get(n) is None and n != classifier)
    rows = tensors.get(classifier)
    return Fitted(found, prefix, classifier, rows, tuple(left_out))


def _canonical(name: str) -> str:
    return name.replace(".shortcut.", ".downsample.")


def _prefix(path: Path, names: Iterable[str], own_names: Mapping[str, str]) -> str:
    """Return what stands before most of the backbone's names."""
    counts: Counter[str] = Counter()
    for name in names:
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        counts.update(name[:start] for start in starts if _canonical(name[start:]) in own_names)
    best = [prefix for prefix, count in counts.items() if count == max(counts.values())]
    needed = sum(not name.endswith("batches_tracked") for name in own_names)
    if len(best) > 1 and counts[best[0]] >= needed:
        raise DataError(
            f"{path}: holds several networks, under {listed(map(repr, best))}; save the tensors of "
            "one of them alone"
        )
    return best[0] if len(best) == 1 else ""


def _classifier(tensors: Tensors, prefix: str) -> str:
    """Return the name of the rows beside a backbone, at its own level or one above; or ""."""
    parts = prefix.split(".")[:-1]
    levels = ["".join(f"{part}." for part in parts[:end]) for end in range(len(parts), -1, -1)]
    names = (f"{level}{word}.weight" for level in levels for word in CLASSIFIERS)
    found = ((name, tensors[name]) for name in names if name in tensors)
    return next((n for n, rows in found if rows.dim() == 2 and rows.is_floating_point()), "")


def _check_fit(
    path: Path, network: nn.Module, prefix: str, found: Tensors, unexpected: Tensors
) -> None:
    expected = network.state_dict()
    # Files older than batch normalisation's step counter lack it, and nothing needs it.
    missing = sorted(k for k in set(expected) - set(found) if not k.endswith("batches_tracked"))
    misshapen = sorted(k for k, tensor in found.items() if tensor.shape != expected[k].shape)
    kinds = {
        "missing": [f"{k!r} {_shape(expected[k])}" for k in missing],
        "unexpected": [f"{k!r} {_shape(unexpected[k])}" for k in sorted(unexpected)],
        "of another shape": [
            f"{k!r} {_shape(found[k])}, expected {_shape(expected[k])}" for k in misshapen
        ],
    }
    problems = [f"{len(names)} {kind}: {listed(names)}" for kind, names in kinds.items() if names]
    if problems:
        under = f" under {prefix!r}" if prefix else ""
        raise DataError(
            f"{path}: its network{under} is not the backbone {type(network).__name__} "
            f"({len(found) - len(misshapen)} of {len(expected)} tensors fit): {'; '.join(problems)}"
        )
    for name, tensor in found.items():
        _check_values(path, name, tensor, expected[name].dtype)


def _check_values(path: Path, name: str, tensor: torch.Tensor, wanted: torch.dtype) -> None:
    fitting = tensor.is_floating_point() or not wanted.is_floating_point
    if not fitting or tensor.is_complex() or tensor.is_quantized:
        raise DataError(f"{path}: {name!r} is of {tensor.dtype}, its values must be {wanted}")
    # As the backbone will hold them; for the narrowest floats few operations are there.
    values = tensor.to(wanted)
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"{path}: the values of {name!r} are not finite")
    if name.endswith("running_var") and bool((values < 0).any()):
        raise DataError(f"{path}: damaged weights: a variance in {name!r} is negative")


def _shape(tensor: torch.Tensor) -> str:
    return "(" + "×".join(map(str, tensor.shape)) + ")"


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def _fetched(published: Published) -> Path:
    path, address = _place(published), published.address
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(address, str(path), hash_prefix=published.digest)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{published.title}: the weights {path.name} are not in {path.parent} and cannot "
                f"be fetched from {address} ({error}); fetch them elsewhere and give --weights "
                "FILE, or start from random weights with --weights none"
            ) from error
    if not file_digest(path).startswith(published.digest):
        raise DataError(f"{path}: damaged, its digest is not {published.digest}…; remove it")
    return path


def _place(published: Published) -> Path:
    """Return where PyTorch keeps the file."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    return folder / PurePosixPath(urlparse(published.address).path).name


class _Ignored:
    """Stands for an object beside the tensors: it takes whatever it is made of, and keeps none."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


BESIDE = (
    "argparse.Namespace",
    "numpy.dtype",
    "numpy.ndarray",
    *(
        f"numpy.{core}.{name}"
        for core in ("core", "_core")
        for name in ("multiarray.scalar", "multiarray._reconstruct", "numeric._frombuffer")
    ),
)
"""Classes and functions that a file may name beside its tensors; none of them is ever called."""


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Return a file's named tensors, from whatever they are wrapped in."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # Pairs with a name are not understood by torch's annotations.
        allowed: list[Any] = [(_Ignored, name) for name in BESIDE]
        with torch.serialization.safe_globals(allowed):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch goes on to advise how to load the file without care; the reason alone is wanted.
        found = re.search(r"GLOBAL ([\w.]+)|(?:class|type) ([\w.]+)", str(error))
        reason = f"it names {found[1] or found[2]}" if found else "it is no plain pickle of tensors"
        raise DataError(
            f"{path}: holds more than tensors and is refused: {reason}; save the network's "
            "state_dict() alone"
        ) from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"{path}: cannot be read as weights: {error}") from error
    named = _named_tensors(content)
    if not named:
        raise DataError(f"{path}: is no file of named tensors")
    unusable = [k for k, v in named.items() if v.is_meta or v.layout != torch.strided]
    if unusable:
        raise DataError(f"{path}: {unusable[0]!r} is no plain tensor of values")
    return named


def _named_tensors(content: Any, levels: int = 3) -> dict[str, torch.Tensor]:
    """Return the tensors of a mapping, or of the fullest that it holds under a known name."""
    if not isinstance(content, Mapping) or not levels:
        return {}
    inner = max((_named_tensors(content.get(word), levels - 1) for word in WRAPPERS), key=len)
    return inner or {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor)}
