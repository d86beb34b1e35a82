"""Features of a frozen backbone: computed once per representation, shared by all methods."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray, file_digest
from fscil_bench.errors import FscilError, StoreError, UsageError, nearest
from fscil_bench.plugins.digest import engine_digest
from fscil_bench.progress import Progress
from fscil_bench.protocol import ImageSpec
from fscil_bench.representation import TrainedRepresentation
from fscil_bench.spec import RepresentationSpec, Views, digest_of
from fscil_bench.store.caches import changed_file
from fscil_bench.store.files import replaced_folder, write_text
from fscil_bench.store.runs import Store
from fscil_bench.store.tensors import load_tensors, save_tensors, stored_digest
from fscil_bench.training.loop import LabelledImages, as_it_is, extract_features

VIEWS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": as_it_is,
    **{f"rot{90 * k}": partial(torch.rot90, k=k, dims=(1, 2)) for k in (1, 2, 3)},
}
"""The ways in which an image (n, S, S, 3) can be shown; rotations are counter-clockwise."""

KEPT_EVERY = 60.0
"""Seconds after which features that are computed are kept, so that a stop loses no more."""

_MIRRORED, _PARTS = "-mirrored", "-parts"


@dataclass(frozen=True)
class Features:
    """Features float32 (n, D) of all training and test images, in one view."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class FeatureSource:
    """What features are computed from, where they are not stored."""

    trained: TrainedRepresentation
    spec: RepresentationSpec
    store: Store
    device: torch.device
    progress: Progress
    known: tuple[np.ndarray, np.ndarray] | None = None
    """Training images, by index, whose plain features are known, and these features."""

    def load(self, dataset: Dataset, view: str, views: Views = "plain") -> Features:
        """Return the features of all images in one view, computing and storing them if need be.

        With `views = "flip"` they are the mean of those of the image and of its mirror image.

        Raises:
            StoreError: the stored features are damaged.
        """
        train = self.load_half(dataset.train, "train", view, views)
        return Features(train, self.load_half(dataset.test, "test", view, views))

    def load_half(
        self, array: ImageArray, half: str, view: str, views: Views = "plain"
    ) -> np.ndarray:
        """Return the features (n, D) of one half of the images, likewise."""
        shown = self._load(array, half, view)
        if views == "plain":
            return shown
        return _mean(shown, self._load(array, half, view + _MIRRORED))

    def _load(self, array: ImageArray, half: str, view: str) -> np.ndarray:
        folder = _folder(self.store, self.trained.key, view, half)
        if not (folder / "done.json").exists():
            self._compute(folder, array, half, view)
        return _read(self.store, folder, len(array))

    def _compute(self, folder: Path, array: ImageArray, half: str, view: str) -> None:
        title = f"features ({view}, {half})"
        name = view.removesuffix(_MIRRORED)
        mirrored = name != view

        def shown(images: torch.Tensor) -> torch.Tensor:
            turned = VIEWS[name](images)
            return turned.flip(2) if mirrored else turned

        members = np.arange(len(array))
        known = self.known if (half, view) == ("train", "plain") else None
        if known is not None:
            members = np.setdiff1d(members, known[0])
        chosen = LabelledImages(array.images, members, array.labels[members])
        parts = folder.with_name(folder.name + _PARTS)
        with replaced_folder(folder, "done.json") as new:
            features = self._extracted(title, chosen, shown, parts)
            if known is not None:
                order = np.argsort(np.concatenate([known[0], members]))
                features = np.concatenate([known[1], features])[order]
            np.save(new / "features.npy", features)
            digest = file_digest(new / "features.npy")
            write_text(new / "done.json", json.dumps({"features.npy": digest}))
        shutil.rmtree(parts, ignore_errors=True)

    def _extracted(
        self,
        title: str,
        chosen: LabelledImages,
        shown: Callable[[torch.Tensor], torch.Tensor],
        parts: Path,
    ) -> np.ndarray:
        """Return features (n, D); what `parts` holds of them is taken, and a stop keeps more."""
        images = digest_of(chosen.members.tolist())
        blocks = _kept(parts, images)
        first = done = sum(map(len, blocks))
        if done:
            self.progress.say(f"{title}: going on after {done} of {len(chosen)} images")
        left = LabelledImages(chosen.images, chosen.members[done:], chosen.labels[done:])
        fresh: list[np.ndarray] = []
        kept = time.monotonic()
        with self.progress.task(title, len(chosen)) as task:
            for block in extract_features(
                self.trained.backbone, left, self.spec, self.device, shown
            ):
                if not bool(torch.isfinite(block).all()):
                    raise FscilError(
                        f"{title}: the network gives features that are not finite for images "
                        f"{done} to {done + len(block) - 1}; train it again, with a lower lr or "
                        "--precision fp32"
                    )
                fresh.append(block.numpy())
                done += len(block)
                task.update(done)
                if time.monotonic() - kept > KEPT_EVERY:
                    blocks.append(_keep(parts, images, first, fresh))
                    first, fresh, kept = done, [], time.monotonic()
        return np.concatenate([*blocks, *fresh])


