"""Features of a frozen backbone: computed once per representation, shared by all methods."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fscil_bench.data import Dataset
from fscil_bench.errors import StoreError, UsageError, nearest
from fscil_bench.progress import Progress
from fscil_bench.protocol import ImageSpec
from fscil_bench.representation import TrainedRepresentation
from fscil_bench.store import Store, replaced_folder, write_text
from fscil_bench.tensorfile import stored_digest
from fscil_bench.training import extract_features

VIEWS = ("plain",)
"""The ways in which an image can be shown to the backbone."""


@dataclass(frozen=True)
class Features:
    """Features float32 (n, D) of all training and test images, memory-mapped."""

    train: np.ndarray
    test: np.ndarray


def check_views(owner: str, views: tuple[str, ...]) -> None:
    """Refuse views that do not exist.

    Raises:
        UsageError: a view is unknown.
    """
    for view in views:
        if view not in VIEWS:
            raise UsageError(f"{owner} needs the unknown view {view!r}; {nearest(view, VIEWS)}")


def load_features(
    dataset: Dataset,
    trained: TrainedRepresentation,
    spec: ImageSpec,
    store: Store,
    device: torch.device,
    progress: Progress,
) -> Features:
    """Return the features of all images, computing and storing them the first time.

    Raises:
        StoreError: the stored features are damaged.
    """
    folder = _folder(store, trained.key)
    if not (folder / "done.json").exists():
        _compute(folder, dataset, trained, spec, device, progress)
    return _read(folder, len(dataset.train), len(dataset.test))


def stored_features(store: Store, key: str, train: int, test: int) -> Features | None:
    """Return the features of representation `key` for so many images, or None if there are none.

    Raises:
        StoreError: the stored features are damaged.
    """
    if not weights_file(store, key).exists():
        return None
    folder = _folder(store, key)
    return _read(folder, train, test) if (folder / "done.json").exists() else None


def weights_file(store: Store, key: str) -> Path:
    """Return where the weights of a trained representation lie."""
    return store.representation_folder(key) / "weights.safetensors"


def _folder(store: Store, key: str) -> Path:
    # One specification trains other weights on another machine or with other threads, and folders
    # of results that hold both may share a cache.
    digest = stored_digest(weights_file(store, key))[:12]
    return store.cache_folder("features", f"{key}-{digest}-plain")


def _read(folder: Path, train: int, test: int) -> Features:
    try:
        halves = [np.load(folder / f"{half}.npy", mmap_mode="r") for half in ("train", "test")]
        if [len(half) for half in halves] != [train, test]:
            raise ValueError("their number is not that of the images")
    except (OSError, EOFError, ValueError) as error:
        raise StoreError(
            f"{folder}: the stored features are damaged ({error}); remove the folder, and they "
            "are computed again"
        ) from error
    return Features(*halves)


def _compute(
    folder: Path,
    dataset: Dataset,
    trained: TrainedRepresentation,
    spec: ImageSpec,
    device: torch.device,
    progress: Progress,
) -> None:
    total = len(dataset.train) + len(dataset.test)
    done = 0
    with replaced_folder(folder, "done.json") as new, progress.task("features", total) as task:
        for half, array in (("train", dataset.train), ("test", dataset.test)):
            blocks = []
            members = np.arange(len(array))
            for block in extract_features(trained.backbone, array.images, members, spec, device):
                blocks.append(block.numpy())
                done += len(block)
                task.update(done)
            np.save(new / f"{half}.npy", np.concatenate(blocks))
        write_text(new / "done.json", json.dumps({"images": total}))
