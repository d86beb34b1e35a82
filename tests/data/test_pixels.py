from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from fscil_bench.data.pixels import Images, ImageWriter, margin

RAGGED = ((12, 12), (13, 17), (30, 12), (12, 31), (19, 14), (12, 12))


def noise(shapes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (height, width, 3), np.uint8) for height, width in shapes]


def written(folder: Path, images: Sequence[np.ndarray]) -> Images:
    writer = ImageWriter(folder / "images")
    for image in images:
        writer.add(image)
    writer.close()
    return Images.open(folder / "images")


@pytest.mark.parametrize(
    "shapes", [RAGGED, ((8, 8),) * 5, ((9, 14),) * 3], ids=["ragged", "square", "one shape"]
)
def test_images_are_read_as_they_were_written(
    tmp_path: Path, shapes: tuple[tuple[int, int], ...]
) -> None:
    images = noise(shapes)
    stored = written(tmp_path, images)
    assert len(stored) == len(images)
    assert stored.shapes.tolist() == [list(shape) for shape in shapes]
    for number, image in enumerate(images):
        assert np.array_equal(stored[number], image)
    order = [3, 0, 2] if len(images) > 3 else [2, 0]
    for tensor, number in zip(stored.whole(order), order, strict=True):
        assert np.array_equal(tensor.numpy(), images[number])


def test_rows_that_are_not_contiguous_are_written_right_and_mapped_read_only(
    tmp_path: Path,
) -> None:
    (image,) = noise([(10, 20)])
    images = [image.transpose(1, 0, 2), image[:, ::2], image[::-1]]
    stored = written(tmp_path, images)
    for number, expected in enumerate(images):
        assert np.array_equal(stored[number], expected)
    assert isinstance(stored.flat, np.memmap)
    assert np.shares_memory(stored[2], stored.flat)
    with pytest.raises(ValueError, match="read-only"):
        stored[2][0, 0, 0] = 1


def test_no_images_at_all(tmp_path: Path) -> None:
    stored = written(tmp_path, [])
    assert len(stored) == 0
    assert stored.squares(np.array([], dtype=np.int64), 8).shape == (0, 8, 8, 3)
    assert stored.whole([]) == []


@pytest.mark.parametrize("shapes", [RAGGED, ((13, 18),) * 4], ids=["ragged", "one shape"])
@pytest.mark.parametrize("side", [12, 11, 8, 5, 1])
def test_squares_are_torchvisions_central_crops(
    tmp_path: Path, shapes: tuple[tuple[int, int], ...], side: int
) -> None:
    images = noise(shapes)
    indices = np.array([2, 0, 3, 3])
    squares = written(tmp_path, images).squares(indices, side)
    assert (squares.dtype, squares.shape) == (torch.uint8, (4, side, side, 3))
    crop = v2.CenterCrop(side)
    for square, index in zip(squares, indices, strict=True):
        expected = crop(torch.from_numpy(images[index]).permute(2, 0, 1)).permute(1, 2, 0)
        assert torch.equal(square, expected)


@pytest.mark.parametrize("length", range(5, 15))
def test_margins_round_as_torchvision_does(length: int) -> None:
    column = torch.arange(length).view(1, length, 1).expand(3, length, 5).to(torch.uint8)
    assert margin(length, 5) == int(v2.CenterCrop(5)(column)[0, 0, 0])


@pytest.mark.parametrize("shapes", [RAGGED, ((12, 12),) * 4], ids=["ragged", "one shape"])
def test_what_is_handed_out_is_a_copy(tmp_path: Path, shapes: tuple[tuple[int, int], ...]) -> None:
    images = noise(shapes)
    stored = written(tmp_path, images)
    stored.squares(np.array([0, 1]), 12).zero_()
    stored.whole([0, 1])[0].zero_()
    held = np.stack(noise([(12, 12)] * 2))
    block = Images.from_block(held.copy())
    block.squares(np.array([0, 1]), 12).zero_()
    assert np.array_equal(stored[0], images[0])
    assert [np.array_equal(block[n], held[n]) for n in range(len(block))] == [True, True]


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    written(tmp_path, noise(RAGGED))
    path = tmp_path / "images.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=f"images.bin has {len(whole) - 1} bytes instead of"):
        Images.open(tmp_path / "images")
    path.unlink()
    with pytest.raises(OSError, match=r"images\.bin"):
        Images.open(tmp_path / "images")
    (tmp_path / "images_shapes.npy").unlink()
    with pytest.raises(OSError, match=r"images_shapes\.npy"):
        Images.open(tmp_path / "images")
