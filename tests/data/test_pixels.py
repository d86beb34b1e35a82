from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from fscil_bench.data.pixels import Images, ImageWriter, margin
from fscil_bench.training.augment import RATIO, SCALE, central, resized_crops

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


def test_an_image_is_a_view_of_the_mapped_file_and_cannot_be_written(tmp_path: Path) -> None:
    stored = written(tmp_path, noise(RAGGED))
    assert isinstance(stored.flat, np.memmap)
    assert np.shares_memory(stored[2], stored.flat)
    with pytest.raises(ValueError, match="read-only"):
        stored[2][0, 0, 0] = 1


def test_rows_that_are_not_contiguous_are_written_right(tmp_path: Path) -> None:
    (image,) = noise([(10, 20)])
    turned = image.transpose(1, 0, 2)
    stored = written(tmp_path, [turned, image[:, ::2], image[::-1]])
    for number, expected in enumerate([turned, image[:, ::2], image[::-1]]):
        assert np.array_equal(stored[number], expected)


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
    block = Images.from_block(np.stack(noise([(12, 12)] * 2)))
    block.squares(np.array([0, 1]), 12).zero_()
    assert np.array_equal(stored[0], images[0])
    assert block[0].any()


def test_a_block_gives_its_images() -> None:
    block = np.stack(noise([(6, 9)] * 3))
    images = Images.from_block(block)
    assert len(images) == 3
    for number in range(3):
        assert np.array_equal(images[number], block[number])


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


def positions(height: int, width: int) -> torch.Tensor:
    """Return an image whose channels say row and column."""
    rows = torch.arange(height).view(height, 1).expand(height, width)
    columns = torch.arange(width).view(1, width).expand(height, width)
    return torch.stack([rows, columns, torch.zeros_like(rows)], dim=2).to(torch.uint8)


def windows(height: int, width: int, count: int = 2000) -> torch.Tensor:
    """Return top, left, height and width of drawn windows, float (count, 4), as pixels tell them.

    A window is read off the corners of the resized crop: the first and the last pixel of a
    smooth ramp say where it begins and ends.
    """
    size = 8
    crops = resized_crops(
        [positions(height, width)] * count, size, torch.Generator().manual_seed(0)
    ).float()
    step = (crops[:, -1, -1, :2] - crops[:, 0, 0, :2]) / (size - 1)
    first = crops[:, 0, 0, :2] + 0.5 - step / 2
    return torch.cat([first, step * size], dim=1)


def test_windows_have_torchvisions_areas_and_ratios() -> None:
    found = windows(200, 240)
    top, left, height, width = found.T
    assert (top > -2).all()
    assert (left > -2).all()
    assert (top + height < 202).all()
    assert (left + width < 242).all()
    area = height * width / (200 * 240)
    assert SCALE[0] - 0.02 < float(area.min()) < 0.1
    assert 0.8 < float(area.max()) <= SCALE[1] + 0.02
    torch.manual_seed(0)
    image = positions(200, 240).permute(2, 0, 1)
    params = [v2.RandomResizedCrop(8).make_params([image]) for _ in range(2000)]
    theirs = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in params])
    theirs = theirs.float()
    for quantile in (0.1, 0.5, 0.9):
        ours_now = torch.quantile(area, quantile)
        theirs_now = torch.quantile(theirs[:, 2] * theirs[:, 3] / (200 * 240), quantile)
        assert abs(float(ours_now - theirs_now)) < 0.05
        ours_now = torch.quantile((width / height).log(), quantile)
        theirs_now = torch.quantile((theirs[:, 3] / theirs[:, 2]).log(), quantile)
        assert abs(float(ours_now - theirs_now)) < 0.05
    assert float((width / height).max()) < RATIO[1] * 1.1
    assert float((width / height).min()) > RATIO[0] / 1.1


def test_a_window_is_resized_as_torchvision_resizes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    place = (3, 5, 14, 20)
    monkeypatch.setattr("fscil_bench.training.augment._window", lambda *_: place)
    images = [torch.from_numpy(image) for image in noise([(30, 40), (25, 33)])]
    for size in (8, 14, 32):
        crops = resized_crops(images, size, torch.Generator())
        for image, crop in zip(images, crops, strict=True):
            expected = tv.resized_crop(image.permute(2, 0, 1), *place, [size, size], antialias=True)
            assert torch.equal(crop.permute(2, 0, 1), expected)


def test_an_image_of_extreme_shape_gives_its_largest_central_window() -> None:
    for shape in ((8, 250), (250, 8)):
        crop = resized_crops([positions(*shape)], 8, torch.Generator().manual_seed(0))[0]
        long = 1 if shape[1] > shape[0] else 0
        middle = crop[:, :, long].float().mean()
        assert abs(float(middle) - 124.5) < 1.5, "the middle of the long side"
        assert 8 <= float(crop[-1, -1, long]) - float(crop[0, 0, long]) + 1 <= 11


def test_draws_belong_to_images_one_by_one_and_to_the_generator() -> None:
    images = [torch.from_numpy(image) for image in noise([(40, 50)] * 6)]

    def crops(seed: int) -> torch.Tensor:
        return resized_crops(images, 16, torch.Generator().manual_seed(seed))

    state = torch.get_rng_state()
    assert torch.equal(crops(1), crops(1))
    assert not torch.equal(crops(1), crops(2))
    same = resized_crops([images[0]] * 6, 16, torch.Generator().manual_seed(1))
    assert not torch.equal(same[0], same[1]), "each image has its own window"
    assert torch.equal(state, torch.get_rng_state())
    assert (crops(1).dtype, crops(1).shape) == (torch.uint8, (6, 16, 16, 3))


def test_central_squares_of_a_batch_are_the_stored_squares(tmp_path: Path) -> None:
    images = noise([(14, 19)] * 3)
    batch = torch.from_numpy(np.stack(images))
    stored = written(tmp_path, images).squares(np.arange(3), 9)
    assert torch.equal(central(batch, 9), stored)
