"""A base network of others, or features from a file, taken as they are: no base training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fscil_bench.backbone import Backbone
from fscil_bench.progress import Progress
from fscil_bench.representation import Representation, TrainedRepresentation
from fscil_bench.spec import RepresentationSpec
from fscil_bench.store.tensors import load_tensors, save_tensors
from fscil_bench.training.loop import (
    LabelledImages,
    check_output,
    extract_features,
    input_transform,
)
from fscil_bench.training.weights import Fitted, Pretraining, listed, pretrained_tensors

PREFIX = "backbone."


def given_network(
    spec: RepresentationSpec,
    representation: Representation,
    backbone: Backbone,
    base: LabelledImages,
    device: torch.device,
    pretraining: Pretraining,
    folder: Path,
    progress: Progress,
) -> tuple[TrainedRepresentation, torch.Tensor | None]:
    """Return a network of others as a representation, stored in `folder`.

    Beside it are the base images' features (n, D), or None where it is stored already.

    The base classifier is that of its file, where it has one that fits (`base_rows`), else the
    class means of the base images' features. Of the representation only the scale counts.

    Raises:
        DataError: the file is damaged, or does not fit the backbone.
        StoreError: a file in `folder` is damaged or cannot be written.
    """
    path, network = folder / "weights.safetensors", backbone.fresh(seed=0)
    features: torch.Tensor | None = None
    if not path.exists():
        fitted = pretrained_tensors(network, backbone, pretraining)
        network.load_state_dict(dict(fitted.tensors), strict=False)
        network.to(device)
        check_output(network, backbone, input_transform(spec), device)
        with progress.task(f"features (base images, {pretraining.title})", len(base)) as task:
            blocks = []
            for block in extract_features(network, base, spec, device):
                blocks.append(block)
                task.update(sum(map(len, blocks)))
        features = torch.cat(blocks)
        means = class_means(features, torch.from_numpy(base.labels), spec.base_classes)
        given = base_rows(fitted.rows, means)
        log = _log(fitted, pretraining, given is not None)
        left_out = f"; left out: {listed(fitted.left_out)}" if fitted.left_out else ""
        progress.say(
            f"{pretraining.file or pretraining.title}: all tensors of the backbone are there"
            f"{f' under {fitted.prefix!r}' * bool(fitted.prefix)}; base classifier: "
            f"{log['classifier']}{left_out}"
        )
        tensors = {f"{PREFIX}{name}": tensor for name, tensor in network.state_dict().items()}
        save_tensors(path, {**tensors, "classifier": means if given is None else given}, log)
    tensors, log = load_tensors(path)
    rows = tensors.pop("classifier")
    network.load_state_dict({name.removeprefix(PREFIX): t for name, t in tensors.items()})
    made = TrainedRepresentation(
        key=spec.key,
        backbone=network.to(device).eval().requires_grad_(False),
        classifier=rows,
        scale=representation.scale(),
        log=log,
    )
    return made, features


def given_features(
    spec: RepresentationSpec,
    scale: float,
    features: np.ndarray,
    labels: np.ndarray,
    folder: Path,
) -> TrainedRepresentation:
    """Return features from a file as a representation, stored in `folder`.

    There is no network; the base classifier are the class means of the base samples' `features`
    (n, D), whose classes are `labels` (n,).

    Raises:
        StoreError: a file in `folder` is damaged or cannot be written.
    """
    path = folder / "weights.safetensors"
    if not path.exists():
        means = class_means(torch.tensor(features), torch.from_numpy(labels), spec.base_classes)
        # What is learnt from base data is cached by these tensors, and means are not all of it.
        content = torch.tensor(list(spec.data_fingerprint.encode()), dtype=torch.uint8)
        log = {"features": spec.pretraining, "classifier": "class means"}
        save_tensors(path, {"classifier": means, "content": content}, log)
    tensors, log = load_tensors(path)
    return TrainedRepresentation(spec.key, nn.Identity(), tensors["classifier"], scale, log=log)


def class_means(features: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the mean feature (classes, D) of each class of `features` (n, D)."""
    return torch.stack([features[labels == label].mean(dim=0) for label in range(classes)])


def base_rows(rows: torch.Tensor | None, means: torch.Tensor) -> torch.Tensor | None:
    """Return the first C of a classifier's rows (N, D) if they are those of the base classes.

    They are taken to be if, by cosine, they put more than half of the class means (C, D) into
    their class; rows of other classes, or in another order, do not.
    """
    classes, dim = means.shape
    if rows is None or rows.shape[1] != dim or len(rows) < classes:
        return None
    first = rows[:classes].float()
    own = (means @ F.normalize(first, dim=1).T).argmax(dim=1) == torch.arange(classes)
    fitting = bool(torch.isfinite(first).all()) and int(own.sum()) > classes / 2
    return first if fitting else None


def _log(fitted: Fitted, pretraining: Pretraining, rows_taken: bool) -> dict[str, Any]:
    """Return what is recorded of a network from a file."""
    classifier = "class means"
    if rows_taken:
        classifier = f"{fitted.classifier} of the file"
    elif fitted.rows is not None:
        classifier += f"; {fitted.classifier} of the file is not that of the base classes"
    return {
        "network": pretraining.title,
        "prefix": fitted.prefix,
        "classifier": classifier,
        "left_out": list(fitted.left_out),
    }