def _kept(parts: Path, images: str) -> list[np.ndarray]:
    """Return, in order, what a stopped extraction has kept: files named by their first row.

    Those of other images, by their digest, and what is damaged are computed again.
    """
    found: list[np.ndarray] = []
    with suppress(StoreError):
        while True:
            tensors, meta = load_tensors(parts / f"part-{sum(map(len, found))}.safetensors")
            if meta["images"] != images:
                break
            found.append(tensors["rows"].numpy())
    return found


def _keep(parts: Path, images: str, start: int, blocks: list[np.ndarray]) -> np.ndarray:
    """Keep blocks of features (b, D), of which the first is row `start`; return them as one."""
    rows = np.concatenate(blocks)
    file = parts / f"part-{start}.safetensors"
    save_tensors(file, {"rows": torch.from_numpy(rows)}, {"images": images})
    return rows


def check_views(owner: str, views: tuple[str, ...]) -> None:
    """Refuse views that do not exist.

    Raises:
        UsageError: a view is unknown.
    """
    for view in views:
        if view not in VIEWS:
            raise UsageError(f"{owner} needs the unknown view {view!r}; {nearest(view, VIEWS)}")


def stored_features(
    store: Store, key: str, train: int, test: int, views: Views = "plain"
) -> Features | None:
    """Return the features of representation `key` for so many images, or None if there are none.

    Raises:
        StoreError: the stored features are damaged.
    """
    if not weights_file(store, key).exists():
        return None
    names = ["plain"] if views == "plain" else ["plain", "plain" + _MIRRORED]
    halves = []
    for half, count in (("train", train), ("test", test)):
        folders = [_folder(store, key, name, half) for name in names]
        if not all((folder / "done.json").exists() for folder in folders):
            return None
        found = [_read(store, folder, count) for folder in folders]
        halves.append(found[0] if len(found) == 1 else _mean(*found))
    return Features(*halves)


def has_features(store: Store, key: str, view: str, half: str, views: Views = "plain") -> bool:
    """Return whether one half of representation `key`'s features, of a trained one, is stored."""
    names = [view] if views == "plain" else [view, view + _MIRRORED]
    return all((_folder(store, key, name, half) / "done.json").exists() for name in names)


def is_begun(store: Store, key: str) -> bool:
    """Return whether a representation is trained, or half trained."""
    folder = store.representation_folder(key)
    return any(
        (folder / name).exists() for name in ("weights.safetensors", "checkpoint.safetensors")
    )


def weights_file(store: Store, key: str) -> Path:
    """Return where the weights of a trained representation lie."""
    return store.representation_folder(key) / "weights.safetensors"


def _folder(store: Store, key: str, view: str, half: str) -> Path:
    # One specification trains other weights on another machine or with other threads, and folders
    # of results that hold both may share a cache.
    weights = stored_digest(weights_file(store, key))[:12]
    code = engine_digest(FeatureSource, Images, ImageSpec)[:8]
    return store.cache_folder("features", f"{key}-{weights}-{code}-{view}-{half}")


def _read(store: Store, folder: Path, count: int) -> np.ndarray:
    try:
        features: np.ndarray = np.load(folder / "features.npy", mmap_mode="r")
        if len(features) != count:
            raise ValueError("their number is not that of the images")
        written = json.loads((folder / "done.json").read_text(encoding="utf-8"))
        if changed := changed_file(store.cache, folder, written):
            raise ValueError(changed)
    except (OSError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{folder}: the stored features are damaged ({error}); remove the folder, and they "
            "are computed again"
        ) from error
    return features


def _mean(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    mean: np.ndarray = (first + second) / 2
    return mean
