"""Features: every view shows what its name says, is computed once, and is refused if damaged."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import ImageArray
from fscil_bench.errors import StoreError, UsageError
from fscil_bench.progress import Silent
from fscil_bench.protocol import ImageSpec, Recipe
from fscil_bench.representation import TrainedRepresentation
from fscil_bench.spec import RepresentationSpec
from fscil_bench.store.caches import foreign
from fscil_bench.store.runs import Store
from fscil_bench.store.tensors import save_tensors
from fscil_bench.training.features import VIEWS, FeatureSource, check_views, stored_features

SIZE, KEY = 4, "0123456789abcdef"
PIXELS = np.random.default_rng(0).integers(0, 256, (5, SIZE, SIZE, 3)).astype(np.uint8)


class Flat(nn.Module):
    """The pixels themselves, so that a feature tells what was shown; counts its calls."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Flat.calls += 1
        return x.permute(0, 2, 3, 1).flatten(1) * 255


def source(tmp_path: Path) -> FeatureSource:
    store = Store(tmp_path / "r", tmp_path / "c")
    weights = store.representation_folder(KEY) / "weights.safetensors"
    save_tensors(weights, {"w": torch.zeros(1)}, {})
    spec = RepresentationSpec(
        name="flat",
        params={},
        seed=0,
        dataset="test",
        data_fingerprint="",
        base_classes=1,
        backbone="flat",
        pretraining="none",
        images=ImageSpec(size=SIZE, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
        recipe=Recipe(epochs=1),
        precision="fp32",
        code="",
        engine="",
    )
    trained = TrainedRepresentation(KEY, Flat(), torch.zeros(1, 1), 1.0)
    return FeatureSource(trained, spec, store, torch.device("cpu"), Silent())


def images() -> ImageArray:
    labels = np.zeros(len(PIXELS), dtype=np.int64)
    keys = tuple(map(str, range(len(PIXELS))))
    return ImageArray(Images.from_block(PIXELS), labels, np.arange(len(PIXELS)), keys)


def test_views_are_turned_or_averaged_with_the_mirror_image(tmp_path: Path) -> None:
    made, mirrored = source(tmp_path), PIXELS[:, :, ::-1].astype(float)
    for names, shown in (
        (("plain",), PIXELS),
        (("rot90",), np.rot90(PIXELS, 1, axes=(1, 2))),
        (("rot270",), np.rot90(PIXELS, 3, axes=(1, 2))),
        (("plain", "flip"), (PIXELS + mirrored) / 2),
    ):
        found = made.load_half(images(), "train", *names)
        assert np.allclose(found, shown.reshape(len(PIXELS), -1), atol=1e-3)


def test_features_are_computed_once_and_read_for_reports(tmp_path: Path) -> None:
    made = source(tmp_path)
    assert stored_features(made.store, KEY, 5, 5, "flip") is None
    first = [made.load_half(images(), half, "plain", "flip") for half in ("train", "test")]
    calls = Flat.calls
    assert np.array_equal(made.load_half(images(), "train", "plain", "flip"), first[0])
    assert Flat.calls == calls
    stored = stored_features(made.store, KEY, 5, 5, "flip")
    assert stored is not None and np.array_equal(stored.test, first[1])
    plain = stored_features(made.store, KEY, 5, 5)
    assert plain is not None and not np.array_equal(plain.test, first[1])


def stop_after(batches: int, made: FeatureSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the extraction of the training half when so many batches are done."""
    calls, plain = Flat.calls, Flat.forward

    def forward(self: Flat, x: torch.Tensor) -> torch.Tensor:
        if Flat.calls == calls + batches:
            raise KeyboardInterrupt
        return plain(self, x)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Flat, "forward", forward)
        made.load_half(images(), "train", "plain")


def test_a_stopped_extraction_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five images, two at once, four are kept when the third call is interrupted."""
    monkeypatch.setattr("fscil_bench.training.loop.EVALUATION_BATCH", 2)
    monkeypatch.setattr("fscil_bench.training.features.KEPT_EVERY", 0.0)
    whole = source(tmp_path / "whole").load_half(images(), "train", "plain")
    made = source(tmp_path)
    stop_after(2, made, monkeypatch)
    assert stored_features(made.store, KEY, 5, 5) is None
    kept = sorted((tmp_path / "c").rglob("part-*.safetensors"))
    assert [file.name for file in kept] == ["part-0.safetensors", "part-2.safetensors"]
    assert not list(foreign(tmp_path / "c")), "`data clear` knows them"

    calls = Flat.calls
    assert np.array_equal(made.load_half(images(), "train", "plain"), whole)
    assert Flat.calls == calls + 1
    assert not list((tmp_path / "c").rglob("part-*.safetensors"))


def test_a_damaged_part_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fscil_bench.training.loop.EVALUATION_BATCH", 2)
    monkeypatch.setattr("fscil_bench.training.features.KEPT_EVERY", 0.0)
    made = source(tmp_path)
    first = made.load_half(images(), "train", "plain")
    (folder,) = (tmp_path / "c" / "features").iterdir()
    parts = folder.rename(folder.with_name(folder.name + "-parts"))
    (parts / "part-0.safetensors").write_bytes(b"\x93NUMPY")
    assert np.array_equal(made.load_half(images(), "train", "plain"), first)


def test_parts_of_other_images_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where some features are known, parts hold those of the others; a later start knows none."""
    monkeypatch.setattr("fscil_bench.training.loop.EVALUATION_BATCH", 2)
    monkeypatch.setattr("fscil_bench.training.features.KEPT_EVERY", 0.0)
    whole = source(tmp_path / "whole").load_half(images(), "train", "plain")
    made = source(tmp_path)
    knowing = replace(made, known=(np.array([0, 2]), whole[[0, 2]]))
    assert np.array_equal(knowing.load_half(images(), "train", "plain"), whole)
    shutil.rmtree(tmp_path / "c")
    stop_after(1, knowing, monkeypatch)
    assert list((tmp_path / "c").rglob("part-0.safetensors"))
    assert np.array_equal(made.load_half(images(), "train", "plain"), whole)


def test_damaged_features_are_refused_with_what_to_do(tmp_path: Path) -> None:
    made = source(tmp_path)
    made.load_half(images(), "train", "plain")
    (file,) = (tmp_path / "c").rglob("features.npy")
    whole = np.load(file)
    whole[2, 7] += 1
    for content, problem in (
        (whole, "features.npy is not as it was written"),
        (np.zeros((3, 2)), "their number is not that of the images"),
    ):
        np.save(file, content)
        with pytest.raises(StoreError, match=f"damaged .{problem}.*remove the folder"):
            made.load_half(images(), "train", "plain")


def test_an_unknown_view_is_answered_with_the_nearest() -> None:
    check_views("method 'm'", tuple(VIEWS))
    with pytest.raises(UsageError, match="rot90"):
        check_views("method 'm'", ("rot09",))
